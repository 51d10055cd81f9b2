"""Waiting for a place, and being cancelled while doing so."""

import asyncio
import gc
import random
import tomllib
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from furcate.admission import AdmissionStatistics, Gate

pytestmark = pytest.mark.virtual_time


def _idle(capacity: int) -> AdmissionStatistics:
    return AdmissionStatistics(capacity=capacity, in_use=0, waiting=0)


class _Watch:
    """Count who is inside a gate, and keep who came in."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.served: list[int] = []

    async def visit(self, gate: Gate, number: int, *, steps: int = 2) -> None:
        async with gate.lease():
            self.served.append(number)
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                for _ in range(steps):
                    await checkpoint()
            finally:
                self.inside -= 1


async def test_a_free_place_is_given_and_comes_back() -> None:
    """A lease is held inside its block and given back on leaving it."""
    gate = Gate(2)
    async with gate.lease() as lease:
        assert lease.held
        assert gate.statistics() == AdmissionStatistics(capacity=2, in_use=1, waiting=0)
    assert not lease.held
    assert gate.statistics() == _idle(2)


async def test_an_error_in_the_block_gives_the_place_back() -> None:
    """Whatever leaves the block, the place is free afterwards and the error passes through."""
    gate = Gate(1)
    with pytest.raises(LookupError):
        async with gate.lease():
            raise LookupError
    assert gate.statistics() == _idle(1)


async def test_an_early_release_is_immediate_and_counts_once() -> None:
    """A released place is granted in the same step, and neither a second release nor leaving gives it back again."""
    gate = Gate(1)
    watch = _Watch()
    async with anyio.create_task_group() as tasks, gate.lease() as lease:
        tasks.start_soon(watch.visit, gate, 1)
        tasks.start_soon(watch.visit, gate, 2)
        await anyio.wait_all_tasks_blocked()
        lease.release()
        assert gate.statistics() == AdmissionStatistics(capacity=1, in_use=1, waiting=1)
        lease.release()
        assert gate.statistics() == AdmissionStatistics(capacity=1, in_use=1, waiting=1)
        await anyio.wait_all_tasks_blocked()
    assert sorted(watch.served) == [1, 2]
    assert watch.most == 1
    assert gate.statistics() == _idle(1)


async def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    """Twenty tasks that queued one after another pass the only place in that order."""
    gate = Gate(1)
    watch = _Watch()
    async with anyio.create_task_group() as tasks, gate.lease():
        for number in range(20):
            tasks.start_soon(watch.visit, gate, number)
            await anyio.wait_all_tasks_blocked()
    assert watch.served == list(range(20))


async def test_all_places_are_used_and_no_more() -> None:
    """Twenty tasks pass three places, three at a time."""
    gate = Gate(3)
    watch = _Watch()
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(watch.visit, gate, number)
    assert watch.most == 3
    assert sorted(watch.served) == list(range(20))


async def test_a_retry_enters_at_the_head_of_the_queue() -> None:
    """One that gave its place back is served before those who had not been served at all, once it asks again."""
    gate = Gate(1)
    order: list[str] = []

    async def visit(name: str, front: bool) -> None:
        async with gate.lease(front=front):
            order.append(name)

    async with anyio.create_task_group() as tasks, gate.lease():
        for name, front in (("new", False), ("retry", True)):
            tasks.start_soon(visit, name, front)
            await anyio.wait_all_tasks_blocked()
    assert order == ["retry", "new"]


async def test_giving_the_place_back_before_a_pause_lets_others_work() -> None:
    """While one waits between its attempts, another passes the only place; each attempt has a lease of its own."""
    gate = Gate(1)
    events: list[str] = []
    resume = anyio.Event()

    async def patient() -> None:
        async with gate.lease():
            events.append("first attempt")
        await resume.wait()
        async with gate.lease(front=True):
            events.append("second attempt")

    async def other() -> None:
        async with gate.lease():
            events.append("other")
        resume.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(patient)
        await anyio.wait_all_tasks_blocked()
        assert gate.statistics() == _idle(1)
        tasks.start_soon(other)
    assert events == ["first attempt", "other", "second attempt"]
    assert gate.statistics() == _idle(1)


async def test_a_lease_tells_how_long_its_holder_waited() -> None:
    """The wait is counted from asking to being let in, in seconds."""
    gate = Gate(1)
    waits: list[float] = []

    async def visit() -> None:
        async with gate.lease() as lease:
            waits.append(lease.waited_s)
            await anyio.sleep(3)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(visit)
    assert waits == pytest.approx([0, 3, 6])


async def test_entering_is_a_checkpoint_even_where_a_place_is_free() -> None:
    """A cancelled scope stops the entry, and the place that was granted meanwhile is free again."""
    gate = Gate(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with gate.lease():
            pytest.fail("entered although cancelled")
    assert scope.cancelled_caught
    assert gate.statistics() == _idle(1)


async def test_a_waiter_behind_a_cancelled_entry_is_served() -> None:
    """A free place granted to a cancelled entry passes to whoever asked in the meantime."""
    gate = Gate(1)
    watch = _Watch()

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await watch.visit(gate, 1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancelled)
        tasks.start_soon(watch.visit, gate, 2)
    assert watch.served == [2]
    assert gate.statistics() == _idle(1)


@pytest.mark.field(4)
@pytest.mark.parametrize("release_first", [True, False])
async def test_cancelling_the_first_waiter_in_the_step_of_the_release_serves_the_second(release_first: bool) -> None:
    """Whichever of the two comes first in the step, the place reaches the next waiter."""
    gate = Gate(1)
    watch = _Watch()
    scope = anyio.CancelScope()

    async def first() -> None:
        with scope:
            await watch.visit(gate, 1)

    async with anyio.create_task_group() as tasks, gate.lease() as lease:
        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        for number in (2, 3):
            tasks.start_soon(watch.visit, gate, number)
            await anyio.wait_all_tasks_blocked()
        if release_first:
            lease.release()
            scope.cancel()
        else:
            scope.cancel()
            lease.release()
    assert [number for number in watch.served if number != 1] == [2, 3]
    assert watch.most == 1
    assert gate.statistics() == _idle(1)


@pytest.mark.field(4)
def test_the_floor_of_the_event_library_is_declared() -> None:
    """The project asks for a release of anyio whose own locks do not strand a waiter."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floor = next(line.partition(">=")[2] for line in project["dependencies"] if line.startswith("anyio"))
    assert tuple(map(int, floor.split("."))) >= (4, 14)


@pytest.mark.field(3)
async def test_asking_in_the_step_of_a_release_never_overtakes_who_waits() -> None:
    """In 9,999 rounds of releasing and asking again in one step, three tasks take strict turns on one place."""
    gate = Gate(1)
    rounds = 3333
    served: list[int] = []
    yields = random.Random(7)
    queued = anyio.Event()
    inside = 0

    async def take_turns(number: int) -> None:
        nonlocal inside
        for turn in range(rounds):
            async with gate.lease():
                if turn == 0:
                    await queued.wait()
                inside += 1
                assert inside == 1
                assert gate.statistics().in_use == 1
                served.append(number)
                for _ in range(yields.randrange(3)):
                    await checkpoint()
                inside -= 1

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(take_turns, number)
            await anyio.wait_all_tasks_blocked()
        queued.set()
    assert served == [0, 1, 2] * rounds
    assert gate.statistics() == _idle(1)


@pytest.mark.parametrize("capacity", [1, 2])
@pytest.mark.parametrize("victim", range(4))
async def test_cancelling_at_any_step_strands_nobody(capacity: int, victim: int) -> None:
    """Whichever of four tasks is cancelled after however many steps, the others pass and every place comes back."""
    for step in range(14):
        gate = Gate(capacity)
        watch = _Watch()
        scopes = [anyio.CancelScope() for _ in range(4)]
        finished: list[int] = []

        async def visit(
            number: int,
            gate: Gate = gate,
            watch: _Watch = watch,
            scopes: list[anyio.CancelScope] = scopes,
            finished: list[int] = finished,
        ) -> None:
            with scopes[number]:
                await watch.visit(gate, number)
                finished.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(visit, number)
            for _ in range(step):
                await checkpoint()
            scopes[victim].cancel()
        assert set(finished) >= set(range(4)) - {victim}
        assert watch.most <= capacity
        assert gate.statistics() == _idle(capacity)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("victim", range(4))
async def test_a_native_cancel_at_any_step_strands_nobody(victim: int) -> None:
    """A task cancelled by asyncio itself leaves the gate as one cancelled by a scope does."""
    for step in range(14):
        gate = Gate(1)
        watch = _Watch()
        tasks = [asyncio.create_task(watch.visit(gate, number)) for number in range(4)]
        for _ in range(step):
            await asyncio.sleep(0)
        tasks[victim].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end is None for number, end in enumerate(ends) if number != victim)
        assert ends[victim] is None or isinstance(ends[victim], asyncio.CancelledError)
        assert watch.most == 1
        assert gate.statistics() == _idle(1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("release_first", [True, False])
async def test_a_native_cancel_in_the_step_of_the_grant_passes_the_place_on(release_first: bool) -> None:
    """A waiter that asyncio cancels in the step in which it is granted its place does not keep it."""
    gate = Gate(1)
    watch = _Watch()
    async with gate.lease() as lease:
        first = asyncio.create_task(watch.visit(gate, 1))
        second = asyncio.create_task(watch.visit(gate, 2))
        await anyio.wait_all_tasks_blocked()
        if release_first:
            lease.release()
            first.cancel()
        else:
            first.cancel()
            lease.release()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
    assert watch.served == [2]
    assert gate.statistics() == _idle(1)


def test_one_gate_serves_consecutive_loops_of_either_kind() -> None:
    """A gate that waited in one event loop lets wait in the next."""
    gate = Gate(1)

    async def crowd() -> list[int]:
        watch = _Watch()
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(watch.visit, gate, number)
        return sorted(watch.served)

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(crowd, backend=backend) == [0, 1, 2]
        assert gate.statistics() == _idle(1)


async def test_an_entry_that_nobody_awaited_leaves_nothing() -> None:
    """Making the context manager without entering it asks for no place and warns of nothing."""
    gate = Gate(1)
    gate.lease()
    gc.collect()
    assert gate.statistics() == _idle(1)


async def test_a_lease_context_is_entered_once() -> None:
    """A second entry is refused instead of mixing up two leases."""
    gate = Gate(1)
    context = gate.lease()
    async with context:
        with pytest.raises(RuntimeError, match=r"call gate\.lease\(\) for each time"):
            await context.__aenter__()
    assert gate.statistics() == _idle(1)
