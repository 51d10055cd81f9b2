"""What a command keeps of its runs beside their results: receipts, and recordings of what happened."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import click
from attrs import frozen

from furcate.cli._files import check_target
from furcate.cli._receipt_log import ReceiptLog
from furcate.cli._telemetry import Telemetry
from furcate.cli._told import FAILED, complain
from furcate.observers import JsonLinesObserver
from furcate.primitives._errors import RequestError
from furcate.primitives._observations import ContentObservation, Listener, Observation
from furcate.primitives._telemetry import OTelSettings

_Function = TypeVar("_Function", bound=Callable[..., Any])


@frozen(kw_only=True)
class Keeping:
    """Hold what the command line says about files to append to.

    Attributes:
        receipts: for receipts; None keeps none.
        record: for a recording; None keeps none.
        record_content: whether it is to hold what was said.
    """

    receipts: Path | None = None
    record: Path | None = None
    record_content: bool = False

    @property
    def nothing(self) -> bool:
        """Whether no file is named."""
        return self.receipts is None and self.record is None

    def check(self, read: Mapping[Path, str]) -> None:
        """Check that the files may be written to.

        Arguments:
            read: files that are read or written by the command, each with what it is to people.

        Raises:
            RequestError: one of them may not, or content is to go into a recording that nobody asked for.
        """
        if self.record is None and self.record_content:
            raise RequestError("--record-content goes with --record FILE: there is no recording without one")
        if self.receipts is not None:
            check_target("--receipts", self.receipts, read)
        if self.record is not None:
            also = {} if self.receipts is None else {self.receipts: "the file of --receipts too"}
            check_target("--record", self.record, {**read, **also})


class Kept:
    """Keep what is asked for while the block lasts, and send telemetry where a configuration says so.

    Arguments:
        keeping: the files.
        otel: where telemetry goes; None sends none.

    Attributes:
        observers: what an engine has to be given.

    Raises:
        RequestError: the block is entered and a file cannot be opened.
        ConfigError: the block is entered and the extra ``otel`` is not installed.
    """

    def __init__(self, keeping: Keeping, otel: OTelSettings | None = None) -> None:
        self._receipts = ReceiptLog(keeping.receipts)
        self._record = _Record(keeping.record, content=keeping.record_content)
        self._telemetry = Telemetry(otel)
        self._open = ExitStack()
        sent: tuple[Listener, ...] = () if otel is None else (self._telemetry,)
        self.observers: tuple[Listener, ...] = (self._receipts, self._record, *sent)

    def __enter__(self) -> Kept:
        with ExitStack() as opening:
            opening.enter_context(self._receipts)
            opening.enter_context(self._record)
            opening.enter_context(self._telemetry)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def job(self, target: str) -> AbstractContextManager[None]:
        """Give the block in which a job on a cluster runs, whose workers' traces link to it.

        Arguments:
            target: what it does with its items.
        """
        return self._telemetry.job(target)

    def conclude(self, status: int) -> int:
        """Tell what was lost, once the block is left, and give the exit status.

        A file that was asked for and is not whole makes a good status a bad one. Telemetry that did not arrive does
        not: a collector that is down fails nobody's work.

        Arguments:
            status: what the command came to.
        """
        for problem in (self._receipts.problem, self._record.problem):
            if problem is not None:
                complain(problem)
                status = status or FAILED
        if self._telemetry.problem is not None:
            complain(self._telemetry.problem)
        return status


class _Record:
    """Pass what is told on to a recording that is opened when the block is entered."""

    def __init__(self, path: Path | None, *, content: bool) -> None:
        self._path = path
        self._content = content
        self._file: JsonLinesObserver | None = None
        self.on_content: Callable[[ContentObservation], None] | None = self._on_content if content else None

    def __enter__(self) -> _Record:
        if self._path is not None:
            try:
                self._file = JsonLinesObserver(self._path, content=self._content)
            except OSError as error:
                reason = error.strerror or error
                raise RequestError(f"--record {self._path} cannot be written: {reason}; name another file") from error
            if self._content and _is_open_to_others(self._path):
                complain(
                    f"--record {self._path} was there before, and others may read what is said in it; "
                    "chmod 600 keeps it to you"
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def on_event(self, event: Observation, /) -> None:
        """Record one observation."""
        if self._file is not None:
            self._file.on_event(event)

    def _on_content(self, event: ContentObservation) -> None:
        if self._file is not None and self._file.on_content is not None:
            self._file.on_content(event)

    @property
    def problem(self) -> str | None:
        if self._file is None or self._file.problem is None:
            return None
        problem, lost = self._file.problem, self._file.lost
        reason = getattr(problem, "strerror", None) or problem
        return f"--record {self._path}: {lost:,} {'line' if lost == 1 else 'lines'} could not be written ({reason})"


def _is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def _named(_: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """Make a path of the name of a file to append to, which may not be stdout.

    Raises:
        RequestError: it names no file.
    """
    option = parameter.opts[0]
    if value == "":
        raise RequestError(f"{option} names no file: the name is empty; give one, such as kept.jsonl")
    if value == "-":
        raise RequestError(f"{option} - does not mean stdout, which is for results; name a file to append to")
    return None if value is None else Path(value)


def keeping_options(function: _Function) -> _Function:
    """Add ``--receipts``, ``--record`` and ``--record-content``."""
    options = (
        click.option(
            "--receipts",
            metavar="FILE",
            callback=_named,
            help="Append the receipt of each attempt to FILE, one JSON line each.",
        ),
        click.option(
            "--record",
            metavar="FILE",
            callback=_named,
            help="Append what happens to FILE, for `furcate trace summarize` and `furcate report`.",
        ),
        click.option("--record-content", is_flag=True, help="Record what is said as well."),
    )
    for option in reversed(options):
        function = option(function)
    return function
