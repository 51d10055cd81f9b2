"""The shapes of ``openai-chat`` answers that are read, and nothing more of them.

Only the frame is typed. What stands in a delta is kept raw and looked at member by member, so that an odd value in
a member that nobody needs never costs an answer, and a member that nobody knows can be told of.
"""

from __future__ import annotations

import base64
import binascii
import json

import msgspec
from msgspec import Raw, Struct

from furcate.dialects._failures import UNREADABLE
from furcate.primitives._content import Media

Members = dict[str, Raw]

# A raw member takes null like anything else; one that is missing reads as null.
NULL = Raw(b"null")


class Choice(Struct):
    """One of the answers; ``message`` stands in whole answers, and beside ``delta`` on servers that send both."""

    index: int | None = None
    delta: Members | None = None
    message: Members | None = None
    finish_reason: str | None = None
    error: Raw = NULL


class Groq(Struct):
    """Groq's own member, where older servers of it put the usage."""

    usage: Raw = NULL


class Chunk(Struct):
    """One chunk of a stream, or a whole answer."""

    id: str | int | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: Raw = NULL
    error: Raw = NULL
    citations: Raw = NULL
    search_results: Raw = NULL
    x_groq: Groq | None = None


class Details(Struct):
    """Details of the input tokens."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(Struct):
    """Details of the output tokens."""

    reasoning_tokens: int | None = None


class WireUsage(Struct):
    """Token counts as this dialect spells them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class UrlCitation(Struct):
    """A citation of a page; `content` is the page's words, not the answer's."""

    url: str
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    content: str | None = None


class Annotation(Struct):
    """An annotation of the answer's text; some servers leave the inner object out and write its members here."""

    type: str | None = None
    url_citation: UrlCitation | None = None
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class SearchResult(Struct):
    """A page that a searching server looked at."""

    url: str
    title: str | None = None
    snippet: str | None = None


class Function(Struct):
    """A called function, or a piece of the call."""

    name: str | None = None
    arguments: Raw = NULL


class Custom(Struct):
    """A called custom tool, or a piece of the call."""

    name: str | None = None
    input: str | None = None


class Call(Struct):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None


class ImageUrl(Struct):
    """Where an image is."""

    url: str


class ContentPart(Struct):
    """An item of content that came as a list."""

    type: str
    text: str | None = None
    refusal: str | None = None
    thinking: str | list[ContentPart] | None = None
    image_url: ImageUrl | None = None


class ExecutedTool(Struct):
    """A tool that Groq ran itself; it comes once when it starts and once more with what it put out."""

    index: int | None = None
    type: str | None = None
    name: str | None = None
    arguments: Raw = NULL
    output: Raw = NULL
    search_results: Raw = NULL
    code_results: Raw = NULL
    browser_results: Raw = NULL


# Members of a delta or a message that are read.
DELTA_TAKEN = frozenset(
    {
        "role",
        "content",
        "refusal",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "tool_calls",
        "function_call",
        "annotations",
        "images",
        "audio",
        "executed_tools",
    }
)
# Members of a chunk that are read, say who answered, or pad the chunk, and change nothing for anybody.
CHUNK_TAKEN = frozenset(
    {
        *Chunk.__struct_fields__,
        "object",
        "created",
        "provider",
        "service_tier",
        "system_fingerprint",
        "obfuscation",
        "p",
    }
)

_CHUNKS = msgspec.json.Decoder(Chunk)
_STRINGS = msgspec.json.Decoder(str)


def read_chunk(data: bytes) -> Chunk:
    """Read a chunk or a whole answer.

    Raises:
        msgspec.DecodeError: the bytes are no text, no JSON, or JSON of another shape.
        RecursionError: the JSON is nested without reason.
    """
    if not data.isascii():
        try:
            data.decode()  # msgspec does not look into what is kept raw, and calls are written from that
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError("no text") from error
    try:
        return _CHUNKS.decode(data)
    except msgspec.ValidationError:
        raise
    except UNREADABLE:
        # Proxies that count in UTF-16 can cut a character in two; JSON can spell each half, and msgspec takes neither.
        if b"\\u" not in data:
            raise
        return _CHUNKS.decode(_mended(data))


def _mended(data: bytes) -> bytes:
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError("no JSON") from error
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def given(raw: Raw) -> bool:
    """Tell whether a raw member is there and is not null."""
    return raw != NULL


def read_text(raw: Raw) -> str | None:
    """Read a JSON string; anything else is None."""
    try:
        return _STRINGS.decode(raw)
    except UNREADABLE:
        return None


def read_media(url: str) -> Media | None:
    """Read an image that is given by address or as a data URL; None where it is neither."""
    if not url.startswith("data:"):
        return Media("image/*", url=url) if url else None
    head, _, data = url[5:].partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return Media(head.removesuffix(";base64") or "image/*", base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
