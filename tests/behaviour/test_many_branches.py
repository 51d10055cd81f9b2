"""Many more branches than tasks or places."""

from __future__ import annotations

import asyncio

import anyio.lowlevel
import pytest
import trio.lowlevel

import furcate
from furcate.testing import StubProvider, answer

pytestmark = pytest.mark.anyio

BRANCHES = 2000
ACTIVE = 50
# A request takes longer than all else that a branch does, so not every branch makes one.
ASKING = 10


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """Run on both loops, on asyncio without its debug mode, which takes longer than all the rest."""
    return request.param, {}


def tasks_alive(loop: str) -> int:
    if loop == "asyncio":
        return len(asyncio.all_tasks())
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.req("S4-044")
async def test_thousands_of_branches_need_few_tasks(engine_for, ask, anyio_backend_name) -> None:
    """All of 2,000 branches end on 4 places, never more than 50 are active, and those that wait have no task."""
    active = most_active = most_tasks = 0

    async with StubProvider(answer("ok")) as stub, engine_for(stub, capacity=4) as engine:
        exchange = (await engine.run(ask("begin", capture=True))).exchange

        async def next_action(turn: furcate.Turn):
            nonlocal active, most_active, most_tasks
            active += 1
            most_active = max(most_active, active)
            most_tasks = max(most_tasks, tasks_alive(anyio_backend_name))
            await anyio.lowlevel.checkpoint()
            active -= 1
            return furcate.Continue(ask("more")) if turn.remaining else furcate.Stop()

        before = tasks_alive(anyio_backend_name)
        async with furcate.open_branches(engine, exchange, max_active=ACTIVE) as branches:
            for number in range(BRANCHES):
                branches.start_soon(next_action, additional_turns=int(number % ASKING == 0), name=f"branch {number}")
        assert 1 < stub.most_in_flight <= 4  # a quick transport may not need them all
        assert len(stub.requests) == 1 + BRANCHES // ASKING
        statistics = engine.statistics()["stub"]
    assert (statistics.in_use, statistics.waiting) == (0, 0)
    assert [branch.name for branch in branches] == [f"branch {number}" for number in range(BRANCHES)]
    assert {branch.outcome for branch in branches} == {furcate.Outcome.STOPPED}
    assert most_active <= ACTIVE
    # The stub has a few tasks for each of its connections.
    assert most_tasks - before <= ACTIVE + 4 * 5
