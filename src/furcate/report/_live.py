"""A live view of what goes on: drawn over and over on a terminal, told in plain lines at intervals elsewhere."""

from __future__ import annotations

import logging
import math
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

import anyio
import anyio.abc

from furcate.admission import AdmissionStatistics
from furcate.primitives._checks import check_whole
from furcate.primitives._errors import MisuseError
from furcate.primitives._observations import Observation
from furcate.report._live_model import LiveModel
from furcate.report._live_pens import GONE, Pen, Watched, pen_for
from furcate.report._live_words import Named

_log = logging.getLogger("furcate")


class LiveView:
    """Show what engines do, while its ``async with`` block lasts: an observer to be given to them.

    On a terminal it draws a tree of runs and branches, or, of more than fit, counts, what failed and what takes
    longest. Elsewhere it writes plain lines: what has ended and how all stands, at intervals. Nothing of an answer's
    text is shown. It writes to stderr by default and never to stdout; a file that is closed or broken is passed over in
    silence. On a terminal that another view draws on already, it shows nothing.

    Arguments:
        file: where to write; by default what ``sys.stderr`` is when the block is entered.
        every_s: how often plain lines are written, in seconds.
        roots: what to call the runs that belong to no branch, in the plural.
        expected: how many of those there will be; None where that is not known.
        above: gives lines to be shown above all else, of how things stand at a time of anyio's clock, in seconds; the
            second argument tells whether they are to stay.

    Raises:
        TypeError: an argument is of another type.
        ValueError: `every_s` is not more than 0 or not finite, `roots` is empty, or `expected` is less than 0.

    Cancellation ends the drawing; the last picture stays.
    """

    def __init__(
        self,
        *,
        file: TextIO | None = None,
        every_s: float = 10.0,
        roots: str = "runs",
        expected: int | None = None,
        above: Callable[[float, bool], Iterable[str]] | None = None,
    ) -> None:
        _check(every_s, roots, expected)
        self.model = LiveModel()
        self._file = file
        self._every_s = every_s
        self._named = Named(roots, expected)
        self._above = above
        self._pen: Pen | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._faulty = False

    def on_event(self, event: Observation, /) -> None:
        """Take one observation."""
        self.model.take(event, anyio.current_time())

    def note(
        self, ident: str, *, name: str | None = None, text: str | None = None, waiting: bool | None = None
    ) -> None:
        """Say what observations do not tell.

        Arguments:
            ident: a run's id, or the scope id of a branch; a name may be given before its start is heard.
            name: what to call it.
            text: what to show of it, such as why it failed.
            waiting: whether it waits for the application to let it begin.
        """
        self.model.note(ident, anyio.current_time(), name=name, text=text, waiting=waiting)

    def show_capacity(self, statistics: Mapping[str, AdmissionStatistics]) -> None:
        """Show how many places backends have, from `Engine.statistics`; without it only those in use are known."""
        for name, found in statistics.items():
            self.model.capacity(name, capacity=found.capacity, limit=found.limit)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the picture away for as long as somebody else writes to the same terminal."""
        if self._pen is None:
            yield
            return
        self._pen.lift()
        try:
            yield
        finally:
            self._pen.put_down()

    async def __aenter__(self) -> LiveView:
        if self._tasks is not None:
            raise MisuseError("a live view is entered once; make another")
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        self._ending = anyio.Event()
        watched = Watched(model=self.model, named=self._named, every_s=self._every_s, above=self._above)
        self._pen = pen_for(self._file if self._file is not None else sys.stderr, watched)
        if self._pen is not None:
            self._pen.put_down()
            tasks.start_soon(self._keep_drawing, self._pen)
            if self._pen.can_be_stopped():
                tasks.start_soon(self._heed_continuing, self._pen)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._tasks is None:
            raise MisuseError("a live view is left only after it was entered")
        self._ending.set()
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup:
            if error is None:
                raise
            # Drawing raises nothing, so that is the block's own error, which need not come wrapped.
            return False
        finally:
            if self._pen is not None:
                with self._harmless():
                    self._pen.finish()
                self._pen.leave()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Keep from what is watched whatever goes wrong with watching it."""
        try:
            yield
        except GONE:
            return  # nobody is there to see it
        except Exception:
            # Once is enough to find a fault; many pictures a second must not flood the log.
            level = logging.DEBUG if self._faulty else logging.ERROR
            self._faulty = True
            _log.log(level, "the live view could not be drawn; everything else goes on", exc_info=True)

    async def _heed_continuing(self, pen: Pen) -> None:
        """Draw anew where the shell has written since somebody stopped the program."""
        with anyio.open_signal_receiver(signal.SIGCONT) as continued:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_ending, tasks.cancel_scope)
                async for _ in continued:
                    with self._harmless():
                        pen.begin_anew()

    async def _until_ending(self, scope: anyio.CancelScope) -> None:
        await self._ending.wait()
        scope.cancel()

    async def _keep_drawing(self, pen: Pen) -> None:
        took_s = 0.0
        while True:
            with anyio.move_on_after(pen.pause_s(took_s)):
                await self._ending.wait()
                return
            before_s = anyio.current_time()
            with self._harmless():
                pen.draw(before_s)
            took_s = anyio.current_time() - before_s


def _check(every_s: float, roots: str, expected: int | None) -> None:
    """Check the arguments of a view."""
    if isinstance(every_s, bool) or not isinstance(every_s, (int, float)):
        raise TypeError(f"every_s is {every_s!r}; give a number of seconds")
    if not (every_s > 0 and math.isfinite(every_s)):
        raise ValueError(f"every_s is {every_s!r}; give a finite number of seconds above 0")
    if not isinstance(roots, str):
        raise TypeError(f"roots is {roots!r}; give a word in the plural, such as 'inputs'")
    if not roots.strip():
        raise ValueError("roots is empty; give a word in the plural, such as 'inputs'")
    if expected is not None:
        check_whole("expected", expected, 0)
