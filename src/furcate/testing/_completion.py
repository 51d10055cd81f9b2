"""Chat completions as an openai-chat server writes them: whole JSON, or a stream of chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"

UsageChoice = Mapping[str, object] | Literal["plausible", "omitted"] | None

# A fixed moment, so that equal requests get equal bytes.
_CREATED = 1_700_000_000


@attrs.frozen
class StubToolCall:
    """Describe one call of a function tool that the stub's model makes.

    Attributes:
        name: the function's name.
        arguments: a mapping, sent as JSON; or a string, sent as it is (broken JSON, say).
        id: the call's id; empty takes ``call_1``, ``call_2`` and so on by place.
    """

    name: str
    arguments: Mapping[str, object] | str = attrs.field(factory=dict)
    id: str = ""

    def arguments_text(self) -> str:
        """Return the arguments as the wire carries them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@attrs.frozen
class Rendered:
    """Hold a body ready for the wire.

    Attributes:
        content_type: the media type.
        events: the body in pieces, each sent by itself.
        sized: whether its length is announced; otherwise it goes out chunked.
    """

    content_type: str
    events: tuple[bytes, ...]
    sized: bool


@attrs.frozen(kw_only=True)
class Body:
    """Hold a body that is the same whatever was asked."""

    rendered: Rendered

    def render(self, request: StubRequest) -> Rendered:
        """Return the body; the request plays no part in it."""
        return self.rendered


@attrs.frozen(kw_only=True)
class Completion:
    """Hold an assistant's turn, rendered when it is known how the client wants it."""

    pieces: tuple[str, ...]
    finish_reason: str
    usage: UsageChoice
    tool_calls: tuple[StubToolCall, ...]
    refusal: str | None
    reasoning: str | None
    error: Mapping[str, object] | None

    def render(self, request: StubRequest) -> Rendered:
        """Render as event stream where the request asks for one, as JSON otherwise."""
        if request.streaming:
            return Rendered(EVENT_STREAM, self._events(request), sized=False)
        body = json.dumps({"error": dict(self.error)} if self.error is not None else self._whole(request)).encode()
        # Two pieces, so that a whole body can break in the middle as well.
        middle = len(body) // 2
        return Rendered(JSON, (body[:middle], body[middle:]), sized=True)

    def _calls(self) -> list[dict[str, object]]:
        return [
            {
                "id": call.id or f"call_{place}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text()},
            }
            for place, call in enumerate(self.tool_calls, start=1)
        ]

    def _whole(self, request: StubRequest) -> dict[str, object]:
        text = "".join(self.pieces)
        message: dict[str, object] = {"role": "assistant", "content": text or None, "refusal": self.refusal}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = self._calls()
        elif self.refusal is None:
            message["content"] = text
        body = _frame(request, "chat.completion")
        body["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}]
        if self.usage != "omitted":
            body["usage"] = self._usage(request)
        return body

    def _events(self, request: StubRequest) -> tuple[bytes, ...]:
        events = [_chunk(request, delta) for delta in self._deltas()]
        if self.error is not None:
            return (*events, sse({"error": dict(self.error)}))
        events.append(_chunk(request, {}, finish_reason=self.finish_reason))
        if request.wants_usage and self.usage != "omitted":
            tail = _frame(request, "chat.completion.chunk")
            tail["choices"] = []
            tail["usage"] = self._usage(request)
            events.append(sse(tail))
        return (*events, DONE)

    def _deltas(self) -> list[dict[str, object]]:
        deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
        if self.reasoning is not None:
            deltas += [{"reasoning_content": piece} for piece in split_text(self.reasoning)]
        if self.refusal is not None:
            deltas += [{"refusal": piece} for piece in split_text(self.refusal)]
        deltas += [{"content": piece} for piece in self.pieces]
        for index, (call, whole) in enumerate(zip(self.tool_calls, self._calls(), strict=True)):
            opening = {"index": index, **whole, "function": {"name": call.name, "arguments": ""}}
            deltas.append({"tool_calls": [opening]})
            text = call.arguments_text()
            middle = len(text) // 2
            for piece in (text[:middle], text[middle:]):
                if piece:
                    deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        return deltas

    def _usage(self, request: StubRequest) -> dict[str, object] | None:
        if self.usage is None:
            return None
        if isinstance(self.usage, Mapping):
            return dict(self.usage)
        reasoning = len((self.reasoning or "").split())
        said = ["".join(self.pieces), self.refusal or "", *(call.arguments_text() for call in self.tool_calls)]
        produced = max(1, reasoning + sum(len(text.split()) for text in said))
        prompt = max(1, request.words())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": produced,
            "total_tokens": prompt + produced,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }


def sse(payload: Mapping[str, object] | str | bytes) -> bytes:
    """Frame one server-sent event.

    Arguments:
        payload: a mapping, sent as JSON; a string, sent as the event's data on one line; or bytes, sent as
            they are, framing included.
    """
    if isinstance(payload, bytes):
        return payload
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return b"data: " + text.encode() + b"\n\n"


def split_text(text: str, most: int = 4) -> tuple[str, ...]:
    """Cut a text at spaces into at most so many pieces that join to it again; an empty text gives none."""
    words = text.split(" ")
    words = [word if place == 0 else " " + word for place, word in enumerate(words)]
    size = -(-len(words) // most)
    pieces = ("".join(words[start : start + size]) for start in range(0, len(words), size))
    return tuple(piece for piece in pieces if piece)


def choose_pieces(text: str, deltas: Sequence[str] | None) -> tuple[str, ...]:
    """Settle what the stream sends of a text.

    Raises:
        ValueError: both were given and the deltas do not join to the text.
    """
    if deltas is None:
        return split_text(text)
    if text and "".join(deltas) != text:
        raise ValueError(f"answer: deltas join to {''.join(deltas)!r}, not to the text {text!r}; give only one of them")
    return tuple(deltas)


def _frame(request: StubRequest, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-stub-{request.number}",
        "object": kind,
        "created": _CREATED,
        "model": request.model,
    }


def _chunk(request: StubRequest, delta: Mapping[str, object], *, finish_reason: str | None = None) -> bytes:
    frame = _frame(request, "chat.completion.chunk")
    frame["choices"] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
    return sse(frame)
