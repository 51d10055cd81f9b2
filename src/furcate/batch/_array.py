"""Items as the elements of one JSON array, cut where they end: one of them is held at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from furcate.batch import _pieces
from furcate.batch._pieces import BLOCK, BOM, SPACE, Piece, parse, too_long
from furcate.primitives._errors import ItemsError

_LINES = "for one item a line give the format jsonl (--format jsonl)"
_MARKS = re.compile(rb'["\\\[\]{},]')
_OPENING, _CLOSING = b"[{", b"]}"


_INSIDE = bytes(range(0x80, 0xC0))
"""The bytes that no character of UTF-8 begins with."""


class _Place:
    """Count lines and columns, in characters, from 1 on."""

    def __init__(self, line: int = 1, column: int = 1) -> None:
        self.line = line
        self.column = column

    def pass_over(self, part: bytes) -> None:
        """Go on behind some bytes."""
        lines = part.count(b"\n")
        if lines:
            self.line += lines
            self.column = 1
            part = part[part.rindex(b"\n") + 1 :]
        self.column += len(part.translate(None, _INSIDE))


class _Element:
    """Gather one element of an array, in bytes, and where it begins; `place` follows where it ends."""

    def __init__(self, place: _Place) -> None:
        self.bytes = bytearray()
        self.too_long = False
        self._place = place
        self._line, self._column = place.line, place.column

    def add(self, part: bytes) -> None:
        """Take the next bytes of it."""
        if not self.bytes and not self.too_long:
            begun = part.lstrip(SPACE)
            self._place.pass_over(part[: len(part) - len(begun)])
            self._line, self._column = self._place.line, self._place.column
            part = begun
        self._place.pass_over(part)
        self.too_long = self.too_long or len(self.bytes) + len(part) > _pieces.MAX_ITEM_BYTES
        if self.too_long:
            self.bytes.clear()
        else:
            self.bytes += part

    def piece(self) -> Piece:
        """Read it."""
        if self.too_long:
            return too_long(self._line, "the element")
        raw = bytes(self.bytes.rstrip(SPACE))
        if not raw:
            problem = f"no JSON: there is no item at column {self._column}, but a comma beside it; take that away"
            return Piece(self._line, 1, problem=problem)
        return parse(raw, self._line, column=self._column)


def json_array(file: BinaryIO, where: str) -> Iterator[Piece]:
    """Read the elements of one JSON array, cutting it where its elements end: one of them is held at a time.

    An element that is no JSON is told as such as long as its brackets and quotes match.

    Raises:
        ItemsError: it is no array, it is not closed, or something follows it.
    """
    return _Array(file, where).pieces()


class _Array:
    """Cut an array into its elements."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self._depth = 0
        self._quoted = False
        self._after_comma = False
        self._ended = False

    def pieces(self) -> Iterator[Piece]:
        """Give each element."""
        place = _Place()
        block = self._opening(place)
        first = place.line
        element = _Element(place)
        escaped = 0
        while block:
            done = 0
            for mark in _MARKS.finditer(block):
                at = mark.start()
                if at < escaped:
                    continue
                if self._quoted and mark[0] == b"\\":
                    escaped = at + 2
                elif self._ends(mark[0]):
                    element.add(block[done:at])
                    if element.bytes or element.too_long or self._after_comma or not self._ended:
                        yield element.piece()
                    place.pass_over(mark[0])
                    element = _Element(place)
                    done = at + 1
                    if self._ended:
                        return self._check_rest(block[done:], place)
                    self._after_comma = True
            element.add(block[done:])
            escaped = max(0, escaped - len(block))
            block = self._file.read(BLOCK)
        problem = f"the array that begins on line {first} is never closed; was the file cut off?"
        raise ItemsError(problem, where=self._where, lines=(first,))

    def _ends(self, mark: bytes) -> bool:
        """Take a mark into account, and tell whether the element ends before it."""
        if mark == b'"':
            self._quoted = not self._quoted
        elif self._quoted:
            return False
        elif self._depth == 0 and mark in (b",", b"]"):
            self._ended = mark == b"]"
            return True
        elif mark in _OPENING:
            self._depth += 1
        elif mark in _CLOSING and self._depth:
            self._depth -= 1
        return False

    def _opening(self, place: _Place) -> bytes:
        """Give the bytes after the opening bracket, and go there."""
        begun = b""
        block = self._file.read(BLOCK).removeprefix(BOM)
        while block:
            begun = block.lstrip(SPACE)
            place.pass_over(block[: len(block) - len(begun)])
            if begun:
                break
            block = self._file.read(BLOCK)
        else:
            raise ItemsError("holds no JSON array, it is empty", where=self._where)
        if not begun.startswith(b"["):
            problem = f"line {place.line} begins no JSON array; {_LINES}"
            raise ItemsError(problem, where=self._where, lines=(place.line,))
        place.pass_over(b"[")
        # An element that begins right after the bracket must not look as if the file had ended.
        return begun[1:] or self._file.read(BLOCK)

    def _check_rest(self, block: bytes, place: _Place) -> None:
        while block:
            begun = block.lstrip(SPACE)
            place.pass_over(block[: len(block) - len(begun)])
            if begun:
                problem = f"goes on after its array, on line {place.line}; {_LINES}"
                raise ItemsError(problem, where=self._where, lines=(place.line,))
            block = self._file.read(BLOCK)
