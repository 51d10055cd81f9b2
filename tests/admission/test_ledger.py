"""The ledger's decisions, against a plain model of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import AdmissionStatistics, Ledger


def test_places_go_in_the_order_of_asking() -> None:
    """Whoever asked first is granted first, one for each place that comes back."""
    ledger: Ledger[str] = Ledger(2)
    assert ledger.ask("a") == ("a",)
    assert ledger.ask("b") == ("b",)
    assert ledger.ask("c") == ()
    assert ledger.ask("d") == ()
    assert ledger.release("b") == ("c",)
    assert ledger.release("a") == ("d",)
    assert ledger.release("c") == ()


def test_returning_tickets_go_before_new_ones_and_keep_their_order() -> None:
    """Tickets that re-enter at the front overtake new ones but not one another."""
    ledger: Ledger[str] = Ledger(1)
    ledger.ask("holder")
    ledger.ask("new")
    ledger.ask("first retry", front=True)
    ledger.ask("second retry", front=True)
    granted = [ledger.release(holder) for holder in ("holder", "first retry", "second retry", "new")]
    assert granted == [("first retry",), ("second retry",), ("new",), ()]


def test_withdrawing_a_waiter_frees_nothing_and_keeps_the_order() -> None:
    """A waiter that leaves the middle of the queue changes nothing for the others."""
    ledger: Ledger[str] = Ledger(1)
    for ticket in ("a", "b", "c", "d"):
        ledger.ask(ticket)
    assert ledger.withdraw("b") == ()
    assert ledger.statistics() == AdmissionStatistics(capacity=1, in_use=1, waiting=2)
    assert ledger.release("a") == ("c",)


def test_withdrawing_a_granted_ticket_passes_its_place_on() -> None:
    """A place granted to a ticket that is not going to use it goes to the next in the same call."""
    ledger: Ledger[str] = Ledger(1)
    for ticket in ("a", "b", "c"):
        ledger.ask(ticket)
    assert ledger.release("a") == ("b",)
    assert ledger.withdraw("b") == ("c",)


def test_misuse_is_told() -> None:
    """Asking twice, and giving back what is not held, are errors that change nothing."""
    ledger: Ledger[str] = Ledger(1)
    ledger.ask("a")
    ledger.ask("b")
    for known in ("a", "b"):
        with pytest.raises(ValueError, match=f"ticket '{known}' already holds a place or waits"):
            ledger.ask(known, front=True)
    with pytest.raises(ValueError, match="ticket 'b' holds no place"):
        ledger.release("b")
    with pytest.raises(ValueError, match="ticket 'c' neither holds a place nor waits"):
        ledger.withdraw("c")
    assert ledger.statistics() == AdmissionStatistics(capacity=1, in_use=1, waiting=1)


@pytest.mark.parametrize(
    ("capacity", "kind", "sentence"),
    [
        (0, ValueError, "capacity is 0; give 1 or more"),
        (-3, ValueError, "capacity is -3; give 1 or more"),
        (True, TypeError, "capacity is True; give a whole number"),
        (2.0, TypeError, "capacity is 2.0; give a whole number"),
    ],
)
def test_a_wrong_capacity_is_refused(capacity: int, kind: type[Exception], sentence: str) -> None:
    """A capacity that is no whole number of at least 1 is refused in one sentence."""
    with pytest.raises(kind) as caught:
        Ledger(capacity)
    assert str(caught.value) == sentence


@given(
    capacity=st.integers(1, 4),
    moves=st.lists(st.tuples(st.sampled_from(["ask", "ask", "retry", "release", "withdraw"]), st.integers(0, 99))),
)
def test_any_sequence_keeps_the_promises(capacity: int, moves: list[tuple[str, int]]) -> None:
    """Never too many holders, never a free place beside a waiter, order kept, nobody left waiting at the end."""
    ledger: Ledger[int] = Ledger(capacity)
    holders: list[int] = []
    returning: list[int] = []
    arriving: list[int] = []

    def expect(granted: tuple[int, ...]) -> None:
        due = (returning + arriving)[: capacity - len(holders)]
        assert granted == tuple(due)
        for ticket in due:
            (returning if ticket in returning else arriving).remove(ticket)
        holders.extend(due)
        assert len(holders) <= capacity
        assert len(holders) == capacity or not (returning or arriving)
        assert ledger.statistics() == AdmissionStatistics(
            capacity=capacity, in_use=len(holders), waiting=len(returning) + len(arriving)
        )

    for ticket, (move, choice) in enumerate(moves):
        if move in ("ask", "retry"):
            (returning if move == "retry" else arriving).append(ticket)
            expect(ledger.ask(ticket, front=move == "retry"))
        elif move == "release" and holders:
            expect(ledger.release(holders.pop(choice % len(holders))))
        elif move == "withdraw" and (known := holders + returning + arriving):
            leaving = known[choice % len(known)]
            next(queue for queue in (holders, returning, arriving) if leaving in queue).remove(leaving)
            expect(ledger.withdraw(leaving))
    while holders:
        expect(ledger.release(holders.pop(0)))
    assert ledger.statistics() == AdmissionStatistics(capacity=capacity, in_use=0, waiting=0)
