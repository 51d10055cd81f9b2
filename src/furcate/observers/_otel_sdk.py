"""The OpenTelemetry SDK and its exporter, which are an extra: nothing but `_otel_setup` imports this file, and late.

Spans wait in a bounded queue for a thread of the SDK. What does not fit, and what the collector does not take, is lost
and counted: sending telemetry never holds up a run.
"""

from __future__ import annotations

import logging

# A collector that never answers is waited for by threads of the SDK, whose locks and joins these are.
import threading  # noqa: TID251
import time  # noqa: TID251 - the SDK's threads know no event loop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
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

from furcate.observers._otel_http import Wire

_log = logging.getLogger("furcate")

_BATCH = 512
_LAST_WAIT_S = 0.5
_exporting: ContextVar[Losses | None] = ContextVar("furcate_exporting", default=None)


class Losses:
    """Count what was handed over and what arrived, and say once that something is lost.

    Args:
        what: what is sent, in the plural.
        where: the collector's host and port, or how else to call it.
        wire: knows how the last export ended.

    Attributes:
        closing: whether all that is lost from now on is told by `summary`.
        reason: why the last loss came about, where that is known.
    """

    def __init__(self, what: str, where: str, wire: Wire) -> None:
        self._what = what
        self._where = where
        self._wire = wire
        self._lock = threading.Lock()
        self._told = False
        self.closing = False
        self.reason = ""
        self._taken = 0
        self._begun = 0
        self._delivered = 0
        self._dropped = 0

    def take(self, limit: int | None = None) -> bool:
        """Count one that ended; False where `limit` of them wait already, and this one is lost."""
        with self._lock:
            fits = limit is None or self._taken - self._begun < limit
            if fits:
                self._taken += 1
            else:
                self._dropped += 1
        if not fits:
            why = self._wire.cause or self.reason or "it has not answered so far"
            self._tell_once(f"{limit:,} {self._what} wait to be sent; {why}")
        return fits

    def begin(self, count: int) -> None:
        """Count those that are being sent."""
        self._wire.begin()
        with self._lock:
            self._begun += count

    def end(self, count: int, *, arrived: bool) -> None:
        """Count those that the collector took; say once that it did not take all."""
        confirmed = max(0, count - self._wire.rejected) if arrived and self._wire.confirmed else 0
        with self._lock:
            self._delivered += confirmed
        if confirmed < count:
            self.reason = self._wire.cause or self.reason
            if not self.closing:
                self._tell_once(self.reason or "it does not confirm them")

    def note(self, message: str) -> None:
        """Keep what an exporter says of a batch that it did not send at all; only what cannot hold any secret."""
        for begins, reason in _NOT_SENT:
            if message.startswith(begins):
                self.reason = reason

    def _tell_once(self, why: str) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            _log.warning("telemetry: %s are being lost on the way to %s: %s", self._what, self._where, why)

    def summary(self, late: str) -> str | None:
        """Say how many are lost or were not confirmed in time, and why; None where none were.

        Args:
            late: what to say where the end did not wait for an answer.
        """
        with self._lock:
            lost, count = self._taken - self._delivered + self._dropped, self._taken + self._dropped
        if lost <= 0:
            return None
        why = self._wire.cause or self.reason or late
        return f"{lost:,} of {count:,} {self._what} were not confirmed by {self._where}: {why}"


_NOT_SENT = (
    ("Failed to encode", "they could not be encoded"),
    ("Dropping", "together they are too large to be sent"),
)


class _OwnWords(logging.Filter):
    """Keep back what the exporter logs of our own exports: it may hold headers and addresses, and is said by us."""

    def filter(self, record: logging.LogRecord) -> bool:
        losses = _exporting.get()
        if losses is None:
            return True
        losses.note(str(record.msg))
        return False


_OWN_WORDS = _OwnWords()
_TALKERS = (OTLPSpanExporter.__module__, OTLPMetricExporter.__module__, "opentelemetry.sdk._shared_internal")


def _watch(wire: Wire, exporter: object) -> None:
    """Find the session of an exporter, which its earlier versions hold themselves."""
    session = getattr(exporter, "_session", None)
    for name in ("_client", "_transport", "_session"):
        exporter = getattr(exporter, name, None)
    found = session or exporter
    if found is not None:
        wire.attach(found)


class _Spans(SpanExporter):
    """Send spans, and count them."""

    def __init__(self, exporter: SpanExporter, losses: Losses) -> None:
        self._exporter = exporter
        self._losses = losses

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._losses.begin(len(spans))
        result = SpanExportResult.FAILURE
        with _as_ours(self._losses):
            result = self._exporter.export(spans)
        self._losses.end(len(spans), arrived=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        with _as_ours(self._losses):
            self._exporter.shutdown()


class _Metrics(MetricExporter):
    """Send metrics, and count the batches."""

    def __init__(self, exporter: OTLPMetricExporter, losses: Losses) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._losses = losses

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        self._losses.take()
        self._losses.begin(1)
        result = MetricExportResult.FAILURE
        with _as_ours(self._losses):
            result = self._exporter.export(metrics_data, timeout_millis)
        self._losses.end(1, arrived=result is MetricExportResult.SUCCESS)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        with _as_ours(self._losses):
            self._exporter.shutdown(timeout_millis)


@contextmanager
def _as_ours(losses: Losses) -> Iterator[None]:
    """Keep back what is logged or raised inside: an exporter's exception would be logged with its words."""
    token = _exporting.set(losses)
    try:
        yield
    except Exception as error:
        losses.reason = losses.reason or f"the exporter failed ({type(error).__name__})"
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
        where: how to call the collector of traces, and that of metrics.

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
        where: tuple[str, str],
    ) -> None:
        for name in _TALKERS:
            # Left there for good: what is on its way may outlast us by seconds, and others' exports are not touched.
            logging.getLogger(name).addFilter(_OWN_WORDS)
        made = Resource.create(dict(resource))
        wire = Wire(ExportTraceServiceResponse)
        self._wires = [wire]
        self._losses = [Losses("spans", where[0], wire)]
        exporter = OTLPSpanExporter(endpoint=traces_url, headers=headers)
        _watch(wire, exporter)
        spans = _Spans(exporter, self._losses[0])
        sampler = None if traces else ALWAYS_OFF
        self.tracer_provider = TracerProvider(sampler, made, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(_Queue(spans, self._losses[0], queue_size))
        self._ends: list[Callable[[], object]] = [self.tracer_provider.shutdown]
        self._wake: list[Callable[[], object]] = [spans.shutdown]
        self.meter_provider: MeterProvider | None = None
        if metrics:
            self._send_metrics(made, OTLPMetricExporter(endpoint=metrics_url, headers=dict(headers)), where[1])

    def _send_metrics(self, resource: Resource, exporter: OTLPMetricExporter, where: str) -> None:
        wire = Wire(ExportMetricsServiceResponse)
        losses = Losses("batches of metrics", where, wire)
        _watch(wire, exporter)
        numbers = _Metrics(exporter, losses)
        self.meter_provider = MeterProvider([PeriodicExportingMetricReader(numbers)], resource, shutdown_on_exit=False)
        self._wires.append(wire)
        self._losses.append(losses)
        self._ends.append(partial(_end_metrics, self.meter_provider))
        self._wake.append(numbers.shutdown)

    def close(self, within_s: float) -> tuple[str, ...]:
        """Send what is left, as far as that is done in time; the caller waits, its event loop too.

        What is on its way then is cut. A thread that even that does not end keeps no process alive.

        Returns:
            a sentence for each signal of which something was not confirmed.
        """
        threads = [threading.Thread(target=end, name="furcate-otel-flush", daemon=True) for end in self._ends]
        for losses in self._losses:
            losses.closing = True
        for thread in threads:
            thread.start()
        if not _ended(threads, within_s):
            for wire in self._wires:
                wire.close()
            # Whoever waits to try again need not.
            for wake in self._wake:
                wake()
            _ended(threads, _LAST_WAIT_S)
        late = f"no answer within {within_s:g} s (flush_s)"
        found = (losses.summary(late) for losses in self._losses)
        return tuple(sentence for sentence in found if sentence is not None)


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
