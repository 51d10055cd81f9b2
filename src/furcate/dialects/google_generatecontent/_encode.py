"""Calls as ``google-generatecontent`` requests."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from furcate.dialects._server_tools import spelled
from furcate.dialects.google_generatecontent._contents import chunk_of, to_bytes
from furcate.dialects.google_generatecontent._schema import adapted
from furcate.primitives._errors import RequestError
from furcate.primitives._json import Plain, thaw, thaw_object
from furcate.primitives._settings import Settings
from furcate.primitives._wire import ModelCall, WireRequest

NAME = "google-generatecontent"

_MODES: Mapping[str, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_BUDGETS: Mapping[str, int] = {"none": 0, "dynamic": -1}


def encode_call(call: ModelCall) -> WireRequest:
    """Encode a call as a POST to the model's ``streamGenerateContent`` or ``generateContent``.

    Raises:
        RequestError: a text holds half a character, or the call does not fit together.
        UnsupportedError: something that the dialect does not carry.
    """
    chunks = [chunk_of(node) for node in call.history.nodes()]
    opened = chunks[-1].open
    if not opened:
        raise RequestError(f"the conversation has no message that {NAME} could answer; add a user message")
    members: dict[str, Plain] = {}
    instructions: list[Plain] = [{"text": text} for chunk in chunks for text in chunk.instructions]
    if instructions:
        members["systemInstruction"] = {"parts": instructions}
    members.update(_tools(call, served=any(chunk.served for chunk in chunks)))
    config = _config(call)
    if config:
        members["generationConfig"] = config
    _merge(members, call.settings)
    tail = b"".join(
        b"," + to_bytes(key, "a key of extra_body") + b":" + to_bytes(value, key) for key, value in members.items()
    )
    return WireRequest(
        _path(call),
        (b'{"contents":[', *(chunk.data for chunk in chunks if chunk.data), b"]}]" + tail + b"}"),
        (
            ("content-type", "application/json"),
            ("accept", "text/event-stream" if call.stream else "application/json"),
        ),
        call.stream,
    )


def _path(call: ModelCall) -> str:
    # A name with a kind of its own in front, such as tunedModels/x, says where it stands.
    model = quote(call.model, safe="/-._~:@")
    named = model if model.startswith(("models/", "tunedModels/", "publishers/", "endpoints/")) else f"models/{model}"
    return f"/{named}:streamGenerateContent?alt=sse" if call.stream else f"/{named}:generateContent"


def _config(call: ModelCall) -> dict[str, Plain]:
    settings = call.settings
    config: dict[str, Plain] = {
        "maxOutputTokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "seed": settings.seed,
        "stopSequences": list(settings.stop) or None,
        "thinkingConfig": _thinking(settings.reasoning_effort),
    }
    if call.schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = adapted(call.schema[1])
    return {key: value for key, value in config.items() if value is not None}


def _thinking(effort: str | None) -> Plain:
    """Spell an effort: a level as it is, or a budget of tokens where it is a number; models know one or the other."""
    if effort is None:
        return None
    budget = _BUDGETS.get(effort, int(effort) if effort.isascii() and effort.isdecimal() else None)
    if budget is None:
        return {"includeThoughts": True, "thinkingLevel": effort.upper()}
    return {"includeThoughts": True, "thinkingBudget": budget} if budget else {"thinkingBudget": 0}


def _tools(call: ModelCall, *, served: bool) -> dict[str, Plain]:
    names = [tool.name for tool in call.tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RequestError(f"the tool {twice!r} is declared twice; give each tool a name of its own")
    tools: list[Plain] = []
    if call.tools:
        declared: list[Plain] = [
            {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "parametersJsonSchema": adapted(tool.parameters),
            }
            for tool in call.tools
        ]
        tools.append({"functionDeclarations": declared})
    hosted = (spelling.tool for spelling in spelled(NAME, call.server_tools))
    tools.extend(thaw_object(tool) for tool in hosted if tool is not None)
    members: dict[str, Plain] = {"tools": tools} if tools else {}
    config: dict[str, Plain] = {}
    calling = _calling(call.tool_choice, names)
    if calling is not None:
        config["functionCallingConfig"] = calling
    # Function tools and provider-run ones go together only where the answer shows the latter as parts, and a history
    # that holds such parts is read only then.
    if served or (call.tools and call.server_tools):
        config["includeServerSideToolInvocations"] = True
    if config:
        members["toolConfig"] = config
    return members


def _calling(choice: str | None, names: list[str]) -> Plain:
    if not names:
        if choice not in (None, "auto", "none"):
            raise RequestError(
                f"tool_choice is {choice!r} but the request declares no function tools; declare some or leave it out"
            )
        # The provider refuses a function calling config without functions, provider-run tools or not.
        return None
    if choice is None:
        return None
    if choice in _MODES:
        return {"mode": _MODES[choice]}
    if choice not in names:
        raise RequestError(f"tool_choice names {choice!r}, which is not declared; there are: {', '.join(names)}")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _merge(members: dict[str, Plain], settings: Settings) -> None:
    """Put the members of extra_body into the request; objects that it has already are merged key by key."""
    for key, frozen in settings.extra_body.items():
        if key == "contents":
            raise RequestError("extra_body holds 'contents', which is made from the request itself; take it out")
        value, ours = thaw(frozen), members.get(key)
        members[key] = {**ours, **value} if isinstance(ours, dict) and isinstance(value, dict) else value
