"""One answer of ``openai-chat``, chunk by chunk; a whole answer is one chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, error_in, malformed, read_plain, stream_failure
from furcate.dialects.openai_chat._account import BREAKDOWNS, hosted_counters, read_ending, read_usage
from furcate.dialects.openai_chat._calls import CallBook
from furcate.dialects.openai_chat._citations import CitationBook, clean_kind
from furcate.dialects.openai_chat._hosted import HostedBook
from furcate.dialects.openai_chat._reasoning import ReasoningBook
from furcate.dialects.openai_chat._wire import (
    CHUNK_TAKEN,
    DELTA_TAKEN,
    NULL,
    Call,
    Choice,
    Chunk,
    ContentPart,
    Function,
    Members,
    given,
    read_chunk,
    read_media,
    read_text,
)
from furcate.primitives._content import Attribution, Origin
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
from furcate.primitives._wire import Failure, UnknownContent

_CALLS = msgspec.json.Decoder(list[Call])
_FUNCTION = msgspec.json.Decoder(Function)
_PARTS = msgspec.json.Decoder(list[ContentPart])
_RAWS = msgspec.json.Decoder(list[Raw])
_MERE_TEXT = frozenset({"role", "content"})


class ChatAnswer:
    """Turn the chunks of one answer into stream events.

    Attributes:
        done: whether the answer has ended, well or badly.
        taken: how many chunks were taken.
    """

    def __init__(self, origin: Origin, *, unknown_content: UnknownContent = "fail", whole: bool = False) -> None:
        self.done = False
        self._unknown_content = unknown_content
        self._whole = whole
        self._out: list[StreamEvent] = []
        self.taken = 0
        self._parts = 0
        self._places: dict[str, int] = {}
        self._reasoning = ReasoningBook(origin)
        self._calls = CallBook(self._allot)
        self._citations = CitationBook()
        self._hosted = HostedBook(origin)
        self._started = False
        self._finish: str | None = None
        self._last_usage = b""
        self._noticed: set[str] = set()

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take a chunk; `name` is the name of its server-sent event."""
        self._out = []
        if self.done:
            return self._out
        self.taken += 1
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
        self.taken += 1
        self._read(chunk, data, "")
        return self._out

    def end(self, *, marked: bool) -> list[StreamEvent]:
        """Take the end of the answer; `marked` where an end marker said that it is whole."""
        self._out = []
        if self.done:
            return self._out
        whole = self._finish is not None or (marked and self._parts > 0 and self._calls.finished)
        failure = _shortfall(self._finish, whole=whole, begun=self.taken > 0)
        if failure is None and self._calls.nameless:
            failure = malformed("the answer holds a tool call without a name")
        if failure is not None:
            self._fail(failure)
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
        if "text" in self._places:  # what was cited so far belongs to the text so far
            self._cite(self._citations.rest())
        self._out.append(StreamFailed(failure))

    def _conclude(self) -> None:
        self.done = True
        self._cite(self._citations.rest())
        self._out.extend(self._hosted.close())
        self._seal(called=bool(self._calls))
        self._out.extend(self._calls.missing_ids())
        self._out.extend(PartEnded(index) for index in range(self._parts))
        reason, detail = read_ending(self._finish, calls=bool(self._calls), refused="refusal" in self._places)
        self._out.append(Stopped(reason, detail))

    def _unreadable(self, data: bytes, name: str) -> None:
        error = error_in(read_plain(data), name)
        if name == "error" and not error:
            error = data.decode("utf-8", "replace")
        if error:
            self._fail(stream_failure(error))
        elif name in ("", "message"):
            self._fail(malformed(f"chunk {self.taken} of the stream is no JSON of this dialect ({len(data)} bytes)"))
        else:
            self._notice(f"event.{name}")

    def _read(self, chunk: Chunk, data: bytes, name: str) -> None:
        if not self._started and (chunk.id or chunk.model):
            self._started = True
            self._hosted.scope = str(chunk.id or "")
            self._out.append(ResponseStarted(str(chunk.id) if chunk.id else None, chunk.model or None))
        # Ahead of the choices: what they cost counts also where one of them cannot be read.
        usage = chunk.usage if chunk.x_groq is None or given(chunk.usage) else chunk.x_groq.usage
        if usage is not NULL and given(usage):
            self._read_usage(usage)
        pages, results = chunk.citations, chunk.search_results
        if not (pages is results is NULL) and (given(pages) or given(results)):
            self._citations.list_pages(pages, results)
        for choice in chunk.choices or ():
            if choice.index:
                self._notice(f"choices.{choice.index}")
            elif not self.done:
                self._read_choice(choice)
        error = None if chunk.error is NULL else read_plain(chunk.error)
        if not chunk.choices and not error:
            error = self._read_rest(data, name)
        if error:
            self._fail(stream_failure(error))

    def _read_rest(self, data: bytes, name: str) -> Plain:
        plain = read_plain(data)
        error = error_in(plain, name)
        if error is None and isinstance(plain, dict):
            for key in plain:
                if key not in CHUNK_TAKEN:
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
        error = None if choice.error is NULL else read_plain(choice.error)
        if error:
            self._fail(stream_failure(error))

    def _read_members(self, members: Members) -> None:
        if members.keys() <= _MERE_TEXT:  # as in nearly every chunk of a stream
            content = members.get("content", NULL)
            text = read_text(content) if content is not NULL else None
            if text:
                self._say(text)
            elif text is None:
                self._each(content, "content", ChatAnswer._read_content)
            return
        # The order is fixed, so that a whole answer has its parts in that of a stream.
        self._read_reasoning(members)
        for key, read in _READERS:
            if key in members:
                self._each(members[key], key, read)
        if not members.keys() <= DELTA_TAKEN:
            for key in members:
                if key not in DELTA_TAKEN and given(members[key]):
                    self._notice(f"delta.{key}")

    def _each(self, raw: Raw, key: str, read: Callable[[ChatAnswer, Raw], None]) -> None:
        if self.done or not given(raw):
            return
        try:
            read(self, raw)
        except UNREADABLE:
            self._fail(malformed(f"chunk {self.taken} of the stream has a {key} of an unknown shape"))

    def _read_reasoning(self, members: Members) -> None:
        shown = self._reasoning.take(members)
        if self._reasoning.wants_place:
            self._seal()  # once now, for its place among the parts, and once more when all of it is there
        self._think(shown)

    def _read_content(self, raw: Raw) -> None:
        text = read_text(raw)
        if text is not None:
            self._say(text)
            return
        self._read_parts(raw)

    def _read_parts(self, raw: Raw) -> None:
        for part, written in zip(_PARTS.decode(raw), _RAWS.decode(raw), strict=True):
            self._read_part(part, written)

    def _read_part(self, part: ContentPart, written: Raw) -> None:
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
            self._unknown(part.type, f"content of the kind {clean_kind(part.type)}", written)

    def _read_refusal(self, raw: Raw) -> None:
        self._decline(msgspec.json.decode(raw, type=str))

    def _read_audio(self, raw: Raw) -> None:
        self._unknown("audio", "audio", raw, key="audio")

    def _read_executed(self, raw: Raw) -> None:
        told = self._hosted.execute(raw)
        self._out.extend(told)
        if any(one.activity.state == "completed" for one in told):
            self._notice("executed_tools.output")  # no server takes it back, and it is no text of the answer

    def _read_annotations(self, raw: Raw) -> None:
        for one in _RAWS.decode(raw):
            kind = self._citations.annotate(one)
            if kind is not None:
                self._notice(f"annotation.{kind}")
        self._cite(self._citations.ready())

    def _read_calls(self, raw: Raw) -> None:
        known: list[Call] = []
        for position, (piece, written) in enumerate(zip(_CALLS.decode(raw), _RAWS.decode(raw), strict=True)):
            bare = piece.function is None and piece.custom is None
            key = f"call.{piece.index if piece.index is not None else position}"
            if bare and (piece.type not in (None, "", "function", "custom") or self._hosted.keeps(key)):
                self._unknown(piece.type, f"a tool call of the kind {clean_kind(piece.type)}", written, key=key)
            else:
                known.append(piece)
        if not self.done:
            self._out.extend(self._calls.take(known, whole=self._whole))

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
        for key in hosted_counters(raw):
            self._notice(f"usage.{key}")

    def _seal(self, *, called: bool = False) -> None:
        state = self._reasoning.seal(called=called)
        if state is not None:
            self._out.append(ReasoningSealed(self._place("thought"), state))

    def _say(self, text: str) -> None:
        if not text:
            return
        place = self._places.get("text")
        self._out.append(TextDelta(self._place("text") if place is None else place, text))
        self._citations.measure(text)

    def _think(self, text: str) -> None:
        if not text:
            return
        self._out.append(ReasoningDelta(self._place("thought"), text))

    def _decline(self, text: str) -> None:
        if not text:
            return
        self._out.append(RefusalDelta(self._place("refusal"), text))

    def _show(self, url: str) -> None:
        media = read_media(url)
        if media is None:
            self._fail(malformed("the answer holds an image that cannot be read"))
        else:
            self._out.append(MediaArrived(self._allot(), media))

    def _cite(self, attributions: list[Attribution]) -> None:
        if not attributions:
            return
        index = self._place("text")
        self._out.extend(Citation(index, one) for one in attributions)

    def _notice(self, kind: str) -> None:
        if not self.done and kind not in self._noticed and len(self._noticed) < 100:
            self._noticed.add(kind)
            self._out.append(Noticed(kind))

    def _unknown(self, kind: str | None, what: str, raw: Raw, *, key: str | None = None) -> None:
        if self._unknown_content == "carry":
            self._out.extend(self._hosted.keep(kind, raw, key))
            return
        message = f"the answer holds {what}, which this dialect does not carry"
        self._fail(Failure(kind="provider", reason="unsupported_content", message=message))

    def _place(self, kind: Literal["text", "thought", "refusal"]) -> int:
        if kind not in self._places:
            self._places[kind] = self._allot()
        return self._places[kind]

    def _allot(self) -> int:
        self._parts += 1
        return self._parts - 1


_READERS: tuple[tuple[str, Callable[[ChatAnswer, Raw], None]], ...] = (
    ("executed_tools", ChatAnswer._read_executed),
    ("content", ChatAnswer._read_content),
    ("refusal", ChatAnswer._read_refusal),
    ("images", ChatAnswer._read_parts),
    ("audio", ChatAnswer._read_audio),
    ("annotations", ChatAnswer._read_annotations),
    ("tool_calls", ChatAnswer._read_calls),
    ("function_call", ChatAnswer._read_function),
)
"""What reads the members of a delta or a message, in the order in which their parts would have streamed."""


def _shortfall(finish: str | None, *, whole: bool, begun: bool) -> Failure | None:
    """Say why an answer that has ended is none, or give None."""
    if not whole:
        how = "its stream ended without a finish_reason" if begun else "its stream ended without one event"
        return Failure(kind="provider", reason="cut_off", message=f"the answer broke off: {how}")
    breakdown = BREAKDOWNS.get(finish or "")
    if breakdown is None:
        return None
    message = f"the provider ended its answer with finish_reason {finish}"
    return Failure(kind="provider", reason=breakdown[0], message=message, retryable=breakdown[1])
