"""An observer that records: one line of JSON for each observation, appended to a file."""

from __future__ import annotations

import datetime
import errno
import io
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from furcate.observers._lines import line_of
from furcate.primitives._observations import ContentObservation, Observation

_log = logging.getLogger("furcate")


class JsonLinesObserver:
    """Append each observation to a file as one line of JSON; a context manager that closes its file.

    Each line goes to the system in one piece before the run goes on, so that a process that is killed leaves whole
    lines but for, at most, the last one. What follows such a piece later begins on a line of its own, whoever left it
    there. Several observers and processes may write to one file.

    A file that was moved away or removed is opened anew under its name before the next line, as logrotate wants it;
    one that was emptied in place goes on from its start. A line that cannot be written is lost, and costs the run
    nothing: the first is told as a warning of the logger ``furcate``, and later ones are tried as if nothing had
    happened, so that recording goes on once there is room again.

    Arguments:
        path: the file, relative to the folder in which the process is now. A pipe or a device is refused: waiting for
            whoever reads it would stop the event loop.
        content: whether to write what was said as well: messages in their portable form, never what only a provider
            may read. The file is made for its owner alone then.

    Attributes:
        on_content: takes content where that was asked for; None elsewhere, so that none is handed over.
        lost: number of lines that could not be written.
        problem: why the first of them could not; None where all were.

    Raises:
        OSError: the file cannot be opened, or is no regular one.
    """

    def __init__(self, path: str | os.PathLike[str], *, content: bool = False) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._mode = 0o600 if content else 0o666
        self._file = self._opened()
        self._identity = _identity(os.fstat(self._file.fileno()))
        self._left: int | None = None
        self.on_content: Callable[[ContentObservation], None] | None = self._write if content else None
        self.lost = 0
        self.problem: OSError | ValueError | None = None

    def __enter__(self) -> JsonLinesObserver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what is told later is lost."""
        with suppress(OSError):
            self._file.close()

    def on_event(self, event: Observation, /) -> None:
        """Write one observation."""
        self._write(event)

    def _write(self, event: Observation | ContentObservation) -> None:
        try:
            line = line_of(event, datetime.datetime.now(datetime.UTC).timestamp())
            self._heed_rotation()
            self._append(line)
        except (OSError, ValueError) as error:
            self._lose(error)

    def _append(self, line: bytes) -> None:
        """Write a line after all that is there, on a line of its own."""
        found = os.fstat(self._file.fileno()).st_size
        begun = b"\n" if self._ends_torn(found) else b""
        began = self._put(begun + line)
        # Another writer may have been cut off between that look and this write: what follows its piece is unreadable.
        if not begun and began != found and self._ends_torn(began):
            self._put(b"\n" + line)

    def _put(self, line: bytes) -> int:
        """Write in one call, so that the system adds it as one piece; give the size that the file had before it."""
        written = self._file.write(line) or 0
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._left = self._file.tell()
        return self._left - len(line)

    def _ends_torn(self, size: int) -> bool:
        """Tell whether somebody, this observer or another, was cut off while writing the file's line that ends there.

        Where the file may not be read, anything that this observer did not leave is taken for such a piece.
        """
        if not size or size == self._left:
            return False
        if not self._file.readable():
            return True
        self._file.seek(size - 1)
        return self._file.read(1) not in (b"\n", b"")

    def _heed_rotation(self) -> None:
        if self._file.closed:
            raise ValueError("it has been closed")
        try:
            there = _identity(os.stat(self._path))
        except FileNotFoundError:
            there = None
        if there != self._identity:
            before, self._file = self._file, self._opened()
            self._identity = _identity(os.fstat(self._file.fileno()))
            self._left = None
            before.close()

    def _opened(self) -> io.FileIO:
        try:
            return self._opened_as("ab+")
        except PermissionError:
            # Some may add to a file that they may not read.
            return self._opened_as("ab")

    def _opened_as(self, mode: str) -> io.FileIO:
        # Opening a pipe that nobody reads would wait for ever, were it not for the flag; it changes nothing for a file.
        unasked = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
        file = io.FileIO(self._path, mode, opener=lambda path, flags: os.open(path, flags | unasked, self._mode))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "it is no regular file", self._path)
        return file

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost += 1
        if self.problem is None:
            self.problem = error
            reason = getattr(error, "strerror", None) or error
            _log.warning("an observation cannot be recorded in %s: %s; the run goes on", self._path, reason)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
