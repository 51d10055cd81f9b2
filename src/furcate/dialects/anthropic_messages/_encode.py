"""Calls as ``anthropic-messages`` request bodies."""

from __future__ import annotations

import msgspec

from furcate.dialects._server_tools import Spelling, spelled
from furcate.dialects.anthropic_messages._history import conversation
from furcate.dialects.anthropic_messages._schema import adapted
from furcate.dialects.anthropic_messages._wire import DIALECT
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._json import thaw, thaw_object
from furcate.primitives._wire import ModelCall, WireRequest

DEFAULT_MAX_TOKENS = 4096
"""The output limit of a call that sets none: the provider asks for one, and every model of it has at least this."""

API_VERSION = "2023-06-01"

_OWN_MEMBERS = ("messages", "stream", "system")


def encode_call(call: ModelCall) -> WireRequest:
    """Encode a call as a POST to ``/messages``.

    Raises:
        RequestError: a text holds half a character, a message says nothing, or the tools do not fit together.
        UnsupportedError: a setting, a medium or a late system message that the dialect does not carry.
        PayloadError: a native value of the call's own provider cannot be decoded.
    """
    hosted = spelled(DIALECT, call.server_tools)
    members = {"model": _bytes(call.model, "the model's name")}
    for key, value in _members(call, hosted).items():
        members[key] = _bytes(value, key)
    told = conversation(call.history, call.beginning)
    if told.system:
        members["system"] = _system(told.system)
    if told.container is not None:
        members["container"] = _bytes(told.container, "the container")
    for key, extra in call.settings.extra_body.items():
        if key in _OWN_MEMBERS:
            raise RequestError(f"extra_body holds {key!r}, which is made from the request itself; take it out")
        members[key] = _bytes(thaw(extra), f"extra_body.{key}")
    head = b'{"model":' + members.pop("model") + b',"messages":['
    tail = b"".join(b"," + _bytes(key, "a key of extra_body") + b":" + value for key, value in members.items())
    return WireRequest("/messages", (head, *told.chunks, b"]" + tail + b"}"), _headers(call, hosted), call.stream)


def _bytes(value: object, what: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} holds half a character (a lone surrogate), which no request can carry") from error


def _system(blocks: tuple[object, ...]) -> bytes:
    only = blocks[0] if len(blocks) == 1 else None
    if isinstance(only, dict) and only.keys() == {"type", "text"}:
        return _bytes(only["text"], "the system text")
    return _bytes(blocks, "the system text")


def _headers(call: ModelCall, hosted: tuple[Spelling, ...]) -> tuple[tuple[str, str], ...]:
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if call.stream else "application/json"),
        ("anthropic-version", API_VERSION),
    )
    betas = dict.fromkeys(one.beta for one in hosted if one.beta is not None)
    return (*headers, ("anthropic-beta", ",".join(betas))) if betas else headers


def _members(call: ModelCall, hosted: tuple[Spelling, ...]) -> dict[str, object]:
    settings = call.settings
    if settings.seed is not None:
        raise UnsupportedError(f"the profile or request sets seed, which {DIALECT} does not have; leave it out")
    members: dict[str, object] = {
        "max_tokens": settings.max_output_tokens or DEFAULT_MAX_TOKENS,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop_sequences": list(settings.stop) or None,
        "output_config": _output(call) or None,
        **_tools(call, hosted),
    }
    members["stream"] = call.stream
    return {key: value for key, value in members.items() if value is not None}


def _output(call: ModelCall) -> dict[str, object]:
    output: dict[str, object] = {}
    if call.settings.reasoning_effort is not None:
        output["effort"] = call.settings.reasoning_effort
    schema = adapted(call.schema[1]) if call.schema is not None else None
    if schema is not None:
        output["format"] = {"type": "json_schema", "schema": schema}
    return output


def _tools(call: ModelCall, hosted: tuple[Spelling, ...]) -> dict[str, object]:
    declared: list[object] = []
    for tool in call.tools:
        one: dict[str, object] = {"name": tool.name}
        if tool.description:
            one["description"] = tool.description
        declared.append({**one, "input_schema": {"type": "object", **thaw_object(tool.parameters)}})
    native = [thaw_object(one.tool) for one in hosted if one.tool is not None]
    names = [tool.name for tool in call.tools] + [str(one["name"]) for one in native if "name" in one]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"the tool {twice!r} is declared twice; give each tool a name of its own")
    choice = _choice(call, hosted=bool(native))
    if not declared and not native:
        return {}
    return {"tools": [*declared, *native], "tool_choice": choice}


def _choice(call: ModelCall, *, hosted: bool) -> dict[str, object] | None:
    choice = call.tool_choice
    names = [tool.name for tool in call.tools]
    if choice in ("auto", "none"):
        return {"type": choice}
    if choice is None:
        # With tools of the provider alone the choice is still said, so that it does not hang on a default.
        return {"type": "auto"} if hosted and not names else None
    if not names:
        raise RequestError(f"tool_choice is {choice!r} but the request declares no tools; declare some or leave it out")
    if choice == "required":
        if not hosted:
            return {"type": "any"}
        if len(names) > 1:
            raise UnsupportedError(
                f"tool_choice 'required' beside server tools cannot be kept to the request's own tools on {DIALECT}; "
                "name one tool, or leave the choice to the model"
            )
        choice = names[0]
    if choice not in names:
        raise RequestError(f"tool_choice names {choice!r}, which is not declared; there are: {', '.join(names)}")
    return {"type": "tool", "name": choice}
