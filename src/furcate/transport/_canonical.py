"""Requests as canonical MessagePack: equal requests give equal bytes, and so equal digests.

Objects have their keys sorted; opaque state is written as ``bin``, byte for byte. Neither digest covers request ids,
credentials, observers or groups, so a repeated attempt has the same ones.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias, assert_never

import msgspec

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Part,
    ProviderPayload,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._contract import Contract
from furcate.primitives._errors import RequestError
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History, MemoKey
from furcate.primitives._json import thaw
from furcate.primitives._message import Message
from furcate.primitives._request import Request
from furcate.primitives._resources import Prompt
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ModelCall

Packed: TypeAlias = "msgspec.msgpack.Ext | bytes | str | int | float | bool | None | list[Packed] | dict[str, Packed]"

_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_BIG = 1
_PACKED: MemoKey[bytes] = MemoKey("canonical MessagePack")


def native_sha256(request: Request, parent: Exchange | None) -> bytes:
    """Digest a request as the application gave it, with the conversation that it continues (32 bytes).

    Raises:
        RequestError: a text in it is no Unicode.
    """
    prompt = request.prompt
    described: dict[str, Packed] = {
        "prompt": _prompt(prompt) if isinstance(prompt, Prompt) else prompt,
        "vars": _plain(thaw(request.vars)) if request.vars else {},
        "messages": [_message(message) for message in request.messages],
        "profile": request.profile,
        "contract": _contract(request.contract),
        "session_id": request.session_id,
        "inputs": {name: str(path) for name, path in request.inputs},
        "settings": None if request.settings is None else _settings(request.settings),
        "tools": [_tool(tool) for tool in request.tools],
        "tool_choice": request.tool_choice,
        "exchange": None if parent is None else parent.history.digest,
    }
    try:
        return hashlib.sha256(_ENCODER.encode(described)).digest()
    except UnicodeEncodeError as error:
        raise RequestError(f"a text of the request holds half a character: {error.reason}; give whole ones") from error


def provider_sha256(call: ModelCall) -> bytes:
    """Digest a provider-neutral request before anything foreign is removed from it (32 bytes)."""
    digest = hashlib.sha256()
    for chunk in provider_request(call):
        digest.update(chunk)
    return digest.digest()


def provider_request(call: ModelCall) -> list[bytes]:
    """Encode a provider-neutral request, in pieces that relatives of one history share.

    It is one MessagePack map: the messages first, then everything else by name.
    """
    rest: dict[str, Packed] = {
        "model": call.model,
        "schema": None if call.schema is None else [call.schema[0], _plain(thaw(call.schema[1]))],
        "server_tools": list(call.server_tools),
        "settings": _settings(call.settings),
        "tool_choice": call.tool_choice,
        "tools": [_tool(tool) for tool in call.tools],
    }
    pieces = [b"\x87", _ENCODER.encode("messages"), _array_header(len(call.history))]
    pieces.extend([node.memo(_PACKED, _pack) for node in call.history.nodes()])
    pieces.append(_ENCODER.encode(rest)[1:])  # its members without its head, which is that of the whole
    return pieces


def _array_header(length: int) -> bytes:
    # MessagePack's fixarray, array 16 and array 32.
    if length < 16:
        return bytes([0x90 | length])
    if length < 65536:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")


def _pack(node: History) -> bytes:
    return b"".join(_ENCODER.encode(_message(message)) for message in node.added)


def packed_size(message: Message) -> int:
    """Count the bytes of a message's MessagePack form."""
    return len(_ENCODER.encode(_message(message)))


def _message(message: Message) -> Packed:
    described: dict[str, Packed] = {"role": message.role, "parts": [_part(part) for part in message.parts]}
    if message.cache is not None:
        described["cache"] = message.cache.ttl_s
    return described


def _part(part: Part) -> Packed:
    match part:
        case Text():
            return {
                "type": "text",
                "text": part.text,
                "attributions": [_attribution(one) for one in part.attributions],
                "complete": part.attribution_complete,
                "payload": _payload(part.payload),
            }
        case Refusal():
            return {"type": "refusal", "text": part.text}
        case Reasoning():
            state = part.state
            return {
                "type": "reasoning",
                "text": part.text,
                "state": None
                if state is None
                else [state.origin.provider, state.origin.dialect, state.origin.model, state.format, state.data],
            }
        case ToolCall():
            return {
                "type": "tool_call",
                "id": part.id,
                "name": part.name,
                "arguments": part.arguments,
                "kind": part.kind,
                "payload": _payload(part.payload),
            }
        case ToolResult():
            return {
                "type": "tool_result",
                "call_id": part.call_id,
                "content": part.content,
                "is_error": part.is_error,
            }
        case HostedActivity():
            return {
                "type": "hosted_activity",
                "id": part.id,
                "name": part.name,
                "state": part.state,
                "input": _plain(thaw(part.input)),
                "summary": part.summary,
                "payload": _payload(part.payload),
                "position": part.position,
                "scope": part.scope,
            }
        case Media():
            return {
                "type": "media",
                "media_type": part.media_type,
                "data": part.data,
                "url": part.url,
                "name": part.name,
            }
        case _:
            assert_never(part)


def _attribution(one: Attribution) -> Packed:
    return {
        "url": one.source.url,
        "title": one.source.title,
        "excerpt": one.excerpt,
        "range": None if one.range is None else list(one.range),
        "replay": _payload(one.replay),
    }


def _payload(payload: ProviderPayload | None) -> Packed:
    return None if payload is None else [payload.provider, payload.format, payload.version, payload.value]


def _settings(settings: Settings) -> Packed:
    return {
        "max_output_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "stop": list(settings.stop),
        "reasoning_effort": settings.reasoning_effort,
        "extra_body": _plain(thaw(settings.extra_body)) if settings.extra_body else {},
    }


def _tool(tool: Tool) -> Packed:
    return [tool.name, tool.description, _plain(thaw(tool.parameters))]


def _prompt(prompt: Prompt) -> Packed:
    return {
        "name": prompt.name,
        "messages": [
            [one.role, one.template, None if one.cache is None else [one.cache.ttl_s]] for one in prompt.messages
        ],
        "profile": prompt.profile,
        "contract": _contract(prompt.contract),
        "session": prompt.session,
        "inputs": {name: None if path is None else str(path) for name, path in prompt.inputs},
        "tools": [_tool(tool) for tool in prompt.tools],
        "tool_choice": prompt.tool_choice,
    }


def _contract(contract: Contract | None) -> Packed:
    return None if contract is None else [_plain(thaw(contract.schema)), contract.repairs, contract.name]


def _plain(value: object) -> Packed:
    """Take plain data as it is; whole numbers beyond 64 bits become an extension of their digits."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_BIG, str(value).encode())
    return value  # type: ignore[return-value]  # what thaw gives is plain data
