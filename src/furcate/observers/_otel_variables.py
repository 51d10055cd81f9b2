"""The ``OTEL_...`` variables: what is wrong with them is said before anything is set up, and without any secret."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable
from urllib.parse import unquote

from furcate.observers import _otel_names as names
from furcate.primitives._errors import ConfigError
from furcate.primitives._telemetry import endpoint_fault, header_fault

_log = logging.getLogger("furcate")

CAPTURING = ("true", "span_only", "span_and_event")
LENGTH_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_NOT_CAPTURING = ("", "false", "no_content", "event_only")
_PROTOCOL = "http/protobuf"
_OTLP = "OTEL_EXPORTER_OTLP_"
_LIMITS = (
    *LENGTH_LIMITS,
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
)
_WHOLE = (
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
)
_METRIC_NUMBERS = ("OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT")


def said(variable: str) -> str:
    """Give what a variable says, in lower case; empty where it is not set."""
    return os.environ.get(variable, "").strip().lower()


def warn_of_switches() -> None:
    """Log a warning for each switch that is set to a word which means nothing."""
    if said("OTEL_SDK_DISABLED") not in ("", "true", "false"):
        _log.warning("telemetry: OTEL_SDK_DISABLED is neither true nor false, so it switches nothing off; give true")
    if said(names.CAPTURE_VARIABLE) not in (*CAPTURING, *_NOT_CAPTURING):
        _log.warning(
            "telemetry: %s is no word that is known, so no content is captured for it; give true, or %s",
            names.CAPTURE_VARIABLE,
            "SPAN_ONLY, SPAN_AND_EVENT, EVENT_ONLY or NO_CONTENT",
        )


def check_exporter(variable: str) -> bool:
    """Tell whether a signal is sent at all.

    Raises:
        ConfigError: it is to be sent in a way that is not there.
    """
    named = said(variable)
    if named not in ("", "otlp", "none"):
        remedy = "give otlp or none; for others, set up a provider of your own, and it will be used"
        raise _wrong(variable, f"{named!r} is not there", remedy)
    return named != "none"


def check_variables(*, metrics: bool, addresses: bool) -> None:
    """Check the variables that the SDK and its exporter read.

    Args:
        metrics: whether metrics are sent.
        addresses: whether the variables say where to.

    Raises:
        ConfigError: one of them is wrong; its name is in the message, and no value that may be secret.
    """
    signals = ("TRACES_", "METRICS_") if metrics else ("TRACES_",)
    for variable in (f"{_OTLP}{signal}PROTOCOL" for signal in ("", *signals)):
        if said(variable) not in ("", _PROTOCOL):
            remedy = f"set it to {_PROTOCOL} and give the collector's port for that, mostly 4318"
            raise _wrong(variable, f"{said(variable)!r} is not spoken here", remedy)
    if addresses:
        for signal in ("", *signals):
            _check_address(f"{_OTLP}{signal}ENDPOINT", whole=bool(signal))
    for signal in ("", *signals):
        _check_headers(f"{_OTLP}{signal}HEADERS")
    _check_numbers((f"{_OTLP}{signal}TIMEOUT" for signal in ("", *signals)), "a number of seconds above 0")
    if metrics:
        _check_numbers(_METRIC_NUMBERS, "a number of milliseconds above 0")
    for variable in _WHOLE:
        text = os.environ.get(variable)
        if text is not None and not _is_whole(text, 1):
            raise _wrong(variable, f"{text!r} is no whole number above 0", "give one, or unset it")
    for variable in _LIMITS:
        text = os.environ.get(variable)
        if text is not None and text.strip() and not _is_whole(text, 0):
            raise _wrong(variable, f"{text!r} is no whole number", "give one of 0 or more, or unset it")


def _check_address(variable: str, *, whole: bool) -> None:
    url = os.environ.get(variable, "")
    fault = endpoint_fault(url, whole=whole) if url else None
    if fault is not None:
        raise _wrong(variable, *fault)


def _check_headers(variable: str) -> None:
    for place, pair in enumerate(os.environ.get(variable, "").split(","), 1):
        if not pair.strip():
            continue
        name, equals, value = pair.partition("=")
        if not equals:
            raise _wrong(variable, f"header {place} is no pair", "give NAME=VALUE, with commas between them")
        fault = header_fault(unquote(name).strip(), unquote(value).strip())
        if fault is not None:
            raise _wrong(variable, *fault)


def _check_numbers(variables: Iterable[str], wanted: str) -> None:
    for variable in variables:
        text = os.environ.get(variable, "")
        if not text:
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not number > 0:
            raise _wrong(variable, f"{text!r} is out of bounds", f"give {wanted}, or unset it")


def _is_whole(text: str, least: int) -> bool:
    try:
        return int(text) >= least
    except ValueError:
        return False


def _wrong(variable: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(problem, where="the environment", key=variable, remedy=remedy)
