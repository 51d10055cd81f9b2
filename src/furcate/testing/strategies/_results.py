"""What runs give back: usage, attempts with their receipts, results."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from furcate.primitives._exchange import Exchange
from furcate.primitives._json import freeze
from furcate.primitives._message import Message
from furcate.primitives._observations import Purpose, RunStatus
from furcate.primitives._receipt import Completed, Failed, ReceiptUsage, TransportReceipt
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._usage import USAGE_FIELDS, Usage
from furcate.primitives._wire import Failure, FailureKind, StopReason
from furcate.testing.strategies._conversations import exchanges, messages
from furcate.testing.strategies._plain import json_values, words

_IDS = st.text("abcdef0123456789", min_size=1, max_size=8)
_COUNTS = st.integers(0, 10**9)
_SECONDS = st.floats(0, 1e6)
_STOPS = st.sampled_from(get_args(StopReason))
_KINDS = st.sampled_from(get_args(FailureKind))
_DIGESTS = st.binary(min_size=32, max_size=32)
_FAULTS = st.lists(st.builds(Fault, words(), words()), max_size=2).map(tuple)
_FAILURES = st.builds(
    Failure,
    kind=_KINDS,
    reason=_IDS,
    message=words(),
    retryable=st.booleans(),
    sent=st.booleans(),
    wait_s=st.none() | _SECONDS,
    status=st.none() | st.integers(100, 599),
)
_VALIDATIONS = st.builds(
    Validation,
    status=st.sampled_from(["not_requested", "failed", "skipped"]),
    faults=_FAULTS,
    rounds=st.lists(_FAULTS, max_size=2).map(tuple),
) | st.builds(
    Validation,
    status=st.just("passed"),
    rounds=st.lists(_FAULTS, max_size=2).map(tuple),
    value=json_values().map(freeze),
)


def usages() -> st.SearchStrategy[Usage]:
    """Give usages: unknown counts, zeros, exact ones and lower bounds."""
    counts = {name: st.none() | st.just(0) | _COUNTS for name in USAGE_FIELDS}
    return st.builds(Usage, **counts, lower_bounds=st.frozensets(st.sampled_from(USAGE_FIELDS)))


def receipts() -> st.SearchStrategy[TransportReceipt]:
    """Give receipts of completed and of failed attempts."""
    counts = dict.fromkeys(("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"), _COUNTS)
    usage = st.builds(ReceiptUsage, **counts, reasoning_tokens=st.none() | _COUNTS)
    completed = st.builds(Completed, stop_reason=_STOPS, usage=usage, provider_response_id=st.none() | words())
    return st.builds(
        TransportReceipt,
        request_id=_IDS,
        caller_runtime_id=_IDS,
        native_request_sha256=_DIGESTS,
        provider_request_sha256=_DIGESTS,
        model=words(),
        provider=_IDS,
        foreign_reasoning_dropped=st.integers(0, 99),
        outcome=completed | st.builds(Failed, kind=_KINDS, message=words()),
    )


def attempts() -> st.SearchStrategy[Attempt]:
    """Give attempts of every purpose that succeeded, failed or were cancelled."""
    return st.builds(
        Attempt,
        number=st.integers(1, 99),
        purpose=st.sampled_from(get_args(Purpose)),
        request_id=_IDS,
        status=st.sampled_from(get_args(RunStatus)),
        waited_s=_SECONDS,
        duration_s=_SECONDS,
        first_event_s=st.none() | _SECONDS,
        body_sha256=_DIGESTS.map(bytes.hex),
        usage=usages(),
        stop_reason=st.none() | _STOPS,
        response_id=st.none() | words(),
        model=st.none() | words(),
        failure=st.none() | _FAILURES,
        receipt=st.none() | receipts(),
        payloads_dropped=st.integers(0, 9),
        replayed=st.booleans(),
    )


def results() -> st.SearchStrategy[Result]:
    """Give results, captured and not; the message of one that is captured is its exchange's last."""
    return st.one_of(messages("assistant").map(lambda message: (message, None)), exchanges().map(_ending)).flatmap(
        lambda pair: _results(*pair)
    )


def _ending(exchange: Exchange) -> tuple[Message, Exchange | None]:
    last = exchange.history.last
    assert last is not None, "an exchange ends in a message"
    return last, exchange


def _results(message: Message, exchange: Exchange | None) -> st.SearchStrategy[Result]:
    return st.builds(
        Result,
        run_id=_IDS,
        message=st.just(message),
        stop_reason=_STOPS,
        validation=_VALIDATIONS,
        usage=usages(),
        attempts=st.lists(attempts(), max_size=2).map(tuple),
        exchange=st.just(exchange),
        stop_detail=st.none() | words(),
    )
