"""Version 1 of the form in which conversations and results are kept: this file is its schema.

A stored value is a frame and a body. The frame is `MAGIC` (8 bytes), the version (2 bytes), and the CRC-32 of the body
(4 bytes), both most significant byte first. The body is one MessagePack map, told apart by its member ``value``: it is
one of the four classes at the end of this file. Members stand in the order that is given here, those that have their
default are left out, and members of JSON objects are sorted, so equal values have equal bytes.

JSON stands for itself; its whole numbers beyond 64 bits are extensions of the type `BIG`: two's complement, most
significant byte first, as few bytes as hold it. Opaque values are ``bin``, byte for byte.

Nothing of version 1 changes any more. A new member, kind or word makes version 2, which is read beside it; a reader
that meets what it does not know refuses it. Hence this form is written down by itself, and says again what the values
in `furcate.primitives` say.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

MAGIC = b"\xc1furcate"
"""What every stored value begins with, whatever its version: MessagePack never begins with the first of these bytes."""
VERSION = 1
BIG = 1

StoredRole: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
StoredState: TypeAlias = Literal["started", "completed", "failed"]
StoredPurpose: TypeAlias = Literal["generate", "repair", "resume"]
StoredRunStatus: TypeAlias = Literal["succeeded", "failed", "cancelled"]
StoredValidationStatus: TypeAlias = Literal["passed", "failed", "not_requested", "skipped"]
StoredStopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "max_output_tokens", "stop_sequence", "refusal", "context_window"
]
StoredFailureKind: TypeAlias = Literal[
    "result_size", "invalid_request", "authentication", "rate_limited", "unavailable", "timeout", "provider"
]
StoredCallKind: TypeAlias = Literal["function", "custom"]


class _Form(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What all maps of the form have in common."""


class StoredOrigin(_Form):
    """An `Origin`."""

    provider: str
    dialect: str
    model: str


class StoredPayload(_Form):
    """A `ProviderPayload`; any format and version, since only its provider knows them."""

    provider: str
    format: str
    version: str
    value: bytes


class StoredSource(_Form):
    """A `Source`."""

    url: str
    title: str = ""


class StoredAttribution(_Form):
    """An `Attribution`."""

    source: StoredSource
    excerpt: str | None = None
    range: tuple[int, int] | None = None
    replay: StoredPayload | None = None


class StoredReasoningState(_Form):
    """A `ReasoningState`."""

    origin: StoredOrigin
    format: str
    data: bytes


class StoredText(_Form, tag_field="part", tag="text"):
    """A `Text`."""

    text: str
    attributions: tuple[StoredAttribution, ...] = ()
    attribution_complete: bool = True
    payload: StoredPayload | None = None


class StoredRefusal(_Form, tag_field="part", tag="refusal"):
    """A `Refusal`."""

    text: str


class StoredReasoning(_Form, tag_field="part", tag="reasoning"):
    """A `Reasoning`."""

    text: str = ""
    state: StoredReasoningState | None = None


class StoredToolCall(_Form, tag_field="part", tag="tool_call"):
    """A `ToolCall`; its arguments are the text that the model wrote."""

    id: str
    name: str
    arguments: str = ""
    kind: StoredCallKind = "function"
    payload: StoredPayload | None = None


class StoredToolResult(_Form, tag_field="part", tag="tool_result"):
    """A `ToolResult`."""

    call_id: str
    content: str
    is_error: bool = False


class StoredHostedActivity(_Form, tag_field="part", tag="hosted_activity"):
    """A `HostedActivity`: one transition."""

    id: str
    name: str
    state: StoredState
    input: dict[str, object] = {}
    summary: str = ""
    payload: StoredPayload | None = None
    position: int | None = None
    scope: str = ""


class StoredMedia(_Form, tag_field="part", tag="media"):
    """A `Media`."""

    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None


StoredPart: TypeAlias = (
    StoredText
    | StoredRefusal
    | StoredReasoning
    | StoredToolCall
    | StoredToolResult
    | StoredHostedActivity
    | StoredMedia
)


class StoredCacheHint(_Form):
    """A `CacheHint`."""

    ttl_s: int | None = None


class StoredUsage(_Form):
    """A `Usage`; what is left out is unknown, and the names of lower bounds are sorted."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    lower_bounds: tuple[str, ...] = ()


class StoredFault(_Form):
    """A `Fault`."""

    path: str
    message: str


class StoredValidation(_Form):
    """A `Validation`; its value is JSON, also where it was made into an instance of a class."""

    status: StoredValidationStatus = "not_requested"
    faults: tuple[StoredFault, ...] = ()
    rounds: tuple[tuple[StoredFault, ...], ...] = ()
    value: object = None


class StoredFailure(_Form):
    """A `Failure`."""

    kind: StoredFailureKind
    reason: str
    message: str
    retryable: bool = False
    sent: bool = True
    wait_s: float | None = None
    status: int | None = None


class StoredReceiptUsage(_Form):
    """The usage of a receipt."""

    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int | None = None


class StoredCompleted(_Form, tag_field="outcome", tag="completed"):
    """The outcome of a receipt: completed."""

    stop_reason: StoredStopReason
    usage: StoredReceiptUsage
    provider_response_id: str | None = None


class StoredFailed(_Form, tag_field="outcome", tag="failed"):
    """The outcome of a receipt: failed."""

    kind: StoredFailureKind
    message: str


class StoredReceipt(_Form):
    """A `TransportReceipt`; both digests are 32 bytes."""

    schema_id: str
    request_id: str
    caller_runtime_id: str
    native_request_sha256: bytes
    provider_request_sha256: bytes
    model: str
    provider: str
    foreign_reasoning_dropped: int
    outcome: StoredCompleted | StoredFailed


class StoredAttempt(_Form):
    """An `Attempt`."""

    number: int
    purpose: StoredPurpose
    request_id: str
    status: StoredRunStatus
    waited_s: float
    duration_s: float
    first_event_s: float | None
    body_sha256: str
    usage: StoredUsage
    stop_reason: StoredStopReason | None = None
    response_id: str | None = None
    model: str | None = None
    failure: StoredFailure | None = None
    receipt: StoredReceipt | None = None
    payloads_dropped: int = 0
    replayed: bool = False


class StoredMessage(_Form, tag_field="value", tag="message"):
    """A `Message`."""

    role: StoredRole
    parts: tuple[StoredPart, ...]
    cache: StoredCacheHint | None = None


class StoredHistory(_Form, tag_field="value", tag="history"):
    """A `History`: its messages, those of its base left out.

    Attributes:
        base: digest (32 bytes) of the conversation that comes before the messages; None where they are all.
    """

    messages: tuple[StoredMessage, ...]
    base: bytes | None = None


class StoredExchange(_Form, tag_field="value", tag="exchange"):
    """An `Exchange`."""

    history: StoredHistory
    run_id: str
    parent_run_id: str | None = None
    carrier: dict[str, object] = {}


class StoredResult(_Form, tag_field="value", tag="result"):
    """A `Result`.

    Attributes:
        message: None where it is the last of the exchange.
    """

    run_id: str
    stop_reason: StoredStopReason
    validation: StoredValidation
    usage: StoredUsage
    attempts: tuple[StoredAttempt, ...]
    message: StoredMessage | None = None
    exchange: StoredExchange | None = None
    stop_detail: str | None = None


StoredValue: TypeAlias = StoredMessage | StoredHistory | StoredExchange | StoredResult
