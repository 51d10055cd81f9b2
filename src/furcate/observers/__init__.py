"""Observers that are ready to use."""

from furcate.observers._console import ConsoleObserver
from furcate.observers._jsonl import JsonLinesObserver
from furcate.observers._log import LogObserver
from furcate.observers._otel import OTelObserver
from furcate.observers._otel_setup import observe_otel
from furcate.observers._recorder import Recorder

__all__ = ("ConsoleObserver", "JsonLinesObserver", "LogObserver", "OTelObserver", "Recorder", "observe_otel")
