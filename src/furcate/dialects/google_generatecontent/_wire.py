"""How ``google-generatecontent`` answers are read: member by member.

Every object is taken as its raw members, so that an odd value in a member that nobody needs never costs an answer,
and a member that nobody knows can be told of. What is kept of a part is written anew without spaces, since whole
answers come indented and streams do not, and the kept bytes have to be the same.
"""

from __future__ import annotations

import json
import re

import msgspec
from msgspec import Raw, Struct

from furcate.dialects._failures import UNREADABLE
from furcate.primitives._json import Plain

Members = dict[str, Raw]

NULL = Raw(b"null")

_MEMBERS = msgspec.json.Decoder(Members)
_RAWS = msgspec.json.Decoder(list[Raw] | None)
_STRINGS = msgspec.json.Decoder(str)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class PartialArg(Struct, rename="camel"):
    """A piece of a call's arguments: where it belongs, and its value."""

    json_path: str
    string_value: str | None = None
    number_value: float | int | None = None
    bool_value: bool | None = None
    null_value: Raw = NULL
    will_continue: bool = False

    @property
    def empty(self) -> bool:
        """Whether it holds no value."""
        return self.string_value is None and self.number_value is None and self.bool_value is None


class CodeResult(Struct):
    """What running code came to."""

    outcome: str = ""
    id: str | None = None


class Code(Struct):
    """Code that the provider runs."""

    code: str = ""
    language: str | None = None
    id: str | None = None


class ServerCall(Struct, rename="camel"):
    """A call of a tool that the provider runs, or its answer."""

    tool_type: str = ""
    id: str | None = None
    args: Raw = NULL
    response: Raw = NULL


class Blob(Struct, rename="camel"):
    """A medium by value."""

    data: str
    mime_type: str = "application/octet-stream"


class File(Struct, rename="camel"):
    """A medium by address."""

    file_uri: str
    mime_type: str = "application/octet-stream"


class Counts(Struct, rename="camel"):
    """Token counts; a count of zero is left out."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None


class Segment(Struct, rename="camel", frozen=True):
    """A stretch of the answer: bytes of its UTF-8, the end excluded; a zero is left out."""

    part_index: int = 0
    start_index: int = 0
    end_index: int = 0
    text: str | None = None


class Support(Struct, rename="camel"):
    """Which sources stand behind a stretch of the answer."""

    segment: Segment | None = None
    grounding_chunk_indices: list[int] | None = None


class Place(Struct, rename="camel"):
    """A source of any kind; which members it has depends on the kind."""

    uri: str | None = None
    source_uri: str | None = None
    title: str | None = None
    text: str | None = None
    document_name: str | None = None
    file_search_store: str | None = None


class Recited(Struct, rename="camel"):
    """A source that the answer repeats word for word."""

    uri: str | None = None
    title: str | None = None
    start_index: int = 0
    end_index: int = 0


class Retrieved(Struct, rename="camel"):
    """A page that was fetched, and what came of it."""

    retrieved_url: str = ""
    url_retrieval_status: str = ""


def mended(data: bytes) -> bytes:
    """Give JSON in which no text holds half a character; such halves can be spelled, and no UTF-8 can hold them."""
    if _HALF.search(data) is None:
        return data
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except (ValueError, RecursionError):
        return data
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def read_members(raw: Raw | bytes) -> Members:
    """Read an object.

    Raises:
        msgspec.DecodeError: the bytes are no JSON object.
        RecursionError: the JSON is nested without reason.
    """
    return _MEMBERS.decode(raw)


def read_list(raw: Raw) -> list[Raw]:
    """Read a list; null reads as an empty one. Raises like `read_members`."""
    return _RAWS.decode(raw) or []


def read_text(raw: Raw | None) -> str | None:
    """Read a JSON string; anything else is None."""
    if raw is None:
        return None
    try:
        return _STRINGS.decode(raw)
    except UNREADABLE:
        return None


def given(raw: Raw | None) -> bool:
    """Tell whether a member is there and is not null."""
    return raw is not None and raw != NULL


def rewritten(raw: Raw) -> bytes:
    """Give a value's JSON without spaces and with every character spelled in one way. Raises like `read_members`."""
    value: Plain = msgspec.json.decode(raw)
    return msgspec.json.encode(value)


def clean_kind(kind: str) -> str:
    """Make a kind that a server named fit to be shown: short, and nothing but a word."""
    return re.sub(r"[^\w.\-]", "_", kind or "unnamed")[:60]
