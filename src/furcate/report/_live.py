"""A live view of what goes on: drawn over and over on a terminal, told in plain lines at intervals elsewhere."""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Protocol, TextIO

import anyio
import anyio.abc
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live

from furcate.admission import AdmissionStatistics
from furcate.primitives._errors import MisuseError
from furcate.primitives._observations import Observation
from furcate.report._live_frame import Line, Picture, Room, draw
from furcate.report._live_model import LiveModel
from furcate.report._live_words import Named, plain_news, plain_status

_log = logging.getLogger("furcate")

_FRAME_S = 0.04
# Drawing may take this part of the time and no more: where a picture takes long, there are fewer of them. On a busy
# machine a picture may seem to have taken long that only had to wait, hence the bound.
_SHARE = 0.012
_LONGEST_S = 0.5
_GONE = (OSError, ValueError)


class LiveView:
    """Show what engines do, while its ``async with`` block lasts: an observer to be given to them.

    On a terminal it draws a tree of runs and branches, or, of more than fit, counts, what failed and what takes
    longest. Elsewhere it writes plain lines: what has ended and how all stands, at intervals. Nothing of an answer's
    text is shown. It writes to stderr by default and never to stdout; a file that is closed or broken is passed over in
    silence.

    Arguments:
        file: where to write; by default what ``sys.stderr`` is when the block is entered.
        every_s: how often plain lines are written, in seconds.
        roots: what to call the runs that belong to no branch, in the plural.
        expected: how many of those there will be; None where that is not known.
        above: gives lines to be shown above all else, of how things stand at a time of anyio's clock, in seconds; the
            second argument tells whether they are to stay.

    Raises:
        ValueError: `every_s` is not more than 0.

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
        if not every_s > 0:
            raise ValueError(f"every_s is {every_s!r}; give a number of seconds above 0")
        self.model = LiveModel()
        self._file = file
        self._every_s = every_s
        self._named = Named(roots, expected)
        self._above = above
        self._pen: _Pen | None = None
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
        self._pen = _pen_for(self._file if self._file is not None else sys.stderr, self)
        if self._pen is not None:
            self._pen.put_down()
            tasks.start_soon(self._keep_drawing, self._pen)
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

    def _lines_above(self, now_s: float, *, last: bool) -> tuple[str, ...]:
        return tuple(self._above(now_s, last)) if self._above is not None else ()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Keep from what is watched whatever goes wrong with watching it."""
        try:
            yield
        except _GONE:
            return  # nobody is there to see it
        except Exception:
            # Once is enough to find a fault; many pictures a second must not flood the log.
            level = logging.DEBUG if self._faulty else logging.ERROR
            self._faulty = True
            _log.log(level, "the live view could not be drawn; everything else goes on", exc_info=True)

    async def _keep_drawing(self, pen: _Pen) -> None:
        took_s = 0.0
        while True:
            with anyio.move_on_after(pen.pause_s(took_s)):
                await self._ending.wait()
                return
            before_s = anyio.current_time()
            with self._harmless():
                pen.draw(before_s)
            took_s = anyio.current_time() - before_s


class _Pen(Protocol):
    """Bring a model's state before people."""

    def pause_s(self, took_s: float) -> float:
        """Say how long to wait after a picture that took that long."""

    def draw(self, now_s: float) -> None:
        """Show how things stand."""

    def lift(self) -> None:
        """Make room for others that write to the same place."""

    def put_down(self) -> None:
        """Show again what was taken away; also at the very beginning."""

    def finish(self) -> None:
        """Show how everything ended."""


def _pen_for(file: TextIO | None, view: LiveView) -> _Pen | None:
    """Choose how to show things there: as pictures on a terminal, else as lines; not at all where there is no file."""
    if file is None:
        return None
    console = _Screen(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if console.is_terminal and console.is_interactive and not console.is_dumb_terminal:
        return _Terminal(console, view)
    return _Lines(file, view)


class _Screen(Console):
    """Write to a terminal that may go away."""

    def on_broken_pipe(self) -> None:
        """Say so, rather than end the program and close its stdout."""
        raise BrokenPipeError("nobody reads the live view any more")


class _Terminal:
    """Draw at the bottom of a terminal. Nothing here runs in a thread."""

    def __init__(self, console: Console, view: LiveView) -> None:
        self._console = console
        self._view = view
        self._live: Live | None = None
        self._lines: tuple[Line, ...] = ()
        self._width = console.width
        self._ascii = not console.encoding.lower().startswith("utf")

    def pause_s(self, took_s: float) -> float:
        return min(max(_FRAME_S, took_s / _SHARE), _LONGEST_S)

    def draw(self, now_s: float) -> None:
        if self._live is None or not _takes_text(self._console.file):
            return
        width, height = self._console.size
        lines = self._picture(now_s, width, height - 1)
        if width == self._width and lines == self._lines:
            return
        before, self._width = self._width, width
        if width != before:
            self._step_back(width)
        self._lines = lines
        self._live.update(Picture(lines), refresh=True)

    def lift(self) -> None:
        self._stop(stays=False)

    def put_down(self) -> None:
        # A display that starts again would take what was written meanwhile for its own last picture.
        self._live = Live(
            Picture(self._lines),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=_is_terminal(sys.stdout),
            vertical_overflow="crop",
        )
        with suppress(*_GONE):
            self._live.start(refresh=bool(self._lines))

    def finish(self) -> None:
        self._lines = self._picture(anyio.current_time(), self._console.width, None)
        if self._live is not None:
            self._live.update(Picture(self._lines))
        self._stop(stays=True)

    def _picture(self, now_s: float, width: int, height: int | None) -> tuple[Line, ...]:
        room = Room(width=width, height=height, ascii=self._ascii)
        above = self._view._lines_above(now_s, last=height is None)
        return draw(self._view.model, now_s, room, named=self._view._named, head=above, last=height is None)

    def _stop(self, *, stays: bool) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.transient = not stays
            with suppress(*_GONE):
                live.stop()

    def _step_back(self, width: int) -> None:
        """Go up to where the last picture begins once the terminal has wrapped it anew, and wipe it off."""
        wrapped = sum(max(1, -(-sum(cell_len(text) for text, _ in line) // width)) for line in self._lines)
        up = wrapped - len(self._lines)
        self._console.file.write((f"\x1b[{up}A" if up > 0 else "") + "\r\x1b[J")


class _Lines:
    """Write plain lines at intervals."""

    def __init__(self, file: TextIO, view: LiveView) -> None:
        self._file = file
        self._view = view
        self._told = 0

    def pause_s(self, took_s: float) -> float:
        return self._view._every_s

    def draw(self, now_s: float, *, last: bool = False) -> None:
        model = self._view.model
        lines = [
            *plain_news(model, self._told),
            *self._view._lines_above(now_s, last=last),
            plain_status(model, now_s, self._view._named, last=last),
        ]
        self._told = model.ended
        text = "".join(f"{line}\n" for line in lines if line)
        if text:
            encoding = getattr(self._file, "encoding", None) or "utf-8"
            self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._file.flush()

    def lift(self) -> None:
        pass

    def put_down(self) -> None:
        pass

    def finish(self) -> None:
        self.draw(anyio.current_time(), last=True)


def _is_terminal(file: TextIO | None) -> bool:
    try:
        return file is not None and file.isatty()
    except ValueError:
        return False


def _takes_text(file: object) -> bool:
    """Tell whether a write would go through: a terminal that was paused must not stop the event loop."""
    if sys.platform == "win32":  # knows no such question but for sockets
        return True
    try:
        number = file.fileno()  # type: ignore[attr-defined]
        return bool(select.select([], [number], [], 0)[1])
    except (AttributeError, *_GONE):
        return True
