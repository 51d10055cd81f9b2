"""The shapes of ``anthropic-messages`` that are read, and the names under which its native values are kept.

Only the frame is typed. A content block stays raw until its kind is known, so that a block of an unknown kind is
never a matter of parsing.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from furcate.primitives._content import Origin, ProviderPayload

DIALECT = "anthropic-messages"
VERSION = "1"

# Formats of payloads. A call and its result are two blocks that only go back together; a block of the third format
# stands for itself; pieces are what is left of an unknown block that was streamed in an unknown way.
CALL_FORMAT = f"{DIALECT}.call"
RESULT_FORMAT = f"{DIALECT}.result"
BLOCK_FORMAT = f"{DIALECT}.block"
UNKNOWN_FORMAT = f"{DIALECT}.unknown"
PIECES_FORMAT = f"{DIALECT}.pieces"
CONTAINER_FORMAT = f"{DIALECT}.container"
CITATION_FORMAT = f"{DIALECT}.citation"
TOOL_USE_FORMAT = f"{DIALECT}.tool_use"

# Formats of reasoning state: a signature beside its text, and thought that was never shown.
THINKING_FORMAT = f"{DIALECT}.thinking"
REDACTED_FORMAT = f"{DIALECT}.redacted_thinking"

Members = dict[str, Raw]

# A raw member takes null like anything else; one that is missing reads as null.
NULL = Raw(b"null")


class Event(Struct):
    """One event of a stream."""

    type: str | None = None
    index: int | None = None
    message: Raw = NULL
    content_block: Raw = NULL
    delta: Raw = NULL
    usage: Raw = NULL
    error: Raw = NULL


class Kind(Struct):
    """What every block and every delta says of itself."""

    type: str


class Head(Struct):
    """The message as a stream begins it."""

    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    usage: Raw = NULL
    container: Raw = NULL


class Whole(Struct):
    """An answer that came in one piece."""

    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Raw = NULL
    container: Raw = NULL
    usage: Raw = NULL


class Ending(Struct):
    """What a stream says of the whole message at its end."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Raw = NULL
    container: Raw = NULL


class StopDetails(Struct):
    """Why a model declined."""

    category: str | None = None
    explanation: str | None = None


class Container(Struct):
    """Where the provider runs code for this conversation."""

    id: str
    expires_at: str | None = None


class TextBlock(Struct):
    """Visible text; the citations of a whole block stand in it."""

    text: str = ""
    citations: list[Raw] | None = None


class ThinkingBlock(Struct):
    """Shown thought and its signature, or thought that is not shown."""

    thinking: str = ""
    signature: str | None = None
    data: str = ""


class CallBlock(Struct):
    """A call of a tool, whoever runs it."""

    id: str = ""
    name: str = ""
    server_name: str | None = None
    input: Raw = NULL


class ResultBlock(Struct):
    """What came of a call that the provider ran; `content` is a list, or an object that may be an error."""

    tool_use_id: str = ""
    is_error: bool | None = None
    content: Raw = NULL


class Delta(Struct):
    """A piece of a block, of whichever kind."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Raw = NULL
    content: str | None = None
    encrypted_content: str | None = None


class WireCitation(Struct):
    """A citation of any kind: of a page, of a search result, or of a place in a document."""

    type: str = ""
    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    document_index: int | None = None
    cited_text: str | None = None


class OutputDetails(Struct):
    """Details of the output tokens."""

    thinking_tokens: int | None = None


class WireUsage(Struct):
    """Token counts as this dialect spells them; `server_tool_use` counts what the provider ran."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None
    server_tool_use: dict[str, int | None] | None = None


EVENTS = msgspec.json.Decoder(Event)
KINDS = msgspec.json.Decoder(Kind)
HEADS = msgspec.json.Decoder(Head)
ENDINGS = msgspec.json.Decoder(Ending)
WHOLES = msgspec.json.Decoder(Whole)
MEMBERS = msgspec.json.Decoder(Members)
DELTAS = msgspec.json.Decoder(Delta)


def given(raw: Raw) -> bool:
    """Tell whether a raw member is there and is not null."""
    return raw != NULL


def compact(members: Members | Raw) -> bytes:
    """Write a native value without the spaces between its tokens, everything else as it came.

    Providers space a stream and a whole answer differently; what is kept of both has to be the same bytes.
    """
    written = bytes(members) if isinstance(members, Raw) else msgspec.json.encode(members)
    return msgspec.json.format(written, indent=-1)


def payload(origin: Origin, form: str, value: bytes, *, version: str = VERSION) -> ProviderPayload:
    """Keep a native value for its provider; `version` is the recorded one where earlier work goes on."""
    return ProviderPayload(origin.provider, form, version, value)
