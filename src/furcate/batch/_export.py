"""Rows of a journal as JSON lines, of which nobody ever reads half a one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable

from anyio import to_thread

from furcate.batch._rows import JournalRow, encode
from furcate.primitives._json import Plain
from furcate.primitives._usage import USAGE_FIELDS, Usage

_BATCH_BYTES = 2**16


def line_of(row: JournalRow) -> bytes:
    """Write what came of one item as a line of JSON with its end.

    A finished one has the members ``id``, ``line``, ``status``, ``result`` and ``usage``, a failed one ``error`` in
    place of the result, a pending one neither. The usage has the counts that are known; a failed item without any has
    no usage. The line is null where the input no longer has the item.

    Arguments:
        row: a row of a journal.
    """
    head = {"id": row.id, "line": None if row.position is None else row.line, "status": row.state}
    parts = [encode(head)[:-1]]
    if row.result is not None:
        parts.append(b',"result":' + row.result)
    if row.error is not None:
        parts.append(b',"error":' + row.error.to_json())
    usage = usage_of(row.usage)
    if usage or row.state == "finished":
        parts.append(b',"usage":' + encode(usage))
    return b"".join((*parts, b"}\n"))


def usage_of(usage: Usage) -> dict[str, Plain]:
    """Give the known counts as plain data, and which of them may be too small."""
    known: dict[str, Plain] = {name: value for name in USAGE_FIELDS if (value := getattr(usage, name)) is not None}
    if usage.lower_bounds:
        known["lower_bounds"] = [name for name in USAGE_FIELDS if name in usage.lower_bounds]
    return known


async def write_rows(rows: AsyncIterable[JournalRow], to: int) -> int:
    """Write rows as JSON lines, whole ones only, some at a time, and give how many.

    Arguments:
        rows: such as `JournalReader.rows` gives.
        to: an open file descriptor.

    Raises:
        OSError: it cannot be written; a pipe whose reader went away raises BrokenPipeError.

    Cancelled, it leaves what is being written to end by itself: whoever reads a pipe slowly may not keep it waiting.
    """
    count = 0
    batch = bytearray()
    async for row in rows:
        batch += line_of(row)
        count += 1
        if len(batch) >= _BATCH_BYTES:
            await write_whole(bytes(batch), to)
            batch.clear()
    await write_whole(bytes(batch), to)
    return count


async def write_whole(data: bytes, to: int) -> None:
    """Write all of some lines at once, in a worker thread; a file that takes half of one ends before it."""
    await to_thread.run_sync(_write, data, to, abandon_on_cancel=True)


def _write(data: bytes, to: int) -> None:
    size = os.fstat(to).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(to, rest) :]
    except OSError:
        _take_off_half_a_line(to, data, size)
        raise


def _take_off_half_a_line(to: int, data: bytes, size: int) -> None:
    """Let a file that took only some of the data end with a whole line of it.

    Arguments:
        to: the file, a pipe, or a device; only a file has grown.
        data: lines that were to be written at its end.
        size: how large it was before, in bytes.
    """
    taken = os.fstat(to).st_size - size
    # Where it has grown by more, somebody else writes to it as well, and where it ends is not ours to say.
    if 0 < taken < len(data):
        os.ftruncate(to, size + data.rfind(b"\n", 0, taken) + 1)
