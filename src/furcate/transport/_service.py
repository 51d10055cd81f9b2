"""The boundary to a backend: what it is handed, and what may be said of the outcome.

`TransportService.begin` records what is asked and hands out a `ProviderCall` that holds the filtered request alone. Its
outcome is made through the call, so that identity, digests, provider and the count of what was dropped are the
service's own; `complete` checks them again before anybody relies on them.
"""

from __future__ import annotations

from operator import attrgetter

import attrs
from attrs import field, frozen

from furcate.primitives._content import HostedActivity, Origin, Reasoning
from furcate.primitives._errors import MisuseError, ReceiptError
from furcate.primitives._message import Message
from furcate.primitives._receipt import Completed, Failed, ReceiptOutcome, ReceiptUsage, TransportReceipt
from furcate.primitives._usage import USAGE_FIELDS, Usage
from furcate.primitives._wire import Failure, ModelCall, StopReason
from furcate.transport._canonical import packed_size, provider_sha256
from furcate.transport._partition import Partition, open_work, partition_reasoning

_U64 = 2**64 - 1


@frozen(kw_only=True)
class Transported:
    """Hold how one call ended.

    Attributes:
        receipt: what can be said of it afterwards.
        reported: which usage fields the provider reported; the receipt has zero for the others.
        message: the assistant's message of a completed call.
    """

    receipt: TransportReceipt
    reported: frozenset[str]
    message: Message | None = field(default=None, repr=False)

    @property
    def transcript_items(self) -> tuple[Message, ...]:
        """What the caller appends to the conversation and replays as it is: text, calls, reasoning with its tag."""
        return () if self.message is None else (self.message,)


@frozen(kw_only=True)
class _Record:
    """Hold what the service wrote down when a call began."""

    request_id: str
    native_request_sha256: bytes
    provider_request_sha256: bytes
    model: str
    provider: str
    foreign_reasoning_dropped: int


_RECORDED = tuple(field.name for field in attrs.fields(_Record))
_recorded = attrgetter(*_RECORDED)
_reported = attrgetter(*USAGE_FIELDS)


class ProviderCall:
    """Hold one request as a backend may see it, and make its outcome.

    Attributes:
        request: the request without anything foreign.
        origin: the tag of the state that the answer brings.
        payloads_dropped: how many foreign payloads were left out beside the foreign reasoning.
        open_activities: the provider-run work that the answer may end.
    """

    __slots__ = ("_caller_runtime_id", "_record", "open_activities", "origin", "payloads_dropped", "request")

    def __init__(
        self,
        request: ModelCall,
        origin: Origin,
        record: _Record,
        *,
        caller_runtime_id: str,
        payloads_dropped: int,
        open_activities: tuple[HostedActivity, ...] = (),
    ) -> None:
        self.request = request
        self.origin = origin
        self.payloads_dropped = payloads_dropped
        self.open_activities = open_activities
        self._record = record
        self._caller_runtime_id = caller_runtime_id

    def transported(
        self, message: Message, stop_reason: StopReason, usage: Usage, *, response_id: str | None = None
    ) -> Transported:
        """Say that the provider completed its answer."""
        counted = ReceiptUsage(
            input_tokens=min(usage.input_tokens or 0, _U64),
            cache_read_tokens=min(usage.cache_read_tokens or 0, _U64),
            cache_write_tokens=min(usage.cache_write_tokens or 0, _U64),
            output_tokens=min(usage.output_tokens or 0, _U64),
            reasoning_tokens=None if usage.reasoning_tokens is None else min(usage.reasoning_tokens, _U64),
        )
        completed = Completed(stop_reason=stop_reason, usage=counted, provider_response_id=response_id)
        reported = frozenset(
            [name for name, count in zip(USAGE_FIELDS, _reported(usage), strict=True) if count is not None]
        )
        return Transported(receipt=self._receipt(completed), reported=reported, message=_tagged(message, self.origin))

    def failed(self, failure: Failure) -> Transported:
        """Say that it did not.

        Raises:
            ReceiptError: the kind is ``result_size``, which is the service's own to say.
        """
        if failure.kind == "result_size":
            raise ReceiptError("$.outcome.Failed.kind", "result_size is said by the service alone")
        # Only words of ours: what a provider says may repeat the prompt, and a receipt is kept for ever.
        message = failure.reason if failure.status is None else f"{failure.reason} (HTTP {failure.status})"
        return Transported(receipt=self._receipt(Failed(kind=failure.kind, message=message)), reported=frozenset())

    def _receipt(self, outcome: ReceiptOutcome) -> TransportReceipt:
        record = self._record
        return TransportReceipt(
            request_id=record.request_id,
            caller_runtime_id=self._caller_runtime_id,
            native_request_sha256=record.native_request_sha256,
            provider_request_sha256=record.provider_request_sha256,
            model=record.model,
            provider=record.provider,
            foreign_reasoning_dropped=record.foreign_reasoning_dropped,
            outcome=outcome,
        )


def _tagged(message: Message, origin: Origin) -> Message:
    """Put the service's own tag on the reasoning state of an answer: a backend cannot set another."""
    if not any(isinstance(part, Reasoning) and part.state is not None for part in message.parts):
        return message
    parts = (
        attrs.evolve(part, state=attrs.evolve(part.state, origin=origin))
        if isinstance(part, Reasoning) and part.state is not None
        else part
        for part in message.parts
    )
    return attrs.evolve(message, parts=tuple(parts))


class TransportService:
    """Begin and complete the calls of one backend.

    Arguments:
        origin: the provider's tag with dialect and model; backends cannot set another.
        caller_runtime_id: names the process that asks.
        max_result_bytes: how large, in bytes of its MessagePack form, a result may be; a larger one becomes a failure
            of kind ``result_size``. None sets no limit.
    """

    def __init__(self, origin: Origin, caller_runtime_id: str, *, max_result_bytes: int | None = None) -> None:
        self._origin = origin
        self._caller_runtime_id = caller_runtime_id
        self._max_result_bytes = max_result_bytes
        self._active: dict[str, _Record] = {}

    def begin(
        self, call: ModelCall, *, request_id: str, native_request_sha256: bytes, parted: Partition | None = None
    ) -> ProviderCall:
        """Write down what is asked and hand out what the backend may see.

        Arguments:
            call: what is asked.
            request_id: names the attempt.
            native_request_sha256: digest of the request as the application gave it (32 bytes).
            parted: what `partition_reasoning` gave for the call's history and the service's origin, where it was asked
                already, as for encoding.

        Raises:
            ForeignReasoningState: an open tool exchange holds reasoning state of another provider; nothing was begun.
            MisuseError: a request of that id is active.
        """
        if request_id in self._active:
            raise MisuseError(f"request {request_id} is active; each attempt has an id of its own")
        if parted is None:
            parted = partition_reasoning(call.history, self._origin)
        record = _Record(
            request_id=request_id,
            native_request_sha256=native_request_sha256,
            provider_request_sha256=provider_sha256(call),
            model=call.model,
            provider=self._origin.provider,
            foreign_reasoning_dropped=parted.reasoning_dropped,
        )
        self._active[request_id] = record
        clean = call if parted.history is call.history else attrs.evolve(call, history=parted.history)
        return ProviderCall(
            clean,
            self._origin,
            record,
            caller_runtime_id=self._caller_runtime_id,
            payloads_dropped=parted.payloads_dropped,
            open_activities=open_work(call.history, self._origin),
        )

    def complete(self, outcome: Transported) -> Transported:
        """Check an outcome against what was written down and close its call.

        Raises:
            ReceiptError: the receipt is of no active call, or contradicts what was written down; nothing is kept.
        """
        receipt = outcome.receipt
        record = self._active.pop(receipt.request_id, None)
        if record is None:
            raise ReceiptError("$.request_id", "is of no active call")
        if receipt.caller_runtime_id != self._caller_runtime_id:
            raise ReceiptError("$.caller_runtime_id", "is not what the service wrote down")
        if _recorded(receipt) != _recorded(record):
            name = next(name for name in _RECORDED if getattr(receipt, name) != getattr(record, name))
            raise ReceiptError(f"$.{name}", "is not what the service wrote down")
        if isinstance(receipt.outcome, Failed) and not receipt.outcome.message:
            raise ReceiptError("$.outcome.Failed.message", "is empty")
        return self._within_size(outcome)

    def abandon(self, call: ProviderCall) -> None:
        """Close a call that nobody waits for any more."""
        self._active.pop(call._record.request_id, None)

    def _within_size(self, outcome: Transported) -> Transported:
        if self._max_result_bytes is None or outcome.message is None:
            return outcome
        size = packed_size(outcome.message)
        if size <= self._max_result_bytes:
            return outcome
        failed = Failed(
            kind="result_size", message=f"the result has {size} bytes, more than the {self._max_result_bytes} allowed"
        )
        return Transported(receipt=attrs.evolve(outcome.receipt, outcome=failed), reported=frozenset())
