"""The shapes of ``openai-responses`` that are read, and nothing more of them.

Only the frame of an event is typed. Items, parts and annotations are maps of raw values that are looked at member by
member, so that an odd value in a member that nobody needs never costs an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Raw, Struct

from furcate.dialects._failures import UNREADABLE, read_plain

Members = dict[str, Raw]

# A raw member takes null like anything else; one that is missing reads as null.
NULL = Raw(b"null")
_NOTHING: frozenset[str] = frozenset()


class Event(Struct):
    """One event of a stream; which members it has depends on its type."""

    type: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    annotation_index: int | None = None
    item_id: str | None = None
    delta: Raw = NULL
    text: Raw = NULL
    refusal: Raw = NULL
    arguments: Raw = NULL
    input: Raw = NULL
    item: Raw = NULL
    part: Raw = NULL
    annotation: Raw = NULL
    response: Raw = NULL


class InputDetails(Struct):
    """Details of the input tokens."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(Struct):
    """Details of the output tokens."""

    reasoning_tokens: int | None = None


class WireUsage(Struct):
    """Token counts as this dialect spells them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


_EVENTS = msgspec.json.Decoder(Event)
_STRINGS = msgspec.json.Decoder(str)
_INTS = msgspec.json.Decoder(int)
_MEMBERS = msgspec.json.Decoder(Members)
_RAWS = msgspec.json.Decoder(list[Raw])
_HALF = re.compile(rb"\\u[dD][89abcdefABCDEF]")


def read_event(data: bytes) -> Event:
    """Read an event.

    Raises:
        msgspec.DecodeError: the bytes are no JSON, or JSON of another shape.
        RecursionError: the JSON is nested without reason.
    """
    return _EVENTS.decode(data)


def readable(data: bytes) -> bytes:
    """Give JSON whose characters are whole.

    Whoever counts in UTF-16 can cut a character in two; JSON can spell each half, and msgspec takes neither. Values
    that are kept raw are not looked into by it either, so that bytes which are no text would come to nothing there.

    Raises:
        msgspec.DecodeError: the bytes are no text, or no JSON.
    """
    try:
        if not data.isascii():
            data.decode()
        if _HALF.search(data) is None:
            return data
        try:
            msgspec.json.decode(data)
        except UNREADABLE:
            text = json.dumps(json.loads(data), ensure_ascii=False)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError("no JSON") from error
    return data


def read_members(raw: Raw | bytes) -> Members:
    """Read a JSON object member by member.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _MEMBERS.decode(raw)


def read_list(raw: Raw | None) -> list[Raw]:
    """Read a JSON array item by item; null and a missing member are empty.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return _RAWS.decode(raw) if raw is not None and given(raw) else []


def given(raw: Raw) -> bool:
    """Tell whether a raw member is there and is not null."""
    return raw != NULL


def told(raw: Raw | None) -> str:
    """Read text that bears content; null and a missing member are empty.

    Raises:
        msgspec.DecodeError: it is no text.
    """
    return _STRINGS.decode(raw) if raw is not None and given(raw) else ""


def told_arguments(raw: Raw) -> str:
    """Read the arguments of a call, which some servers write as an object; null is empty.

    Raises:
        msgspec.DecodeError: they are broken.
    """
    text = read_text(raw)
    if text is not None or not given(raw):
        return text or ""
    return msgspec.json.format(bytes(raw), indent=-1).decode()


def read_text(raw: Raw | None) -> str | None:
    """Read a JSON string; anything else is None."""
    try:
        return _STRINGS.decode(raw) if raw is not None else None
    except UNREADABLE:
        return None


def read_whole(raw: Raw | None) -> int | None:
    """Read a whole number; anything else is None."""
    try:
        return _INTS.decode(raw) if raw is not None else None
    except UNREADABLE:
        return None


def text_of(members: Members, key: str) -> str:
    """Give a member that is a text; empty where it is missing or something else."""
    return read_text(members.get(key)) or ""


def texts_of(members: Members, key: str) -> list[str]:
    """Give the texts of a member that is a list; what is no text is left out."""
    found = read_plain(members[key]) if key in members else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def compact(members: Members, *, without: AbstractSet[str] = _NOTHING, nulls: bool = False) -> bytes:
    """Write members as JSON without spaces, sorted by their names and otherwise as they came.

    A streamed answer and a whole one write one item with other spaces and in another order.
    """
    kept = (
        msgspec.json.encode(key) + b":" + msgspec.json.format(bytes(raw), indent=-1)
        for key, raw in sorted(members.items())
        if key not in without and (nulls or given(raw))
    )
    return b"{" + b",".join(kept) + b"}"


def clean_kind(kind: str | None) -> str:
    """Make a kind that a server named fit for a message or a notice: short, and nothing but a word."""
    return re.sub(r"[^\w.\-:]", "_", kind or "unnamed")[:60]
