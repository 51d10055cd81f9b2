"""Where the results of a batch job go while it runs: whole lines, to stdout or to a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType

import anyio

from furcate.batch import ItemOutcome, JournalRow, encode, line_of
from furcate.batch._export import write_whole
from furcate.cli._files import is_special
from furcate.primitives._errors import RequestError

_MOST_BYTES = 2**20


class Results:
    """Write results while the block lasts; nothing is written, or lost, before the first line comes.

    Arguments:
        path: the file; None is stdout.
        aside: gives the block in which to write, for where a display shares the terminal.

    Attributes:
        name: what people call it.
        problem: why results could not be written, where they could not.

    Raises:
        RequestError: the block is entered and the file cannot be opened.
    """

    def __init__(self, path: Path | None, aside: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.name = "stdout" if path is None else str(path)
        self.problem: OSError | None = None
        self._path = path
        self._aside = aside
        self._to = 1
        self._fresh = path is not None
        self._waiting = bytearray()
        self._turn = anyio.Lock()
        self._come = anyio.Event()
        self._gone = anyio.Event()

    def __enter__(self) -> Results:
        if self._path is not None:
            try:
                # What an earlier start has written stays until there is something better.
                self._to = os.open(self._path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            except OSError as error:
                reason = error.strerror or error
                raise RequestError(f"--results {self._path} cannot be written: {reason}; name another file") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            os.close(self._to)

    async def keep_writing(self) -> None:
        """Write what comes until this is cancelled; what is written at that moment is written to its end."""
        while True:
            await self._come.wait()
            self._come = anyio.Event()
            with anyio.CancelScope(shield=True):
                await self.flush()
            self._gone.set()
            self._gone = anyio.Event()

    async def put(self, line: bytes) -> None:
        """Take a line, to be written with those that come meanwhile; waits while too much waits already."""
        self._waiting += line
        self._come.set()
        while len(self._waiting) >= _MOST_BYTES and self.problem is None:
            await self._gone.wait()

    async def put_rows(self, rows: AsyncIterable[JournalRow], *, most: int | None = None) -> None:
        """Take the lines of a journal's rows.

        Arguments:
            rows: the rows.
            most: how many of them; None for all.
        """
        left = most
        if left == 0:
            return
        async for row in rows:
            self._waiting += line_of(row)
            if len(self._waiting) >= _MOST_BYTES // 8:
                await self.flush()
            if self.problem is not None:
                return  # nobody takes the others, and there may be more of them than memory holds
            if left is not None:
                left -= 1
                if left == 0:
                    break
        await self.flush()

    async def flush(self) -> None:
        """Write what waits."""
        async with self._turn:
            self._start_afresh()
            while self._waiting and self.problem is None:
                data = bytes(self._waiting)
                self._waiting.clear()
                try:
                    with self._aside():
                        await write_whole(data, self._to)
                except OSError as error:
                    self.problem = error

    def _start_afresh(self) -> None:
        if self._fresh and self._waiting:
            self._fresh = False
            try:
                os.ftruncate(self._to, 0)
            except OSError:
                return  # a pipe, or a device


def check_writable(path: Path) -> None:
    """Check that results can be written to a file, which is left as it is; one that is not there is not made.

    Raises:
        RequestError: they cannot.
    """
    if is_special(path):
        return  # to open a pipe is to wait for its reader
    there = path.exists()
    with Results(path):
        pass
    if not there:
        path.unlink()


def outcome_line(outcome: ItemOutcome) -> bytes:
    """Write what came of an item as the journal would."""
    row = JournalRow(
        id=outcome.id,
        line=outcome.line,
        position=0,
        state=outcome.state,
        result=encode(outcome.result) if outcome.state == "finished" else None,
        error=outcome.error,
        usage=outcome.usage,
    )
    return line_of(row)
