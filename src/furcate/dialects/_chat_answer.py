"""One answer of ``openai-chat``, chunk by chunk; a whole answer is one chunk."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec
from msgspec import Raw

from furcate.dialects._chat_account import BREAKDOWNS, read_ending, read_usage
from furcate.dialects._chat_calls import CallBook
from furcate.dialects._chat_citations import CitationBook, clean_kind
from furcate.dialects._chat_reasoning import DETAILS_FORMAT, DetailBook
from furcate.dialects._chat_wire import (
    Call,
    Choice,
    Chunk,
    ContentPart,
    Function,
    Members,
    given,
    read_chunk,
    read_plain,
    read_text,
)
from furcate.dialects._failures import UNREADABLE, error_in, malformed, stream_failure
from furcate.primitives._content import Attribution, Media, Origin, ReasoningState
from furcate.primitives._json import Plain
from furcate.primitives._stream import (
    Citation,
    MediaArrived,
    Noticed,
    PartEnded,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    UsageReported,
)
from furcate.primitives._wire import Failure

_CALLS = msgspec.json.Decoder(list[Call])
_FUNCTION = msgspec.json.Decoder(Function)
_PARTS = msgspec.json.Decoder(list[ContentPart])
_RAWS = msgspec.json.Decoder(list[Raw])

_TAKEN = frozenset(
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
    }
)
# Beside what is read: members that say who answered, or pad the chunk, and change nothing for anybody.
_CHUNK_TAKEN = frozenset(
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


class ChatAnswer:
    """Turn the chunks of one answer into stream events.

    Attributes:
        done: whether the answer has ended, well or badly.
        chunks: how many chunks were taken.
    """

    def __init__(self, origin: Origin, *, whole: bool = False) -> None:
        self.done = False
        self._origin = origin
        self._whole = whole
        self._out: list[StreamEvent] = []
        self.chunks = 0
        self._parts = 0
        self._text: int | None = None
        self._thought: int | None = None
        self._refusal: int | None = None
        self._plain_reasoning = False
        self._calls = CallBook(self._allot)
        self._citations = CitationBook()
        self._details = DetailBook()
        self._sealed: bytes | None = None
        self._started = False
        self._finish: str | None = None
        self._last_usage = b""
        self._noticed: set[str] = set()

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take a chunk; `name` is the name of its server-sent event."""
        self._out = []
        if self.done:
            return self._out
        self.chunks += 1
        try:
            chunk = read_chunk(data)
        except UNREADABLE:
            self._unreadable(data, name)
        else:
            self._read(chunk, data, name)
        return self._out

    def take_chunk(self, chunk: Chunk, data: bytes) -> list[StreamEvent]:
        """Take a chunk that was read from `data` already."""
        self._out = []
        self.chunks += 1
        self._read(chunk, data, "")
        return self._out

    def end(self, *, marked: bool) -> list[StreamEvent]:
        """Take the end of the answer; `marked` where an end marker said that it is whole."""
        self._out = []
        if self.done:
            return self._out
        if self._finish is None and not (marked and self._parts and self._calls.finished):
            how = "its stream ended without a finish_reason" if self.chunks else "its stream ended without one event"
            self._fail(Failure(kind="provider", reason="cut_off", message=f"the answer broke off: {how}"))
        elif (breakdown := BREAKDOWNS.get(self._finish or "")) is not None:
            reason, retryable = breakdown
            message = f"the provider ended its answer with finish_reason {self._finish}"
            self._fail(Failure(kind="provider", reason=reason, message=message, retryable=retryable))
        elif self._calls.nameless:
            self._fail(malformed("the answer holds a tool call without a name"))
        else:
            self._conclude()
        return self._out

    def stop_short(self, failure: Failure) -> list[StreamEvent]:
        """End the answer with a failure that shows outside of its chunks."""
        self._out = []
        self._fail(failure)
        return self._out

    def _fail(self, failure: Failure) -> None:
        if self.done:
            return
        self.done = True
        if self._text is not None:  # what was cited so far belongs to the text so far
            self._cite(self._citations.rest())
        self._out.append(StreamFailed(failure))

    def _conclude(self) -> None:
        self.done = True
        self._cite(self._citations.rest())
        self._seal()
        self._out.extend(self._calls.missing_ids())
        self._out.extend(PartEnded(index) for index in range(self._parts))
        reason, detail = read_ending(self._finish, calls=bool(self._calls), refused=self._refusal is not None)
        self._out.append(Stopped(reason, detail))

    def _unreadable(self, data: bytes, name: str) -> None:
        error = error_in(read_plain(data), name)
        if name == "error" and not error:
            error = data.decode("utf-8", "replace")
        if error:
            self._fail(stream_failure(error))
        elif name in ("", "message"):
            self._fail(malformed(f"chunk {self.chunks} of the stream is no JSON of this dialect ({len(data)} bytes)"))
        else:
            self._notice(f"event.{name}")

    def _read(self, chunk: Chunk, data: bytes, name: str) -> None:
        if not self._started and (chunk.id or chunk.model):
            self._started = True
            self._out.append(ResponseStarted(str(chunk.id) if chunk.id else None, chunk.model or None))
        if given(chunk.citations) or given(chunk.search_results):
            self._citations.list_pages(chunk.citations, chunk.search_results)
        for choice in chunk.choices or ():
            if choice.index:
                self._notice(f"choices.{choice.index}")
            elif not self.done:
                self._read_choice(choice)
        usage = chunk.usage if given(chunk.usage) or chunk.x_groq is None else chunk.x_groq.usage
        if given(usage):
            self._read_usage(usage)
        error = read_plain(chunk.error) if given(chunk.error) else None
        if not chunk.choices and not error:
            error = self._read_rest(data, name)
        if error:
            self._fail(stream_failure(error))

    def _read_rest(self, data: bytes, name: str) -> Plain:
        plain = read_plain(data)
        error = error_in(plain, name)
        if error is None and isinstance(plain, dict):
            for key in plain:
                if key not in _CHUNK_TAKEN:
                    self._notice(f"chunk.{key}")
        return error

    def _read_choice(self, choice: Choice) -> None:
        members = choice.delta
        # A message beside deltas repeats them; on its own it is a whole answer in the place of a stream.
        if members is None and not self._parts:
            members = choice.message
        if members:
            self._read_members(members)
        # Some servers write an empty text, or the word null, where others write null.
        if choice.finish_reason and choice.finish_reason != "null":
            self._finish = choice.finish_reason
        error = read_plain(choice.error) if given(choice.error) else None
        if error:
            self._fail(stream_failure(error))

    def _read_members(self, members: Members) -> None:
        # The order is fixed, so that a whole answer has its parts in the order in which they would have streamed.
        self._read_reasoning(members)
        self._each(members, "content", self._read_content)
        self._each(members, "refusal", self._read_refusal)
        self._each(members, "images", self._read_images)
        self._each(members, "audio", self._read_audio)
        self._each(members, "annotations", self._read_annotations)
        self._each(members, "tool_calls", self._read_calls)
        self._each(members, "function_call", self._read_function)
        if not members.keys() <= _TAKEN:
            for key in members:
                if key not in _TAKEN and given(members[key]):
                    self._notice(f"delta.{key}")

    def _each(self, members: Members, key: str, read: Callable[[Raw], None]) -> None:
        raw = members.get(key)
        if raw is None or self.done or not given(raw):
            return
        try:
            read(raw)
        except UNREADABLE:
            self._fail(malformed(f"chunk {self.chunks} of the stream has a {key} of an unknown shape"))

    def _read_reasoning(self, members: Members) -> None:
        detailed = self._details.take(members["reasoning_details"]) if "reasoning_details" in members else ""
        if self._details.opaque and self._sealed is None:
            self._seal()  # once now, for its place among the parts, and once more when all of it is there
        for key in ("reasoning_content", "reasoning"):
            text = read_text(members[key]) if key in members else None
            if text:  # a server that knows both spellings says it twice
                self._plain_reasoning = True
                self._think(text)
                return
        # The details repeat the plain text wherever there is one.
        if not self._plain_reasoning:
            self._think(detailed)

    def _read_content(self, raw: Raw) -> None:
        text = read_text(raw)
        if text is not None:
            self._say(text)
            return
        for part in _PARTS.decode(raw):
            self._read_part(part)

    def _read_part(self, part: ContentPart) -> None:
        if part.type == "text":
            self._say(part.text or "")
        elif part.type == "thinking":
            thinking = part.thinking or ()
            pieces = [thinking] if isinstance(thinking, str) else [piece.text or "" for piece in thinking]
            self._think("".join(pieces))
        elif part.type == "refusal":
            self._decline(part.refusal or "")
        elif part.type == "image_url" and part.image_url is not None:
            self._show(part.image_url.url)
        elif part.type == "reference":
            self._notice("content.reference")
        else:
            self._cannot_carry(f"content of the kind {clean_kind(part.type)}")

    def _read_refusal(self, raw: Raw) -> None:
        self._decline(msgspec.json.decode(raw, type=str))

    def _read_images(self, raw: Raw) -> None:
        for part in _PARTS.decode(raw):
            self._read_part(part)

    def _read_audio(self, raw: Raw) -> None:
        self._cannot_carry("audio")

    def _read_annotations(self, raw: Raw) -> None:
        for one in _RAWS.decode(raw):
            kind = self._citations.annotate(one)
            if kind is not None:
                self._notice(f"annotation.{kind}")
        self._cite(self._citations.ready())

    def _read_calls(self, raw: Raw) -> None:
        pieces = _CALLS.decode(raw)
        for piece in pieces:
            if piece.function is None and piece.custom is None and piece.type not in (None, "", "function", "custom"):
                self._cannot_carry(f"a tool call of the kind {clean_kind(piece.type)}")
                return
        self._out.extend(self._calls.take(pieces, whole=self._whole))

    def _read_function(self, raw: Raw) -> None:
        self._out.extend(self._calls.take([Call(index=0, function=_FUNCTION.decode(raw))], whole=self._whole))

    def _read_usage(self, raw: Raw) -> None:
        written = bytes(raw)
        if written == self._last_usage:
            return
        self._last_usage = written
        usage, readable = read_usage(raw)
        if usage is not None:
            self._out.append(UsageReported(usage))
        elif not readable:
            self._notice("usage.unreadable")

    def _seal(self) -> None:
        sealed = self._details.sealed()
        if sealed is None or sealed == self._sealed:
            return
        self._sealed = sealed
        if self._thought is None:
            self._thought = self._allot()
        self._out.append(ReasoningSealed(self._thought, ReasoningState(self._origin, DETAILS_FORMAT, sealed)))

    def _say(self, text: str) -> None:
        if not text:
            return
        if self._text is None:
            self._text = self._allot()
        self._out.append(TextDelta(self._text, text))
        self._citations.measure(text)

    def _think(self, text: str) -> None:
        if not text:
            return
        if self._thought is None:
            self._thought = self._allot()
        self._out.append(ReasoningDelta(self._thought, text))

    def _decline(self, text: str) -> None:
        if not text:
            return
        if self._refusal is None:
            self._refusal = self._allot()
        self._out.append(RefusalDelta(self._refusal, text))

    def _show(self, url: str) -> None:
        media = _media(url)
        if media is None:
            self._fail(malformed("the answer holds an image that cannot be read"))
        else:
            self._out.append(MediaArrived(self._allot(), media))

    def _cite(self, attributions: list[Attribution]) -> None:
        if not attributions:
            return
        if self._text is None:
            self._text = self._allot()
        index = self._text
        self._out.extend(Citation(index, one) for one in attributions)

    def _notice(self, kind: str) -> None:
        if kind not in self._noticed and len(self._noticed) < 100:
            self._noticed.add(kind)
            self._out.append(Noticed(kind))

    def _cannot_carry(self, what: str) -> None:
        message = f"the answer holds {what}, which this dialect does not carry"
        self._fail(Failure(kind="provider", reason="unsupported_content", message=message))

    def _allot(self) -> int:
        self._parts += 1
        return self._parts - 1


def _media(url: str) -> Media | None:
    if not url.startswith("data:"):
        return Media("image/*", url=url) if url else None
    head, _, data = url[5:].partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return Media(head.removesuffix(";base64") or "image/*", base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
