"""The items of a job: read as a stream, each with an id and a digest of what it says."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import BinaryIO, TypeAlias, get_args

from anyio import to_thread
from attrs import field, frozen

from furcate.batch._formats import READERS, SUFFIXES, Format, check_head
from furcate.batch._pieces import Piece
from furcate.batch._quick_look import count_if_distinct
from furcate.batch._spool import Place, Readable, copy, name_of, opener_of_spool, read_once, reading
from furcate.batch._values import copy_values
from furcate.primitives._errors import ItemsError, MisuseError
from furcate.primitives._json import Json, Plain, canonical

ID_FIELD = "id"
MAX_ID = 1000
"""How many characters an id may have."""

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CHUNK_ITEMS = 256
_CHUNK_BYTES = 2**20


@frozen
class Item:
    """Hold one item of a job.

    Attributes:
        id: what it is called in the journal and in the results.
        value: what it says: any JSON value, of a CSV row a dict of texts.
        line: the line that it begins on, from 1 on.
        digest: SHA-256 of its value as canonical JSON, 32 bytes: equal values have equal digests.
    """

    id: str
    value: Plain = field(repr=False)
    line: int
    digest: bytes = field(repr=False)


@frozen
class BadItem:
    """Hold one item that cannot be worked on; the others can.

    Attributes:
        line: the line that it begins on, from 1 on.
        id: what it is called; None where that cannot be told.
        problem: what is wrong with it, and what would be right.
    """

    line: int
    id: str | None
    problem: str


Items: TypeAlias = Place | Iterable[Json] | AsyncIterable[Json]
"""Where items come from: a file, ``-`` for standard input, a stream of bytes, or the values themselves."""


class Source:
    """Give the items of a job, each time from the beginning: ``async for item in source``.

    Made by `open_source`.

    Attributes:
        where: the file, or ``standard input``.
        format: how the items are given.
        id_field: the member that holds their ids; None where it is ``id`` wherever there is one.
    """

    def __init__(self, opener: Callable[[], BinaryIO], *, where: str, format: Format, id_field: str | None) -> None:
        self.where = where
        self.format: Format = format
        self.id_field = id_field
        self._opener = opener
        self._open: set[BinaryIO] = set()
        self._closed = False

    def __aiter__(self) -> AsyncIterator[Item | BadItem]:
        if self._closed:
            raise MisuseError("the items are read outside the block that opened them; read them inside")
        return _Pass(self._read())

    async def count_if_distinct(self) -> int | None:
        """Count the items, where a quick look shows that each has an id of its own; None where it does not."""
        return await to_thread.run_sync(self._look) if self.format == "jsonl" else None

    def _look(self) -> int | None:
        with self._opener() as file, reading(self.where):
            return count_if_distinct(file, self.id_field or ID_FIELD)

    def _read(self) -> Iterator[tuple[int, Item | BadItem]]:
        """Give each item and its size in bytes; runs in worker threads."""
        file = self._opener()
        self._open.add(file)
        try:
            with reading(self.where):
                for piece in READERS[self.format](file, self.where):
                    yield piece.size, _item(piece, self.id_field)
        finally:
            self._open.discard(file)
            file.close()

    def close(self) -> None:
        """Close what is open."""
        self._closed = True
        for file in tuple(self._open):
            file.close()


class _Pass:
    """Read items in chunks, each in a worker thread, so that the event loop never waits for a disk."""

    def __init__(self, items: Iterator[tuple[int, Item | BadItem]]) -> None:
        self._items = items
        self._chunk: Iterator[Item | BadItem] = iter(())

    def __aiter__(self) -> _Pass:
        return self

    async def __anext__(self) -> Item | BadItem:
        item = next(self._chunk, None)
        if item is not None:
            return item
        chunk = await to_thread.run_sync(self._read)
        if not chunk:
            raise StopAsyncIteration
        self._chunk = iter(chunk)
        return next(self._chunk)

    def _read(self) -> list[Item | BadItem]:
        chunk: list[Item | BadItem] = []
        size = 0
        for length, item in self._items:
            chunk.append(item)
            size += length
            if len(chunk) >= _CHUNK_ITEMS or size >= _CHUNK_BYTES:
                break
        return chunk


def _item(piece: Piece, id_field: str | None) -> Item | BadItem:
    """Name a piece."""
    name = ID_FIELD if id_field is None else id_field
    named: str | None = None
    problem = piece.problem
    if isinstance(piece.value, dict) and name in piece.value:
        if piece.doubtful != name:
            named, fault = _id_text(piece.value[name], name)
            problem = problem or fault
    elif id_field is not None and problem is None:
        problem = f"has no member {id_field!r}, which is to hold its id"
    if problem is not None:
        return BadItem(piece.line, named, problem)
    digest = sha256(canonical(piece.value)).digest()
    return Item(digest.hex() if named is None else named, piece.value, piece.line, digest)


def _id_text(value: Plain, name: str) -> tuple[str | None, str | None]:
    """Give an id as text, or what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        kind = {bool: "a boolean", list: "an array", dict: "an object"}.get(type(value), "null")
        return None, f"its {name!r} is {kind}; an id is text or a number"
    text = value if isinstance(value, str) else dumps(value)
    if not text.strip():
        return None, f"its {name!r} is empty; give each item an id of its own"
    if len(text) > MAX_ID:
        return None, f"its {name!r} has {len(text):,} characters; an id has {MAX_ID:,} at most"
    if _UNSEEN.search(text):
        return None, f"its {name!r} holds a character that cannot be shown; an id is one line of plain text"
    return text, None


@asynccontextmanager
async def open_source(
    place: Items, format: Format | None = None, *, id_field: str | None = None
) -> AsyncIterator[Source]:
    """Open the items of a job; one of them is in memory at a time, and some that were read ahead.

    What can be read only once (standard input, a pipe, a stream, values) is first copied to a temporary file, since
    items are read twice: duplicate ids are told before the first item is worked on. An id is the member ``id`` where
    there is one (or the member that `id_field` names, which then every item must have), else the digest of what the
    item says.

    Arguments:
        place: a file; ``-`` for standard input; a stream of bytes; or an iterable or async iterable of JSON values, the
            number of each of which stands for its line.
        format: ``jsonl``, ``csv`` or ``json``; None goes by the file's suffix. Of what has no suffix, an array is told
            by its bracket, and the rest is taken for JSON lines.
        id_field: the member, in CSV the column, that holds the ids.

    Raises:
        ItemsError: the file is not there, or cannot be read, or its format cannot be told. While items are read: what
            would make a whole file unreadable, such as text in UTF-16.
        MisuseError: `format` is none of the three, or is given for values.
        TypeError: what is given has no items, or a value is none of JSON's.
        ValueError: `id_field` is empty.

    Cancelled, it leaves nothing behind, except for a read from a stream that has begun, which is abandoned.
    """
    _check_items(place)
    if id_field is not None:
        check_id_field(id_field)
    if format is not None and format not in get_args(Format):
        raise MisuseError(f"there is no format {format!r} of items; give one of {', '.join(get_args(Format))}")
    with tempfile.TemporaryFile() if read_once(place) else io.BytesIO() as spool:
        if not isinstance(place, (str, os.PathLike, Readable)):
            if format is not None:
                raise MisuseError("a format is for files and streams; values are given as they are")
            where = "the items"
            known: Format | None = "jsonl"
            with reading(where):
                await copy_values(place, spool)
            opener = opener_of_spool(spool)
        elif isinstance(place, (str, os.PathLike)) and not read_once(place):
            where = os.fspath(place)
            opener = await to_thread.run_sync(_opener_of_file, Path(where), where)
            known = format or _format_of(where)
        else:
            where = name_of(place)
            with reading(where):
                await copy(place, spool)
            opener = opener_of_spool(spool)
            known = format
        head = await to_thread.run_sync(_head, opener, where)
        source = Source(opener, where=where, format=known or _guess(head), id_field=id_field)
        try:
            yield source
        finally:
            source.close()


def check_id_field(name: object) -> None:
    """Check what names the member that holds ids.

    Raises:
        TypeError: it is no text.
        ValueError: it is empty.
    """
    if not isinstance(name, str):
        raise TypeError(f"id_field is {name!r}; give the name of a member as text")
    if not name:
        raise ValueError("id_field is empty; give the name of a member")


def _check_items(place: object) -> None:
    """Refuse what has no items, and what would be iterated by mistake."""
    if isinstance(place, (bytes, bytearray, memoryview)):
        given = "bytes"
    elif isinstance(place, Mapping):
        given = "an object"
    elif not isinstance(place, (str, os.PathLike, Readable, Iterable, AsyncIterable)):
        given = repr(place)
    else:
        return
    raise TypeError(f"the items are {given}; give a file, a stream of bytes, or a list of JSON values")


def _format_of(where: str) -> Format:
    suffix = Path(where).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        formats = ", ".join(get_args(Format))
        problem = f"its suffix tells no format ({known} do); give the format (--format), one of {formats}"
        raise ItemsError(problem, where=where)
    return SUFFIXES[suffix]


def _guess(head: bytes) -> Format:
    return "json" if head.lstrip().startswith(b"[") else "jsonl"


def _opener_of_file(path: Path, where: str) -> Callable[[], BinaryIO]:
    if "\0" in where:
        raise ItemsError("no file has a name like this", where=where.replace("\0", "\\0"))
    with reading(where):
        if path.is_dir():
            raise ItemsError("is a folder; give the file that holds the items", where=where)
        seen = _mark(os.stat(path))

    def opener() -> BinaryIO:
        with reading(where):
            file = path.open("rb", buffering=2**18)
            if _mark(os.fstat(file.fileno())) != seen:
                file.close()
                raise ItemsError("has changed since the job began to read it; start the job again", where=where)
            return file

    return opener


def _mark(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _head(opener: Callable[[], BinaryIO], where: str) -> bytes:
    with opener() as file, reading(where):
        return check_head(file, where)
