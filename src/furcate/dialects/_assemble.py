"""The assistant message, made from stream events; one way for all dialects, streamed or whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import attrs
from attrs import define, field

from furcate.dialects._sse import MAX_EVENT_BYTES
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
)
from furcate.primitives._json import Frozen, FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._stream import (
    AttemptRestarted,
    Citation,
    HostedTransition,
    MediaArrived,
    Noticed,
    PartEnded,
    PartPayload,
    Paused,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import AttemptFailed, Failure

MAX_CALL_LENGTH = MAX_EVENT_BYTES
"""The most characters that one call may ask with, whoever runs it: those of its arguments, or of its input."""
MAX_CALLS_LENGTH = 4 * MAX_CALL_LENGTH
"""The most characters that all calls of one answer may ask with."""
MAX_PARTS = 10_000
"""The most parts of one answer."""


@define
class _TextPart:
    pieces: list[str] = field(factory=list)
    citations: list[Attribution] = field(factory=list)
    payload: ProviderPayload | None = None
    ended: bool = False

    def build(self, *, cut: bool) -> Text | None:
        text = "".join(self.pieces)
        # Nothing can be cited in a text that never came; in an answer that is whole the sources are still worth having.
        if not text and (cut or not self.citations):
            return None
        cited = tuple(_fitting(self.citations, len(text)))
        return Text(text, cited, not cut or self.ended, payload=None if cut else self.payload)


@define
class _RefusalPart:
    pieces: list[str] = field(factory=list)
    ended: bool = False

    def build(self, *, cut: bool) -> Refusal | None:
        text = "".join(self.pieces)
        return Refusal(text) if text else None


@define
class _ReasoningPart:
    pieces: list[str] = field(factory=list)
    state: ReasoningState | None = None
    ended: bool = False

    def build(self, *, cut: bool) -> Reasoning | None:
        text = "".join(self.pieces)
        # Providers refuse signed thought whose answer broke off, and take unsigned thought for what it is: text.
        state = None if cut else self.state
        return Reasoning(text, state) if text or state is not None else None


@define
class _CallPart:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(factory=list)
    custom: bool = False
    payload: ProviderPayload | None = None
    ended: bool = False

    def build(self, *, cut: bool) -> ToolCall | None:
        if cut and not self.ended:
            return None
        kind: Literal["custom", "function"] = "custom" if self.custom else "function"
        return ToolCall(self.id, self.name, "".join(self.pieces), kind, payload=self.payload)


@define
class _WholePart:
    part: HostedActivity | Media
    ended: bool = True

    def build(self, *, cut: bool) -> Part | None:
        return self.part


_Open = _TextPart | _RefusalPart | _ReasoningPart | _CallPart | _WholePart


def _fitting(citations: Iterable[Attribution], length: int) -> Iterable[Attribution]:
    for one in citations:
        yield attrs.evolve(one, range=None) if one.range is not None and one.range[1] > length else one


def _length(value: Frozen) -> int:
    """Count the characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, FrozenMap):
        return sum(len(key) + _length(item) for key, item in value.items())
    return sum(map(_length, value)) if isinstance(value, tuple) else 0


class Assembler:
    """Collect the events of one answer and make its message.

    Arguments:
        max_call_length: how many characters one call may ask with, be it the application's to run or the provider's.
        max_calls_length: how many all calls of the answer may.

    Attributes:
        usage: the last usage reported; all unknown where nothing was.
        stop: how the answer ended, or None while it has not.
        paused: whether the provider set the answer aside and waits for it to be sent back.
        failure: why the provider broke off, or None.
        response_id: the provider's id of the response, if it gave one.
        model: the model that answers, if the provider said so.
    """

    usage: Usage
    stop: Stopped | None
    paused: bool
    failure: Failure | None
    response_id: str | None
    model: str | None

    def __init__(self, *, max_call_length: int = MAX_CALL_LENGTH, max_calls_length: int = MAX_CALLS_LENGTH) -> None:
        self._most = max_call_length, max_calls_length
        self._reset()

    def add(self, event: StreamEvent) -> None:  # noqa: C901 - a branch for each kind, and nothing beside
        """Take the next event.

        Raises:
            AttemptFailed: with it the answer would have too many parts, or its calls would ask with more than they may;
                it was not taken.
        """
        match event:
            case TextDelta():
                self._text(event.index).pieces.append(event.text)
            case ReasoningDelta():
                self._thought(event.index).pieces.append(event.text)
            case ToolCallDelta():
                self._measure(event)
                self._add_call(event)
            case RefusalDelta():
                self._refusal(event.index).pieces.append(event.text)
            case ReasoningSealed():
                self._thought(event.index).state = event.state
            case Citation():
                self._text(event.index).citations.append(event.attribution)
            case PartPayload():
                self._hold(event)
            case HostedTransition():
                self._measure(event)
                self._begin(_WholePart(event.activity))
            case MediaArrived():
                self._begin(_WholePart(event.media))
            case PartEnded():
                self._end(event.index)
            case UsageReported():
                self.usage = event.usage
            case Stopped():
                self.stop = event
            case Paused():
                self.paused = True
            case StreamFailed():
                self.failure = event.failure
            case ResponseStarted():
                self.response_id = event.response_id if event.response_id is not None else self.response_id
                self.model = event.model if event.model is not None else self.model
            case AttemptRestarted():
                self._reset()  # nothing of the attempt before may show through
            case Noticed():
                pass  # it says nothing about the answer
            case _:
                assert_never(event)

    def message(self) -> Message:
        """Make the assistant message, its parts in the order in which they first appeared.

        Parts that came to nothing are left out, so the message of an empty answer has no parts.
        """
        return Message("assistant", self._build(cut=False))

    def partial(self) -> Message | None:
        """Make a message of what has arrived, or None where nothing has.

        Of an answer that was cut off, text is marked as lacking citations unless its part was finished; calls that
        were not finished are dropped; reasoning keeps its text and loses its state.
        """
        parts = self._build(cut=self.stop is None)
        return Message("assistant", parts) if parts else None

    def _reset(self) -> None:
        self.usage = UNKNOWN
        self.stop = None
        self.paused = False
        self.failure = None
        self.response_id = None
        self.model = None
        self._order: list[_Open] = []
        self._texts: dict[int, _TextPart] = {}
        self._refusals: dict[int, _RefusalPart] = {}
        self._thoughts: dict[int, _ReasoningPart] = {}
        self._calls: dict[int, _CallPart] = {}
        self._lengths: dict[object, int] = {}
        self._length = 0

    def _build(self, *, cut: bool) -> tuple[Part, ...]:
        built = (part.build(cut=cut) for part in self._order)
        return tuple(part for part in built if part is not None)

    def _measure(self, event: ToolCallDelta | HostedTransition) -> None:
        if isinstance(event, ToolCallDelta):
            key: object = event.index
            before = self._lengths.get(key, 0)
            length = before + len(event.arguments)
        else:
            # Each transition tells the whole input again.
            key = event.activity.scope, event.activity.id
            before = self._lengths.get(key, 0)
            length = max(before, _length(event.activity.input))
        whole = self._length + length - before
        most_of_one, most_of_all = self._most
        if length > most_of_one or whole > most_of_all:
            what, most = ("a call", most_of_one) if length > most_of_one else ("all calls together", most_of_all)
            message = f"the answer holds {what} of more than {most:,} characters"
            raise AttemptFailed(Failure(kind="provider", reason="too_large", message=message))
        self._lengths[key] = length
        self._length = whole

    def _add_call(self, event: ToolCallDelta) -> None:
        part = self._calls.get(event.index)
        if part is None:
            part = self._calls[event.index] = _CallPart()
            self._begin(part)
        part.id = part.id or event.id
        part.name = part.name or event.name
        part.custom = part.custom or event.custom
        if event.arguments:
            part.pieces.append(event.arguments)

    def _hold(self, event: PartPayload) -> None:
        part = self._calls.get(event.index) or self._text(event.index)
        part.payload = event.payload

    def _begin(self, part: _Open) -> None:
        if len(self._order) >= MAX_PARTS:
            message = f"the answer exceeds {MAX_PARTS:,} parts"
            raise AttemptFailed(Failure(kind="provider", reason="too_large", message=message))
        self._order.append(part)

    def _text(self, index: int) -> _TextPart:
        part = self._texts.get(index)
        if part is None:
            part = self._texts[index] = _TextPart()
            self._begin(part)
        return part

    def _refusal(self, index: int) -> _RefusalPart:
        part = self._refusals.get(index)
        if part is None:
            part = self._refusals[index] = _RefusalPart()
            self._begin(part)
        return part

    def _thought(self, index: int) -> _ReasoningPart:
        part = self._thoughts.get(index)
        if part is None:
            part = self._thoughts[index] = _ReasoningPart()
            self._begin(part)
        return part

    def _end(self, index: int) -> None:
        for part in (
            self._texts.get(index),
            self._refusals.get(index),
            self._thoughts.get(index),
            self._calls.get(index),
        ):
            if part is not None:
                part.ended = True
