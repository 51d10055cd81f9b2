"""Observers that are ready to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.observers._console import ConsoleObserver
from furcate.observers._jsonl import JsonLinesObserver
from furcate.observers._log import LogObserver
from furcate.observers._recorder import Recorder

if TYPE_CHECKING:
    from furcate.observers._otel import OTelObserver
    from furcate.observers._otel_setup import observe_otel

__all__ = ("ConsoleObserver", "JsonLinesObserver", "LogObserver", "OTelObserver", "Recorder", "observe_otel")


def __getattr__(name: str) -> object:
    # Who sends no traces need not load the telemetry library.
    if name == "OTelObserver":
        from furcate.observers._otel import OTelObserver

        return OTelObserver
    if name == "observe_otel":
        from furcate.observers._otel_setup import observe_otel

        return observe_otel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
