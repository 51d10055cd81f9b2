"""OpenTelemetry: a span for each run, its attempts, each coordinator and nursery; links to where exchanges came from.

Of OpenTelemetry, only the API is imported here. Where no provider of traces or metrics was set up, nothing is done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

import attrs
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from furcate.observers import _otel_names as names
from furcate.observers._otel_content import tell
from furcate.observers._otel_facts import (
    Attributes,
    attempt_attributes,
    attempt_ending_attributes,
    coordinator_ending_attributes,
    ending_attributes,
    failure_text,
    run_attributes,
    scope_attributes,
    word,
)
from furcate.observers._otel_meters import Measured, Meters
from furcate.observers._otel_scopes import Scopes
from furcate.primitives._checks import check_whole
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    ContentObservation,
    ContentReceived,
    ContentSent,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._telemetry import CONTENT_LIMIT, LEAST_CONTENT_LIMIT
from furcate.primitives._usage import Usage

_REMEMBERED = 4096

_Continuing: TypeAlias = RunStarted | CoordinatorStarted | NurseryStarted
_PROPAGATOR = TraceContextTextMapPropagator()
_AGAIN = {"generate": names.RETRY_EVENT, "repair": names.REPAIR_EVENT, "resume": names.RESUME_EVENT}


class _Run:
    """Hold what is going on in a run, until it has ended."""

    __slots__ = (
        "attempt", "begun", "context", "first_event_s", "holds_lease", "paid", "received", "replayed", "response_id",
        "response_model", "sent", "span", "waited_s",
    )  # fmt: skip

    def __init__(self, begun: RunStarted, span: Span, context: Context) -> None:
        self.begun = begun
        self.span = span
        self.context = context
        self.attempt: Span | None = None
        self.holds_lease = False
        self.waited_s = 0.0
        self.first_event_s: float | None = None
        self.replayed = 0
        self.paid: list[Usage] = []
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.sent: ContentSent | None = None
        self.received: ContentReceived | None = None


class OTelObserver:
    """Make spans and metrics of what it hears, by the OpenTelemetry conventions for generative AI.

    Coordinators and nurseries are current while they last, in the task that they run in and in those that start below,
    so that whatever happens inside has them as parent. Runs are never current: a stream may be left from another task.

    Content is captured where that is asked for, and only what a run adds to its conversation; see `on_content`.

    Args:
        tracer_provider: makes the spans; the global one by default.
        meter_provider: makes the metrics; the global one by default.
        capture_content: whether prompts and answers are put on the spans.
        content_limit: most characters of content on one span, at least 256.

    Attributes:
        on_content: takes content where that is captured, else None: nobody hands any over then.

    Raises:
        TypeError: `content_limit` is no whole number.
        ValueError: it is too small.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool = False,
        content_limit: int = CONTENT_LIMIT,
    ) -> None:
        check_whole("content_limit", content_limit, LEAST_CONTENT_LIMIT)
        self._content_limit = content_limit
        self.on_content: Callable[[ContentObservation], None] | None = self._take_content if capture_content else None
        self._tracer = trace.get_tracer(names.SCOPE, _version(), tracer_provider)
        self._meters = Meters(metrics.get_meter(names.SCOPE, _version() or "", meter_provider))
        self._live: bool | None = None
        if tracer_provider is not None or meter_provider is not None:
            self._live = not isinstance(tracer_provider, trace.NoOpTracerProvider) or meter_provider is not None
        self._runs: dict[str, _Run] = {}
        self._scopes = Scopes()
        self._contexts: OrderedDict[str, SpanContext] = OrderedDict()
        self._handlers: dict[type, Callable[[Any], None]] = {
            RunStarted: self._run_started,
            AttemptStarted: self._attempt_started,
            ActivityChanged: self._activity_changed,
            AttemptFinished: self._attempt_finished,
            AttemptsPaused: self._attempts_paused,
            RunFinished: self._run_finished,
            CoordinatorStarted: self._scope_started,
            NurseryStarted: self._scope_started,
            TurnDelivered: self._turn_delivered,
            CoordinatorFinished: self._coordinator_finished,
            NurseryFinished: self._nursery_finished,
        }

    def on_event(self, event: Observation, /) -> None:
        """Take one observation."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def carrier(self, run_id: str) -> dict[str, str]:
        """Give the W3C trace context of a run that has not ended; nothing where it has no span."""
        run = self._runs.get(run_id)
        carried: dict[str, str] = {}
        if run is None:
            return carried
        _PROPAGATOR.inject(carried, run.context)
        if carried:
            # For exchanges that travel in a form which keeps the run's id alone.
            self._contexts[run_id] = run.span.get_span_context()
            if len(self._contexts) > _REMEMBERED:
                self._contexts.popitem(last=False)
        return carried

    @contextmanager
    def job(self, target: str) -> Iterator[None]:
        """Have a span around a job whose items are worked on elsewhere.

        Args:
            target: what is done with each item.
        """
        if not self._is_live():
            yield
            return
        with self._tracer.start_as_current_span(names.JOB_SPAN, attributes={names.JOB_TARGET: target}):
            yield

    @contextmanager
    def item(self, name: str, carrier: Mapping[str, str]) -> Iterator[None]:
        """Have a span around the runs of one item of a job, the beginning of a trace of its own.

        Args:
            name: the item's id.
            carrier: the trace context of the job, to which the span links; nothing where it has none.
        """
        if not self._is_live():
            yield
            return
        job = _span_context(carrier.get("traceparent", ""), carrier.get("tracestate", ""))
        links = [] if job is None else [Link(job, {names.LINK_KIND: names.PART_OF})]
        with self._tracer.start_as_current_span(
            names.ITEM_SPAN, Context(), SpanKind.INTERNAL, {names.ITEM_ID: name}, links
        ):
            yield

    def _run_started(self, event: RunStarted) -> None:
        if not self._is_live():
            return
        attributes = run_attributes(event)
        links = self._links(event, event.parent_run_id, attributes)
        parent = self._scopes.context_of_run(event.scope_id)
        span = self._tracer.start_span(
            f"{names.CHAT} {attributes[names.REQUEST_MODEL]}", parent, SpanKind.CLIENT, attributes, links
        )
        self._runs[event.run_id] = _Run(event, span, trace.set_span_in_context(span, parent))

    def _attempt_started(self, event: AttemptStarted) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        if not run.holds_lease:
            run.holds_lease = True
            self._meters.lease(run.begun.backend, 1)
            self._meters.waited(run.begun.backend, event.waited_s, run.context)
        run.waited_s += event.waited_s
        if not run.span.is_recording():
            return
        if event.number > 1:
            run.span.add_event(_AGAIN[event.purpose], {names.ATTEMPT_NUMBER: event.number})
        name = f"attempt {event.purpose}"
        run.attempt = self._tracer.start_span(name, run.context, attributes=attempt_attributes(event))

    def _activity_changed(self, event: ActivityChanged) -> None:
        run = self._runs.get(event.run_id)
        if run is not None and run.attempt is not None:
            said = {names.ACTIVITY_NAME: word(event.name), names.ACTIVITY_STATE: event.state}
            run.attempt.add_event(names.ACTIVITY_EVENT, said)

    def _attempt_finished(self, event: AttemptFinished) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        run.response_id, run.response_model = event.response_id, event.model
        if event.first_event_s is not None:
            run.first_event_s = event.first_event_s
        if event.replayed:
            run.replayed += 1
        else:
            run.paid.append(event.usage)
        span, run.attempt = run.attempt, None
        if span is not None:
            _end(span, attempt_ending_attributes(event), event)

    def _attempts_paused(self, event: AttemptsPaused) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        self._give_back(run)
        if run.span.is_recording():
            said = {names.PAUSE_WAIT: event.wait_s, names.FAILURE_KIND: event.failure_kind}
            run.span.add_event(names.PAUSE_EVENT, said)

    def _give_back(self, run: _Run) -> None:
        if run.holds_lease:
            run.holds_lease = False
            self._meters.lease(run.begun.backend, -1)

    def _run_finished(self, event: RunFinished) -> None:
        run = self._runs.pop(event.run_id, None)
        if run is None:
            return
        self._give_back(run)
        if run.replayed:
            # Whoever sums up must not find twice what was paid once: an earlier start of the work has told it.
            event = attrs.evolve(event, usage=Usage.total(run.paid))
        measured = Measured(run.begun, event, response_model=run.response_model, first_event_s=run.first_event_s)
        self._meters.run_ended(measured, run.context)
        if run.attempt is not None:
            run.attempt.end()
        if not run.span.is_recording():
            run.span.end()
            return
        attributes = ending_attributes(event)
        attributes[names.WAITED] = run.waited_s
        if run.replayed:
            attributes[names.REPLAYED] = run.replayed
        if run.response_id is not None:
            attributes[names.RESPONSE_ID] = word(run.response_id)
        if run.response_model is not None:
            attributes[names.RESPONSE_MODEL] = word(run.response_model)
        if run.begun.streamed and run.first_event_s is not None:
            attributes[names.TIME_TO_FIRST_CHUNK] = run.first_event_s
        if run.sent is not None:
            self._tell_content(run, run.sent, attributes)
        _end(run.span, attributes, event)

    def _take_content(self, event: ContentObservation) -> None:
        run = self._runs.get(event.run_id)
        if run is None or not run.span.is_recording():
            return
        if isinstance(event, ContentSent):
            # A repair sends all that the run sent before, and more.
            run.sent, run.received = event, None
        else:
            run.received = event

    def _tell_content(self, run: _Run, sent: ContentSent, attributes: Attributes) -> None:
        finished = attributes.get(names.FINISH_REASONS)
        told = tell(
            sent.messages,
            run.received.message if run.received is not None else None,
            limit=self._content_limit,
            finished=finished[0] if isinstance(finished, tuple) else names.FINISHED_BADLY,
        )
        texts = (
            (names.SYSTEM_INSTRUCTIONS, told.system),
            (names.INPUT_MESSAGES, told.input),
            (names.OUTPUT_MESSAGES, told.output),
        )
        attributes.update((name, text) for name, text in texts if text is not None)
        attributes[names.CONTENT_INHERITED] = sent.inherited
        if told.cut:
            attributes[names.CONTENT_CUT] = True

    def _scope_started(self, event: CoordinatorStarted | NurseryStarted) -> None:
        if not self._is_live():
            return
        attributes = scope_attributes(event)
        links = self._links(event, event.parent_run_id, attributes)
        parent = self._scopes.context_of_scope(event.parent_scope_id)
        name = attributes.get(names.AGENT_NAME)
        title = f"{names.WORKFLOW} {name}" if name is not None else names.WORKFLOW
        span = self._tracer.start_span(title, parent, SpanKind.INTERNAL, attributes, links)
        self._scopes.enter(event, span, parent)

    def _turn_delivered(self, event: TurnDelivered) -> None:
        scope = self._scopes[event.scope_id]
        if scope is not None and isinstance(scope.begun, CoordinatorStarted):
            scope.turns = scope.begun.additional_turns - event.remaining

    def _coordinator_finished(self, event: CoordinatorFinished) -> None:
        scope = self._scopes.leave(event.scope_id)
        if scope is not None:
            attributes = coordinator_ending_attributes(event)
            attributes[names.TURNS_TAKEN] = scope.turns
            if event.status == "failed":
                scope.span.set_status(Status(StatusCode.ERROR, str(attributes[names.ERROR_TYPE])))
            scope.span.set_attributes(attributes)
            scope.span.end()

    def _nursery_finished(self, event: NurseryFinished) -> None:
        scope = self._scopes.leave(event.scope_id)
        if scope is not None:
            if event.status == "failed":
                scope.span.set_status(Status(StatusCode.ERROR, "failed"))
            scope.span.set_attributes({names.STATUS: event.status, names.BRANCHES: event.branches})
            scope.span.end()

    def _links(self, event: _Continuing, parent_run_id: str | None, attributes: Attributes) -> list[Link] | None:
        """Link to the run that an exchange came from, and say the same in plain attributes."""
        if parent_run_id is None:
            return None
        attributes[names.PARENT_RUN_ID] = parent_run_id
        carrier = event.parent_carrier
        traceparent, tracestate = carrier.get("traceparent"), carrier.get("tracestate")
        found = None
        if isinstance(traceparent, str):
            found = _span_context(traceparent, tracestate if isinstance(tracestate, str) else "")
        found = found or self._contexts.get(parent_run_id)
        if found is None:
            return None
        attributes[names.PARENT_TRACE_ID] = trace.format_trace_id(found.trace_id)
        attributes[names.PARENT_SPAN_ID] = trace.format_span_id(found.span_id)
        return [Link(found, {names.LINK_KIND: names.CONTINUES, names.RUN_ID: parent_run_id})]

    def _is_live(self) -> bool:
        # Looked at until somebody has set up a provider, which may be long after this observer was made.
        if self._live is None and not nobody_has_set_up():
            self._live = True
        return bool(self._live)


def current_carrier() -> dict[str, str]:
    """Give the W3C trace context of the current span; nothing where there is none."""
    carried: dict[str, str] = {}
    _PROPAGATOR.inject(carried)
    return carried


def nobody_has_set_up() -> bool:
    """Tell whether the program has no provider of its own, neither of traces nor of metrics."""
    # The API has no public name for what stands in for a provider of metrics.
    return (
        isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        and type(metrics.get_meter_provider()).__name__ == "_ProxyMeterProvider"
    )


def without_telemetry() -> OTelObserver:
    """Make an observer that comes to nothing, whatever the program has set up."""
    return OTelObserver(tracer_provider=trace.NoOpTracerProvider())


@lru_cache(maxsize=1024)
def _span_context(traceparent: str, tracestate: str) -> SpanContext | None:
    """Read a W3C trace context; None where it is none. Thousands of branches share one."""
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def _end(span: Span, attributes: Attributes, event: RunFinished | AttemptFinished) -> None:
    span.set_attributes(attributes)
    if event.status == "failed":
        span.set_status(Status(StatusCode.ERROR, failure_text(event.failure_kind, event.failure_reason)))
    span.end()


@lru_cache(maxsize=1)
def _version() -> str | None:
    try:
        return version("furcate")
    except PackageNotFoundError:
        return None
