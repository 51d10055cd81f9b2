"""Telemetry of a command, where its configuration asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType

from furcate.cli._told import complain
from furcate.observers._otel import OTelObserver
from furcate.observers._otel_setup import captures, observe_by
from furcate.primitives._observations import ContentObservation, Observation
from furcate.primitives._telemetry import OTelSettings


class Telemetry:
    """Pass what is told on to an observer that is set up when the block is entered, and flushed when it is left.

    An engine is made, and its configuration checked, before anything is opened.

    Raises:
        ConfigError: the block is entered and the extra ``otel`` is not installed.
    """

    def __init__(self, settings: OTelSettings | None) -> None:
        self._settings = settings
        self._observer: OTelObserver | None = None
        self._open = ExitStack()
        self._lost: list[str] = []
        asked = settings is not None and captures(settings)
        self.on_content: Callable[[ContentObservation], None] | None = self._on_content if asked else None

    def __enter__(self) -> Telemetry:
        if self._settings is not None:
            with _warnings_told():
                self._observer = self._open.enter_context(observe_by(self._settings, report=self._lost.append))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._observer = None
        self._open.close()

    @property
    def problem(self) -> str | None:
        """One sentence on all that was not confirmed by the collector, once the block has been left."""
        return f"telemetry: {'; '.join(self._lost)}" if self._lost else None

    def on_event(self, event: Observation, /) -> None:
        """Take one observation."""
        if self._observer is not None:
            self._observer.on_event(event)

    def job(self, target: str) -> AbstractContextManager[None]:
        """Give the block of a job's own span; nothing where no telemetry is sent."""
        return nullcontext() if self._observer is None else self._observer.job(target)

    def carrier(self, run_id: str) -> dict[str, str]:
        """Give what travels along with the exchange of a run."""
        return self._observer.carrier(run_id) if self._observer is not None else {}

    def _on_content(self, event: ContentObservation) -> None:
        if self._observer is not None and self._observer.on_content is not None:
            self._observer.on_content(event)


class _Teller(logging.Handler):
    """Say what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Tell what the library warns of meanwhile, whose log a command does not show."""
    log, teller = logging.getLogger("furcate"), _Teller(logging.WARNING)
    log.addHandler(teller)
    try:
        yield
    finally:
        log.removeHandler(teller)
