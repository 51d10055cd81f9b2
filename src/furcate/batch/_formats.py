"""The forms in which items are given, cut into pieces: one value, or what is wrong with it, and the line it stands on.

Nothing here holds more than one item: an item that is longer than `MAX_ITEM_BYTES` is passed over and told.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, TypeAlias

from furcate.batch import _pieces
from furcate.batch._array import json_array
from furcate.batch._pieces import BLOCK, BOM, SPACE, Piece, parse, too_long
from furcate.primitives._errors import ItemsError
from furcate.primitives._json import Plain

Format: TypeAlias = Literal["jsonl", "csv", "json"]
"""How items are given: one JSON value a line, a table with a header row, or one JSON array."""

_FOREIGN = (
    (b"\xff\xfe", "is text in UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "is text in UTF-16; save it as UTF-8"),
    (b"\x1f\x8b", "is compressed; unpack it first"),
    (b"PK\x03\x04", "is a packed file, such as a workbook; save it as CSV or as JSON lines"),
)


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
        line = self._file.readline(_pieces.MAX_ITEM_BYTES + 1)
        if line:
            self.number += 1
        if self.number == 1:
            line = line.removeprefix(BOM)
        if len(line) <= _pieces.MAX_ITEM_BYTES:
            return line
        while line and not line.endswith(b"\n"):
            line = self._file.readline(BLOCK)
        return None


def check_head(file: BinaryIO, where: str) -> bytes:
    """Look at the first bytes of items, which are then read again, without the mark that some editors write there.

    Raises:
        ItemsError: they are no text in UTF-8.
    """
    head = file.read(BLOCK)
    file.seek(0)
    for mark, problem in _FOREIGN:
        if head.startswith(mark):
            raise ItemsError(problem, where=where)
    return head.removeprefix(BOM)


def json_lines(file: BinaryIO, _where: str) -> Iterator[Piece]:
    """Read one JSON value a line; empty lines are passed over."""
    lines = _Lines(file)
    while True:
        raw = lines.read()
        if raw is None:
            yield too_long(lines.number, "the line")
        elif not raw:
            return
        elif begun := raw.lstrip(SPACE):
            yield parse(begun.rstrip(SPACE), lines.number, column=1 + len(raw) - len(begun))


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
        self.taken += _pieces.MAX_ITEM_BYTES + 1 if raw is None else len(raw)
        if raw is None or self.taken > _pieces.MAX_ITEM_BYTES:
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
    csv.field_size_limit(max(_pieces.MAX_ITEM_BYTES, csv.field_size_limit()))
    source = _CsvLines(file)
    rows = csv.reader(source, strict=True)
    header: tuple[str, ...] | None = None
    while True:
        line = source.lines.number + 1
        source.taken = 0
        try:
            row = next(rows, None)
        except _RowTooLong:
            piece = too_long(line, "the row (is a quote left open?)")
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


READERS: dict[Format, Callable[[BinaryIO, str], Iterator[Piece]]] = {
    "jsonl": json_lines,
    "csv": csv_rows,
    "json": json_array,
}
SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".json": "json"}
