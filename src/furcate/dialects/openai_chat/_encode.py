"""Calls as ``openai-chat`` request bodies: all of them but the messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from furcate.dialects._server_tools import spelled
from furcate.dialects.openai_chat._messages import conversation, encoded
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._json import FrozenMap, Plain, thaw, thaw_object
from furcate.primitives._settings import Settings
from furcate.primitives._wire import ModelCall, WireRequest

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

_STREAM_HEADERS = (("content-type", "application/json"), ("accept", "text/event-stream"))
_WHOLE_HEADERS = (("content-type", "application/json"), ("accept", "application/json"))


def encode_call(call: ModelCall) -> WireRequest:
    """Encode a call as a POST to ``/chat/completions``.

    Raises:
        RequestError: a text holds half a character, or the tools do not fit together.
        UnsupportedError: a medium, provider-run work with a native form, or tools where the server has none.
        PayloadError: reasoning state of a format that is not known here, or damaged.
    """
    members: dict[str, Plain] = {"model": call.model, **_members(call)}
    for key, extra in call.settings.extra_body.items():
        if key in ("messages", "stream"):
            raise RequestError(f"extra_body holds {key!r}, which is made from the request itself; take it out")
        members[key] = thaw(extra)
    head = b'{"model":' + encoded(members.pop("model"), "the model's name") + b',"messages":['
    tail = _encoded_members(members, call.settings.extra_body)
    return WireRequest(
        "/chat/completions",
        (head, *conversation(call.history, call.switches.system_role), b"]," + tail[1:]),
        _STREAM_HEADERS if call.stream else _WHOLE_HEADERS,
        call.stream,
    )


def _encoded_members(members: dict[str, Plain], extra: FrozenMap) -> bytes:
    try:
        return encoded(members, "a key of extra_body")
    except RequestError:
        # All at once where nothing is wrong; one by one to say where something is.
        for key, value in members.items():
            encoded(value, f"extra_body.{key}" if key in extra else key)
        raise


def _members(call: ModelCall) -> dict[str, Plain]:
    members: dict[str, Plain] = {
        **_tools(call),
        **_server_tools(call),
        **_sampling(call.settings, call.switches.max_tokens_field),
    }
    if call.schema is not None and call.switches.structured_output == "json_object":
        members["response_format"] = {"type": "json_object"}
    elif call.schema is not None and call.switches.structured_output == "json_schema":
        members["response_format"] = _response_format(*call.schema)
    if call.beginning is not None:
        members["prompt_cache_key"] = call.beginning.digest.hex()[:32]
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


def _server_tools(call: ModelCall) -> dict[str, Plain]:
    # Here they stand beside the tools and not among them, so a tool_choice never means them.
    found = spelled("openai-chat", call.server_tools)
    return {one.member[0]: thaw_object(one.member[1]) for one in found if one.member is not None}


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
