"""The shares of one backend that a driver hands out to workers."""

from __future__ import annotations

from math import inf

import pytest

from furcate.admission import Need, Portion, ShareOut


def _say(share: ShareOut, worker: str, need: Need, now_s: float = 0.0) -> None:
    share.report(worker, need, now_s=now_s)


def _places(share: ShareOut, now_s: float = 0.0) -> dict[str, int]:
    return {worker: portion.places for worker, portion in share.portions(now_s=now_s).items()}


def _joined(share: ShareOut, *workers: str, waiting: int) -> dict[str, Portion]:
    """Let workers join of which each has as much to do."""
    for worker in workers:
        share.join(worker)
        share.report(worker, Need(waiting=waiting), now_s=0)
    return share.portions(now_s=0)


def test_one_worker_gets_what_it_needs_and_something_to_begin_with() -> None:
    """Most of what nobody needs is left with the driver, for whoever needs it next."""
    share = ShareOut(100)
    portions = _joined(share, "a", waiting=20)
    assert portions == {"a": Portion(number=1, places=40)}
    assert share.portions(now_s=1) == {}
    assert share.taken == 40


def test_who_needs_little_gets_that_and_the_others_share_the_rest_evenly() -> None:
    """Ten places: two for the one that needs two, four each for those that need many."""
    share = ShareOut(10)
    for worker, waiting in (("a", 50), ("b", 2), ("c", 50)):
        share.join(worker)
        _say(share, worker, Need(waiting=waiting))
    assert _places(share) == {"a": 4, "b": 2, "c": 4}


def test_a_place_is_taken_until_its_worker_has_given_it_up() -> None:
    """A smaller portion frees nothing when it is told, nor when it is heard, but when what it forbids has ended."""
    share = ShareOut(4)
    _joined(share, "a", waiting=9)
    _say(share, "a", Need(obeyed=1, in_use=4, waiting=5, requests=4))
    share.join("b")
    _say(share, "b", Need(waiting=9))
    told = share.portions(now_s=1)
    assert told == {"a": Portion(number=2, places=2), "b": Portion(number=3, places=0)}
    _say(share, "a", Need(obeyed=1, in_use=1, waiting=8, requests=9), now_s=2)
    assert share.portions(now_s=2) == {}  # it may not have heard, and begin three more
    _say(share, "a", Need(obeyed=2, in_use=3, waiting=5, requests=9), now_s=3)
    assert _places(share, 3) == {"b": 1}
    _say(share, "a", Need(obeyed=2, in_use=1, waiting=5, requests=9), now_s=4)
    assert _places(share, 4) == {"b": 2}
    assert share.taken == 4


def test_a_dead_workers_places_are_free_after_the_grace() -> None:
    """Its server may be busy for a while with what nobody waits for any more."""
    share = ShareOut(4)
    _joined(share, "a", waiting=9)
    _say(share, "a", Need(obeyed=1, in_use=3, waiting=0, requests=3))
    share.join("b")
    _say(share, "b", Need(waiting=9))
    share.leave("a", now_s=1, grace_s=5)
    assert share.workers == ("b",)
    assert _places(share, 1) == {"b": 0}
    assert share.next_up(1) == 6
    assert _places(share, 5.9) == {}
    assert _places(share, 6) == {"b": 4}


def test_a_name_may_be_used_again_and_old_words_are_not_heard() -> None:
    """What the dead worker of that name said last is neither the new one's need, nor its leave to begin."""
    share = ShareOut(4)
    _joined(share, "a", waiting=9)
    share.leave("a", now_s=0, grace_s=5)
    share.join("a")
    _say(share, "a", Need(obeyed=1, in_use=0, waiting=9))
    assert share.taken == 4
    assert _places(share, 0) == {"a": 0}
    _say(share, "a", Need(waiting=1))
    assert _places(share, 5) == {"a": 1}


def test_places_go_round_where_workers_are_more_than_places() -> None:
    """Two places and five workers: each has a turn, and nobody a second one before all had their first."""
    share = ShareOut(2, turn_s=1.0)
    needs = dict.fromkeys("abcde", Need(waiting=99))
    for worker, need in needs.items():
        share.join(worker)
        _say(share, worker, need)
    turns: list[str] = []
    for moment in range(10):
        # Each round trip takes no time here: a portion is obeyed, whoever has none ends, and the driver hears it.
        while portions := share.portions(now_s=float(moment)):
            for worker, portion in portions.items():
                turns += [worker] * (portion.places > 0)
                begun = needs[worker].requests + portion.places
                needs[worker] = Need(obeyed=portion.number, in_use=portion.places, waiting=99, requests=begun)
                _say(share, worker, needs[worker], float(moment))
    assert len(turns) == 20
    assert [sorted(turns[start : start + 5]) for start in (0, 5, 10, 15)] == [list("abcde")] * 4


def test_an_idle_worker_keeps_its_places_for_a_moment_and_not_while_others_wait() -> None:
    """Between two requests nothing is taken back, as long as nobody else has a use for it."""
    share = ShareOut(10, calm_s=1.0)
    _joined(share, "a", waiting=10)
    _say(share, "a", Need(obeyed=1, requests=10), now_s=1)
    assert _places(share, 1) == {}
    assert share.next_up(1) == 2
    assert _places(share, 2) == {"a": 2}
    share.join("b")
    _say(share, "b", Need(waiting=50), now_s=2.1)
    assert _places(share, 2.1) == {"a": 0, "b": 0}
    _say(share, "a", Need(obeyed=2, requests=10), now_s=2.2)
    assert _places(share, 2.2) == {"b": 8}
    _say(share, "a", Need(obeyed=3, requests=10), now_s=2.3)
    assert _places(share, 2.3) == {"b": 10}


def test_small_swings_move_nothing() -> None:
    """Of eighty places, a few that are not used for an instant stay, and go once that lasts."""
    share = ShareOut(100, calm_s=1.0)
    _joined(share, "a", "b", waiting=500)
    for worker, number in (("a", 1), ("b", 2)):
        _say(share, worker, Need(obeyed=number, in_use=50, waiting=450, requests=50))
    _say(share, "a", Need(obeyed=1, in_use=46, waiting=0, requests=500), now_s=1)
    assert _places(share, 1) == {}
    _say(share, "a", Need(obeyed=1, in_use=50, waiting=9, requests=600), now_s=1.5)
    assert _places(share, 1.5) == {}
    _say(share, "a", Need(obeyed=1, in_use=46, waiting=0, requests=700), now_s=3)
    assert _places(share, 3) == {}
    assert _places(share, 4) == {"a": 46}


def test_a_pause_that_one_was_told_is_handed_to_all() -> None:
    """Once for each hint, however often it is told; a worker that joins meanwhile hears of what is left of it."""
    share = ShareOut(10)
    _joined(share, "a", "b", waiting=2)
    _say(share, "a", Need(obeyed=1, waiting=2, paused_s=10, pauses=1), now_s=1)
    told = share.portions(now_s=1)
    assert {worker: portion.paused_s for worker, portion in told.items()} == {"a": 10, "b": 10}
    _say(share, "a", Need(obeyed=told["a"].number, waiting=2, paused_s=9.5, pauses=1), now_s=2)
    _say(share, "b", Need(obeyed=told["b"].number, waiting=2), now_s=2)
    assert share.portions(now_s=2) == {}
    share.join("c")
    assert share.portions(now_s=5)["c"].paused_s == 6


def test_requests_of_a_minute_are_handed_out_evenly() -> None:
    """Sixty a minute are thirty for each of two, and then one a second, to whoever has begun nothing for longest."""
    share = ShareOut(1000, requests_per_minute=60)
    portions = _joined(share, "a", "b", waiting=100)
    assert {worker: portion.requests for worker, portion in portions.items()} == {"a": 30, "b": 30}
    assert share.portions(now_s=30) == {}  # what is not used fills nothing up
    for worker, portion in portions.items():
        _say(share, worker, Need(obeyed=portion.number, in_use=30, waiting=70, requests=30), now_s=60)
    assert share.portions(now_s=60) == {}
    assert share.next_up(60) == 61
    assert {worker: portion.requests for worker, portion in share.portions(now_s=61).items()} == {"a": 31}
    assert {worker: portion.requests for worker, portion in share.portions(now_s=62).items()} == {"b": 31}


def test_what_an_idle_worker_was_given_is_taken_back_when_another_lacks_it() -> None:
    """It is given to the other once the first has said that it keeps to less."""
    share = ShareOut(1000, requests_per_minute=60)
    portions = _joined(share, "a", "b", waiting=100)
    _say(share, "a", Need(obeyed=portions["a"].number, requests=10), now_s=0)
    need = Need(obeyed=portions["b"].number, in_use=30, waiting=70, requests=30)
    _say(share, "b", need, now_s=0)
    back = share.portions(now_s=0)
    assert back["a"].requests == 29
    assert "b" not in back or back["b"].requests == 30
    _say(share, "a", Need(obeyed=back["a"].number, requests=10), now_s=0)
    assert share.portions(now_s=0)["b"].requests == 31


def test_what_a_dead_worker_may_have_begun_counts_as_begun() -> None:
    """Nobody knows how much of what it had been given it used after its last word."""
    share = ShareOut(1000, requests_per_minute=60)
    portions = _joined(share, "a", "b", waiting=100)
    _say(share, "a", Need(obeyed=portions["a"].number, in_use=5, waiting=95, requests=5), now_s=0)
    _say(share, "b", Need(obeyed=portions["b"].number, in_use=30, waiting=70, requests=30), now_s=0)
    share.leave("a", now_s=0, grace_s=0)
    # 60 were handed out; those of the dead worker fill up as if it had begun all of them.
    assert share.portions(now_s=0.5) == {}
    assert share.next_up(0.5) == pytest.approx(1)
    assert share.portions(now_s=1)["b"].requests == 31


def test_tokens_go_to_whole_requests() -> None:
    """What does not suffice for the first of those that wait is of no use to it: another has it meanwhile."""
    share = ShareOut(100, tokens_per_minute=600)
    for worker in "ab":
        share.join(worker)
        _say(share, worker, Need(waiting=1, tokens_next=500, tokens_waiting=500))
    first = share.portions(now_s=0)
    assert {worker: portion.tokens for worker, portion in first.items()} == {"a": 500, "b": 0}
    assert share.next_up(0) == pytest.approx(40)  # unless the first one says that it used less
    _say(share, "a", Need(obeyed=1, in_use=1, requests=1, tokens=500), now_s=0)
    _say(share, "a", Need(obeyed=1, requests=1, tokens=500, tokens_returned=400), now_s=1)
    assert share.portions(now_s=1)["b"].tokens == 500


def test_nothing_changes_while_nobody_says_anything() -> None:
    """Without anything to wait for there is no moment to look again."""
    share = ShareOut(10)
    _joined(share, "a", waiting=3)
    assert share.next_up(0) == inf
    _say(share, "a", Need(waiting=3))
    assert share.next_up(0) == inf
    assert share.portions(now_s=100) == {}


def test_misuse_is_told() -> None:
    """Joining twice, leaving twice, obeying what nobody said, and limits that are none."""
    share = ShareOut(10)
    share.join("a")
    with pytest.raises(ValueError, match="worker 'a' has joined already"):
        share.join("a")
    with pytest.raises(ValueError, match="worker 'b' has not joined, or has left already"):
        share.leave("b", now_s=0)
    with pytest.raises(ValueError, match="worker 'a' obeys portion 7, but the latest given was 0"):
        share.report("a", Need(obeyed=7), now_s=0)
    with pytest.raises(ValueError, match="capacity is 0; give 1 or more"):
        ShareOut(0)
    with pytest.raises(TypeError, match=r"requests_per_minute is 1.5; give a whole number"):
        ShareOut(1, requests_per_minute=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="turn_s is -1; give 0 seconds or more"):
        ShareOut(1, turn_s=-1)


def test_words_of_a_worker_that_left_are_ignored() -> None:
    """They may have been on their way."""
    share = ShareOut(10)
    share.report("a", Need(waiting=3), now_s=0)
    assert share.portions(now_s=0) == {}
