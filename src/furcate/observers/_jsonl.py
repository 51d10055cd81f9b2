"""An observer that records: one line of JSON for each observation, appended to a file."""

from __future__ import annotations

import datetime
import errno
import io
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from furcate.observers._lines import line_of
from furcate.primitives._observations import ContentObservation, Observation

_log = logging.getLogger("furcate")


class JsonLinesObserver:
    """Append each observation to a file as one line of JSON; a context manager that closes its file.

    Each line goes to the system in one piece before the run goes on, so that a process that is killed leaves whole
    lines but for, at most, the last one. What follows such a piece later begins on a line of its own. Several
    observers and processes may write to one file.

    A file that was moved away or removed is opened anew under its name before the next line, as logrotate wants it;
    one that was emptied in place goes on from its start. A line that cannot be written is lost, and costs the run
    nothing: the first is told as a warning of the logger ``furcate``, and later ones are tried as if nothing had
    happened, so that recording goes on once there is room again.

    Arguments:
        path: the file, relative to the folder in which the process is now.
        content: whether to write what was said as well: messages in their portable form, never what only a provider
            may read. The file is made for its owner alone then.

    Attributes:
        on_content: takes content where that was asked for; None elsewhere, so that none is handed over.
        lost: number of lines that could not be written.
        problem: why the first of them could not; None where all were.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, content: bool = False) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._mode = 0o600 if content else 0o666
        self._file = self._opened()
        self._identity = _identity(os.fstat(self._file.fileno()))
        self._torn = _ends_inside_a_line(self._path)
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
            if self._torn:
                line = b"\n" + line
            # One call, so that the system writes the line as one piece, after whatever others have written.
            written = self._file.write(line) or 0
            if written < len(line):
                self._torn = self._torn or written > 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._torn = False
        except (OSError, ValueError) as error:
            self._lose(error)

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
            self._torn = _ends_inside_a_line(self._path)
            before.close()

    def _opened(self) -> io.FileIO:
        return io.FileIO(self._path, "ab", opener=lambda path, flags: os.open(path, flags, self._mode))

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost += 1
        if self.problem is None:
            self.problem = error
            reason = getattr(error, "strerror", None) or error
            _log.warning("an observation cannot be recorded in %s: %s; the run goes on", self._path, reason)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _ends_inside_a_line(path: str) -> bool:
    """Tell whether somebody was cut off while writing the file's last line."""
    # A pipe or a device has no end to look at.
    if not os.path.isfile(path) or not os.path.getsize(path):
        return False
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False
