"""The forms in which items are given, cut into pieces: one value, or what is wrong with it, and the line it stands on.

Nothing here holds more than one item: an item that is longer than `MAX_ITEM_BYTES` is passed over and told.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, NoReturn, TypeAlias

from attrs import frozen

from furcate.primitives._errors import ItemsError
from furcate.primitives._json import MAX_DEPTH, Plain, TooDeep, freeze

Format: TypeAlias = Literal["jsonl", "csv", "json"]
"""How items are given: one JSON value a line, a table with a header row, or one JSON array."""

MAX_ITEM_BYTES = 16 * 2**20
"""How long an item may be, in bytes; what is longer cannot be told from a file that is none of ours."""

_BLOCK = 2**16
_BOM = b"\xef\xbb\xbf"
_FOREIGN = (
    (b"\xff\xfe", "is text in UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "is text in UTF-16; save it as UTF-8"),
    (b"\x1f\x8b", "is compressed; unpack it first"),
    (b"PK\x03\x04", "is a packed file, such as a workbook; save it as CSV or as JSON lines"),
)


@frozen
class Piece:
    """Hold one item as it was read.

    Attributes:
        line: the line that it begins on, from 1 on.
        size: how long it is, in bytes.
        value: what it holds; None where `problem` is told, unless it could be read all the same.
        problem: what is wrong with it; None where nothing is.
        doubtful: the key that its object gives twice; None where there is none.
    """

    line: int
    size: int
    value: Plain = None
    problem: str | None = None
    doubtful: str | None = None


class _Lines:
    """Read lines in bytes, none longer than may be, and count them.

    Attributes:
        number: how many lines were read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.number = 0

    def read(self) -> bytes | None:
        """Give the next line with its end; None where it is too long; nothing at the end of the file."""
        line = self._file.readline(MAX_ITEM_BYTES + 1)
        if line:
            self.number += 1
        if self.number == 1:
            line = line.removeprefix(_BOM)
        if len(line) <= MAX_ITEM_BYTES:
            return line
        while line and not line.endswith(b"\n"):
            line = self._file.readline(_BLOCK)
        return None


def check_head(file: BinaryIO, where: str) -> bytes:
    """Look at the first bytes of items, which are then read again, without the mark that some editors write there.

    Raises:
        ItemsError: they are no text in UTF-8.
    """
    head = file.read(_BLOCK)
    file.seek(0)
    for mark, problem in _FOREIGN:
        if head.startswith(mark):
            raise ItemsError(problem, where=where)
    return head.removeprefix(_BOM)


def json_lines(file: BinaryIO, _where: str) -> Iterator[Piece]:
    """Read one JSON value a line; empty lines are passed over."""
    lines = _Lines(file)
    while True:
        raw = lines.read()
        if raw is None:
            yield _too_long(lines.number, "the line")
        elif not raw:
            return
        elif raw.strip(b" \t\r\n"):
            yield parse(raw.strip(b" \t\r\n"), lines.number)


def parse(raw: bytes, line: int) -> Piece:
    """Read the JSON of one item that begins on that line."""
    twice: list[str] = []

    def members(pairs: list[tuple[str, Plain]]) -> Plain:
        found = dict(pairs)
        if len(found) < len(pairs) and not twice:
            names = [name for name, _ in pairs]
            twice.append(next(name for name in names if names.count(name) > 1))
        return found

    try:
        text = raw.decode("utf-8")
        value: Plain = json.loads(text, object_pairs_hook=members, parse_constant=_refuse, parse_float=_finite)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            freeze(value)
    except UnicodeDecodeError as error:
        return Piece(line, len(raw), problem=f"byte {error.start + 1} is no UTF-8; save the file as UTF-8")
    except json.JSONDecodeError as error:
        reason = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        place = f"column {error.colno}" if error.lineno == 1 else f"line {line + error.lineno - 1}"
        return Piece(line, len(raw), problem=f"no JSON: {reason} at {place}")
    except _NoNumber as error:
        return Piece(line, len(raw), problem=str(error))
    except (RecursionError, TooDeep):
        return Piece(line, len(raw), problem=f"nests deeper than {MAX_DEPTH} levels; give flatter data")
    except ValueError:
        return Piece(line, len(raw), problem="holds a whole number with too many digits; give it as text")
    if twice:
        problem = f"gives the key {twice[0]!r} twice; keep one of them"
        return Piece(line, len(raw), value, problem=problem, doubtful=twice[0])
    return Piece(line, len(raw), value)


class _NoNumber(ValueError):
    """Raised when a number has no place in JSON."""


def _refuse(constant: str) -> NoReturn:
    raise _NoNumber(f"no JSON: {constant} is no JSON number; give null or text")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NoNumber(f"the number {digits[:30]} is too large; give it as text")
    return number


def _too_long(line: int, what: str) -> Piece:
    size = f"{MAX_ITEM_BYTES // 2**20} MiB"
    return Piece(line, _BLOCK, problem=f"{what} is longer than {size}; give long content by the name of a file")


class _RowTooLong(Exception):
    """Raised when the lines of one row are too long together."""


class _CsvLines:
    """Give lines of text to the reader of rows, and bound what one row may take."""

    def __init__(self, file: BinaryIO) -> None:
        self.lines = _Lines(file)
        self.taken = 0

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        raw = self.lines.read()
        if raw == b"":
            raise StopIteration
        self.taken += MAX_ITEM_BYTES + 1 if raw is None else len(raw)
        if raw is None or self.taken > MAX_ITEM_BYTES:
            raise _RowTooLong
        # Bytes that are no text must not stop the reader inside a quoted cell: each row is looked at once it is whole.
        return raw.decode("utf-8", "surrogateescape")


def csv_rows(file: BinaryIO, where: str) -> Iterator[Piece]:
    """Read the rows below a header row, each cell as text under its column's name; empty lines are passed over.

    The limit of the standard library's reader for one cell, which holds for the whole process, is raised to
    `MAX_ITEM_BYTES` where it is lower.

    Raises:
        ItemsError: the header row is missing or names no columns.
    """
    csv.field_size_limit(max(MAX_ITEM_BYTES, csv.field_size_limit()))
    source = _CsvLines(file)
    rows = csv.reader(source, strict=True)
    header: tuple[str, ...] | None = None
    while True:
        line = source.lines.number + 1
        source.taken = 0
        try:
            row = next(rows, None)
        except _RowTooLong:
            piece = _too_long(line, "the row (is a quote left open?)")
        except csv.Error as error:
            piece = Piece(line, source.taken, problem=_csv_fault(str(error), line, source.lines.number))
        else:
            if row is None:
                break
            if not row:
                continue
            if header is None:
                header = _header(row, where, line)
                continue
            piece = _row(header, row, line=line, size=source.taken)
        if header is None:
            raise ItemsError(f"the header row cannot be read: {piece.problem}", where=where, lines=(line,))
        yield piece
    if header is None:
        raise ItemsError("has no header row; name the columns in its first line", where=where)


def _csv_fault(error: str, first: int, last: int) -> str:
    if error == "unexpected end of data":
        return f"no CSV: a quote is left open in the rows from line {first} to the end, line {last}"
    return f"no CSV: {error}"


def _header(row: list[str], where: str, line: int) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    for number, name in enumerate(names, start=1):
        if not name:
            raise ItemsError(f"column {number} has no name in the header row", where=where, lines=(line,))
        if not _is_text(name):
            raise ItemsError(f"the name of column {number} is no UTF-8; save it as UTF-8", where=where, lines=(line,))
        if names.count(name) > 1:
            raise ItemsError(f"the header row names the column {name!r} twice", where=where, lines=(line,))
    return names


def _row(header: tuple[str, ...], row: list[str], *, line: int, size: int) -> Piece:
    if len(row) != len(header):
        cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
        return Piece(line, size, problem=f"has {cells}, the header row {len(header)}; quote cells that hold a comma")
    for number, cell in enumerate(row, start=1):
        if not _is_text(cell):
            return Piece(line, size, problem=f"cell {number} is no UTF-8; save the file as UTF-8")
    value: dict[str, Plain] = dict(zip(header, row, strict=True))
    return Piece(line, size, value)


def _is_text(cell: str) -> bool:
    return cell.isascii() or not any("\udc80" <= character <= "\udcff" for character in cell)


_MARKS = re.compile(rb'["\\\[\]{},]')
_OPENING, _CLOSING = b"[{", b"]}"
_SPACE = b" \t\r\n"


class _Element:
    """Gather one element of an array, in bytes, and the line that it begins on."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.bytes = bytearray()
        self.too_long = False
        self._last = line

    @property
    def last(self) -> int:
        """The line that it ends on."""
        return self._last

    def add(self, part: bytes) -> None:
        """Take the next bytes of it."""
        if not self.bytes and not self.too_long:
            begun = part.lstrip(_SPACE)
            self._last += part[: len(part) - len(begun)].count(b"\n")
            self.line = self._last
            part = begun
        self._last += part.count(b"\n")
        self.too_long = self.too_long or len(self.bytes) + len(part) > MAX_ITEM_BYTES
        if self.too_long:
            self.bytes.clear()
        else:
            self.bytes += part

    def piece(self) -> Piece:
        """Read it."""
        if self.too_long:
            return _too_long(self.line, "the element")
        raw = bytes(self.bytes.rstrip(_SPACE))
        return parse(raw, self.line) if raw else Piece(self.line, 1, problem="no JSON: nothing stands here")


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
        block, line = self._opening()
        first = line
        element = _Element(line)
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
                    element = _Element(element.last)
                    done = at + 1
                    if self._ended:
                        return self._check_rest(block[done:], element.last)
                    self._after_comma = True
            element.add(block[done:])
            escaped = max(0, escaped - len(block))
            block = self._file.read(_BLOCK)
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

    def _opening(self) -> tuple[bytes, int]:
        """Give the bytes after the opening bracket, and the line that it stands on."""
        line = 1
        begun = b""
        block = self._file.read(_BLOCK).removeprefix(_BOM)
        while block:
            begun = block.lstrip(_SPACE)
            line += block[: len(block) - len(begun)].count(b"\n")
            if begun:
                break
            block = self._file.read(_BLOCK)
        else:
            raise ItemsError("holds no JSON array, it is empty", where=self._where)
        if not begun.startswith(b"["):
            problem = f"line {line} begins no JSON array; for one item a line give the format jsonl"
            raise ItemsError(problem, where=self._where, lines=(line,))
        # An element that begins right after the bracket must not look as if the file had ended.
        return begun[1:] or self._file.read(_BLOCK), line

    def _check_rest(self, block: bytes, line: int) -> None:
        while block:
            begun = block.lstrip(_SPACE)
            line += block[: len(block) - len(begun)].count(b"\n")
            if begun:
                problem = f"goes on after its array, on line {line}; for one item a line give the format jsonl"
                raise ItemsError(problem, where=self._where, lines=(line,))
            block = self._file.read(_BLOCK)


READERS: dict[Format, Callable[[BinaryIO, str], Iterator[Piece]]] = {
    "jsonl": json_lines,
    "csv": csv_rows,
    "json": json_array,
}
SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".json": "json"}
