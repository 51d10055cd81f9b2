"""The messages of ``openai-chat`` requests.

The messages that a node of a history adds are encoded once and kept with it, so the branches of one conversation
share the bytes of its beginning. What a message is encoded to may depend on those before it, never on later ones.
"""

from __future__ import annotations

import base64
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec import Raw

from furcate.dialects._failures import read_plain
from furcate.dialects.openai_chat._reasoning import CONTENT_FORMAT, DETAILS_FORMAT
from furcate.primitives._content import (
    HostedActivity,
    Media,
    Reasoning,
    ReasoningState,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._json import Plain
from furcate.primitives._message import Message

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

_Wire: TypeAlias = dict[str, Plain | Raw]


class _Chunk:
    """The bytes of a node's messages; a comma leads where the nodes before it have some.

    `answers_call` tells whether the conversation so far ends with the result of a tool call.
    """

    __slots__ = ("answers_call", "begun", "data")

    def __init__(self, data: bytes = b"", *, begun: bool = False, answers_call: bool = False) -> None:
        self.data = data
        self.begun = begun
        self.answers_call = answers_call


_SYSTEM_CHUNKS: MemoKey[_Chunk] = MemoKey("openai-chat, system role")
_DEVELOPER_CHUNKS: MemoKey[_Chunk] = MemoKey("openai-chat, developer role")


def encoded(value: Plain | _Wire, what: str) -> bytes:
    """Encode a value as JSON; `what` names it in the error.

    Raises:
        RequestError: a text in it holds half a character.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} holds half a character (a lone surrogate), which no request can carry") from error


def conversation(history: History, system_role: Literal["system", "developer"]) -> list[bytes]:
    """Encode a history as the items of a JSON array, in pieces, those of a shared beginning being shared.

    Raises:
        RequestError: a text holds half a character.
        UnsupportedError: a medium, or provider-run work with a native form.
        PayloadError: reasoning state of a format that is not known here, or damaged.
    """
    if system_role == "developer":
        key, compute = _DEVELOPER_CHUNKS, _developer_chunk
    else:
        key, compute = _SYSTEM_CHUNKS, _system_chunk
    chunks = (node.memo(key, compute).data for node in history.nodes())
    return [data for data in chunks if data]


def _system_chunk(node: History) -> _Chunk:
    # The oldest node is asked first, so the parent's chunk is always there and this never goes deeper than one.
    before = node.parent.memo(_SYSTEM_CHUNKS, _system_chunk) if node.parent is not None else _Chunk()
    return _chunk(node, "system", before)


def _developer_chunk(node: History) -> _Chunk:
    before = node.parent.memo(_DEVELOPER_CHUNKS, _developer_chunk) if node.parent is not None else _Chunk()
    return _chunk(node, "developer", before)


def _chunk(node: History, system_role: str, before: _Chunk) -> _Chunk:
    answers_call = before.answers_call
    pieces: list[bytes] = []
    for number, message in enumerate(node.added, len(node) - len(node.added) + 1):
        wires = _wire_messages(message, number, system_role, answers_call=answers_call)
        pieces.extend(encoded(wire, f"message {number} ({message.role})") for wire in wires)
        answers_call = message.role == "tool"
    data = b",".join(pieces)
    leading = b"," if before.begun and data else b""
    return _Chunk(leading + data, begun=before.begun or bool(data), answers_call=answers_call)


def _wire_messages(message: Message, number: int, system_role: str, *, answers_call: bool) -> list[_Wire]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    if message.role == "assistant":
        return _assistant(message, number, answers_call=answers_call)
    if message.role == "user" and any(isinstance(part, Media) for part in message.parts):
        items: list[Plain] = [
            _medium(part, number) if isinstance(part, Media) else {"type": "text", "text": part.text}
            for part in message.parts
            if isinstance(part, (Text, Media))
        ]
        return [{"role": "user", "content": items}]
    role = system_role if message.role == "system" else message.role
    return [{"role": role, "content": message.text}]


def _assistant(message: Message, number: int, *, answers_call: bool) -> list[_Wire]:
    """Encode an assistant message, or give nothing where only reasoning and provider-run work are in it."""
    said: list[str] = []
    calls: list[Plain] = []
    states: list[ReasoningState] = []
    for part in message.parts:
        match part:
            case Text() | Refusal():
                # A refusal goes back as what was said: few servers know its member, and some want content with it.
                said.append(part.text)
            case ToolCall():
                calls.append(_call(part))
            case Reasoning():
                states.extend([part.state] if part.state is not None else [])
            case HostedActivity():
                _check_activity(part, number)
            case Media():
                raise UnsupportedError(
                    f"message {number} (assistant) holds an image or a file, which openai-chat takes from users only; "
                    "send it in a user message"
                )
            case ToolResult():
                raise AssertionError("an assistant message never holds tool results")
            case _:
                assert_never(part)
    wire: _Wire = {"role": "assistant"}
    if any(said):
        wire["content"] = "".join(said)
    wire |= _reasoning(states, number, in_exchange=bool(calls) or answers_call)
    if calls:
        wire["tool_calls"] = calls
    return [wire] if any(said) or calls else []


def _check_activity(activity: HostedActivity, number: int) -> None:
    # A record without native form is for people; it is not sent.
    if activity.payload is not None:
        raise UnsupportedError(
            f"message {number} (assistant) holds the native form of {activity.name!r}, which its provider ran and no "
            "openai-chat request can carry; continue on the backend that it came from, or leave the part out"
        )


def _reasoning(states: list[ReasoningState], number: int, *, in_exchange: bool) -> _Wire:
    """Give what goes back of a message's reasoning; only its own server's state ever comes here.

    Details go back always. The plain text does in the exchange around tool calls only: DeepSeek refuses to go on
    without it there, ignores it elsewhere, and its older models refuse it elsewhere.
    """
    wire: _Wire = {}
    texts: list[str] = []
    details: list[bytes] = []
    for state in states:
        if state.format == CONTENT_FORMAT:
            texts.append(_content(state.data, number))
        elif state.format == DETAILS_FORMAT:
            details.append(_details(state.data, number))
        else:
            raise PayloadError(
                f"message {number} (assistant) holds reasoning state of the format {state.format!r}, which openai-chat "
                f"does not know; it knows {CONTENT_FORMAT} and {DETAILS_FORMAT}"
            )
    if texts and in_exchange:
        wire["reasoning_content"] = "".join(texts)
    if details:
        wire["reasoning_details"] = Raw(b"[" + b",".join(details) + b"]")
    return wire


def _content(data: bytes, number: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(CONTENT_FORMAT, number) from error


def _details(data: bytes, number: int) -> bytes:
    """Give the items of a JSON array as they are written, without its brackets."""
    listed = read_plain(data)
    if not isinstance(listed, list) or not listed:
        raise _damaged(DETAILS_FORMAT, number)
    return data.strip()[1:-1]


def _damaged(form: str, number: int) -> PayloadError:
    return PayloadError(
        f"message {number} (assistant) holds reasoning state that is no {form}; it was changed since it was received"
    )


def _call(call: ToolCall) -> Plain:
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    # Servers parse the arguments for their templates, where an empty text is no JSON.
    arguments = call.arguments if call.arguments.strip() else "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _medium(media: Media, number: int) -> Plain:
    kind = media.media_type.partition(";")[0].strip().lower()
    family = kind.partition("/")[0]
    encoded = base64.b64encode(media.data).decode() if media.data is not None else None
    if family == "image":
        url = media.url if encoded is None else f"data:{kind};base64,{encoded}"
        return {"type": "image_url", "image_url": {"url": url}}
    if encoded is not None and kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO[kind]}}
    if encoded is not None and family in ("application", "text"):
        file: Plain = {"filename": media.name or "file", "file_data": f"data:{kind};base64,{encoded}"}
        return {"type": "file", "file": file}
    how = "by url" if encoded is None else "by value"
    raise UnsupportedError(
        f"message {number} (user) holds {kind} {how}, which openai-chat does not carry; it takes images by url or "
        "value, and wav, mp3, application/* and text/* files by value"
    )
