"""How a live view comes before people: as pictures on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

# Asked only which thread this is: signals reach no other than the main one.
from threading import current_thread, main_thread  # noqa: TID251
from typing import Protocol, TextIO

import anyio
from attrs import frozen
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live

from furcate.report._live_frame import Picture, draw
from furcate.report._live_model import LiveModel
from furcate.report._live_table import Layout, Line, Room
from furcate.report._live_words import Named, plain_news, plain_status

GONE = (OSError, ValueError)
"""What is raised where nobody is there any more to see anything."""

_FRAME_S = 0.04
# Drawing may take this part of the time and no more: where a picture takes long, there are fewer of them. On a busy
# machine a picture may seem to have taken long that only had to wait, hence the bound.
_SHARE = 0.012
_LONGEST_S = 0.5

_drawn_on: set[object] = set()
"""The terminals that some view draws on."""


@frozen(kw_only=True)
class Watched:
    """Say what is shown.

    Attributes:
        model: what is known.
        named: how things are called.
        every_s: how often plain lines are written, in seconds.
        above: gives lines to be shown above all else; None for none.
    """

    model: LiveModel
    named: Named
    every_s: float
    above: Callable[[float, bool], Iterable[str]] | None = None

    def lines_above(self, now_s: float, *, last: bool) -> tuple[str, ...]:
        """Give the lines to be shown above all else."""
        return tuple(self.above(now_s, last)) if self.above is not None else ()


class Pen(Protocol):
    """Bring a model's state before people."""

    def can_be_stopped(self) -> bool:
        """Tell whether a shell may stop the program and write to the same place meanwhile."""

    def begin_anew(self) -> None:
        """Leave the last picture as it is, and draw from where the cursor is now."""

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

    def leave(self) -> None:
        """Let others draw on the same terminal."""


def pen_for(file: TextIO | None, watched: Watched) -> Pen | None:
    """Choose how to show things there: as pictures on a terminal, else as lines; not at all where there is no file."""
    if file is None:
        return None
    console = _Screen(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if console.is_terminal and console.is_interactive and not console.is_dumb_terminal:
        place = _place(file)
        if place in _drawn_on:
            return None
        _drawn_on.add(place)
        return _Terminal(console, watched, place)
    return _Lines(file, watched)


class _Screen(Console):
    """Write to a terminal that may go away."""

    def on_broken_pipe(self) -> None:
        """Say so, rather than end the program and close its stdout."""
        raise BrokenPipeError("nobody reads the live view any more")

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor as it is: a program that is stopped or killed could not show it again."""
        return False


class _Terminal:
    """Draw at the bottom of a terminal. Nothing here runs in a thread."""

    def __init__(self, console: Console, watched: Watched, place: object) -> None:
        self._place = place
        self._console = console
        self._watched = watched
        self._live: Live | None = None
        self._lines: tuple[Line, ...] = ()
        self._layout = Layout()
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
        self._heed_width(width)
        self._lines = lines
        self._live.update(Picture(lines), refresh=True)

    def can_be_stopped(self) -> bool:
        # Receiving a signal takes it from whoever else does, and works in a process's main thread alone.
        file = self._console.file
        try:
            return (
                sys.platform != "win32"
                and os.isatty(file.fileno())
                and signal.getsignal(signal.SIGCONT) == signal.SIG_DFL
                and current_thread() is main_thread()
            )
        except (AttributeError, *GONE):
            return False

    def begin_anew(self) -> None:
        if self._live is None:
            return
        # Another display knows nothing of the last picture, so it does not go up to where that was.
        file, self._console.file = self._console.file, io.StringIO()
        try:
            self._live.stop()
        finally:
            self._console.file = file
        self._lines = ()
        self.put_down()

    def lift(self) -> None:
        with suppress(*GONE):
            self._heed_width(self._console.width)
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
        with suppress(*GONE):
            self._live.start(refresh=bool(self._lines))

    def finish(self) -> None:
        with suppress(*GONE):
            self._heed_width(self._console.width)
        self._layout.folded = False
        self._lines = self._picture(anyio.current_time(), self._console.width, None)
        if self._live is not None:
            self._live.update(Picture(self._lines))
        self._stop(stays=True)

    def leave(self) -> None:
        _drawn_on.discard(self._place)

    def _picture(self, now_s: float, width: int, height: int | None) -> tuple[Line, ...]:
        room = Room(width=width, height=height, ascii=self._ascii)
        last = height is None
        above = self._watched.lines_above(now_s, last=last)
        self._watched.model.pass_time(now_s)
        return draw(
            self._watched.model, now_s, room, named=self._watched.named, head=above, last=last, layout=self._layout
        )

    def _stop(self, *, stays: bool) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.transient = not stays
            with suppress(*GONE):
                live.stop()

    def _heed_width(self, width: int) -> None:
        before, self._width = self._width, width
        if width != before and self._live is not None and self._lines:
            self._step_back(width)

    def _step_back(self, width: int) -> None:
        """Go up to where the last picture begins once the terminal has wrapped it anew, and wipe it off."""
        wrapped = sum(max(1, -(-sum(cell_len(text) for text, _ in line) // width)) for line in self._lines)
        up = wrapped - len(self._lines)
        self._console.file.write((f"\x1b[{up}A" if up > 0 else "") + "\r\x1b[J")


class _Lines:
    """Write plain lines at intervals."""

    def __init__(self, file: TextIO, watched: Watched) -> None:
        self._file = file
        self._watched = watched
        self._told = 0

    def pause_s(self, took_s: float) -> float:
        return self._watched.every_s

    def draw(self, now_s: float, *, last: bool = False) -> None:
        model = self._watched.model
        model.pass_time(now_s)
        lines = [
            *plain_news(model, self._told),
            *self._watched.lines_above(now_s, last=last),
            plain_status(model, now_s, self._watched.named, last=last),
        ]
        self._told = model.ended
        text = "".join(f"{line}\n" for line in lines if line)
        if text:
            encoding = getattr(self._file, "encoding", None) or "utf-8"
            self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._file.flush()

    def can_be_stopped(self) -> bool:
        return False

    def begin_anew(self) -> None:
        pass

    def lift(self) -> None:
        pass

    def put_down(self) -> None:
        pass

    def finish(self) -> None:
        self.draw(anyio.current_time(), last=True)

    def leave(self) -> None:
        pass


def _place(file: TextIO) -> object:
    """Give what is the same for two files that show the same terminal."""
    try:
        return os.ttyname(file.fileno())
    except (AttributeError, *GONE):
        return id(file)


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
    except (AttributeError, *GONE):
        return True
