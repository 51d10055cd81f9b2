"""The cancellation sweep: one story, cancelled at every place where it can be."""

from __future__ import annotations

# A task's own cancel() exists on this event loop alone.
import asyncio  # noqa: TID251
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Generic, Literal, TypeVar, cast

import anyio
import anyio.lowlevel
from attrs import frozen

from furcate.primitives._checks import check_whole
from furcate.testing._checkpoints import Meter, Moment, running_loop

T = TypeVar("T")


@frozen(kw_only=True)
class Cut(Generic[T]):
    """Tell how one run of a story ended.

    Attributes:
        checkpoint: the checkpoint at which it was cancelled; None where it was left alone.
        status: ``cancelled``, or ``completed`` where it was left alone or cancellation came too late to matter.
        result: what a completed story returned.
    """

    checkpoint: int | None
    status: Literal["completed", "cancelled"]
    result: T | None


@frozen(kw_only=True)
class Sweep(Generic[T]):
    """Tell what a sweep saw.

    Attributes:
        loop: ``asyncio`` or ``trio``.
        checkpoints: how many checkpoints the story has when left alone. With real sockets another run may have a few
            more or less.
        cuts: every run, the undisturbed first one included.
    """

    loop: str
    checkpoints: int
    cuts: tuple[Cut[T], ...]

    @property
    def cancelled(self) -> int:
        """Number of runs that ended by cancellation."""
        return sum(cut.status == "cancelled" for cut in self.cuts)


class SweepError(AssertionError):
    """Raised when a story or its check fails in a sweep; the error itself is the cause.

    Attributes:
        checkpoint: the checkpoint at which the story was cancelled; None where it was left alone.
        loop: ``asyncio`` or ``trio``.
    """

    def __init__(self, what: str, *, checkpoint: int | None, loop: str) -> None:
        where = "left alone" if checkpoint is None else f"cancelled at checkpoint {checkpoint}"
        super().__init__(f"{where} on {loop}: {what}")
        self.checkpoint = checkpoint
        self.loop = loop


async def sweep(
    story: Callable[[], Awaitable[T]],
    check: Callable[[Cut[T]], Awaitable[None] | None] | None = None,
    *,
    moment: Moment = "waiting",
    native: bool = False,
    every: int = 1,
    most: int = 5000,
) -> Sweep[T]:
    """Run a story once as it is, then again and again, cancelled at each checkpoint that it has.

    ::

        async def story() -> None:
            await furcate.Coordinator(engine, exchange, my_callback, additional_turns=2).run()

        def check(cut: Cut[None]) -> None:
            assert engine.statistics()["stub"].in_use == 0

        await sweep(story, check)

    A checkpoint is a place where the story's task, or any task that it started, waits for the event loop. Where real
    sockets or the scheduling of tasks make runs differ by a few checkpoints, a number need not mean the same place
    twice; the sweep takes every number of the undisturbed run, and goes on until a run ends before its number. What
    the story shares between its runs, such as an engine, is opened outside of it.

    The story must let cancellation pass, and must end in no error of its own: what it expects, it catches. On asyncio
    none of its tasks may outlive it.

    Arguments:
        story: called anew for each run.
        check: plain or async; called after each run and outside of what was cancelled, raises where something is wrong.
        moment: ``waiting`` cancels as soon as the task waits; ``woken`` in the very step in which what it waited for
            has come, before it goes on: the race that is lost most often.
        native: on asyncio, cancel by ``task.cancel()`` on the story's task, once, as code without anyio does.
        every: take only each so-and-so-many-th checkpoint.
        most: give up on a story with more checkpoints than this.

    Raises:
        SweepError: says at which checkpoint, and on which event loop, the story or the check failed.
        ValueError: `native` on trio, or `every` or `most` is less than 1.
        TypeError: one of these is no whole number.

    Cancelling the sweep itself cancels the story.
    """
    check_whole("every", every, 1)
    check_whole("most", most, 1)
    loop = running_loop()
    if native and loop == "trio":
        raise ValueError("native=True cancels asyncio tasks; on trio, leave it out")
    cuts: list[Cut[T]] = []
    checkpoints: int | None = None
    at: int | None = None
    while True:
        meter = Meter(at, moment)
        try:
            cut = await _run(story, meter, at, native=native)
            cuts.append(cut)
            checked = check(cut) if check is not None else None
            if isawaitable(checked):
                await checked
        except Exception as error:
            where = at if meter.acted else None
            raise SweepError(f"{type(error).__name__}: {error}", checkpoint=where, loop=loop) from error
        if meter.tasks_left:
            raise SweepError(f"tasks are left: {meter.tasks_left}", checkpoint=at if meter.acted else None, loop=loop)
        if checkpoints is None:
            checkpoints = meter.seen
        if at is not None and meter.seen < at and at > checkpoints:
            return Sweep(loop=loop, checkpoints=checkpoints, cuts=tuple(cuts))
        at = 1 if at is None else at + every
        if at > most:
            raise SweepError(f"it has more than {most} checkpoints; give most= or every=", checkpoint=None, loop=loop)


async def _run(story: Callable[[], Awaitable[T]], meter: Meter, at: int | None, *, native: bool) -> Cut[T]:
    """Run the story in a task of its own, whose descendants are known by it."""
    ends: list[Cut[T]] = []
    errors: list[Exception] = []

    async def tell() -> None:
        results: list[T] = []
        meter.counting = True
        try:
            results.append(await story())
        except Exception as error:
            errors.append(error)
        finally:
            meter.counting = False
            status: Literal["completed", "cancelled"] = "completed" if results else "cancelled"
            # Where the meter never came to act, this is the run that was left alone.
            ends.append(
                Cut(checkpoint=at if meter.acted else None, status=status, result=results[0] if results else None)
            )

    with meter.watching():
        async with anyio.create_task_group() as tasks:
            with meter.mark():
                tasks.start_soon(_natively if native else _in_scope, tell, meter)
    if errors:
        raise errors[0]
    return ends[0]


async def _in_scope(tell: Callable[[], Awaitable[None]], meter: Meter) -> None:
    with anyio.CancelScope() as scope:
        meter.act = scope.cancel
        await tell()


async def _natively(tell: Callable[[], Awaitable[None]], meter: Meter) -> None:
    task = cast("asyncio.Task[None]", asyncio.current_task())
    meter.act = task.cancel
    try:
        await tell()
        # A cancellation that came in the story's last step is still to be thrown.
        await anyio.lowlevel.checkpoint()
    except asyncio.CancelledError:
        if not meter.acted:
            raise
        task.uncancel()
