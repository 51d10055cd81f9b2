"""What can be said afterwards of one attempt: which request went where, and how it ended.

The JSON form is that of `transport-receipt.schema.json` in this package. Integer bounds are enforced here as well: a
schema's ``format`` checks nothing.
"""

from __future__ import annotations

from typing import TypeAlias, get_args

from attrs import field, frozen

from furcate.primitives._errors import ReceiptError
from furcate.primitives._json import Plain
from furcate.primitives._wire import FailureKind, StopReason

SCHEMA_ID = "furcate.transport_receipt.v1"

_U32 = 2**32 - 1
_U64 = 2**64 - 1
_COUNTS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


@frozen(kw_only=True)
class ReceiptUsage:
    """Count the tokens of a completed attempt; what the provider did not report is zero here.

    Attributes:
        input_tokens: plain input, cache reads and writes apart.
        reasoning_tokens: None where the provider does not report it.
    """

    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int | None = None


@frozen(kw_only=True)
class Completed:
    """Say that the provider completed its answer."""

    stop_reason: StopReason
    usage: ReceiptUsage
    provider_response_id: str | None = None


@frozen(kw_only=True)
class Failed:
    """Say that it did not. The message holds no prompt, output or secret."""

    kind: FailureKind
    message: str


ReceiptOutcome: TypeAlias = Completed | Failed


def _check_digest(_instance: object, attribute: object, value: bytes) -> None:
    if len(value) != 32:
        raise ReceiptError(getattr(attribute, "name", "digest"), f"has {len(value)} bytes; a SHA-256 has 32")


@frozen(kw_only=True)
class TransportReceipt:
    """Bind a request to how it ended.

    Attributes:
        schema_id: which form the receipt has.
        request_id: the attempt: a repeated attempt is another request.
        caller_runtime_id: the process that asked, by an id of its own making.
        native_request_sha256: digest of the request as the application gave it (32 bytes).
        provider_request_sha256: digest of the provider-neutral request before anything foreign was removed (32 bytes).
        model: the model that was asked.
        provider: the realm that was asked, as the operator named it.
        foreign_reasoning_dropped: how many foreign reasoning items were removed before the provider saw the request.
        outcome: how it ended.
    """

    schema_id: str = SCHEMA_ID
    request_id: str
    caller_runtime_id: str
    native_request_sha256: bytes = field(validator=_check_digest)
    provider_request_sha256: bytes = field(validator=_check_digest)
    model: str
    provider: str
    foreign_reasoning_dropped: int
    outcome: ReceiptOutcome

    def to_dict(self) -> dict[str, Plain]:
        """Give the receipt as a fresh JSON document."""
        return {
            "schema_id": self.schema_id,
            "request_id": self.request_id,
            "caller_runtime_id": self.caller_runtime_id,
            "native_request_sha256": list[Plain](self.native_request_sha256),
            "provider_request_sha256": list[Plain](self.provider_request_sha256),
            "model": self.model,
            "provider": self.provider,
            "foreign_reasoning_dropped": self.foreign_reasoning_dropped,
            "outcome": _outcome_to_dict(self.outcome),
        }

    @classmethod
    def from_dict(cls, document: Plain) -> TransportReceipt:
        """Read a receipt from its JSON document.

        Raises:
            ReceiptError: a member is missing, unknown, of another type or out of bounds; the error names it.
        """
        found = _object(document, "$", _MEMBERS)
        return cls(
            schema_id=_text(found["schema_id"], "$.schema_id"),
            request_id=_text(found["request_id"], "$.request_id"),
            caller_runtime_id=_text(found["caller_runtime_id"], "$.caller_runtime_id"),
            native_request_sha256=_digest(found["native_request_sha256"], "$.native_request_sha256"),
            provider_request_sha256=_digest(found["provider_request_sha256"], "$.provider_request_sha256"),
            model=_text(found["model"], "$.model"),
            provider=_text(found["provider"], "$.provider"),
            foreign_reasoning_dropped=_count(found["foreign_reasoning_dropped"], "$.foreign_reasoning_dropped", _U32),
            outcome=_outcome(found["outcome"]),
        )


_MEMBERS = (
    "schema_id",
    "request_id",
    "caller_runtime_id",
    "native_request_sha256",
    "provider_request_sha256",
    "model",
    "provider",
    "foreign_reasoning_dropped",
    "outcome",
)


def _outcome_to_dict(outcome: ReceiptOutcome) -> dict[str, Plain]:
    if isinstance(outcome, Failed):
        return {"Failed": {"kind": outcome.kind, "message": outcome.message}}
    usage: dict[str, Plain] = {name: getattr(outcome.usage, name) for name in _COUNTS}
    if outcome.usage.reasoning_tokens is not None:
        usage["reasoning_tokens"] = outcome.usage.reasoning_tokens
    completed: dict[str, Plain] = {"stop_reason": outcome.stop_reason, "usage": usage}
    if outcome.provider_response_id is not None:
        completed["provider_response_id"] = outcome.provider_response_id
    return {"Completed": completed}


def _outcome(document: Plain) -> ReceiptOutcome:
    place = "$.outcome"
    if not isinstance(document, dict) or len(document) != 1:
        raise ReceiptError(place, "is an object with exactly one member, Completed or Failed")
    ((tag, content),) = document.items()
    if tag == "Failed":
        found = _object(content, f"{place}.Failed", ("kind", "message"))
        kind = found["kind"]
        if kind not in get_args(FailureKind):
            raise ReceiptError(f"{place}.Failed.kind", f"is none of {', '.join(get_args(FailureKind))}")
        return Failed(kind=_as_kind(kind), message=_text(found["message"], f"{place}.Failed.message"))
    if tag == "Completed":
        inside = f"{place}.Completed"
        found = _object(content, inside, ("stop_reason", "usage"), optional=("provider_response_id",))
        response_id = found.get("provider_response_id")
        return Completed(
            stop_reason=_as_stop(found["stop_reason"], f"{inside}.stop_reason"),
            usage=_usage(found["usage"], f"{inside}.usage"),
            provider_response_id=None if response_id is None else _text(response_id, f"{inside}.provider_response_id"),
        )
    raise ReceiptError(f"{place}.{tag}", "is unknown; an outcome is Completed or Failed")


def _usage(document: Plain, place: str) -> ReceiptUsage:
    found = _object(document, place, _COUNTS, optional=("reasoning_tokens",))
    reasoning = found.get("reasoning_tokens")
    counts = {name: _count(found[name], f"{place}.{name}", _U64) for name in _COUNTS}
    return ReceiptUsage(
        **counts,
        reasoning_tokens=None if reasoning is None else _count(reasoning, f"{place}.reasoning_tokens", _U64),
    )


def _as_kind(value: Plain) -> FailureKind:
    kinds: dict[str, FailureKind] = {kind: kind for kind in get_args(FailureKind)}
    return kinds[str(value)]


def _as_stop(value: Plain, place: str) -> StopReason:
    reasons: dict[str, StopReason] = {reason: reason for reason in get_args(StopReason)}
    if not isinstance(value, str) or value not in reasons:
        raise ReceiptError(place, f"is none of {', '.join(reasons)}")
    return reasons[value]


def _object(
    document: Plain, place: str, required: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, Plain]:
    if not isinstance(document, dict):
        raise ReceiptError(place, "is an object")
    for name in document:
        if name not in required and name not in optional:
            raise ReceiptError(f"{place}.{name}", "is unknown")
    for name in required:
        if name not in document:
            raise ReceiptError(f"{place}.{name}", "is missing")
    return document


def _text(value: Plain, place: str) -> str:
    if not isinstance(value, str):
        raise ReceiptError(place, "is a string")
    return value


def _count(value: Plain, place: str, most: int) -> int:
    # bool is an int in Python, and a float that is whole is an integer in JSON Schema.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ReceiptError(place, "is an integer")
    if not 0 <= value <= most:
        raise ReceiptError(place, f"lies between 0 and {most}")
    return value


def _digest(value: Plain, place: str) -> bytes:
    if not isinstance(value, list) or len(value) != 32:
        raise ReceiptError(place, "is an array of exactly 32 integers")
    return bytes(_count(item, f"{place}[{number}]", 255) for number, item in enumerate(value))
