"""Rows as JSON lines, whole ones only."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from furcate.batch import ItemFailure, JournalRow, encode, line_of, write_rows
from furcate.primitives._usage import Usage


async def _stream(rows: Iterable[JournalRow]) -> AsyncIterator[JournalRow]:
    for row in rows:
        yield row


def test_each_row_is_a_line() -> None:
    """Finished, failed and pending items each have their members; unknown counts are left out."""
    usage = Usage(input_tokens=3, output_tokens=0, lower_bounds={"input_tokens"})
    finished = JournalRow(id="a", line=2, position=0, state="finished", result=b'{"x":1}', usage=usage)
    failed = JournalRow(id=None, line=3, position=1, state="failed", error=ItemFailure("malformed", "no\nJSON"))
    gone = JournalRow(id="b", line=3, position=None, state="finished", result=b"null")
    pending = JournalRow(id="c", line=4, position=3, state="pending")
    assert line_of(finished) == (
        b'{"id":"a","line":2,"status":"finished","result":{"x":1},'
        b'"usage":{"input_tokens":3,"output_tokens":0,"lower_bounds":["input_tokens"]}}\n'
    )
    assert json.loads(line_of(failed)) == {
        "id": None,
        "line": 3,
        "status": "failed",
        "error": {"kind": "malformed", "message": "no\nJSON"},
    }
    assert line_of(failed).count(b"\n") == 1
    assert line_of(gone) == b'{"id":"b","line":null,"status":"finished","result":null,"usage":{}}\n'
    assert line_of(pending) == b'{"id":"c","line":4,"status":"pending"}\n'


async def test_only_whole_lines_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write ends with the end of a line, and there are fewer writes than lines."""
    written: list[bytes] = []
    whole = os.write

    def write(to: int, data: memoryview) -> int:
        written.append(bytes(data))
        return whole(to, data)

    monkeypatch.setattr(os, "write", write)
    rows = [
        JournalRow(id=str(n), line=n + 1, position=n, state="finished", result=encode("x" * (n % 7) * 1000))
        for n in range(200)
    ]
    path = tmp_path / "out.jsonl"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        assert await write_rows(_stream(rows), file) == 200
    finally:
        os.close(file)
    assert all(part.endswith(b"\n") for part in written)
    assert 1 < len(written) < 50
    assert [json.loads(line)["id"] for line in path.read_bytes().splitlines()] == [str(n) for n in range(200)]


async def test_what_is_written_in_parts_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes less than it was given gets the rest."""
    taken = bytearray()

    def write(_to: int, data: memoryview) -> int:
        taken.extend(data[:7])
        return min(7, len(data))

    monkeypatch.setattr(os, "write", write)
    row = JournalRow(id="a", line=1, position=0, state="finished", result=b'"0123456789"')
    assert await write_rows(_stream([row, row]), 1) == 2
    assert bytes(taken) == line_of(row) * 2


async def test_a_reader_that_went_away_is_told() -> None:
    """The caller decides what a broken pipe means."""
    reading, writing = os.pipe()
    os.close(reading)
    row = JournalRow(id="a", line=1, position=0, state="finished", result=b"1")
    try:
        with pytest.raises(BrokenPipeError):
            await write_rows(_stream([row]), writing)
    finally:
        os.close(writing)


async def test_a_disk_that_takes_half_a_line_is_left_with_whole_ones(tmp_path: Path) -> None:
    """What `furcate batch results` writes to a full disk ends with a line, and the disk's own word comes out."""
    rows = [JournalRow(id=f"i{n}", line=n, position=n, state="finished", result=b'"done"') for n in range(1, 9)]
    lines = [line_of(row) for row in rows]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "out.jsonl"
    with path.open("wb", buffering=0) as out:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(lines[0]) * 5 // 2, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                await write_rows(_stream(rows), out.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"".join(lines[:2])
