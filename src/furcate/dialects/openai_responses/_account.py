"""Usage and endings of ``openai-responses``, in our words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, read_plain
from furcate.dialects.openai_responses._wire import Members, WireUsage, clean_kind, given
from furcate.primitives._usage import Usage
from furcate.primitives._wire import StopReason

_USAGE = msgspec.json.Decoder(WireUsage)

_INCOMPLETE: Mapping[str, StopReason] = {
    "max_output_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "refusal",
    "context_length_exceeded": "context_window",
    "context_window": "context_window",
}


def read_usage(raw: Raw) -> tuple[Usage | None, bool]:
    """Read a usage value; give it, or None where nothing is told, and whether it could be read.

    The input count includes what was read from a cache or written to one, so that is taken off, never below zero.
    """
    if not given(raw):
        return None, True
    try:
        wire = _USAGE.decode(raw)
    except UNREADABLE:
        return None, False
    beside, behind = wire.input_tokens_details, wire.output_tokens_details
    read = _count(beside.cached_tokens if beside is not None else None)
    written = _count(beside.cache_write_tokens if beside is not None else None)
    total = _count(wire.input_tokens)
    usage = Usage(
        input_tokens=max(0, total - (read or 0) - (written or 0)) if total is not None else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=_count(wire.output_tokens),
        reasoning_tokens=_count(behind.reasoning_tokens if behind is not None else None),
    )
    return (usage if usage.known else None), True


def _count(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def hosted_counts(response: Members) -> Iterator[str]:
    """Give the counters of provider-run work that are above zero, as notices."""
    tools = read_plain(response["tool_usage"]) if "tool_usage" in response else None
    for name, counts in tools.items() if isinstance(tools, dict) else ():
        number = counts.get("num_requests") if isinstance(counts, dict) else None
        if isinstance(number, int) and number > 0:
            yield f"tool_usage.{clean_kind(name)}.num_requests:{number}"
    usage = read_plain(response["usage"]) if "usage" in response else None
    number = usage.get("num_server_side_tools_used") if isinstance(usage, dict) else None
    if isinstance(number, int) and number > 0:
        yield f"usage.num_server_side_tools_used:{number}"


def read_ending(incomplete: str | None, *, calls: bool, refused: bool) -> tuple[StopReason, str | None]:
    """Give the stop reason, and the provider's own word where it is not one we know.

    Args:
        incomplete: why the response is incomplete, empty where it does not say; None where it is complete.
        calls: whether calls wait for the application.
        refused: whether the model refused in so many words.
    """
    if incomplete is not None:
        # Whatever cut the answer short, it is not whole, and no reason of ours says more than this one.
        known = _INCOMPLETE.get(incomplete)
        return known or "max_output_tokens", None if known else clean_kind(incomplete or "incomplete")
    if calls:
        return "tool_use", None
    return ("refusal" if refused else "end_turn"), None
