"""Who is next: shares of the work that have begun take turns, and go before those that have not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import Ledger, Share
from furcate.admission._queue import Queue


def order(queue: Queue[str]) -> list[str]:
    """Take everybody out, one after the other."""
    found = []
    while queue:
        found.append(queue.pop())
    return found


def test_without_shares_it_is_a_plain_queue() -> None:
    """First come, first served, and one that leaves from the middle is not missed."""
    queue: Queue[str] = Queue()
    for name in "abcd":
        queue.push(name, 1)
    queue.remove("b")
    assert "b" not in queue
    assert queue.head() == ("a", 1)
    assert order(queue) == ["a", "c", "d"]
    assert queue.head() is None


def test_begun_shares_go_before_fresh_ones() -> None:
    """The first share that is let in brings all that it asks for before the next one begins."""
    queue: Queue[str] = Queue()
    one, two = Share(), Share()
    for name, share in (("a1", one), ("b1", two), ("a2", one), ("b2", two)):
        queue.push(name, 1, share)
    assert queue.pop() == "a1"
    assert (one.begun, two.begun) == (True, False)
    queue.push("a3", 1, one)
    assert order(queue) == ["a2", "a3", "b1", "b2"]


def test_begun_shares_take_turns() -> None:
    """A share with a thousand branches leaves room for one with a single conversation."""
    queue: Queue[str] = Queue()
    many, few = Share(), Share()
    many.begun = few.begun = True
    for number in range(4):
        queue.push(f"m{number}", 1, many)
    queue.push("f0", 1, few)
    queue.push("f1", 1, few)
    assert order(queue) == ["m0", "f0", "m1", "f1", "m2", "m3"]


def test_requests_of_nobody_in_particular_take_turns_with_the_rest() -> None:
    """A plain request is not put behind a batch, nor a begun share behind plain requests."""
    queue: Queue[str] = Queue()
    begun, fresh = Share(), Share()
    begun.begun = True
    queue.push("fresh", 1, fresh)
    queue.push("plain 1", 1)
    queue.push("plain 2", 1)
    queue.push("begun 1", 1, begun)
    assert order(queue) == ["plain 1", "begun 1", "plain 2", "fresh"]


def test_a_share_that_began_elsewhere_is_in_one_place() -> None:
    """One share may wait at several backends: begun at another, all that it asks for here stays together."""
    queue: Queue[str] = Queue()
    share = Share()
    for name in ("a", "b"):
        queue.push(name, 1, share)
    share.begun = True
    queue.push("c", 1, share)
    queue.remove("a")
    assert order(queue) == ["b", "c"]


def test_taking_from_nobody_is_a_mistake() -> None:
    """An empty queue has nobody to give, and one who does not wait cannot leave."""
    queue: Queue[str] = Queue()
    with pytest.raises(IndexError, match="nobody waits"):
        queue.pop()
    with pytest.raises(KeyError):
        queue.remove("a")


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["push", "pop", "remove"]))))
def test_everybody_leaves_once_and_in_the_order_of_their_share(steps: list[tuple[int, str]]) -> None:
    """Whatever comes and goes, nobody is lost or served twice, and within a share nobody is overtaken."""
    queue: Queue[int] = Queue()
    shares = [Share() for _ in range(4)] + [None]
    owner: dict[int, int] = {}
    waiting: list[int] = []
    left: list[int] = []
    for number, (which, step) in enumerate(steps):
        if step == "push":
            owner[number] = which
            queue.push(number, 1, shares[which])
            waiting.append(number)
        elif waiting and step == "pop":
            head = queue.head()
            left.append(queue.pop())
            assert head is not None
            assert head[0] == left[-1]
            waiting.remove(left[-1])
        elif waiting:
            queue.remove(waiting.pop(which % len(waiting)))
    left.extend([queue.pop() for _ in range(len(waiting))])
    assert len(queue) == 0
    assert queue.head() is None
    assert len(set(left)) == len(left)
    for share in range(5):
        mine = [number for number in left if owner[number] == share]
        assert mine == sorted(mine)


def test_the_ledger_finishes_what_has_begun_first() -> None:
    """With one place, the second request of the first item goes before the first of the second, retries before both."""
    ledger: Ledger[str] = Ledger(1)
    one, two = Share(), Share()
    assert ledger.ask("one/1", share=one) == ("one/1",)
    assert ledger.ask("two/1", share=two) == ()
    assert ledger.ask("one/2", share=one) == ()
    assert ledger.ask("two/0 again", front=True) == ()
    assert ledger.release("one/1") == ("two/0 again",)
    assert ledger.release("two/0 again") == ("one/2",)
    assert ledger.release("one/2") == ("two/1",)
    assert ledger.withdraw("two/1") == ()
    assert ledger.statistics().waiting == 0
