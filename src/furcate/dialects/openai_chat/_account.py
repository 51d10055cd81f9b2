"""Usage and endings of ``openai-chat``, in our words."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, read_plain
from furcate.dialects.openai_chat._wire import WireUsage
from furcate.primitives._json import Plain
from furcate.primitives._usage import Usage
from furcate.primitives._wire import StopReason

_USAGE = msgspec.json.Decoder(WireUsage | None)

_ENDINGS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "tool_use": "tool_use",
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "model_length": "context_window",
    "model_context_window_exceeded": "context_window",
}

# Where servers count the searches and other work that they ran for an answer.
_HOSTED_COUNTERS = ("server_tool_use", "server_tool_use_details", "num_search_queries", "num_sources_used")

_HOSTED_KEYS = (b"server_tool_use", b"num_s")  # what their names begin with

# A finish_reason that says the server gave up. DeepSeek's stands for running out of machines.
BREAKDOWNS: Mapping[str, tuple[str, bool]] = {
    "error": ("provider_error", False),
    "insufficient_system_resource": ("overloaded", True),
}


def read_usage(raw: Raw) -> tuple[Usage | None, bool]:
    """Read a usage value; give it, or None where nothing is told, and whether it could be read.

    Input counts include what was read from a cache or written to one, so that is taken off, never below zero.
    Output counts include reasoning, except on servers whose total shows that they add it.
    """
    try:
        wire = _USAGE.decode(raw)
    except UNREADABLE:
        return None, False
    if wire is None:
        return None, True
    details = wire.prompt_tokens_details
    read = _count(details.cached_tokens if details is not None else None)
    read = read if read is not None else _count(wire.prompt_cache_hit_tokens)
    written = _count(details.cache_write_tokens if details is not None else None)
    prompt, output = _count(wire.prompt_tokens), _count(wire.completion_tokens)
    beside = wire.completion_tokens_details
    reasoning = _count(beside.reasoning_tokens if beside is not None else None)
    if prompt is not None and output is not None and reasoning and wire.total_tokens == prompt + output + reasoning:
        output += reasoning
    usage = Usage(
        input_tokens=max(0, prompt - (read or 0) - (written or 0)) if prompt is not None else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
    return (usage if usage.known else None), True


def hosted_counters(raw: Raw) -> list[str]:
    """Name the counts of provider-run work in a usage value that are not zero; they are a diagnostic, and no usage."""
    written = bytes(raw)
    if not any(key in written for key in _HOSTED_KEYS):
        return []  # as nearly always, and found out without reading all of it once more
    usage = read_plain(raw)
    if not isinstance(usage, dict):
        return []
    return [key for key in _HOSTED_COUNTERS if _counted(usage.get(key))]


def _counted(value: Plain) -> bool:
    return any(_counted(one) for one in value.values()) if isinstance(value, dict) else bool(value)


def _count(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def read_ending(finish: str | None, *, calls: bool, refused: bool) -> tuple[StopReason, str | None]:
    """Give the stop reason that a finish_reason means, and the word itself where it is not one we know.

    Servers say ``stop`` after tool calls, and name tool calls that never came; what came decides.
    """
    word = (finish or "").lower()
    reason = _ENDINGS.get(word, "end_turn")
    detail = None if word in _ENDINGS else (finish or "no finish_reason")[:60]
    if reason == "tool_use" and not calls:
        return "end_turn", finish
    if reason == "end_turn" and calls:
        return "tool_use", detail
    if reason == "end_turn" and refused:
        return "refusal", detail
    return reason, detail
