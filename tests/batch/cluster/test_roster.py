"""Which worker gets the next item, while some are getting ready, are full, or do not fit."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.abc import TaskGroup

from furcate.batch.cluster import _roster
from furcate.batch.cluster._roster import Member, Roster
from furcate.primitives._errors import ExecutorError

pytestmark = pytest.mark.anyio

LONG_S = 3600.0


class Items:
    """Items that look for a worker, and stay there."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.placed: Counter[str] = Counter()
        self.refused = 0

    async def one(self) -> None:
        """Find a place for one item."""
        try:
            member = await self.roster.choose()
        except ExecutorError:
            self.refused += 1
            return
        member.items += 1
        self.placed[member.name] += 1

    async def begin(self, count: int, tasks: TaskGroup) -> None:
        """Have so many look for one."""
        for _ in range(count):
            tasks.start_soon(self.one)
        await anyio.wait_all_tasks_blocked()


@pytest.fixture
async def roster(monkeypatch: pytest.MonkeyPatch) -> Roster:
    """Make one that waits for others as long as it takes."""
    monkeypatch.setattr(_roster, "SOON_S", LONG_S)
    return Roster(per_worker=100)


@pytest.fixture
async def pair(roster: Roster) -> tuple[Member, Member]:
    """Let two workers come."""
    return roster.come("a"), roster.come("b")


async def test_the_first_that_is_ready_leaves_half_to_the_second(roster: Roster, pair: tuple[Member, Member]) -> None:
    """Of eight items the first worker has four at once, and the other four begin at the second once it is ready."""
    first, second = pair
    items = Items(roster)
    async with anyio.create_task_group() as tasks:
        await items.begin(8, tasks)
        assert not items.placed
        roster.begin(first)
        await anyio.wait_all_tasks_blocked()
        assert items.placed == {"a": 4}
        roster.begin(second)
    assert items.placed == {"a": 4, "b": 4}
    assert roster.ready == {"a": 4, "b": 4}


async def test_the_first_goes_on_with_what_is_kept_for_the_second(roster: Roster, pair: tuple[Member, Member]) -> None:
    """Where the second takes its time and an item of the first ends, the first has one of those that were kept."""
    first, second = pair
    items = Items(roster)
    async with anyio.create_task_group() as tasks:
        roster.begin(first)
        await items.begin(8, tasks)
        first.items -= 1
        roster.rouse()
        await anyio.wait_all_tasks_blocked()
        assert items.placed == {"a": 5}
        assert (first.items, second.items) == (4, 3)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["refused", "forgotten"])
async def test_nothing_is_kept_for_one_that_will_not_work(
    roster: Roster, pair: tuple[Member, Member], how: str
) -> None:
    """Its half goes to the other as soon as that is known."""
    first, second = pair
    items = Items(roster)
    async with anyio.create_task_group() as tasks:
        roster.begin(first)
        await items.begin(8, tasks)
        assert items.placed == {"a": 4}
        if how == "refused":
            roster.refuse(second)
        else:
            roster.forget(second)
    assert items.placed == {"a": 8}


async def test_nobody_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment the one that is ready has all items."""
    monkeypatch.setattr(_roster, "SOON_S", 0.01)
    roster = Roster(per_worker=100)
    first, _ = roster.come("a"), roster.come("b")
    items = Items(roster)
    with anyio.fail_after(LONG_S):
        async with anyio.create_task_group() as tasks:
            roster.begin(first)
            await items.begin(8, tasks)
    assert items.placed == {"a": 8}


async def test_an_item_that_is_cancelled_keeps_no_place(roster: Roster, pair: tuple[Member, Member]) -> None:
    """Neither one that waits for a worker to get ready, nor one that waits for room."""
    first, second = pair
    items = Items(roster)
    async with anyio.create_task_group() as tasks:
        roster.begin(first)
        await items.begin(8, tasks)
        assert (first.items, second.items) == (4, 4)
        tasks.cancel_scope.cancel()
    assert (first.items, second.items) == (4, 0)


async def test_those_who_wait_are_told_that_the_job_cannot_go_on(roster: Roster, pair: tuple[Member, Member]) -> None:
    """Both who wait for a worker to get ready and who wait for the first one."""
    first, _ = pair
    items = Items(roster)
    async with anyio.create_task_group() as tasks:
        await items.begin(2, tasks)
        roster.begin(first)
        await anyio.wait_all_tasks_blocked()
        assert items.placed == {"a": 1}
        roster.fail(ExecutorError("there is no worker"))
    assert items.refused == 1


async def test_a_suspect_has_a_worker_to_itself(roster: Roster, pair: tuple[Member, Member]) -> None:
    """It waits until one is empty, nothing is put beside it, and all others go on elsewhere."""
    first, second = pair
    roster.begin(first)
    roster.begin(second)
    leave, here = anyio.Event(), anyio.Event()
    suspect: list[Member] = []

    async def stay_alone() -> None:
        async with roster.place(alone=True) as member:
            suspect.append(member)
            here.set()
            await leave.wait()

    async with roster.place(alone=False) as busy, anyio.create_task_group() as tasks:
        other = second if busy is first else first
        beside = AsyncExitStack()
        assert await beside.enter_async_context(roster.place(alone=False)) is other
        async with roster.place(alone=False) as more:
            assert more is busy
            tasks.start_soon(stay_alone)
            await anyio.wait_all_tasks_blocked()
            assert not suspect
            await beside.aclose()
            await here.wait()
        assert suspect == [other]
        async with roster.place(alone=False) as third, roster.place(alone=False) as fourth:
            assert third is fourth is busy
        leave.set()
    async with roster.place(alone=False), roster.place(alone=False):
        assert roster.ready == {"a": 1, "b": 1}


async def test_a_suspect_that_is_cancelled_keeps_no_worker(roster: Roster, pair: tuple[Member, Member]) -> None:
    """Neither while it waits for one to be empty, nor while it waits for another suspect."""
    roster.begin(pair[0])
    roster.begin(pair[1])

    async def stay_alone() -> None:
        async with roster.place(alone=True):
            await anyio.sleep_forever()

    async with roster.place(alone=False), roster.place(alone=False), anyio.create_task_group() as tasks:
        tasks.start_soon(stay_alone)
        tasks.start_soon(stay_alone)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    async with roster.place(alone=False), roster.place(alone=False):
        assert roster.ready == {"a": 1, "b": 1}
