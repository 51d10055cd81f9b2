"""Receipts written as attempts end, one JSON line each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from furcate.cli._lines import json_line
from furcate.primitives._errors import RequestError
from furcate.primitives._observations import AttemptFinished, Observation


class ReceiptLog:
    """Append each attempt's receipt to a file, while the block lasts; an observer.

    Each line is written whole before the run goes on, so that a program that dies has the receipts of all attempts that
    had ended.

    Arguments:
        path: the file; None writes nothing.

    Attributes:
        undelivered: why receipts could not be written, where they could not.

    Raises:
        RequestError: the block is entered and the file cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.undelivered: OSError | None = None

    def __enter__(self) -> ReceiptLog:
        if self._path is not None:
            try:
                self._file = self._path.open("ab")
            except OSError as error:
                reason = error.strerror or error
                raise RequestError(f"--receipts {self._path} cannot be written: {reason}; name another file") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            # What could not be written is tried once more here, and fails again.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def on_event(self, event: Observation) -> None:
        """Write the receipt of an attempt that has ended."""
        if self._file is None or self.undelivered is not None:
            return
        if isinstance(event, AttemptFinished) and event.receipt is not None:
            try:
                self._file.write(json_line(event.receipt.to_dict()))
                self._file.flush()
            except OSError as error:
                self.undelivered = error

    @property
    def problem(self) -> str | None:
        """One sentence about receipts that could not be written; None where all were."""
        if self.undelivered is None:
            return None
        reason = self.undelivered.strerror or self.undelivered
        return f"receipts cannot be written to {self._path} any more ({reason}); those of later attempts are lost"
