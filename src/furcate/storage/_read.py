"""Values out of their stored form."""

from __future__ import annotations

import zlib
from typing import TypeVar, assert_never, overload

import msgspec

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import ReceiptError, StorageError
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import Frozen, FrozenMap, Json, freeze
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._receipt import Completed, Failed, ReceiptOutcome, ReceiptUsage, TransportReceipt
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure
from furcate.storage._form import (
    BIG,
    MAGIC,
    VERSION,
    StoredAttempt,
    StoredAttribution,
    StoredCompleted,
    StoredExchange,
    StoredFailed,
    StoredFailure,
    StoredFault,
    StoredHistory,
    StoredHostedActivity,
    StoredMedia,
    StoredMessage,
    StoredPart,
    StoredPayload,
    StoredReasoning,
    StoredReasoningState,
    StoredReceipt,
    StoredRefusal,
    StoredResult,
    StoredText,
    StoredToolCall,
    StoredToolResult,
    StoredUsage,
    StoredValidation,
    StoredValue,
)
from furcate.storage._write import Storable, check_base

_Kind = TypeVar("_Kind", bound=Storable)

_MOST_SAID = 200


@overload
def from_bytes(data: bytes, kind: type[_Kind], *, base: Exchange | History | None = None) -> _Kind: ...


@overload
def from_bytes(data: bytes, kind: None = None, *, base: Exchange | History | None = None) -> Storable: ...


def from_bytes(
    data: bytes, kind: type[_Kind] | None = None, *, base: Exchange | History | None = None
) -> _Kind | Storable:
    """Read a value from its stored form.

    A conversation that was stored with a base shares the base's messages.

    Args:
        data: all bytes of one stored value.
        kind: the class that the value is to be of; None takes any.
        base: the conversation that the stored one continues, where it was stored so; passed over where it was not.

    Raises:
        TypeError: `data` are no bytes, `kind` is no class, or `base` is no conversation.
        StorageError: the bytes are no stored value, are damaged, were written in a later version of the form, hold
            another kind of value, or continue another conversation than `base`. Never anything else, whatever the
            bytes are.
    """
    if kind is not None and not isinstance(kind, type):
        raise TypeError(f"kind is {kind!r}; give a class, such as furcate.Exchange")
    check_base(base)
    stored = _opened(data)
    try:
        value = _value(stored, None if base is None else base.history if isinstance(base, Exchange) else base)
    except (ValueError, TypeError, OverflowError, ReceiptError) as error:
        raise _misshapen(error) from error
    if kind is not None and not isinstance(value, kind):
        problem = f"the bytes hold a value of the class {type(value).__name__}, not {kind.__name__}"
        raise StorageError(problem, "kind", version=VERSION)
    return value


def base_of(data: bytes) -> str | None:
    """Give the digest of the conversation that a stored one continues, in hex; None where it is whole.

    Raises:
        TypeError: `data` are no bytes.
        StorageError: the bytes are no stored value that can be read here.
    """
    match _opened(data):
        case StoredHistory(base=base) | StoredExchange(history=StoredHistory(base=base)):
            return None if base is None else base.hex()
        case StoredResult(exchange=StoredExchange(history=StoredHistory(base=base))):
            return None if base is None else base.hex()
        case _:
            return None


def _opened(data: bytes) -> StoredValue:
    """Check the frame, and decode the body."""
    if not isinstance(data, bytes):
        raise TypeError(f"data is of the class {type(data).__name__}; give bytes")
    head = len(MAGIC) + 2
    if not data.startswith(MAGIC):
        if data and MAGIC.startswith(data):
            raise StorageError("the bytes break off within their first words", "damaged")
        raise StorageError("these bytes are no stored value of furcate", "foreign")
    if len(data) < head:
        raise StorageError("the bytes break off within their first words", "damaged")
    version = int.from_bytes(data[len(MAGIC) : head], "big")
    if version > VERSION:
        raise StorageError(
            f"the bytes have version {version} of the form, which a later release of furcate wrote; this one reads "
            f"version {VERSION}",
            "newer",
            version=version,
        )
    body = memoryview(data)[head + 4 :]
    if version < 1 or len(data) < head + 4 or zlib.crc32(body) != int.from_bytes(data[head : head + 4], "big"):
        raise StorageError("the bytes are not those that were written: they are damaged or break off", "damaged")
    try:
        return _DECODER.decode(body)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _misshapen(error) from error


def _misshapen(error: Exception) -> StorageError:
    # Words of unknown bytes may be in it: short, and nothing that moves a cursor.
    said = ascii(str(error)[:_MOST_SAID])[1:-1]
    text = f"the bytes hold what version {VERSION} of the form does not have: {said}"
    return StorageError(text, "misshapen", version=VERSION)


def _extension(code: int, data: memoryview) -> int:
    if code != BIG:
        raise ValueError(f"an extension of type {code}")
    return int.from_bytes(data, "big", signed=True)


_DECODER = msgspec.msgpack.Decoder(StoredValue, ext_hook=_extension)


def _value(stored: StoredValue, base: History | None) -> Storable:
    match stored:
        case StoredExchange():
            return _exchange(stored, base)
        case StoredHistory():
            return _history(stored, base)
        case StoredResult():
            return _result(stored, base)
        case StoredMessage():
            return _message(stored)
        case _:
            assert_never(stored)


def _history(stored: StoredHistory, base: History | None) -> History:
    messages = [_message(message) for message in stored.messages]
    if stored.base is None:
        return History(messages)
    if len(stored.base) != 32:
        raise ValueError("a base that is no digest")
    needed = stored.base.hex()
    if base is None:
        raise StorageError(
            f"the bytes continue the conversation with the digest {needed}; give it as base", "base", base=needed
        )
    if base.digest != stored.base:
        raise StorageError(
            f"the bytes continue the conversation with the digest {needed}, and not that of the given base, "
            f"{base.digest.hex()}",
            "base",
            base=needed,
        )
    return base.extend(messages)


def _exchange(stored: StoredExchange, base: History | None) -> Exchange:
    return Exchange(_history(stored.history, base), stored.run_id, stored.parent_run_id, _object(stored.carrier))


def _result(stored: StoredResult, base: History | None) -> Result:
    exchange = None if stored.exchange is None else _exchange(stored.exchange, base)
    if stored.message is not None:
        message: Message | None = _message(stored.message)
    else:
        message = None if exchange is None else exchange.history.last
    if message is None:
        raise ValueError("a result without its message")
    return Result(
        run_id=stored.run_id,
        message=message,
        stop_reason=stored.stop_reason,
        validation=_validation(stored.validation),
        usage=_usage(stored.usage),
        attempts=tuple(_attempt(attempt) for attempt in stored.attempts),
        exchange=exchange,
        stop_detail=stored.stop_detail,
    )


def _message(stored: StoredMessage) -> Message:
    cache = None if stored.cache is None else CacheHint(stored.cache.ttl_s)
    return Message(stored.role, tuple(_part(part) for part in stored.parts), cache)


def _part(stored: StoredPart) -> Part:
    match stored:
        case StoredText():
            attributions = tuple(_attribution(one) for one in stored.attributions)
            return Text(stored.text, attributions, stored.attribution_complete, payload=_payload(stored.payload))
        case StoredRefusal():
            return Refusal(stored.text)
        case StoredReasoning():
            return Reasoning(stored.text, _state(stored.state))
        case StoredToolCall():
            return ToolCall(stored.id, stored.name, stored.arguments, stored.kind, payload=_payload(stored.payload))
        case StoredToolResult():
            return ToolResult(stored.call_id, stored.content, stored.is_error)
        case StoredHostedActivity():
            return HostedActivity(
                stored.id,
                stored.name,
                stored.state,
                input=_object(stored.input),
                summary=stored.summary,
                payload=_payload(stored.payload),
                position=stored.position,
                scope=stored.scope,
            )
        case StoredMedia():
            return Media(stored.media_type, stored.data, stored.url, stored.name)
        case _:
            assert_never(stored)


def _attribution(stored: StoredAttribution) -> Attribution:
    source = Source(stored.source.url, stored.source.title)
    return Attribution(source, stored.excerpt, stored.range, _payload(stored.replay))


def _payload(stored: StoredPayload | None) -> ProviderPayload | None:
    if stored is None:
        return None
    return ProviderPayload(stored.provider, stored.format, stored.version, stored.value)


def _state(stored: StoredReasoningState | None) -> ReasoningState | None:
    if stored is None:
        return None
    origin = Origin(stored.origin.provider, stored.origin.dialect, stored.origin.model)
    return ReasoningState(origin, stored.format, stored.data)


def _usage(stored: StoredUsage) -> Usage:
    return Usage(
        input_tokens=stored.input_tokens,
        cache_read_tokens=stored.cache_read_tokens,
        cache_write_tokens=stored.cache_write_tokens,
        output_tokens=stored.output_tokens,
        reasoning_tokens=stored.reasoning_tokens,
        lower_bounds=frozenset(stored.lower_bounds),
    )


def _attempt(stored: StoredAttempt) -> Attempt:
    return Attempt(
        number=stored.number,
        purpose=stored.purpose,
        request_id=stored.request_id,
        status=stored.status,
        waited_s=stored.waited_s,
        duration_s=stored.duration_s,
        first_event_s=stored.first_event_s,
        body_sha256=stored.body_sha256,
        usage=_usage(stored.usage),
        stop_reason=stored.stop_reason,
        response_id=stored.response_id,
        model=stored.model,
        failure=None if stored.failure is None else _failure(stored.failure),
        receipt=None if stored.receipt is None else _receipt(stored.receipt),
        payloads_dropped=stored.payloads_dropped,
        replayed=stored.replayed,
    )


def _failure(stored: StoredFailure) -> Failure:
    return Failure(
        kind=stored.kind,
        reason=stored.reason,
        message=stored.message,
        retryable=stored.retryable,
        sent=stored.sent,
        wait_s=stored.wait_s,
        status=stored.status,
    )


def _receipt(stored: StoredReceipt) -> TransportReceipt:
    return TransportReceipt(
        schema_id=stored.schema_id,
        request_id=stored.request_id,
        caller_runtime_id=stored.caller_runtime_id,
        native_request_sha256=stored.native_request_sha256,
        provider_request_sha256=stored.provider_request_sha256,
        model=stored.model,
        provider=stored.provider,
        foreign_reasoning_dropped=stored.foreign_reasoning_dropped,
        outcome=_outcome(stored.outcome),
    )


def _outcome(stored: StoredCompleted | StoredFailed) -> ReceiptOutcome:
    if isinstance(stored, StoredFailed):
        return Failed(kind=stored.kind, message=stored.message)
    usage = ReceiptUsage(
        input_tokens=stored.usage.input_tokens,
        cache_read_tokens=stored.usage.cache_read_tokens,
        cache_write_tokens=stored.usage.cache_write_tokens,
        output_tokens=stored.usage.output_tokens,
        reasoning_tokens=stored.usage.reasoning_tokens,
    )
    return Completed(stop_reason=stored.stop_reason, usage=usage, provider_response_id=stored.provider_response_id)


def _validation(stored: StoredValidation) -> Validation:
    return Validation(
        status=stored.status,
        faults=_faults(stored.faults),
        rounds=tuple(_faults(one) for one in stored.rounds),
        value=_json(stored.value),
    )


def _faults(stored: tuple[StoredFault, ...]) -> tuple[Fault, ...]:
    return tuple(Fault(fault.path, fault.message) for fault in stored)


def _object(stored: dict[str, object]) -> FrozenMap:
    # `freeze` refuses whatever is no JSON.
    found: dict[str, Json] = stored  # type: ignore[assignment]
    return FrozenMap(found)


def _json(stored: object) -> Frozen:
    found: Json = stored  # type: ignore[assignment]
    return freeze(found)
