"""Waiting out pauses and allowances, and being cancelled while doing so."""

from __future__ import annotations

from functools import partial

import anyio
import attrs
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import AdmissionStatistics, Gate

pytestmark = pytest.mark.virtual_time


class _Door:
    """Note who comes in, and when, counted from the beginning."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.began_s = anyio.current_time()
        self.served: list[tuple[str, float]] = []

    def now_s(self) -> float:
        return round(anyio.current_time() - self.began_s, 6)

    async def visit(self, name: str, *, front: bool = False, tokens: float = 0, stays_s: float = 0) -> None:
        async with self.gate.lease(front=front, tokens=tokens):
            self.served.append((name, self.now_s()))
            await anyio.sleep(stays_s)


async def test_a_pause_is_waited_out_without_a_place() -> None:
    """Nobody holds a place meanwhile, the queue keeps its order, and all come in when it is over."""
    door = _Door(Gate(2))
    async with anyio.create_task_group() as tasks:
        door.gate.pause(anyio.current_time() + 10)
        for name in ("a", "b", "c"):
            tasks.start_soon(partial(door.visit, name, stays_s=1))
            await anyio.wait_all_tasks_blocked()
        tasks.start_soon(partial(door.visit, "returning", front=True, stays_s=1))
        await anyio.wait_all_tasks_blocked()
        assert door.gate.statistics() == AdmissionStatistics(capacity=2, in_use=0, waiting=4, paused_s=10)
    assert sorted(door.served) == [("a", 10), ("b", 11), ("c", 11), ("returning", 10)]


async def test_a_longer_pause_holds_up_those_who_wait_already() -> None:
    """The later moment counts for whoever waits for the earlier one, and an earlier one for nobody."""
    door = _Door(Gate(1))
    async with anyio.create_task_group() as tasks:
        assert door.gate.pause(door.began_s + 5)
        tasks.start_soon(door.visit, "a")
        await anyio.sleep(3)
        assert door.gate.pause(door.began_s + 20)
        assert not door.gate.pause(door.began_s + 4)
    assert door.served == [("a", 20)]


async def test_a_pause_that_begins_while_one_holds_a_place_holds_up_the_next() -> None:
    """The holder goes on; the place that comes back stays free until the pause is over."""
    door = _Door(Gate(1))
    async with anyio.create_task_group() as tasks:
        async with door.gate.lease():
            tasks.start_soon(door.visit, "next")
            await anyio.sleep(1)
            door.gate.pause(door.began_s + 8)
        await anyio.sleep(1)
        assert door.gate.statistics().in_use == 0
    assert door.served == [("next", 8)]


async def test_whoever_keeps_the_time_may_be_cancelled() -> None:
    """The first of the queue looks at the clock for all; when it leaves, the next one does."""
    door = _Door(Gate(1))
    first = anyio.CancelScope()

    async def impatient() -> None:
        with first:
            await door.visit("first")

    async with anyio.create_task_group() as tasks:
        door.gate.pause(door.began_s + 10)
        tasks.start_soon(impatient)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(door.visit, "second")
        await anyio.sleep(5)
        first.cancel()
    assert door.served == [("second", 10)]
    assert door.gate.statistics() == AdmissionStatistics(capacity=1, in_use=0, waiting=0)


async def test_whoever_is_overtaken_by_a_retry_leaves_the_time_to_it() -> None:
    """A retry that comes to the head of a queue that waits for a pause is the first in."""
    door = _Door(Gate(1))
    async with anyio.create_task_group() as tasks:
        door.gate.pause(door.began_s + 10)
        tasks.start_soon(door.visit, "new")
        await anyio.sleep(1)
        tasks.start_soon(partial(door.visit, "retry", front=True, stays_s=1))
    assert door.served == [("retry", 10), ("new", 11)]


async def test_requests_are_spread_over_the_minute() -> None:
    """Ten at once, then one every six seconds, first come first served; whoever waits holds no place."""
    door = _Door(Gate(50, requests_per_minute=10))
    async with anyio.create_task_group() as tasks:
        for number in range(13):
            tasks.start_soon(door.visit, f"{number:02}")
            # Waiting until all are blocked would take time on one of the loops.
            for _ in range(5):
                await checkpoint()
        assert door.gate.statistics().in_use == 0
        assert door.gate.statistics().waiting == 3
    assert door.served == [(f"{n:02}", 0) for n in range(10)] + [("10", 6), ("11", 12), ("12", 18)]


async def test_tokens_are_spread_over_the_minute() -> None:
    """A request waits until its estimate is there; what was not used after all lets the next one in sooner."""
    gate = Gate(50, tokens_per_minute=60)
    door = _Door(gate)
    async with anyio.create_task_group() as tasks:
        async with gate.lease(tokens=60) as lease:
            tasks.start_soon(partial(door.visit, "a", tokens=30))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(partial(door.visit, "b", tokens=10))
            await anyio.sleep(10)
            assert door.served == []
            lease.correct(40)
        await anyio.wait_all_tasks_blocked()
        assert door.served == [("a", 10)]
    assert door.served == [("a", 10), ("b", 20)]


async def test_a_limit_that_rises_lets_the_next_one_in() -> None:
    """After the halving one works at a time; its success brings the second place back."""
    gate = Gate(2)
    door = _Door(gate)
    async with gate.lease() as lease:
        lease.throttled()
    async with anyio.create_task_group() as tasks, gate.lease() as lease:
        tasks.start_soon(door.visit, "next")
        await anyio.wait_all_tasks_blocked()
        assert door.served == []
        lease.succeeded()
        await anyio.wait_all_tasks_blocked()
        assert door.served == [("next", 0)]
    assert gate.statistics() == AdmissionStatistics(capacity=2, in_use=0, waiting=0)


async def test_a_lease_that_was_given_back_says_nothing_more() -> None:
    """Late words about a place that another may hold already change nothing."""
    gate = Gate(4, requests_per_minute=5, tokens_per_minute=100)
    async with gate.lease(tokens=10) as lease:
        lease.release()
        before = gate.statistics()
        lease.throttled()
        lease.succeeded()
        lease.correct(50)
        lease.begin_again(tokens=50)
        assert gate.statistics() == before


@pytest.mark.parametrize("victim", range(4))
async def test_cancelling_at_any_step_of_a_pause_strands_nobody(victim: int) -> None:
    """Whichever of four is cancelled, before, as and after the pause ends: the others pass and all places come back."""
    for step in range(24):
        door = _Door(Gate(1, requests_per_minute=100))
        door.gate.pause(door.began_s + 1)
        scopes = [anyio.CancelScope() for _ in range(4)]
        finished: list[int] = []

        async def visit(
            number: int,
            door: _Door = door,
            scopes: list[anyio.CancelScope] = scopes,
            finished: list[int] = finished,
        ) -> None:
            with scopes[number]:
                await door.visit(str(number))
                finished.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(visit, number)
            if step >= 8:
                await anyio.sleep(1)
            for _ in range(step % 8 if step < 16 else step - 8):
                await checkpoint()
            scopes[victim].cancel()
        assert set(finished) >= set(range(4)) - {victim}
        statistics = door.gate.statistics()
        assert (statistics.in_use, statistics.waiting) == (0, 0)


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio"), ("asyncio", "asyncio")])
def test_a_pause_survives_its_event_loop(backends: tuple[str, str]) -> None:
    """What was still to be waited for in one loop is waited for in the next, whose clock shows another time."""
    gate = Gate(1)

    async def pause() -> None:
        async with gate.lease():
            gate.pause(anyio.current_time() + 0.05)

    async def pass_through() -> float:
        async with gate.lease() as lease:
            return lease.waited_s

    anyio.run(pause, backend=backends[0])
    assert 0 < gate.statistics().paused_s <= 0.05
    with_limit = partial(anyio.run, backend=backends[1])
    assert 0 < with_limit(pass_through) < 5


@attrs.frozen
class Visit:
    """Say what one visitor does, with times in seconds from the beginning."""

    arrives_s: int
    stays_s: int
    tokens: int
    gives_up_s: int | None
    front: bool
    ends: str


VISITS = st.lists(
    st.builds(
        Visit,
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 80),
        st.none() | st.integers(0, 40),
        st.booleans(),
        st.sampled_from(["nothing", "succeeded", "throttled", "correct", "pause"]),
    ),
    max_size=10,
)


@given(st.integers(1, 4), st.none() | st.integers(1, 20), st.none() | st.integers(1, 100), VISITS)
async def test_everybody_comes_in_or_gave_up(
    capacity: int, requests: int | None, tokens: int | None, visits: list[Visit]
) -> None:
    """Under any pauses, limits, allowances and cancellations nobody is stranded and all places come back."""
    gate = Gate(capacity, requests_per_minute=requests, tokens_per_minute=tokens)
    inside = 0
    served: set[int] = set()
    cancelled: set[int] = set()

    async def visit(number: int, one: Visit) -> None:
        nonlocal inside
        await anyio.sleep(one.arrives_s)
        with anyio.CancelScope() as scope:
            if one.gives_up_s is not None:
                scope.deadline = anyio.current_time() + one.gives_up_s
            async with gate.lease(front=one.front, tokens=one.tokens) as lease:
                inside += 1
                assert inside <= capacity
                served.add(number)
                try:
                    await anyio.sleep(one.stays_s)
                finally:
                    inside -= 1
                match one.ends:
                    case "pause":
                        gate.pause(anyio.current_time() + 5)
                    case "correct":
                        lease.correct(one.tokens * 2)
                    case "succeeded":
                        lease.succeeded()
                    case "throttled":
                        lease.throttled()
        if scope.cancelled_caught:
            cancelled.add(number)

    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(visits):
            tasks.start_soon(visit, number, one)
    statistics = gate.statistics()
    assert (statistics.in_use, statistics.waiting) == (0, 0)
    assert served | cancelled == set(range(len(visits)))
