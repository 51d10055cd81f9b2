"""Usage, endings and citations of ``anthropic-messages``, in our words."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, clean
from furcate.dialects.anthropic_messages._wire import (
    CITATION_FORMAT,
    StopDetails,
    WireCitation,
    WireUsage,
    compact,
    given,
    payload,
)
from furcate.primitives._content import Attribution, Origin, Source
from furcate.primitives._usage import Usage
from furcate.primitives._wire import StopReason

_USAGE = msgspec.json.Decoder(WireUsage | None)
_DETAILS = msgspec.json.Decoder(StopDetails)
_CITATIONS = msgspec.json.Decoder(WireCitation)

CITATION_KINDS = frozenset(
    {
        "web_search_result_location",
        "search_result_location",
        "char_location",
        "page_location",
        "content_block_location",
    }
)

_ENDINGS: Mapping[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_output_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}

# The provider has set the answer aside and goes on when it gets back what it said so far.
PAUSES = frozenset({"pause_turn", "compaction"})

# Reasons for which a call may have been cut in the middle.
CUTTING = frozenset({"max_tokens", "model_context_window_exceeded", "stop_sequence", "refusal"})


class UsageBook:
    """Follow the usage of one answer: every report is a running total, laid over those before where it says something.

    Attributes:
        counters: how often the provider ran its tools, by the provider's names; told of, and never part of the usage.
    """

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def take(self, raw: Raw) -> tuple[Usage | None, bool]:
        """Take a report; give the usage so far, or None where nothing is known, and whether it could be read.

        Input counts of this dialect leave out what was read from a cache or written to one. Cache counts that are
        not mentioned are zero by its rules; other counts are then unknown.
        """
        try:
            wire = _USAGE.decode(raw)
        except UNREADABLE:
            return None, False
        if wire is None:
            return None, True
        details = wire.output_tokens_details
        told = {
            "input_tokens": wire.input_tokens,
            "cache_read_tokens": wire.cache_read_input_tokens,
            "cache_write_tokens": wire.cache_creation_input_tokens,
            "output_tokens": wire.output_tokens,
            "reasoning_tokens": details.thinking_tokens if details is not None else None,
        }
        self._counts.update({name: count for name, count in told.items() if count is not None and count >= 0})
        counters = wire.server_tool_use or {}
        self.counters.update({name: count for name, count in counters.items() if count is not None})
        if not self._counts:
            return None, True
        counts = self._counts
        usage = Usage(
            input_tokens=counts.get("input_tokens"),
            cache_read_tokens=counts.get("cache_read_tokens", 0),
            cache_write_tokens=counts.get("cache_write_tokens", 0),
            output_tokens=counts.get("output_tokens"),
            reasoning_tokens=counts.get("reasoning_tokens"),
        )
        return usage, True


def read_ending(reason: str | None, sequence: str | None, *, calls: bool) -> tuple[StopReason, str | None]:
    """Give the stop reason that a ``stop_reason`` means, and what more there is to say of it.

    Calls that came decide over the word: work of the provider alone never ends an answer as ``tool_use``.
    """
    word = reason or ""
    meant = _ENDINGS.get(word, "end_turn")
    detail = sequence if meant == "stop_sequence" else None
    if word not in _ENDINGS:
        detail = clean(reason, 60) if reason else "no stop_reason"
    if meant == "tool_use" and not calls:
        return "end_turn", reason
    if meant == "end_turn" and calls:
        return "tool_use", detail
    return meant, detail


def read_refusal(raw: Raw) -> str | None:
    """Read what a provider says of why its model declined, on one bounded line."""
    if not given(raw):
        return None
    try:
        details = _DETAILS.decode(raw)
    except UNREADABLE:
        return None
    told = ": ".join(part for part in (details.category, details.explanation) if part)
    return clean(told, 200) or None


def read_citation(raw: Raw, origin: Origin) -> tuple[Attribution, str]:
    """Read a citation of any kind, and give its kind beside it.

    It belongs to all of the text block that carries it, so it has no range; places in documents are places in the
    source. The native form is kept whole, for it holds what the provider wants back.

    Raises:
        msgspec.DecodeError: it has another shape.
    """
    wire = _CITATIONS.decode(raw)
    title = wire.title or wire.document_title
    if not title and wire.document_index is not None:
        title = f"document {wire.document_index + 1}"
    source = Source(wire.url or wire.source or "", title or "")
    kept = payload(origin, CITATION_FORMAT, compact(raw))
    return Attribution(source, wire.cited_text or None, replay=kept), wire.type
