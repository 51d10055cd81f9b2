"""The switch: telemetry for the length of a block, sent as the ``OTEL_...`` variables or the arguments say."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from furcate.observers import _otel_names as names
from furcate.observers._otel import OTelObserver, nobody_has_set_up, without_telemetry
from furcate.observers._otel_facts import server_of
from furcate.observers._otel_variables import (
    CAPTURING,
    LENGTH_LIMITS,
    check_exporter,
    check_variables,
    said,
    warn_of_switches,
)
from furcate.primitives._errors import ConfigError
from furcate.primitives._telemetry import CONTENT_LIMIT, FLUSH_S, LEAST_CONTENT_LIMIT, OTelSettings

if TYPE_CHECKING:
    from furcate.observers._otel_sdk import Pipeline

_log = logging.getLogger("furcate")

_QUEUE_SIZE = 16_384
_DEFAULT_ENDPOINT = "http://localhost:4318"


@contextmanager
def observe_otel(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    headers: Mapping[str, str] | None = None,
    metrics: bool | None = None,
    capture_content: bool | None = None,
    content_limit: int = CONTENT_LIMIT,
    queue_size: int | None = None,
    flush_s: float = FLUSH_S,
) -> Iterator[OTelObserver]:
    """Send traces and metrics while a block lasts; give the observer that makes them.

    Where the program has set up providers of its own (``opentelemetry.trace.set_tracer_provider``), those are used and
    nothing is set up or ended here. Otherwise providers are made for this block, with an exporter that speaks OTLP over
    HTTP. The ``OTEL_...`` variables say what the arguments leave out.

    A collector that is slow or dead holds up no run: what it does not take is dropped, which is logged once, and
    counted at the end.

    Args:
        service_name: how the program is called in the backend; by default ``furcate``.
        endpoint: base URL of the collector, such as ``http://localhost:4318``.
        headers: further headers of each export.
        metrics: whether metrics are sent; by default unless the variables give an address for traces alone.
        capture_content: whether prompts and answers are put on the spans; by default they are not.
        content_limit: most characters of content on one span.
        queue_size: most spans that wait to be sent; by default 16,384.
        flush_s: how long leaving the block may wait for the collector, in seconds.

    Raises:
        ConfigError: the extra ``otel`` is not installed, or a variable asks for an exporter that is not there.
        TypeError: an argument has the wrong type.
        ValueError: an argument is out of bounds.
    """
    settings = OTelSettings(
        service_name=service_name,
        endpoint=endpoint,
        headers={} if headers is None else headers,
        metrics=metrics,
        capture_content=capture_content,
        content_limit=content_limit,
        queue_size=queue_size,
        flush_s=flush_s,
    )
    with observe_by(settings) as observer:
        yield observer


def _log_it(sentence: str) -> None:
    _log.warning("telemetry: %s", sentence)


@contextmanager
def observe_by(settings: OTelSettings, *, report: Callable[[str], None] = _log_it) -> Iterator[OTelObserver]:
    """Do the same as settings say.

    Args:
        settings: where telemetry goes and what is in it.
        report: takes a sentence, at the end, for each signal of which something was not confirmed; logs it by default.

    Raises:
        ConfigError: as `observe_otel` does.
    """
    warn_of_switches()
    if said("OTEL_SDK_DISABLED") == "true":
        yield without_telemetry()
        return
    capture = captures(settings)
    limit = _content_limit(settings)
    if not capture and _asks_for_content(settings):
        _log.warning(
            "telemetry: the OTEL_ variables cut attributes at fewer than %d characters, so no content is captured",
            LEAST_CONTENT_LIMIT,
        )
    if not nobody_has_set_up():
        if settings.endpoint is not None or settings.service_name is not None or settings.headers:
            _log.warning("telemetry: the program's own providers are used, so endpoint, headers and name are not")
        yield OTelObserver(capture_content=capture, content_limit=limit)
        return
    pipeline = _pipeline(settings)
    try:
        yield OTelObserver(
            tracer_provider=pipeline.tracer_provider,
            meter_provider=pipeline.meter_provider,
            capture_content=capture,
            content_limit=limit,
        )
    finally:
        for sentence in pipeline.close(settings.flush_s):
            report(sentence)


def _pipeline(settings: OTelSettings) -> Pipeline:
    traces, metrics = check_exporter("OTEL_TRACES_EXPORTER"), _sends_metrics(settings)
    check_variables(metrics=metrics, addresses=settings.endpoint is None)
    try:
        from furcate.observers import _otel_sdk  # noqa: PLC0415 - an optional extra, imported only here
    except ImportError as error:
        raise ConfigError(
            "the OpenTelemetry SDK and its exporter are not there",
            where="observe_otel(...)",
            remedy="pip install 'furcate[otel]'",
        ) from error
    base = settings.endpoint.rstrip("/") if settings.endpoint is not None else None
    try:
        return _otel_sdk.Pipeline(
            resource=_resource(settings),
            headers=dict(settings.headers),
            traces_url=f"{base}/v1/traces" if base is not None else None,
            metrics_url=f"{base}/v1/metrics" if base is not None else None,
            traces=traces,
            metrics=metrics,
            queue_size=settings.queue_size or _number("OTEL_BSP_MAX_QUEUE_SIZE") or _QUEUE_SIZE,
            where=(_collector(settings, "TRACES"), _collector(settings, "METRICS")),
        )
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(
            f"the OpenTelemetry SDK does not take what the OTEL_ variables say ({error})", where="the environment"
        ) from error


def _number(variable: str) -> int | None:
    text = said(variable)
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _sends_metrics(settings: OTelSettings) -> bool:
    if settings.metrics is not None:
        return settings.metrics
    if not check_exporter("OTEL_METRICS_EXPORTER"):
        return False
    # Backends of traces have no place for metrics: who names an address for traces alone means one of those.
    general = settings.endpoint or said("OTEL_EXPORTER_OTLP_ENDPOINT") or said("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    return bool(general) or not said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def captures(settings: OTelSettings) -> bool:
    """Tell whether content is captured, by the settings or else by the variable that the conventions' tools know.

    It is not where the SDK cuts attributes so short that none of it would stay.
    """
    own = _sdk_limit()
    return _asks_for_content(settings) and (own is None or own >= LEAST_CONTENT_LIMIT)


def _asks_for_content(settings: OTelSettings) -> bool:
    if settings.capture_content is not None:
        return settings.capture_content
    return said(names.CAPTURE_VARIABLE) in CAPTURING


def _content_limit(settings: OTelSettings) -> int:
    """Give the limit of content; the SDK's own would cut its JSON in the middle."""
    own = _sdk_limit()
    return max(LEAST_CONTENT_LIMIT, settings.content_limit if own is None else min(settings.content_limit, own))


def _sdk_limit() -> int | None:
    """Give the SDK's own limit of an attribute's length, which the first of two variables sets; None is none."""
    given = next((variable for variable in LENGTH_LIMITS if variable in os.environ), None)
    text = said(given) if given is not None else ""
    return int(text) if text.isdecimal() else None


def _resource(settings: OTelSettings) -> dict[str, str]:
    if settings.service_name is not None:
        return {"service.name": settings.service_name}
    named = said("OTEL_SERVICE_NAME") or "service.name=" in said("OTEL_RESOURCE_ATTRIBUTES")
    return {} if named else {"service.name": names.SCOPE}


def _collector(settings: OTelSettings, signal: str) -> str:
    """Name the collector by host and port: its address may hold credentials."""
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    given = settings.endpoint or next(filter(None, map(said, variables)), _DEFAULT_ENDPOINT)
    server = server_of(given)
    return f"{server[0]}:{server[1]}" if server is not None else "the collector"
