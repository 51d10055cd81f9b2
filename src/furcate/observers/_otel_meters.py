"""Metrics of runs, in the instruments of the OpenTelemetry conventions for generative AI and in two of ours."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from attrs import field, frozen
from opentelemetry.context import Context
from opentelemetry.metrics import Meter

from furcate.observers import _otel_names as names
from furcate.observers._otel_facts import Attributes, input_tokens, provider_of, run_error, server_of, word
from furcate.primitives._observations import RunFinished, RunStarted

_Asked: TypeAlias = tuple[str, str | None, str, str | None]
"""Dialect, base URL, the model asked for, and the one that has answered."""


@frozen
class Measured:
    """Hold what is measured of a run that has ended.

    Attributes:
        begun: what was told when it began.
        ended: what was told at its end.
        response_model: the model that the provider says has answered.
        first_event_s: from sending the attempt that counts to its first content event.
    """

    begun: RunStarted
    ended: RunFinished
    response_model: str | None = field(kw_only=True)
    first_event_s: float | None = field(kw_only=True)


class Meters:
    """Measure runs; without a provider of metrics, each call comes to nothing."""

    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, what: str, boundaries: tuple[float, ...] = names.SECONDS_BOUNDARIES) -> Any:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=boundaries)

        def tokens_per_run(name: str, what: str) -> Any:
            return meter.create_histogram(
                name, "{token}", what, explicit_bucket_boundaries_advisory=names.TOKEN_BOUNDARIES
            )

        self._duration = seconds(names.DURATION, "How long runs take, with waiting and all attempts.")
        self._first_chunk = seconds(names.FIRST_CHUNK, "From sending a request to the first event of its answer.")
        self._wait = seconds(names.QUEUE_WAIT, "How long attempts wait for a place.", names.WAIT_BOUNDARIES)
        self._leases = meter.create_up_down_counter(names.LEASES, "{lease}", "Places of a backend that runs hold.")
        self._per_run = (
            ("input_tokens", tokens_per_run(names.INPUT_PER_RUN, "Input tokens of a run, cached ones included.")),
            ("output_tokens", tokens_per_run(names.OUTPUT_PER_RUN, "Output tokens of a run.")),
        )
        self._used = tuple(
            (field_name, meter.create_counter(name, "{token}", what))
            for field_name, name, what in (
                ("input_tokens", names.USED_INPUT, "Input tokens, cached ones included."),
                ("output_tokens", names.USED_OUTPUT, "Output tokens, those of reasoning included."),
                ("cache_read_tokens", names.USED_CACHE_READ, "Input tokens read from a cache."),
                ("cache_write_tokens", names.USED_CACHE_WRITE, "Input tokens written to a cache."),
                ("reasoning_tokens", names.USED_REASONING, "Output tokens of reasoning."),
            )
        )

    def lease(self, backend: str, change: int) -> None:
        """Count a place that was taken or given back."""
        self._leases.add(change, _backend_attributes(backend))

    def waited(self, backend: str, seconds: float, context: Context) -> None:
        """Measure how long an attempt has waited for a place."""
        self._wait.record(seconds, _backend_attributes(backend), context)

    def run_ended(self, run: Measured, context: Context) -> None:
        """Measure a run that has ended; unknown tokens are not counted as none."""
        begun, ended = run.begun, run.ended
        asked = (begun.dialect, begun.base_url, begun.model, run.response_model)
        plain = _metric_attributes(asked)
        judged = {**plain, names.ERROR_TYPE: run_error(ended)} if ended.status == "failed" else plain
        self._duration.record(ended.duration_s, judged, context)
        if begun.streamed and run.first_event_s is not None:
            self._first_chunk.record(run.first_event_s, plain, context)
        usage = ended.usage
        if not usage.known:
            return
        total = input_tokens(usage)
        modal = _modal_attributes(asked)
        for name, counter in self._used:
            count = total if name == "input_tokens" else getattr(usage, name)
            if count is not None:
                counter.add(count, modal, context)
        for name, histogram in self._per_run:
            count = total if name == "input_tokens" else getattr(usage, name)
            if count is not None:
                histogram.record(count, judged, context)


@lru_cache(maxsize=256)
def _backend_attributes(backend: str) -> Attributes:
    return {names.BACKEND: word(backend)}


@lru_cache(maxsize=1024)
def _metric_attributes(asked: _Asked) -> Attributes:
    dialect, base_url, model, response_model = asked
    server = server_of(base_url) if base_url is not None else None
    found: Attributes = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_of(dialect, base_url),
        names.REQUEST_MODEL: word(model),
    }
    if response_model is not None:
        found[names.RESPONSE_MODEL] = word(response_model)
    if server is not None:
        found[names.SERVER_ADDRESS], found[names.SERVER_PORT] = server
    return found


@lru_cache(maxsize=1024)
def _modal_attributes(asked: _Asked) -> Attributes:
    return {**_metric_attributes(asked), names.MODALITY: names.UNKNOWN_MODALITY}
