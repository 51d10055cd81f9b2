"""What holds a queue up although places are free: a pause, a lowered limit, a used-up allowance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import AdmissionStatistics, Ledger


def test_nobody_is_let_in_during_a_pause() -> None:
    """Those who ask queue up, returning ones ahead, and come in when it is over, in that order."""
    ledger: Ledger[str] = Ledger(2)
    assert ledger.pause(10)
    assert ledger.ask("a", now_s=1) == ()
    assert ledger.ask("b", front=True, now_s=2) == ()
    assert ledger.ask("c", now_s=3) == ()
    assert ledger.next_up() == ("b", 10)
    assert ledger.statistics(now_s=4) == AdmissionStatistics(capacity=2, in_use=0, waiting=3, paused_s=6)
    assert ledger.grant(9.9) == ()
    assert ledger.grant(10) == ("b", "a")
    assert ledger.next_up() is None


def test_a_shorter_pause_does_not_shorten_a_longer_one() -> None:
    """The latest moment that was asked for holds."""
    ledger: Ledger[str] = Ledger(1)
    assert ledger.pause(10)
    assert not ledger.pause(5)
    assert not ledger.pause(10)
    assert ledger.ask("a", now_s=6) == ()
    assert ledger.pause(12)
    assert ledger.grant(11) == ()
    assert ledger.grant(12) == ("a",)


def test_whoever_holds_a_place_keeps_it_during_a_pause() -> None:
    """A pause takes nothing away, and a place that comes back meanwhile stays free."""
    ledger: Ledger[str] = Ledger(1)
    ledger.ask("a")
    ledger.ask("b")
    ledger.pause(10)
    assert ledger.release("a", now_s=1) == ()
    assert ledger.statistics(now_s=1).in_use == 0
    assert ledger.grant(10) == ("b",)


def test_a_lowered_limit_lets_in_fewer() -> None:
    """Four hold a place when the limit halves: two must leave before a third may come."""
    ledger: Ledger[str] = Ledger(4)
    for ticket in "abcd":
        ledger.ask(ticket)
    ledger.ask("next")
    ledger.throttled("a")
    ledger.throttled("b")
    assert ledger.statistics() == AdmissionStatistics(capacity=4, in_use=4, waiting=1, limit=2)
    assert [ledger.release(ticket) for ticket in "abc"] == [(), (), ("next",)]


def test_a_raised_limit_lets_in_at_once() -> None:
    """The success that earns a place back lets the next one in."""
    ledger: Ledger[str] = Ledger(2)
    ledger.ask("a")
    ledger.throttled("a")
    ledger.release("a")
    ledger.ask("b")
    assert ledger.ask("c") == ()
    assert ledger.succeeded("b") == ("c",)


def test_a_fixed_limit_stays() -> None:
    """Without adaptation the capacity is the limit, whatever a server says."""
    ledger: Ledger[str] = Ledger(4, adaptive=False)
    ledger.ask("a")
    ledger.throttled("a")
    assert ledger.statistics().limit == 4


def test_requests_of_a_minute_are_bounded() -> None:
    """Six may begin at once; after that one every ten seconds, in the order of asking."""
    ledger: Ledger[int] = Ledger(100, requests_per_minute=6)
    granted = [ledger.ask(number, now_s=0) for number in range(8)]
    assert granted == [(number,) for number in range(6)] + [(), ()]
    assert ledger.next_up() == (6, 10)
    assert ledger.grant(10) == (6,)
    assert ledger.grant(19) == ()
    assert ledger.grant(20) == (7,)


def test_a_small_request_does_not_overtake_a_large_one() -> None:
    """Who finds no tokens waits without a place, and whoever comes later waits behind."""
    ledger: Ledger[str] = Ledger(10, tokens_per_minute=600)
    assert ledger.ask("first", tokens=500, now_s=0) == ("first",)
    assert ledger.ask("large", tokens=400, now_s=0) == ()
    assert ledger.ask("small", tokens=1, now_s=0) == ()
    assert ledger.statistics(now_s=0).in_use == 1
    assert ledger.next_up() == ("large", 30)
    assert ledger.withdraw("large", now_s=1) == ("small",)


def test_an_estimate_is_corrected_by_what_was_used() -> None:
    """What was estimated too high lets the next one in; what was estimated too low holds later ones up."""
    ledger: Ledger[str] = Ledger(10, tokens_per_minute=600)
    ledger.ask("a", tokens=600, now_s=0)
    assert ledger.ask("b", tokens=300, now_s=0) == ()
    assert ledger.correct("a", 200, now_s=0) == ("b",)
    ledger.correct("b", 700, now_s=0)
    assert ledger.statistics(now_s=0).tokens_left == -300


def test_a_place_that_was_not_used_costs_nothing() -> None:
    """A request that was cancelled as it was let in leaves the allowances as they were."""
    ledger: Ledger[str] = Ledger(10, requests_per_minute=5, tokens_per_minute=600)
    ledger.ask("a", tokens=400, now_s=0)
    ledger.withdraw("a", now_s=0)
    statistics = ledger.statistics(now_s=0)
    assert (statistics.requests_left, statistics.tokens_left) == (5, 600)


def test_a_further_request_on_a_place_is_charged_at_once() -> None:
    """A repair does not wait, so that the allowances may fall below nothing."""
    ledger: Ledger[str] = Ledger(10, requests_per_minute=1, tokens_per_minute=100)
    ledger.ask("a", tokens=80, now_s=0)
    ledger.begin_again("a", tokens=90)
    statistics = ledger.statistics(now_s=0)
    assert (statistics.requests_left, statistics.tokens_left) == (-1, -70)
    ledger.correct("a", 20)
    assert ledger.statistics(now_s=0).tokens_left == 0


def test_another_clock_changes_no_wait() -> None:
    """What was left to wait for at the latest moment of one loop's clock is still left on another's."""
    ledger: Ledger[str] = Ledger(1, requests_per_minute=1)
    ledger.rebase(1000)
    ledger.ask("a", now_s=1000)
    ledger.release("a", now_s=1000)
    ledger.pause(1020)
    ledger.rebase(5)
    assert ledger.statistics(now_s=5).paused_s == 20
    assert ledger.ask("b", now_s=5) == ()
    assert ledger.next_up() == ("b", 65)


def test_misuse_of_a_place_is_told() -> None:
    """Who holds no place can neither end well nor badly on one."""
    ledger: Ledger[str] = Ledger(1)
    for use in (ledger.succeeded, ledger.throttled, ledger.begin_again, lambda ticket: ledger.correct(ticket, 1)):
        with pytest.raises(ValueError, match="ticket 'x' holds no place"):
            use("x")


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute"])
def test_a_wrong_allowance_is_refused(name: str) -> None:
    """An allowance of nothing would let nobody in."""
    with pytest.raises(ValueError, match=f"{name} is 0; give 1 or more"):
        Ledger(1, **{name: 0})


_MOVES = ("ask", "come_back", "release", "withdraw", "throttled", "succeeded", "correct", "pause", "wait")

MOVES = st.lists(
    st.tuples(
        st.sampled_from(("ask", "ask", "ask", *_MOVES)),
        st.integers(0, 30),
    )
)


class _Crowd:
    """Move tickets about in a ledger, and look at each step whether it keeps its promises."""

    def __init__(self, ledger: Ledger[int], capacity: int) -> None:
        self.ledger = ledger
        self.capacity = capacity
        self.holders: list[int] = []
        self.returning: list[int] = []
        self.arriving: list[int] = []
        self.asked = 0
        self.now_s = self.paused_until_s = 0.0

    def take(self, granted: tuple[int, ...]) -> None:
        for ticket in granted:
            queue = self.returning or self.arriving
            assert queue.pop(0) == ticket, "the first of the queue is the first in"
            assert self.now_s >= self.paused_until_s
            self.holders.append(ticket)
        assert len(self.holders) <= self.capacity
        assert not granted or len(self.holders) <= self.ledger.statistics(now_s=self.now_s).limit

    def ask(self, number: int, *, front: bool = False) -> None:
        self.asked += 1
        (self.returning if front else self.arriving).append(self.asked)
        self.take(self.ledger.ask(self.asked, front=front, tokens=4 * number, now_s=self.now_s))

    def come_back(self, number: int) -> None:
        self.ask(number, front=True)

    def pause(self, number: int) -> None:
        self.paused_until_s = max(self.paused_until_s, self.now_s + number)
        self.ledger.pause(self.now_s + number)

    def wait(self, number: float) -> None:
        self.now_s += number
        self.take(self.ledger.grant(self.now_s))

    def withdraw(self, number: int) -> None:
        if known := self.holders + self.returning + self.arriving:
            leaving = known[number % len(known)]
            next(one for one in (self.holders, self.returning, self.arriving) if leaving in one).remove(leaving)
            self.take(self.ledger.withdraw(leaving, now_s=self.now_s))

    def release(self, number: int) -> None:
        if self.holders:
            ticket = self.holders.pop(number % len(self.holders))
            self.take(self.ledger.release(ticket, now_s=self.now_s))

    def throttled(self, number: int) -> None:
        if self.holders:
            self.ledger.throttled(self.holders[number % len(self.holders)])

    def succeeded(self, number: int) -> None:
        if self.holders:
            self.take(self.ledger.succeeded(self.holders[number % len(self.holders)], now_s=self.now_s))

    def correct(self, number: int) -> None:
        if self.holders:
            self.take(self.ledger.correct(self.holders[number % len(self.holders)], 5 * number, now_s=self.now_s))


@given(st.integers(1, 4), st.none() | st.integers(1, 20), st.none() | st.integers(1, 100), MOVES)
def test_nobody_is_forgotten_or_overtaken(
    capacity: int, requests: int | None, tokens: int | None, moves: list[tuple[str, int]]
) -> None:
    """Whatever happens: order kept, bounds kept, and whoever keeps the time lets everybody in in the end."""
    ledger: Ledger[int] = Ledger(capacity, requests_per_minute=requests, tokens_per_minute=tokens)
    crowd = _Crowd(ledger, capacity)
    for move, number in moves:
        getattr(crowd, move)(number)
    # From here on only the clock runs and places come back: the moments that are named must be enough.
    while crowd.returning or crowd.arriving:
        while crowd.holders:
            crowd.release(0)
        following = ledger.next_up()
        if following is not None:
            crowd.wait(max(0.0, following[1] - crowd.now_s))
            assert crowd.holders
