"""Where a batch job's results go: whole lines, whatever the disk takes."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from furcate.batch import JournalRow, line_of
from furcate.cli._batch_results import Results


def rows(count: int) -> list[JournalRow]:
    """Make rows of which each is a line of the same length."""
    return [
        JournalRow(id=f"i{number:02}", line=10 + number, position=number, state="finished", result=b'"done"')
        for number in range(count)
    ]


def written() -> bytes:
    """Give what the file holds."""
    return Path("out.jsonl").read_bytes()


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, in bytes: what fits is taken, and what follows is refused, as by a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_disk_that_takes_half_a_line_is_left_with_whole_ones(folder: Path) -> None:
    """The line that did not fit is taken off again, and what is wrong is known; the next start writes all of them."""
    lines = [line_of(row) for row in rows(10)]
    with no_file_larger_than(len(lines[0]) * 5 // 2), Results(Path("out.jsonl")) as results:
        for line in lines:
            await results.put(line)
        await results.flush()
        assert results.problem is not None
    assert written() == b"".join(lines[:2])
    with Results(Path("out.jsonl")) as results:
        for line in lines:
            await results.put(line)
        await results.flush()
    assert written() == b"".join(lines)


async def test_a_disk_that_is_full_later_keeps_what_it_had_taken(folder: Path) -> None:
    """Lines of an earlier flush stay, and those of earlier starts that nobody takes are not even read."""
    lines = [line_of(row) for row in rows(4)]
    read = 0

    async def read_rows() -> AsyncGenerator[JournalRow]:
        nonlocal read
        for row in rows(10):
            read += 1
            yield row

    with no_file_larger_than(len(lines[0]) * 7 // 2), Results(Path("out.jsonl")) as results:
        for line in lines:
            await results.put(line)
            await results.flush()
        async with aclosing(read_rows()) as earlier:
            await results.put_rows(earlier)
    assert written() == b"".join(lines[:3])
    assert read == 1


async def test_a_pipe_that_takes_no_more_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing that could be taken off; the problem is known all the same."""
    reads, writes = os.pipe()
    os.close(reads)
    with Results(None) as results:
        monkeypatch.setattr(results, "_to", writes)
        await results.put(b"{}\n")
        await results.flush()
    os.close(writes)
    assert isinstance(results.problem, BrokenPipeError)


def test_a_dash_is_stdout(furcate_by_descriptor: Callable[..., Any], configured: Callable[..., Path]) -> None:
    """As for items, where it is standard input; no file is called that."""
    configured("http://127.0.0.1:9/v1")
    Path("work.py").write_text("async def go(item, job):\n    return item\n")
    Path("items.jsonl").write_text('{"id": "a"}\n')
    said = furcate_by_descriptor("batch", "work:go", "items.jsonl", "--results", "-")
    assert (said.status, [line["id"] for line in said.lines]) == (0, ["a"])
    assert "results in stdout" in said.err
    assert not Path("-").exists()
