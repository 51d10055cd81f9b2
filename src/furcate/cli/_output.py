"""Standard output, written to piece by piece, with rows in it that change where they stand."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Hashable, Mapping
from typing import Literal, TypeAlias

from attrs import frozen

from furcate.cli._cursor import Cursor

Role: TypeAlias = Literal["hosted", "failure"]

_COLOURS: Mapping[Role, str] = {"hosted": "\x1b[36m", "failure": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_ERASE_LINE = "\r\x1b[2K"
_MARKER_LENGTH = 3


def stdout_is_closed() -> bool:
    """Tell whether the process began without a standard output, so that what is written there goes nowhere."""
    return sys.__stdout__ is None


class Output:
    """Write to stdout; nobody reading it any more is no error.

    Attributes:
        problem: why something could not be written, other than for want of a reader; None where all was.
    """

    def __init__(self) -> None:
        self._open_line = False
        self.problem: OSError | None = None

    def put(self, text: str) -> None:
        """Write text as it is."""
        if text:
            self.put_bytes(text.encode(sys.stdout.encoding or "utf-8", "replace"))
            self._open_line = not text.endswith("\n")

    def put_bytes(self, data: bytes) -> None:
        """Write bytes and flush them."""
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except (BrokenPipeError, ValueError):
            return
        except OSError as error:
            self.problem = self.problem or error

    def end_line(self) -> None:
        """End the line where text has left one open."""
        if self._open_line:
            self.put("\n")


@frozen
class _Drawn:
    """Say where a row stands: on which line, of a terminal of which size, after how many doubts."""

    line: int
    size: os.terminal_size
    doubts: int


class Screen(Output):
    """Write cleaned text and rows to a terminal.

    Attributes:
        moves: whether the terminal lets its cursor be moved, so that rows can change where they stand.
        colours: whether it is to show colours.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moves = os.environ.get("TERM", "dumb") != "dumb"
        self.colours = self.moves and not os.environ.get("NO_COLOR")
        self._size = shutil.get_terminal_size()
        self._cursor = Cursor(self._size.columns)
        self._coloured = False
        self._drawn: dict[Hashable, _Drawn] = {}

    @property
    def width(self) -> int:
        """How many cells a row may have."""
        # Some terminals take two cells for the dot and the ellipsis of a row, which must not wrap there.
        return max(1, shutil.get_terminal_size().columns - 3)

    def put(self, text: str) -> None:
        """Write cleaned text."""
        super().put(text)
        self._coloured = self._coloured or "\x1b" in text
        self._cursor.write(text)

    def end_line(self) -> None:
        """End the line where text has left one open, and what colours the text has left on."""
        if self._coloured:
            self.put_bytes(_PLAIN.encode())
            self._coloured = False
        super().end_line()

    def draw(self, key: Hashable, text: str, role: Role) -> None:
        """Write a row on a line of its own.

        Arguments:
            key: tells it apart from other rows.
            text: a clean line that begins with a marker.
            role: whose colour it wears.
        """
        self.end_line()
        self._heed_size()
        self._drawn[key] = _Drawn(self._cursor.line, self._size, self._cursor.doubts)
        self.put(self._dressed(text, role) + "\n")
        self._coloured = False

    def redraw(self, key: Hashable, text: str, role: Role) -> bool:
        """Write a row anew where it stands.

        Returns:
            Whether that was possible: not where its line has left the screen, or where nobody knows how far up it is.
        """
        drawn = self._drawn.get(key)
        wrapped = self._cursor.wrapped
        self._heed_size()
        if not self.moves or drawn is None or wrapped is None:
            return False
        if (drawn.size, drawn.doubts) != (self._size, self._cursor.doubts):
            return False
        up = self._cursor.line + wrapped - drawn.line
        if not 0 < up < self._size.lines:
            return False
        moved = f"{_SAVE}\x1b[{up}A{_ERASE_LINE}{self._dressed(text, role)}{_RESTORE}"
        self.put_bytes(moved.encode(sys.stdout.encoding or "utf-8", "replace"))
        return True

    def _heed_size(self) -> None:
        size = shutil.get_terminal_size()
        if size != self._size:
            self._size = size
            self._cursor.width = size.columns

    def _dressed(self, text: str, role: Role) -> str:
        if not self.colours:
            return text
        # A failed row is red all over; otherwise the marker alone has a colour.
        end = len(text) if role == "failure" else _MARKER_LENGTH
        return f"{_COLOURS[role]}{text[:end]}{_PLAIN}{text[end:]}"
