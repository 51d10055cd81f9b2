"""Messages as plain data, in two projections.

The portable one is what survives export, search, display and a switch of provider. The exact one adds the opaque
values, which only their provider may read: it is for digests, never for display.
"""

from __future__ import annotations

import base64
from typing import assert_never

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
    ToolResult,
)
from furcate.primitives._json import Plain, thaw
from furcate.primitives._message import Message


def portable(message: Message) -> dict[str, Plain]:
    """Describe a message without opaque values."""
    return _message(message, [_portable_part(part) for part in message.parts])


def exact(message: Message) -> dict[str, Plain]:
    """Describe a message with all that it holds."""
    return _message(message, [{**_portable_part(part), **_opaque(part)} for part in message.parts])


def _message(message: Message, parts: list[dict[str, Plain]]) -> dict[str, Plain]:
    described: dict[str, Plain] = {"role": message.role, "parts": list[Plain](parts)}
    if message.cache is not None:
        described["cache"] = {"ttl_s": message.cache.ttl_s}
    return described


def _portable_part(part: Part) -> dict[str, Plain]:
    match part:
        case Text():
            shown: dict[str, Plain] = {"type": "text", "text": part.text}
            if part.attributions:
                shown["attributions"] = [_attribution(a) for a in part.attributions]
            if not part.attribution_complete:
                shown["attribution_complete"] = False
            return shown
        case Refusal():
            return {"type": "refusal", "text": part.text}
        case Reasoning():
            return {"type": "reasoning", "text": part.text}
        case ToolCall():
            return {
                "type": "tool_call",
                "id": part.id,
                "name": part.name,
                "arguments": part.arguments,
                "kind": part.kind,
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
                "input": thaw(part.input),
                "summary": part.summary,
            }
        case Media():
            return {
                "type": "media",
                "media_type": part.media_type,
                "url": part.url,
                "name": part.name,
                "size_bytes": len(part.data) if part.data is not None else None,
            }
        case _:
            assert_never(part)


def _attribution(attribution: Attribution) -> dict[str, Plain]:
    return {
        "url": attribution.source.url,
        "title": attribution.source.title,
        "excerpt": attribution.excerpt,
        "range": list(attribution.range) if attribution.range is not None else None,
    }


def _opaque(part: Part) -> dict[str, Plain]:
    match part:
        case Text():
            replays: list[Plain] = [_payload(a.replay) for a in part.attributions]
            held: dict[str, Plain] = {"replay": replays} if any(replays) else {}
            return {**held, "payload": _payload(part.payload)} if part.payload is not None else held
        case ToolCall():
            return {"payload": _payload(part.payload)} if part.payload is not None else {}
        case Reasoning():
            return {"state": _state(part.state)}
        case HostedActivity():
            return {"payload": _payload(part.payload), "position": part.position, "scope": part.scope}
        case Media():
            return {"data": _bytes(part.data)} if part.data is not None else {}
        case Refusal() | ToolResult():
            return {}
        case _:
            assert_never(part)


def _state(state: ReasoningState | None) -> Plain:
    if state is None:
        return None
    origin = state.origin
    return [origin.provider, origin.dialect, origin.model, state.format, _bytes(state.data)]


def _payload(payload: ProviderPayload | None) -> Plain:
    if payload is None:
        return None
    return [payload.provider, payload.format, payload.version, _bytes(payload.value)]


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()
