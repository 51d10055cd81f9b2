"""Virtual time on both event loops."""

from __future__ import annotations

import anyio
import pytest

from furcate.testing import DeadlockError, virtual_backend

HOUR_S = 3600.0


@pytest.mark.virtual_time
class TestVirtualTime:
    async def test_time_starts_at_nought(self) -> None:
        """A virtual clock begins at 0 seconds on both loops."""
        assert anyio.current_time() == 0.0

    async def test_an_hour_passes_at_once(self) -> None:
        """Sleeping moves the clock by exactly what was slept, however long."""
        await anyio.sleep(HOUR_S)
        assert anyio.current_time() == HOUR_S
        await anyio.sleep(10 * 24 * HOUR_S)
        assert anyio.current_time() == 241 * HOUR_S

    async def test_years_pass_too(self) -> None:
        """A clock so late that it no longer tells nanoseconds apart still wakes its sleepers."""
        for year in range(1, 40):
            await anyio.sleep(365 * 24 * HOUR_S)
            assert anyio.current_time() == pytest.approx(year * 365 * 24 * HOUR_S)

    async def test_sleepers_wake_in_the_order_of_their_deadlines(self) -> None:
        """Tasks started in one order wake in the order of time."""
        woken: list[tuple[float, float]] = []

        async def sleeper(duration_s: float) -> None:
            await anyio.sleep(duration_s)
            woken.append((duration_s, anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            for duration_s in (3.0, 0.25, 2.0, 100.0, 0.5):
                tasks.start_soon(sleeper, duration_s)
        assert woken == [(s, s) for s in (0.25, 0.5, 2.0, 3.0, 100.0)]

    async def test_a_deadline_ends_a_wait_for_ever(self) -> None:
        """A task that waits for ever is ended by its deadline, and at that time."""
        with anyio.move_on_after(60) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert anyio.current_time() == 60.0

    async def test_work_that_is_ready_goes_before_the_clock(self) -> None:
        """The clock stands still as long as any task can run."""
        times: list[float] = []

        async def worker() -> None:
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
                times.append(anyio.current_time())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker)
            await anyio.sleep(1)
        assert times == [0.0] * 100

    async def test_a_cancelled_timer_does_not_move_the_clock(self) -> None:
        """A deadline that was left behind unused costs no time."""
        with anyio.move_on_after(1000):
            await anyio.sleep(1)
        await anyio.sleep(1)
        assert anyio.current_time() == 2.0


@pytest.mark.parametrize("wait", ["event", "for ever"])
def test_asyncio_tells_a_deadlock(wait: str) -> None:
    """On asyncio a wait that nothing can end raises instead of hanging."""

    async def main() -> None:
        await anyio.sleep(5)
        await (anyio.Event().wait() if wait == "event" else anyio.sleep_forever())

    backend, options = virtual_backend("asyncio")
    with pytest.raises(DeadlockError, match=r"at 5 s of virtual time every task waits"):
        anyio.run(main, backend=backend, backend_options=options)


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_the_backend_serves_anyio_run(name: str) -> None:
    """The pair serves ``anyio.run`` as well, each with a clock of its own."""
    for _ in range(2):
        backend, options = virtual_backend(name)  # type: ignore[arg-type]
        assert anyio.run(anyio.sleep, 7, backend=backend, backend_options=options) is None


def test_an_unknown_loop_is_refused() -> None:
    """Another loop's name is answered with the two that there are."""
    with pytest.raises(ValueError, match=r"no event loop 'curio'; give 'asyncio' or 'trio'"):
        virtual_backend("curio")  # type: ignore[arg-type]


async def test_unmarked_tests_have_real_time() -> None:
    """Without the mark, time is the machine's."""
    assert anyio.current_time() > 0.0
