"""Calls as ``openai-chat`` request bodies.

The messages that a node of a history adds are encoded once and kept with it, so the branches of one conversation
share the bytes of its beginning.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import msgspec

from furcate.primitives._content import Media, Refusal, Text, ToolCall, ToolResult
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._json import FrozenMap, Plain, thaw, thaw_object
from furcate.primitives._message import Message
from furcate.primitives._settings import Settings
from furcate.primitives._wire import ModelCall, WireRequest

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}

# What a strict schema may hold; servers refuse the rest of JSON Schema there, and take it where nothing is strict.
_STRICT_KEYWORDS = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "description",
        "enum",
        "items",
        "properties",
        "required",
        "title",
        "type",
    }
)


class _Chunk:
    """The bytes of a node's messages; a comma leads where the nodes before it have some."""

    __slots__ = ("begun", "data")

    def __init__(self, data: bytes, begun: bool) -> None:
        self.data = data
        self.begun = begun


_SYSTEM_CHUNKS: MemoKey[_Chunk] = MemoKey("openai-chat, system role")
_DEVELOPER_CHUNKS: MemoKey[_Chunk] = MemoKey("openai-chat, developer role")


def encode_call(call: ModelCall) -> WireRequest:
    """Encode a call as a POST to ``/chat/completions``.

    Raises:
        RequestError: a text holds half a character, or the tools do not fit together.
        UnsupportedError: a medium, or tools where the server has none.
    """
    members = {"model": _bytes(call.model, "the model's name")}
    for key, value in _members(call).items():
        members[key] = _bytes(value, key)
    for key, extra in call.settings.extra_body.items():
        if key in ("messages", "stream"):
            raise RequestError(f"extra_body holds {key!r}, which is made from the request itself; take it out")
        members[key] = _bytes(thaw(extra), f"extra_body.{key}")
    head = b'{"model":' + members.pop("model") + b',"messages":['
    tail = b"".join(b"," + _bytes(key, "a key of extra_body") + b":" + value for key, value in members.items())
    return WireRequest(
        "/chat/completions",
        (head, *_conversation(call), b"]" + tail + b"}"),
        (
            ("content-type", "application/json"),
            ("accept", "text/event-stream" if call.stream else "application/json"),
        ),
        call.stream,
    )


def _bytes(value: Plain, what: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} holds half a character (a lone surrogate), which no request can carry") from error


def _conversation(call: ModelCall) -> list[bytes]:
    if call.switches.system_role == "developer":
        key, compute = _DEVELOPER_CHUNKS, _developer_chunk
    else:
        key, compute = _SYSTEM_CHUNKS, _system_chunk
    chunks = (node.memo(key, compute).data for node in call.history.nodes())
    return [data for data in chunks if data]


def _system_chunk(node: History) -> _Chunk:
    # The oldest node is asked first, so the parent's chunk is always there and this never goes deeper than one.
    begun = node.parent is not None and node.parent.memo(_SYSTEM_CHUNKS, _system_chunk).begun
    return _chunk(node, "system", begun)


def _developer_chunk(node: History) -> _Chunk:
    begun = node.parent is not None and node.parent.memo(_DEVELOPER_CHUNKS, _developer_chunk).begun
    return _chunk(node, "developer", begun)


def _chunk(node: History, system_role: str, begun: bool) -> _Chunk:
    first = len(node) - len(node.added) + 1
    encoded = [
        _bytes(wire, f"message {number} ({message.role})")
        for number, message in enumerate(node.added, first)
        for wire in _wire_messages(message, number, system_role)
    ]
    data = b",".join(encoded)
    return _Chunk(b"," + data if begun and data else data, begun or bool(data))


def _wire_messages(message: Message, number: int, system_role: str) -> list[Plain]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
    if message.role == "assistant":
        return _assistant(message, number)
    if message.role == "user" and any(isinstance(part, Media) for part in message.parts):
        items: list[Plain] = [
            _medium(part, number) if isinstance(part, Media) else {"type": "text", "text": part.text}
            for part in message.parts
            if isinstance(part, (Text, Media))
        ]
        return [{"role": "user", "content": items}]
    role = system_role if message.role == "system" else message.role
    return [{"role": role, "content": message.text}]


def _assistant(message: Message, number: int) -> list[Plain]:
    """Encode an assistant message, or give nothing where only reasoning and provider-run work are in it."""
    if any(isinstance(part, Media) for part in message.parts):
        raise UnsupportedError(
            f"message {number} (assistant) holds an image or a file, which openai-chat takes from users only; "
            "send it in a user message"
        )
    # A refusal goes back as what was said: few servers know its member, and some refuse a message without content.
    said = "".join(part.text for part in message.parts if isinstance(part, (Text, Refusal)))
    calls: list[Plain] = [_call(part) for part in message.tool_calls]
    wire: dict[str, Plain] = {"role": "assistant"}
    if said:
        wire["content"] = said
    if calls:
        wire["tool_calls"] = calls
    return [wire] if said or calls else []


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


def _members(call: ModelCall) -> dict[str, Plain]:
    members: dict[str, Plain] = {**_tools(call), **_sampling(call.settings, call.switches.max_tokens_field)}
    if call.schema is not None and call.switches.structured_output == "json_object":
        members["response_format"] = {"type": "json_object"}
    elif call.schema is not None and call.switches.structured_output == "json_schema":
        members["response_format"] = _response_format(*call.schema)
    members["stream"] = call.stream
    if call.stream and call.switches.stream_usage:
        members["stream_options"] = {"include_usage": True}
    return members


def _tools(call: ModelCall) -> dict[str, Plain]:
    choice = call.tool_choice
    if not call.tools:
        if choice not in (None, "auto", "none"):
            raise RequestError(
                f"tool_choice is {choice!r} but the request declares no tools; declare some or leave it out"
            )
        return {}
    if not call.switches.function_tools:
        raise UnsupportedError(
            "the request declares function tools, which this backend does not honour; leave the tools out, or choose "
            "a profile on a backend that has them"
        )
    names = [tool.name for tool in call.tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"the tool {twice!r} is declared twice; give each tool a name of its own")
    declared: list[Plain] = []
    for tool in call.tools:
        function: dict[str, Plain] = {"name": tool.name}
        if tool.description:
            function["description"] = tool.description
        declared.append({"type": "function", "function": {**function, "parameters": thaw_object(tool.parameters)}})
    members: dict[str, Plain] = {"tools": declared}
    if choice in ("auto", "none", "required"):
        members["tool_choice"] = choice
    elif choice is not None:
        if choice not in names:
            raise RequestError(f"tool_choice names {choice!r}, which is not declared; there are: {', '.join(names)}")
        members["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return members


def _sampling(settings: Settings, max_tokens_field: str) -> dict[str, Plain]:
    members: dict[str, Plain] = {
        max_tokens_field: settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "reasoning_effort": settings.reasoning_effort,
        "stop": list(settings.stop) or None,
    }
    return {key: value for key, value in members.items() if value is not None}


def _response_format(name: str, schema: FrozenMap) -> Plain:
    return {
        "type": "json_schema",
        "json_schema": {
            "name": re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "answer",
            "schema": thaw_object(schema),
            "strict": schema.get("type") == "object" and _strict(schema),
        },
    }


def _strict(schema: object) -> bool:
    """Tell whether every object of a schema is closed and asks for all it has, in words that strict servers know."""
    if not isinstance(schema, Mapping):
        return False
    if not schema.keys() <= _STRICT_KEYWORDS:
        return False
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return False
    if properties or schema.get("type") == "object":
        required = schema.get("required", ())
        if schema.get("additionalProperties") is not False or not isinstance(required, tuple):
            return False
        if set(properties) != set(required):
            return False
    below = [*properties.values()]
    definitions, options = schema.get("$defs", {}), schema.get("anyOf", ())
    below.extend(definitions.values() if isinstance(definitions, Mapping) else [None])
    below.extend(options if isinstance(options, tuple) else [None])
    if "items" in schema:
        below.append(schema["items"])
    return all(_strict(one) for one in below)
