"""Telemetry that is kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import furcate
from furcate.observers import OTelObserver
from furcate.testing import StubProvider


class Telemetry:
    """Spans and metrics of one observer, looked at by name."""

    def __init__(self, **given: Any) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.observer = OTelObserver(tracer_provider=self.provider, meter_provider=self._meters, **given)
        self.tracer = self.provider.get_tracer("application")

    def close(self) -> None:
        self.provider.shutdown()
        self._meters.shutdown()

    def ended(self, beginning: str = "") -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(beginning)]

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self._spans.get_finished_spans() if span.name == name]
        return span

    def run(self, result: furcate.Result) -> ReadableSpan:
        [span] = [s for s in self.ended("chat ") if s.attributes["furcate.run.id"] == result.run_id]
        return span

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def everything(self) -> str:
        """All that any span says, in one text."""
        return "\n".join(span.to_json() for span in self.ended())


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


@pytest.fixture
def telemetry() -> Iterator[Callable[..., Telemetry]]:
    """Make an observer whose telemetry is kept in memory."""
    made: list[Telemetry] = []

    def make(**given: Any) -> Telemetry:
        made.append(Telemetry(**given))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def engine_of() -> Callable[..., furcate.Engine]:
    """Make an engine on a stub, with the profile ``p`` on the backend ``b``."""

    def make(stub: StubProvider, *observers: Any, profile: Any = None, **backend: Any) -> furcate.Engine:
        given = {"base_url": stub.base_url, "retry": furcate.RetryPolicy(attempts=3, first_backoff_s=0.001), **backend}
        return furcate.Engine(
            backends=[furcate.Backend("b", **given)],
            profiles=[furcate.Profile("p", "b", "m", **(profile or {}))],
            observers=[one.observer if isinstance(one, Telemetry) else one for one in observers],
        )

    return make


def ask(text: str = "Hello?", **given: Any) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})
