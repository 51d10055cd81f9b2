"""The tool that cancels a story at each of its checkpoints."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from anyio.lowlevel import cancel_shielded_checkpoint, checkpoint

from furcate.testing import Cut, SweepError, sweep

pytestmark = pytest.mark.virtual_time


@pytest.fixture(params=["waiting", "woken"])
def moment(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_each_checkpoint_has_its_turn(moment) -> None:
    """A story of three waits is left alone, cancelled at each of them, and run again to see that there is no fourth."""
    reached: list[int] = []
    bell = anyio.Event()

    async def ring() -> None:
        nonlocal bell
        while True:
            await anyio.sleep(1)
            bell.set()
            bell = anyio.Event()

    async def story() -> str:
        reached.append(0)
        for number in (1, 2, 3):
            await bell.wait()
            reached[-1] = number
        return "done"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ring)
        report = await sweep(story, moment=moment)
        tasks.cancel_scope.cancel()
    assert report.checkpoints == 3
    assert [cut.checkpoint for cut in report.cuts] == [None, 1, 2, 3, None]
    assert [cut.result for cut in report.cuts][0::4] == ["done", "done"]
    late = moment == "woken"
    # Cancelled as it wakes from its last wait, a story still comes to its end.
    assert reached == ([3, 1, 2, 3, 3] if late else [3, 0, 1, 2, 3])
    assert report.cancelled == (2 if late else 3)


async def test_waits_of_every_task_of_the_story_count(moment) -> None:
    """Sleeping children and grandchildren are counted and cancelled; a task beside the story is neither."""
    beside = 0

    async def other() -> None:
        nonlocal beside
        while True:
            await anyio.sleep(0.25)
            beside += 1

    async def child(depth: int) -> None:
        await anyio.sleep(1)
        if depth:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child, depth - 1)

    async def story() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child, 1)
            tasks.start_soon(child, 0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        report = await sweep(story, moment=moment)
        tasks.cancel_scope.cancel()
    assert report.checkpoints >= 5
    assert report.cancelled >= report.checkpoints - 2
    assert beside > 0


async def test_a_place_that_is_lost_by_cancellation_is_found(anyio_backend_name: str) -> None:
    """A check that fails for one checkpoint is told with its number and the loop, its own error as the cause."""
    held = 0

    async def story() -> None:
        nonlocal held
        await checkpoint()
        held += 1
        await checkpoint()
        try:
            await checkpoint()
        finally:
            held -= 1

    def check(cut: Cut[None]) -> None:
        assert held == 0, f"{held} places are lost"

    with pytest.raises(
        SweepError, match=f"^cancelled at checkpoint 2 on {anyio_backend_name}: .*1 places are"
    ) as caught:
        await sweep(story, check)
    assert isinstance(caught.value.__cause__, AssertionError)
    assert (caught.value.checkpoint, caught.value.loop) == (2, anyio_backend_name)


async def test_the_race_between_waking_and_cancelling_is_seen() -> None:
    """A wait whose good is lost where cancellation comes with it passes the one moment and fails the other."""
    granted = 0

    async def story() -> None:
        nonlocal granted
        arrived = anyio.Event()

        async def bring() -> None:
            nonlocal granted
            await checkpoint()
            granted += 1
            arrived.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bring)
            await arrived.wait()
            await checkpoint()
            granted -= 1

    def check(cut: Cut[None]) -> None:
        nonlocal granted
        lost, granted = granted, 0
        assert not lost

    with pytest.raises(SweepError):
        await sweep(story, check, moment="woken")


async def test_an_error_of_the_story_is_told_with_its_checkpoint() -> None:
    """A story that turns cancellation into an error of its own fails the sweep, as does one that fails by itself."""

    async def turning() -> None:
        try:
            await checkpoint()
        except BaseException:
            raise LookupError("turned") from None

    with pytest.raises(SweepError, match=r"cancelled at checkpoint 1 on \w+: LookupError: turned"):
        await sweep(turning)

    async def failing() -> None:
        raise LookupError("always")

    with pytest.raises(SweepError, match=r"^left alone on \w+: LookupError: always"):
        await sweep(failing)


async def test_shielded_waits_delay_the_cancellation() -> None:
    """A story that is shielded to its end completes although it was cancelled."""

    async def story() -> int:
        await cancel_shielded_checkpoint()
        return 7

    report = await sweep(story)
    assert [(cut.status, cut.result) for cut in report.cuts] == [("completed", 7)] * 3
    assert report.cancelled == 0


async def test_checks_may_be_async_and_checkpoints_sampled() -> None:
    """An async check is awaited outside of what was cancelled; every third checkpoint is taken where so asked."""
    checked: list[int | None] = []

    async def story() -> None:
        for _ in range(9):
            await checkpoint()

    async def check(cut: Cut[None]) -> None:
        await checkpoint()
        checked.append(cut.checkpoint)

    await sweep(story, check, every=3)
    assert checked == [None, 1, 4, 7, None]


async def test_a_story_without_end_is_given_up() -> None:
    """More checkpoints than expected are an error, not an endless sweep."""

    async def story() -> None:
        for _ in range(100):
            await checkpoint()

    with pytest.raises(SweepError, match="more than 10 checkpoints"):
        await sweep(story, most=10)


async def test_cancelling_the_sweep_cancels_the_story(moment) -> None:
    """A time limit around a sweep is kept, and the watched loop is left as it was."""
    with anyio.move_on_after(5) as scope:
        await sweep(anyio.sleep_forever, moment=moment)
    assert scope.cancelled_caught
    await checkpoint()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_native_cancellation_is_thrown_once(moment) -> None:
    """Cancelled by asyncio itself, a story that carries on after one CancelledError comes to its end."""
    seen = 0

    async def story() -> str:
        nonlocal seen
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            seen += 1
        await asyncio.sleep(1)
        return "went on"

    report = await sweep(story, moment=moment, native=True)
    assert seen == 1
    assert [cut.status for cut in report.cuts] == ["completed", "completed", "cancelled", "completed"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_native_cancellation_beside_the_arrival_takes_the_good_away() -> None:
    """A wait that is over but not yet woken from raises all the same, as asyncio does it."""
    arrived: list[bool] = []

    async def story() -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        try:
            await future
        finally:
            arrived.append(future.done() and not future.cancelled())

    report = await sweep(story, moment="woken", native=True)
    assert [cut.status for cut in report.cuts] == ["completed", "cancelled", "completed"]
    assert arrived == [True, True, True]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_tasks_that_outlive_the_story_are_found() -> None:
    """A task that was only started, never awaited, fails the sweep."""
    started: list[asyncio.Task[bool]] = []

    async def story() -> None:
        started.append(asyncio.create_task(asyncio.Event().wait()))
        await checkpoint()

    with pytest.raises(SweepError, match="tasks are left"):
        await sweep(story)
    for task in started:
        task.cancel()
    await asyncio.wait(started)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_tasks_cancelled_before_their_first_step_leave_no_warning() -> None:
    """A child that is cancelled before it begins is closed as it would be without the sweep."""

    async def story() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 1)
            child = asyncio.ensure_future(asyncio.sleep(1))
            child.cancel()
            await asyncio.wait([child])

    await sweep(story)
    await sweep(story, native=True)


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_native_cancellation_is_for_asyncio() -> None:
    """On trio there is one way to cancel, and asking for the other says so."""
    with pytest.raises(ValueError, match="on trio, leave it out"):
        await sweep(checkpoint, native=True)
