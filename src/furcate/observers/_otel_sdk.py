"""The OpenTelemetry SDK and its exporter, which are an extra: nothing but `_otel_setup` imports this file, and late.

Spans wait in a bounded queue for a thread of the SDK. What does not fit, and what the collector does not take, is lost
and counted: sending telemetry never holds up a run.
"""

from __future__ import annotations

import logging
import re

# A collector that never answers is waited for by threads of the SDK, whose locks and joins these are.
import threading  # noqa: TID251
import time  # noqa: TID251 - the SDK's threads know no event loop
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

_log = logging.getLogger("furcate")

_BATCH = 512
_LONGEST_REASON = 200
_LAST_WAIT_S = 0.5
_QUERY = re.compile(r"\?\S+")
"""Where an address may hold a key."""
_exporting: ContextVar[Losses | None] = ContextVar("furcate_exporting", default=None)


class Losses:
    """Count what was handed over and what arrived, and say once that something is lost.

    Args:
        what: what is sent, in the plural.
        where: the collector's host and port, or how else to call it.

    Attributes:
        closing: whether all that is lost from now on is told by `sum_up`.
        reason: what the exporter said first since something arrived.
    """

    def __init__(self, what: str, where: str) -> None:
        self._what = what
        self._where = where
        self._lock = threading.Lock()
        self._told = False
        self.closing = False
        self.reason = ""
        self._taken = 0
        self._begun = 0
        self._delivered = 0
        self._dropped = 0

    def take(self, limit: int) -> bool:
        """Count one that ended; False where `limit` of them wait already, and this one is lost."""
        with self._lock:
            fits = self._taken - self._begun < limit
            if fits:
                self._taken += 1
            else:
                self._dropped += 1
        if not fits:
            self._tell_once(f"{limit:,} {self._what} wait to be sent")
        return fits

    def begin(self, count: int) -> None:
        """Count those that are being sent."""
        with self._lock:
            self._begun += count

    def end(self, count: int, *, arrived: bool) -> None:
        """Count those that the collector took; say once that it took none."""
        if arrived:
            self.reason = ""
            with self._lock:
                self._delivered += count
        elif not self.closing:
            self._tell_once(self.reason or "it does not take them")

    def _tell_once(self, why: str) -> None:
        if not self._told:
            self._told = True
            _log.warning("telemetry: %s are being lost on the way to %s: %s", self._what, self._where, why)

    def sum_up(self) -> None:
        """Say how many are lost or were not confirmed in time, where any were."""
        lost = self._taken - self._delivered + self._dropped
        if lost > 0:
            of = f"{lost:,} of {self._taken + self._dropped:,} {self._what}"
            why = "" if self._told or not self.reason else f": {self.reason}"
            _log.warning("telemetry: %s were not confirmed by %s%s", of, self._where, why)


class _OwnWords(logging.Filter):
    """Keep back what the exporter logs of our own exports: it is said once, by us, and counted."""

    def filter(self, record: logging.LogRecord) -> bool:
        losses = _exporting.get()
        if losses is None:
            return True
        # The first word is on the cause; what follows is on the exporter's own proceedings.
        losses.reason = losses.reason or _QUERY.sub("?...", record.getMessage())[:_LONGEST_REASON]
        return False


_OWN_WORDS = _OwnWords()
_TALKERS = (OTLPSpanExporter.__module__, OTLPMetricExporter.__module__, "opentelemetry.sdk._shared_internal")


class _Spans(SpanExporter):
    """Send spans, and count them."""

    def __init__(self, exporter: SpanExporter, losses: Losses) -> None:
        self._exporter = exporter
        self._losses = losses

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._losses.begin(len(spans))
        result = SpanExportResult.FAILURE
        token = _exporting.set(self._losses)
        try:
            result = self._exporter.export(spans)
        finally:
            _exporting.reset(token)
            self._losses.end(len(spans), arrived=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        _quietly(self._losses, self._exporter.shutdown)


class _Metrics(MetricExporter):
    """Send metrics, and say once where that fails."""

    def __init__(self, exporter: OTLPMetricExporter, losses: Losses) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._losses = losses

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        result = MetricExportResult.FAILURE
        token = _exporting.set(self._losses)
        try:
            result = self._exporter.export(metrics_data, timeout_millis)
        finally:
            _exporting.reset(token)
            self._losses.end(1, arrived=result is MetricExportResult.SUCCESS)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        _quietly(self._losses, lambda: self._exporter.shutdown(timeout_millis))


def _quietly(losses: Losses, act: Callable[[], object]) -> None:
    token = _exporting.set(losses)
    try:
        act()
    finally:
        _exporting.reset(token)


class _Queue(SpanProcessor):
    """Hand spans to the SDK's batches while fewer than `limit` wait."""

    def __init__(self, exporter: SpanExporter, losses: Losses, limit: int) -> None:
        self._losses = losses
        self._limit = limit
        batch = min(_BATCH, limit) if limit < _BATCH else None
        self._batches = BatchSpanProcessor(exporter, max_queue_size=limit, max_export_batch_size=batch)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled and self._losses.take(self._limit):
            self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)


class Pipeline:
    """Hold what was set up: the providers, and the way to the collector.

    Args:
        resource: what the program is called.
        headers: further headers of each export.
        traces_url: where spans go; None leaves it to the environment.
        metrics_url: where metrics go, likewise.
        traces: whether there are any.
        metrics: whether there are any.
        queue_size: most spans that wait.
        where: how to call the collector.

    Attributes:
        tracer_provider: makes spans.
        meter_provider: makes metrics; None where none are sent.
    """

    def __init__(
        self,
        *,
        resource: Mapping[str, str],
        headers: Mapping[str, str],
        traces_url: str | None,
        metrics_url: str | None,
        traces: bool,
        metrics: bool,
        queue_size: int,
        where: str,
    ) -> None:
        for name in _TALKERS:
            # Left there for good: what is on its way may outlast us by seconds, and others' exports are not touched.
            logging.getLogger(name).addFilter(_OWN_WORDS)
        made = Resource.create(dict(resource))
        self._losses = Losses("spans", where)
        spans = _Spans(OTLPSpanExporter(endpoint=traces_url, headers=headers), self._losses)
        sampler = None if traces else ALWAYS_OFF
        self.tracer_provider = TracerProvider(sampler, made, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(_Queue(spans, self._losses, queue_size))
        self._ends: list[Callable[[], object]] = [self.tracer_provider.shutdown]
        self._wake: list[Callable[[], object]] = [spans.shutdown]
        self.meter_provider: MeterProvider | None = None
        if metrics:
            numbers = _Metrics(
                OTLPMetricExporter(endpoint=metrics_url, headers=dict(headers)), Losses("metrics", where)
            )
            self.meter_provider = MeterProvider([PeriodicExportingMetricReader(numbers)], made, shutdown_on_exit=False)
            self._ends.append(partial(_end_metrics, self.meter_provider))
            self._wake.append(numbers.shutdown)

    def close(self, within_s: float) -> None:
        """Send what is left, as far as that is done in time; the caller waits, its event loop too.

        A thread that a silent collector still holds ends with the exporter's own time limit, which
        ``OTEL_EXPORTER_OTLP_TIMEOUT`` sets, and keeps no process alive.
        """
        threads = [threading.Thread(target=end, name="furcate-otel-flush", daemon=True) for end in self._ends]
        self._losses.closing = True
        for thread in threads:
            thread.start()
        if not _ended(threads, within_s):
            # Whoever waits to try again need not.
            for wake in self._wake:
                wake()
            _ended(threads, _LAST_WAIT_S)
        self._losses.sum_up()


def _ended(threads: Sequence[threading.Thread], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _end_metrics(provider: MeterProvider) -> None:
    try:
        provider.shutdown()
    except Exception as error:
        # It raises where the collector is too slow, which is said by then.
        _log.debug("telemetry: metrics ended with %r", error)
