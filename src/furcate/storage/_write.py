"""Values into their stored form."""

from __future__ import annotations

import zlib
from itertools import islice
from typing import TypeAlias, assert_never

import msgspec

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import StorageError
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import Frozen, FrozenMap, freeze
from furcate.primitives._message import Message
from furcate.primitives._receipt import Failed, TransportReceipt
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure
from furcate.storage._form import (
    BIG,
    MAGIC,
    VERSION,
    StoredAttempt,
    StoredAttribution,
    StoredCacheHint,
    StoredCompleted,
    StoredExchange,
    StoredFailed,
    StoredFailure,
    StoredFault,
    StoredHistory,
    StoredHostedActivity,
    StoredMedia,
    StoredMessage,
    StoredOrigin,
    StoredPart,
    StoredPayload,
    StoredReasoning,
    StoredReasoningState,
    StoredReceipt,
    StoredReceiptUsage,
    StoredRefusal,
    StoredResult,
    StoredSource,
    StoredText,
    StoredToolCall,
    StoredToolResult,
    StoredUsage,
    StoredValidation,
    StoredValue,
)

Storable: TypeAlias = Exchange | History | Message | Result
"""What has a stored form."""

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_CHECKER = msgspec.msgpack.Decoder(StoredValue)


def to_bytes(value: Storable, *, base: Exchange | History | None = None) -> bytes:
    """Give the stored form of a value; equal values have equal bytes.

    A checked value that is an instance of a contract's class is stored as the plain data that it consists of.

    Args:
        value: an exchange, a history, a message or a result.
        base: a conversation that the value's begins with. It is left out of the bytes, and named in them by its
            digest: `from_bytes` needs it again. A message has none.

    Raises:
        TypeError: the value is of another kind, or the base is no conversation.
        StorageError: the conversation does not begin with `base`, or a member has no form: half a character (a lone
            surrogate), or something that is no JSON in a checked value.
    """
    if not isinstance(value, Storable):
        given = type(value).__name__
        raise TypeError(
            f"values of the class {given} have no stored form; give an Exchange, History, Message or Result"
        )
    check_base(base)
    if isinstance(value, Message) and base is not None:
        raise TypeError("a message stands alone; leave the base out")
    try:
        body = _ENCODER.encode(_stored(value, base))
        # Nothing leaves that could not come back, such as a member of another type than its class says.
        _CHECKER.decode(body)
    except UnicodeEncodeError as error:
        raise StorageError(
            f"a text of the {_named(value)} holds half a character (a lone surrogate); give whole ones", "value"
        ) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StorageError(f"the {_named(value)} has no stored form: {error}", "value") from error
    return MAGIC + VERSION.to_bytes(2, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def check_base(base: object) -> None:
    """Check what a value is said to begin with.

    Raises:
        TypeError: it is no conversation.
    """
    if base is not None and not isinstance(base, Exchange | History):
        raise TypeError(f"base is of the class {type(base).__name__}; give an Exchange or a History, or leave it out")


def _named(value: Storable) -> str:
    return type(value).__name__.lower()


def _stored(value: Storable, base: Exchange | History | None) -> StoredValue:
    match value:
        case Exchange():
            return _exchange(value, base)
        case History():
            return _history(value, base)
        case Result():
            return _result(value, base)
        case Message():
            return _message(value)
        case _:
            assert_never(value)


def _history(history: History, base: Exchange | History | None) -> StoredHistory:
    if base is None:
        return StoredHistory(tuple(_message(message) for message in history))
    before = base.history if isinstance(base, Exchange) else base
    size = len(before)
    shared = next((node for node in history.nodes() if len(node) == size), None)
    if shared is None:  # the same messages, cut into other pieces
        shared = History(islice(history, size))
    if shared is not before and (len(shared) != size or shared.digest != before.digest):
        raise StorageError("the conversation does not begin with the base that was given; leave the base out", "base")
    return StoredHistory(tuple(_message(message) for message in islice(history, size, None)), before.digest)


def _exchange(exchange: Exchange, base: Exchange | History | None) -> StoredExchange:
    return StoredExchange(
        _history(exchange.history, base), exchange.run_id, exchange.parent_run_id, _object(exchange.carrier)
    )


def _result(result: Result, base: Exchange | History | None) -> StoredResult:
    message: StoredMessage | None = _message(result.message)
    exchange = None
    if result.captured:
        exchange = _exchange(result.exchange, base)
        messages = exchange.history.messages
        if messages and _ENCODER.encode(messages[-1]) == _ENCODER.encode(message):
            message = None
    return StoredResult(
        run_id=result.run_id,
        stop_reason=result.stop_reason,
        validation=_validation(result.validation),
        usage=_usage(result.usage),
        attempts=tuple(_attempt(attempt) for attempt in result.attempts),
        message=message,
        exchange=exchange,
        stop_detail=result.stop_detail,
    )


def _message(message: Message) -> StoredMessage:
    cache = None if message.cache is None else StoredCacheHint(message.cache.ttl_s)
    return StoredMessage(message.role, tuple(_part(part) for part in message.parts), cache)


def _part(part: Part) -> StoredPart:
    match part:
        case Text():
            attributions = tuple(_attribution(one) for one in part.attributions)
            return StoredText(part.text, attributions, part.attribution_complete, _payload(part.payload))
        case Refusal():
            return StoredRefusal(part.text)
        case Reasoning():
            return StoredReasoning(part.text, _state(part.state))
        case ToolCall():
            return StoredToolCall(part.id, part.name, part.arguments, part.kind, _payload(part.payload))
        case ToolResult():
            return StoredToolResult(part.call_id, part.content, part.is_error)
        case HostedActivity():
            return StoredHostedActivity(
                id=part.id,
                name=part.name,
                state=part.state,
                input=_object(part.input),
                summary=part.summary,
                payload=_payload(part.payload),
                position=part.position,
                scope=part.scope,
            )
        case Media():
            return StoredMedia(part.media_type, part.data, part.url, part.name)
        case _:
            assert_never(part)


def _attribution(one: Attribution) -> StoredAttribution:
    source = StoredSource(one.source.url, one.source.title)
    return StoredAttribution(source, one.excerpt, one.range, _payload(one.replay))


def _payload(payload: ProviderPayload | None) -> StoredPayload | None:
    if payload is None:
        return None
    return StoredPayload(payload.provider, payload.format, payload.version, payload.value)


def _state(state: ReasoningState | None) -> StoredReasoningState | None:
    if state is None:
        return None
    origin = StoredOrigin(state.origin.provider, state.origin.dialect, state.origin.model)
    return StoredReasoningState(origin, state.format, state.data)


def _usage(usage: Usage) -> StoredUsage:
    return StoredUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        lower_bounds=tuple(sorted(usage.lower_bounds)),
    )


def _attempt(attempt: Attempt) -> StoredAttempt:
    return StoredAttempt(
        number=attempt.number,
        purpose=attempt.purpose,
        request_id=attempt.request_id,
        status=attempt.status,
        waited_s=float(attempt.waited_s),
        duration_s=float(attempt.duration_s),
        first_event_s=None if attempt.first_event_s is None else float(attempt.first_event_s),
        body_sha256=attempt.body_sha256,
        usage=_usage(attempt.usage),
        stop_reason=attempt.stop_reason,
        response_id=attempt.response_id,
        model=attempt.model,
        failure=None if attempt.failure is None else _failure(attempt.failure),
        receipt=None if attempt.receipt is None else _receipt(attempt.receipt),
        payloads_dropped=attempt.payloads_dropped,
        replayed=attempt.replayed,
    )


def _failure(failure: Failure) -> StoredFailure:
    return StoredFailure(
        kind=failure.kind,
        reason=failure.reason,
        message=failure.message,
        retryable=failure.retryable,
        sent=failure.sent,
        wait_s=None if failure.wait_s is None else float(failure.wait_s),
        status=failure.status,
    )


def _receipt(receipt: TransportReceipt) -> StoredReceipt:
    return StoredReceipt(
        schema_id=receipt.schema_id,
        request_id=receipt.request_id,
        caller_runtime_id=receipt.caller_runtime_id,
        native_request_sha256=receipt.native_request_sha256,
        provider_request_sha256=receipt.provider_request_sha256,
        model=receipt.model,
        provider=receipt.provider,
        foreign_reasoning_dropped=receipt.foreign_reasoning_dropped,
        outcome=_outcome(receipt),
    )


def _outcome(receipt: TransportReceipt) -> StoredCompleted | StoredFailed:
    outcome = receipt.outcome
    if isinstance(outcome, Failed):
        return StoredFailed(outcome.kind, outcome.message)
    usage = StoredReceiptUsage(
        input_tokens=outcome.usage.input_tokens,
        cache_read_tokens=outcome.usage.cache_read_tokens,
        cache_write_tokens=outcome.usage.cache_write_tokens,
        output_tokens=outcome.usage.output_tokens,
        reasoning_tokens=outcome.usage.reasoning_tokens,
    )
    return StoredCompleted(outcome.stop_reason, usage, outcome.provider_response_id)


def _validation(validation: Validation) -> StoredValidation:
    value = validation.value
    if not isinstance(value, (bool, int, float, str, tuple, FrozenMap)):
        value = msgspec.to_builtins(value)
    return StoredValidation(
        status=validation.status,
        faults=_faults(validation.faults),
        rounds=tuple(_faults(one) for one in validation.rounds),
        value=_json(freeze(value)),
    )


def _faults(faults: tuple[Fault, ...]) -> tuple[StoredFault, ...]:
    return tuple(StoredFault(fault.path, fault.message) for fault in faults)


def _object(value: FrozenMap) -> dict[str, object]:
    return {key: _json(item) for key, item in value.items()}


def _json(value: Frozen) -> object:
    if isinstance(value, FrozenMap):
        return _object(value)
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        # One bit for the sign.
        return msgspec.msgpack.Ext(BIG, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    return value
