"""A ledger, and a gate, that keep to a portion of a backend which other workers use too."""

from __future__ import annotations

from math import inf

import anyio
import pytest

from furcate.admission import AdmissionStatistics, Gate, Ledger, Need, Portion


def _asked(ledger: Ledger[str], names: str, *, tokens: float = 0, now_s: float = 0.0) -> list[str]:
    return [name for asked in names for name in ledger.ask(asked, tokens=tokens, now_s=now_s)]


def test_nobody_is_let_in_before_the_first_portion() -> None:
    """From joining on all wait; the portion's places are given in the order of asking."""
    ledger: Ledger[str] = Ledger(10)
    assert ledger.obey(Portion.nothing()) == ()
    assert _asked(ledger, "abc") == []
    assert ledger.next_up() is None
    assert ledger.need(0) == Need(waiting=3)
    assert ledger.obey(Portion(number=4, places=2)) == ("a", "b")
    assert ledger.need(0) == Need(obeyed=4, in_use=2, waiting=1, requests=2)
    assert ledger.statistics() == AdmissionStatistics(capacity=10, in_use=2, waiting=1, limit=2)


def test_whoever_holds_a_place_keeps_it_when_the_portion_shrinks() -> None:
    """Those above the portion end first; only then may the next one come in."""
    ledger: Ledger[str] = Ledger(10)
    ledger.obey(Portion(number=1, places=3))
    assert _asked(ledger, "abcd") == ["a", "b", "c"]
    assert ledger.obey(Portion(number=2, places=1)) == ()
    assert ledger.need(0) == Need(obeyed=2, in_use=3, waiting=1, requests=3)
    assert [ledger.release(ticket) for ticket in "abc"] == [(), (), ("d",)]
    assert ledger.obey(Portion(number=3, places=0)) == ()
    assert ledger.limit == 0


def test_a_portion_that_was_given_before_the_one_obeyed_changes_nothing() -> None:
    """Told twice or late, it is not gone back to; number 0 begins anew."""
    ledger: Ledger[str] = Ledger(10)
    ledger.obey(Portion(number=5, places=1))
    assert _asked(ledger, "ab") == ["a"]
    assert ledger.obey(Portion(number=5, places=9)) == ()
    assert ledger.obey(Portion(number=4, places=9)) == ()
    assert ledger.need(0).obeyed == 5
    ledger.obey(Portion.nothing())
    assert ledger.need(0) == Need(in_use=1, waiting=1)
    assert ledger.obey(Portion(number=2, places=2)) == ("b",)


def test_a_purse_lets_begin_what_it_was_given_and_waiting_adds_nothing() -> None:
    """Requests are counted since the worker joined, and only another portion brings more."""
    ledger: Ledger[str] = Ledger(10, requests_per_minute=60)
    ledger.obey(Portion.nothing())
    ledger.obey(Portion(number=1, places=9, requests=2))
    assert _asked(ledger, "abc") == ["a", "b"]
    assert ledger.next_up() == ("c", inf)
    assert ledger.standing.short
    assert ledger.grant(1e6) == ()
    assert ledger.statistics(now_s=1e6).requests_left == 0
    assert ledger.obey(Portion(number=2, places=9, requests=3), now_s=1e6) == ("c",)
    assert ledger.need(1e6).requests == 3


def test_tokens_that_were_not_used_are_told_and_not_used_again_here() -> None:
    """The driver knows whether the allowance of all is full meanwhile; tokens beyond the estimate count at once."""
    ledger: Ledger[str] = Ledger(10, tokens_per_minute=600)
    ledger.obey(Portion(number=1, places=9, tokens=250))
    assert _asked(ledger, "abcd", tokens=100) == ["a", "b"]
    assert ledger.correct("a", 30) == ()
    assert ledger.correct("b", 120) == ()
    assert ledger.need(0) == Need(
        obeyed=1,
        in_use=2,
        waiting=2,
        requests=2,
        tokens=220,
        tokens_returned=70,
        tokens_next=100,
        tokens_waiting=210,
    )
    assert ledger.obey(Portion(number=2, places=9, tokens=320)) == ("c",)


def test_a_request_larger_than_the_whole_allowance_needs_the_whole() -> None:
    """Nobody can be given more."""
    ledger: Ledger[str] = Ledger(10, tokens_per_minute=600)
    ledger.obey(Portion(number=1, places=9, tokens=599))
    assert _asked(ledger, "a", tokens=5000) == []
    assert ledger.obey(Portion(number=2, places=9, tokens=600)) == ("a",)
    assert ledger.need(0).tokens == 5000


def test_a_place_that_was_not_used_costs_nothing_of_the_purse() -> None:
    """A request that was cancelled as it was let in was never sent."""
    ledger: Ledger[str] = Ledger(10, requests_per_minute=60, tokens_per_minute=600)
    ledger.obey(Portion(number=1, places=9, requests=1, tokens=50))
    assert _asked(ledger, "a", tokens=50) == ["a"]
    assert _asked(ledger, "b", tokens=50) == []
    assert ledger.withdraw("a") == ("b",)
    assert (ledger.need(0).requests, ledger.need(0).tokens) == (1, 50)


def test_a_repair_goes_out_at_once_and_is_told() -> None:
    """The purse falls below nothing, and the driver hears by how much."""
    ledger: Ledger[str] = Ledger(10, requests_per_minute=60)
    ledger.obey(Portion(number=1, places=9, requests=1))
    _asked(ledger, "a")
    ledger.begin_again("a")
    assert ledger.need(0).requests == 2
    assert ledger.statistics().requests_left == -1


def test_only_the_servers_own_hint_is_told_on() -> None:
    """A pause that came with a portion would else go round for ever, a little longer each time."""
    ledger: Ledger[str] = Ledger(10)
    ledger.obey(Portion(number=1, places=9, paused_s=10), now_s=5)
    assert _asked(ledger, "a", now_s=6) == []
    assert ledger.next_up() == ("a", 15)
    need = ledger.need(6)
    assert (need.paused_s, need.pauses) == (0, 0)
    assert not ledger.pause(12)
    assert ledger.pause(20)
    need = ledger.need(8)
    assert (need.paused_s, need.pauses) == (12, 1)
    ledger.rebase(1000)
    assert ledger.need(1000).paused_s == 12


def test_asked_too_much_a_worker_halves_what_it_could_use() -> None:
    """The limit of the whole backend was never reached here, so half of it would change nothing."""
    ledger: Ledger[str] = Ledger(100)
    ledger.obey(Portion(number=1, places=8))
    _asked(ledger, "abcdefgh")
    ledger.throttled("a")
    assert ledger.limit == 4
    ledger.obey(Portion(number=2, places=2))
    assert ledger.limit == 2


def test_what_was_begun_before_joining_is_counted_where_it_comes_to_be_known() -> None:
    """Its estimate stands on nobody's account, so it cannot come back to one."""
    ledger: Ledger[str] = Ledger(10, tokens_per_minute=600)
    _asked(ledger, "a", tokens=100)
    ledger.obey(Portion.nothing())
    ledger.correct("a", 80)
    need = ledger.need(0)
    assert (need.in_use, need.tokens, need.tokens_returned) == (1, 80, 0)


def test_after_the_sharing_all_places_are_there_and_the_allowance_fills_up() -> None:
    """The others may have used all of it; a gate that never shared is left as it was."""
    ledger: Ledger[str] = Ledger(3, requests_per_minute=60)
    assert ledger.obey(None, now_s=0) == ()
    assert ledger.statistics(now_s=0).requests_left == 60
    ledger.obey(Portion.nothing(), now_s=0)
    assert _asked(ledger, "ab", now_s=1) == []
    assert ledger.obey(None, now_s=2) == ()
    assert ledger.next_up() == ("a", 3)
    assert ledger.grant(4) == ("a", "b")
    assert ledger.need(4) == Need(in_use=2)


@pytest.mark.virtual_time
async def test_a_gate_wakes_those_for_whom_a_portion_has_places() -> None:
    """Three wait; one comes in by the first portion, the others by the second."""
    gate = Gate(10)
    gate.obey(Portion.nothing())
    inside: list[int] = []

    async def visit(number: int) -> None:
        async with gate.lease():
            inside.append(number)
            await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(visit, number)
            await anyio.wait_all_tasks_blocked()
        assert inside == []
        gate.obey(Portion(number=1, places=1))
        await anyio.wait_all_tasks_blocked()
        assert inside == [0]
        assert gate.need() == Need(obeyed=1, in_use=1, waiting=2, requests=1)
        gate.obey(Portion(number=2, places=3))
        await anyio.wait_all_tasks_blocked()
        assert sorted(inside) == [0, 1, 2]
    assert gate.need() == Need(obeyed=2, requests=3)


@pytest.mark.virtual_time
async def test_a_pause_by_portion_ends_by_itself() -> None:
    """Whoever is first keeps an eye on the clock, as for a pause of the gate's own server."""
    gate = Gate(10)
    gate.obey(Portion(number=1, places=1, paused_s=30))
    began_s = anyio.current_time()
    async with gate.lease() as lease:
        assert anyio.current_time() - began_s == pytest.approx(30)
        assert lease.waited_s == pytest.approx(30)


@pytest.mark.virtual_time
async def test_the_owner_hears_at_once_of_what_others_should_not_wait_for() -> None:
    """The first that waits, a place above the portion that comes back, a hint, the end of work: once each."""
    gate = Gate(10, requests_per_minute=60)
    heard: list[Need] = []
    gate.obey(Portion(number=1, places=2, requests=9))
    gate.watch(lambda: heard.append(gate.need()))

    async def visit(done: anyio.Event) -> None:
        async with gate.lease():
            await done.wait()

    done = [anyio.Event() for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for event in done:
            tasks.start_soon(visit, event)
            await anyio.wait_all_tasks_blocked()
        assert [(need.in_use, need.waiting) for need in heard] == [(2, 1)]
        gate.obey(Portion(number=2, places=0, requests=2))
        done[0].set()
        await anyio.wait_all_tasks_blocked()
        assert [(need.obeyed, need.in_use) for need in heard[1:]] == [(2, 1)]
        gate.pause(anyio.current_time() + 5)
        gate.pause(anyio.current_time() + 1)
        assert [(need.paused_s, need.pauses) for need in heard[2:]] == [(5, 1)]
        gate.obey(Portion(number=3, places=2, requests=2))
        assert [need.obeyed for need in heard[3:]] == [3]  # places, but nothing to begin with
        gate.obey(Portion(number=4, places=2, requests=9))
        for event in done[1:]:
            event.set()
    assert [(need.in_use, need.waiting) for need in heard[4:]] == [(0, 0)]
    gate.watch(None)
    async with gate.lease():
        pass
    assert len(heard) == 5
