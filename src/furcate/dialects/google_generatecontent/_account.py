"""Usage and endings of ``google-generatecontent``, in our words."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, clean
from furcate.dialects.google_generatecontent._wire import Counts, clean_kind
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, StopReason

_COUNTS = msgspec.json.Decoder(Counts | None)

_ENDINGS: Mapping[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_output_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "MODEL_ARMOR": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}

# Endings that are no answer, and whether asking again may help: a call or a text that came out garbled may not the
# next time, a history without its signatures will.
_BREAKDOWNS: Mapping[str, tuple[str, bool]] = {
    "MALFORMED_FUNCTION_CALL": ("the model garbled a function call", True),
    "MALFORMED_RESPONSE": ("the model garbled its answer", True),
    "UNEXPECTED_TOOL_CALL": ("the model called a tool that the request does not declare", False),
    "TOO_MANY_TOOL_CALLS": ("the model called tools too often in a row", False),
    "MISSING_THOUGHT_SIGNATURE": ("the request lacks a thought signature that the model gave", False),
}


def read_usage(raw: Raw) -> tuple[Usage | None, bool]:
    """Read token counts; give them, or None where nothing is told, and whether they could be read.

    The prompt includes what was read from a cache, so that is taken off. What provider-run tools fed to the model
    is counted beside the prompt, and thoughts beside the answer, as the total shows; both are added here. A count of
    zero is left out by the provider, so a missing output is what the total leaves for it.
    """
    try:
        counts = _COUNTS.decode(raw)
    except UNREADABLE:
        return None, False
    if counts is None:
        return None, True
    prompt, fed = _count(counts.prompt_token_count), _count(counts.tool_use_prompt_token_count)
    cached = _count(counts.cached_content_token_count)
    said, thought = _count(counts.candidates_token_count), _count(counts.thoughts_token_count)
    total = _count(counts.total_token_count)
    output = None if said is None else said + (thought or 0)
    if output is None and total is not None and prompt is not None:
        output = max(thought or 0, total - prompt - (fed or 0))
    usage = Usage(
        input_tokens=None if prompt is None else max(0, prompt - (cached or 0)) + (fed or 0),
        cache_read_tokens=cached,
        output_tokens=output if output is not None else thought,
        reasoning_tokens=thought,
    )
    return (usage if usage.known else None), True


def _count(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def read_ending(finish: str, *, called: bool) -> tuple[StopReason, str | None]:
    """Give the stop reason that a finish reason means, and the word itself where it says more than ours.

    The provider says STOP after function calls as well; a word that is not known ends the answer like STOP.
    """
    reason = _ENDINGS.get(finish, "end_turn")
    detail = None if finish in ("STOP", "MAX_TOKENS") else (clean_kind(finish) if finish else "no finishReason")
    return ("tool_use" if called and reason == "end_turn" else reason), detail


def breakdown(finish: str) -> Failure | None:
    """Give the failure that a finish reason means, or None where the answer is one."""
    found = _BREAKDOWNS.get(finish)
    if found is None:
        return None
    said, retryable = found
    return Failure(kind="provider", reason=finish.lower(), message=f"{said} ({finish})", retryable=retryable)


def refused(reason: str, message: str | None) -> str:
    """Give the detail of a refusal: the provider's word for it, and what it says of that on one bounded line."""
    word = clean_kind(reason)
    return f"{word}: {clean(message, 200)}" if message and message.strip() else word
