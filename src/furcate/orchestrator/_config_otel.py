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
from furcate.primitives._telemetry import LEAST_CONTENT_LIMIT, OTelSettings

OTEL = "otel"


def _endpoint(value: object) -> str:
    url = text(value)
    if not url.startswith(("http://", "https://")):
        raise Wrong("no URL of a collector", 'give one such as "http://localhost:4318"')
    return url


def _flush(value: object) -> float:
    found = seconds(value)
    if found >= 3600:
        raise Wrong(f"{found:g} is out of bounds", "give less than 3600 seconds")
    return found


_KEYS: dict[str, Reader] = {
    "service_name": text,
    "endpoint": _endpoint,
    "headers": text_table,
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
