"""The table ``[otel]`` of a configuration file: where telemetry goes and what is in it."""

from __future__ import annotations

from typing import Any

from furcate.orchestrator._config_read import (
    Reader,
    Report,
    Table,
    Wrong,
    described,
    flag,
    seconds,
    text,
    text_table,
    whole,
)
from furcate.primitives._telemetry import (
    FLUSH_BOUND_S,
    LEAST_CONTENT_LIMIT,
    OTelSettings,
    endpoint_fault,
    header_fault,
)

OTEL = "otel"


def _endpoint(value: object) -> str:
    url = text(value)
    fault = endpoint_fault(url)
    if fault is not None:
        raise Wrong(*fault)
    return url


def _headers(value: object) -> dict[str, str]:
    found = text_table(value)
    for name, content in found.items():
        fault = header_fault(name, content)
        if fault is not None:
            raise Wrong(*fault)
    return found


def _flush(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return seconds(value)
    if not 0 < value < FLUSH_BOUND_S:
        raise Wrong(f"{value:g} is out of bounds", "give more than 0 seconds and less than 3600 seconds")
    return value


_KEYS: dict[str, Reader] = {
    "service_name": text,
    "endpoint": _endpoint,
    "headers": _headers,
    "metrics": flag,
    "capture_content": flag,
    "content_limit": whole(LEAST_CONTENT_LIMIT),
    "queue_size": whole(1),
    "flush_s": _flush,
}


def read_otel(report: Report, content: object) -> OTelSettings | None:
    """Read ``[otel]``; None where it is not there, or something is wrong with it.

    Arguments:
        report: takes what is wrong.
        content: what the file has at that key, None where it has nothing.
    """
    if content is None:
        return None
    if not isinstance(content, dict):
        report.add("", OTEL, f"found {described(content)}", remedy=f"give a table [{OTEL}]")
        return None
    place = Table(report, OTEL, content)
    found: dict[str, Any] = place.read(_KEYS)
    return OTelSettings(**found) if place.sound else None
