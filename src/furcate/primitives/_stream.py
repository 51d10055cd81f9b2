"""What a stream tells while an answer arrives.

Decoders make these values from bytes, one assembler makes the message from them, and consumers of ``engine.stream``
see them. `index` tells the parts of one answer apart; it says nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

from furcate.primitives._content import Attribution, HostedActivity, Media, ProviderPayload, ReasoningState
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, StopReason


@frozen
class ResponseStarted:
    """Tell the provider's id of the response and the model that answers, as far as it says."""

    response_id: str | None = None
    model: str | None = None


@frozen
class TextDelta:
    """Carry a piece of the answer's text."""

    index: int
    text: str


@frozen
class RefusalDelta:
    """Carry a piece of a refusal's text."""

    index: int
    text: str


@frozen
class ReasoningDelta:
    """Carry a piece of shown reasoning."""

    index: int
    text: str


@frozen
class ReasoningSealed:
    """Carry opaque reasoning state of the part at `index`; a later one replaces it."""

    index: int
    state: ReasoningState


@frozen
class ToolCallDelta:
    """Carry a piece of a tool call: the first non-empty id and name count, arguments are joined."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    custom: bool = False


@frozen
class PartPayload:
    """Carry what the provider wants back with the text or the tool call at `index`; a later one replaces it."""

    index: int
    payload: ProviderPayload


@frozen
class Citation:
    """Carry one citation of the text part at `index`."""

    index: int
    attribution: Attribution


@frozen
class HostedTransition:
    """Carry one transition of provider-run work."""

    activity: HostedActivity


@frozen
class MediaArrived:
    """Carry an image or a file that the model made."""

    index: int
    media: Media


@frozen
class PartEnded:
    """Tell that the part at `index` is whole."""

    index: int


@frozen
class UsageReported:
    """Carry the usage so far; a later report replaces an earlier one, it is never added."""

    usage: Usage


@frozen
class Stopped:
    """Tell that the answer is complete, and why the model stopped."""

    reason: StopReason
    detail: str | None = None


@frozen
class Paused:
    """Tell that the provider set its answer aside half-way and goes on when it gets what it said so far back."""


@frozen
class StreamFailed:
    """Tell that the provider ended its answer with an error."""

    failure: Failure


@frozen
class Noticed:
    """Tell of something additive that the provider sent and the dialect carries no content for."""

    kind: str


@frozen
class AttemptRestarted:
    """Tell that what follows supersedes all that came before: a repair or a retry after text was shown."""

    attempt: int
    purpose: str


StreamEvent: TypeAlias = (
    ResponseStarted
    | TextDelta
    | RefusalDelta
    | ReasoningDelta
    | ReasoningSealed
    | ToolCallDelta
    | PartPayload
    | Citation
    | HostedTransition
    | MediaArrived
    | PartEnded
    | UsageReported
    | Stopped
    | Paused
    | StreamFailed
    | Noticed
    | AttemptRestarted
)
