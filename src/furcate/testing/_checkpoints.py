"""Watching where the tasks of a story wait, on either event loop, and acting at one such place."""

from __future__ import annotations

# A task's steps are seen by its own event loop alone, so this file has to name both loops.
import asyncio  # noqa: TID251
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

# The same holds here.
import trio  # noqa: TID251

Moment: TypeAlias = Literal["waiting", "woken"]


def running_loop() -> Literal["asyncio", "trio"]:
    """Name the event loop that runs this."""
    return "trio" if trio.lowlevel.in_trio_run() else "asyncio"


class Meter:
    """Count how often the tasks of one story begin to wait, and act once at a chosen time of these.

    Tasks belong to the story if they descend from a task that was started inside `mark`.

    Arguments:
        at: the number of the wait to act at, from 1 on; None never acts.
        moment: ``waiting`` acts as soon as the task waits, ``woken`` once it is to go on but has not yet run.

    Attributes:
        act: what to do; must not raise.
        seen: how many waits there were so far.
        acted: whether it has acted.
        counting: whether waits are counted now.
    """

    def __init__(self, at: int | None, moment: Moment) -> None:
        self._at = at
        self._moment = moment
        self._tasks: list[asyncio.Task[Any]] = []
        self.act: Callable[[], object] = lambda: None
        self.seen = 0
        self.acted = False
        self.counting = False

    @contextmanager
    def mark(self) -> Iterator[None]:
        """Make the tasks that are started in this block, and all that they start, the story's."""
        token = _METER.set(self)
        try:
            yield
        finally:
            _METER.reset(token)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop while the block lasts; it should be the only watcher."""
        if running_loop() == "trio":
            instrument = _Instrument(self)
            trio.lowlevel.add_instrument(instrument)
            try:
                yield
            finally:
                trio.lowlevel.remove_instrument(instrument)
            return
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()
        loop.set_task_factory(self._task_factory(before))
        try:
            yield
        finally:
            loop.set_task_factory(before)

    @property
    def tasks_left(self) -> list[asyncio.Task[Any]]:
        """The asyncio tasks of the story that have not ended; trio has no way to leave one."""
        return [task for task in self._tasks if not task.done()]

    def wait_begins(self) -> bool:
        """Count a wait, and tell whether it is the one to act at."""
        if not self.counting:
            return False
        self.seen += 1
        return self.seen == self._at

    @property
    def acts_on_waking(self) -> bool:
        """Whether to act when the task is to go on, rather than at once."""
        return self._moment == "woken"

    def fire(self, *_: object) -> None:
        """Act."""
        # A shielded wait may outlast the story's counted part; nobody is there to be cancelled then.
        if self.counting:
            self.acted = True
            self.act()

    def _task_factory(self, before: Callable[..., Any] | None) -> Callable[..., Any]:
        def make(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **how: Any) -> asyncio.Future[Any]:
            context = how.get("context")
            meter = _METER.get() if context is None else context.get(_METER)
            if meter is self:
                coro = _Watched(coro, self)
            task: asyncio.Task[Any] = (
                asyncio.Task(coro, loop=loop, **how) if before is None else before(loop, coro, **how)
            )
            if meter is self:
                self._tasks.append(task)
            return task

        return make


_METER: ContextVar[Meter | None] = ContextVar("furcate_sweep_meter", default=None)


class _Watched(Coroutine[Any, Any, Any]):
    """Stand between an asyncio task and its coroutine, and see each step of it end.

    A coroutine function around it would not do: cancelled before its first step, it would drop the inner one unstarted.
    """

    def __init__(self, coro: Coroutine[Any, Any, Any], meter: Meter) -> None:
        self._coro = coro
        self._meter = meter

    def send(self, value: Any) -> Any:
        return self._note(self._coro.send(value))

    def throw(self, *error: Any) -> Any:
        return self._note(self._coro.throw(*error))

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coro.__await__()

    def __getattr__(self, name: str) -> Any:
        # Names and cr_* are asked for by asyncio's debug mode and by anyio.
        return getattr(self._coro, name)

    def _note(self, waits_for: Any) -> Any:
        if self._meter.wait_begins():
            if not self._meter.acts_on_waking:
                self._meter.fire()
            elif waits_for is None:
                asyncio.get_running_loop().call_soon(self._meter.fire)
            else:
                # The task adds its own callback, by which it wakes, only after this one.
                waits_for.add_done_callback(self._meter.fire)
        return waits_for


class _Instrument(trio.abc.Instrument):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._chosen: trio.lowlevel.Task | None = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.context.get(_METER) is not self._meter:
            return
        if inspect.getcoroutinestate(task.coro) != inspect.CORO_SUSPENDED or not self._meter.wait_begins():
            return
        if self._meter.acts_on_waking:
            self._chosen = task
        else:
            self._meter.fire()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._chosen:
            self._chosen = None
            self._meter.fire()
