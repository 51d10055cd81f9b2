"""Where a terminal's cursor stands after what was written, as far as anybody can know."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from attrs import define, field

# The only sequences that a cleaned text still holds.
_LOOKS = re.compile(r"\x1b\[[0-9;:]*m")
_TAB = 8


@define
class Cursor:
    """Follow a cursor through lines that wrap.

    Terminals do not agree on how wide some letters are, so the cursor is followed at its narrowest and at its widest.
    Where the two come to stand on different lines, nobody knows any more how far up an earlier line is.

    Attributes:
        width: how many cells a line of the terminal has.
        line: the line, counted from where the cursor was first.
        doubts: how often the line became uncertain; lines of before and after are not to be compared.
    """

    width: int
    line: int = 0
    doubts: int = 0
    _least: tuple[int, int] = field(default=(0, 0), init=False)
    _most: tuple[int, int] = field(default=(0, 0), init=False)

    def write(self, text: str) -> None:
        """Follow a cleaned text."""
        for char in _LOOKS.sub("", text):
            if char == "\n":
                self._end_line()
            elif char == "\t":
                self._least = self._tabbed(self._least)
                self._most = self._tabbed(self._most)
            else:
                least, most = _cells(char)
                self._least = self._moved(self._least, least)
                self._most = self._moved(self._most, most)

    def _end_line(self) -> None:
        if self._least[0] != self._most[0]:
            self.doubts += 1
        self.line += self._most[0] + 1
        self._least = self._most = (0, 0)

    @property
    def wrapped(self) -> int | None:
        """How many lines the cursor is below the beginning of what was written since the last line feed.

        None where nobody knows.
        """
        return self._most[0] if self._least[0] == self._most[0] else None

    def _moved(self, at: tuple[int, int], cells: int) -> tuple[int, int]:
        line, column = at
        # A letter that fills the line leaves the cursor there; only the next one takes it down.
        return (line + 1, cells) if column + cells > self.width else (line, column + cells)

    def _tabbed(self, at: tuple[int, int]) -> tuple[int, int]:
        line, column = at
        return line, min(self.width - 1, column // _TAB * _TAB + _TAB)


@lru_cache(maxsize=2048)
def _cells(char: str) -> tuple[int, int]:
    """Give how many cells a letter takes at least and at most."""
    if " " <= char <= "~":
        return 1, 1
    # Marks, joiners, symbols and what is not assigned: terminals show them each in their own way.
    if unicodedata.category(char) in ("Mn", "Me", "Mc", "Cf", "Cn", "Co", "Cs", "So", "Sk"):
        return 0, 2
    match unicodedata.east_asian_width(char):
        case "W" | "F":
            return 2, 2
        case "A":
            return 1, 2
        case _:
            return 1, 1
