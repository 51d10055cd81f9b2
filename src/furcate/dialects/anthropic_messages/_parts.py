"""The content blocks of one answer of ``anthropic-messages``, as parts and as provider-run work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import clean, malformed, read_plain
from furcate.dialects._open_work import OpenWork
from furcate.dialects._sse import MAX_EVENT_BYTES
from furcate.dialects.anthropic_messages._account import CITATION_KINDS, read_citation
from furcate.dialects.anthropic_messages._hosted import CALLS, RESULTS, SINGLES, HostedBook
from furcate.dialects.anthropic_messages._wire import (
    DELTAS,
    KINDS,
    MEMBERS,
    NULL,
    REDACTED_FORMAT,
    THINKING_FORMAT,
    TOOL_USE_FORMAT,
    CallBlock,
    Delta,
    Members,
    TextBlock,
    ThinkingBlock,
    compact,
    given,
    payload,
)
from furcate.primitives._content import Origin, ReasoningState
from furcate.primitives._stream import (
    Citation,
    Noticed,
    PartEnded,
    PartPayload,
    ReasoningDelta,
    ReasoningSealed,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

_TEXTS = msgspec.json.Decoder(TextBlock)
_THOUGHTS = msgspec.json.Decoder(ThinkingBlock)
_CALLS = msgspec.json.Decoder(CallBlock)

_INPUT_KINDS = frozenset({"tool_use", *CALLS})
_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use", *CALLS, *SINGLES, *RESULTS})

# Which kinds of block a piece may belong to.
_PIECES: Mapping[str, frozenset[str]] = {
    "text_delta": frozenset({"text"}),
    "citations_delta": frozenset({"text"}),
    "thinking_delta": frozenset({"thinking"}),
    "signature_delta": frozenset({"thinking"}),
    "input_json_delta": _INPUT_KINDS,
    "compaction_delta": frozenset({"compaction"}),
}

# Members of a call that our own value says already. A caller is worth keeping where it is not the model itself.
_CALL_MEMBERS = frozenset({"type", "id", "name", "input"})
_DIRECT: Final = {"type": "direct"}


@define
class _Block:
    kind: str
    members: Members
    pieces: list[str] = field(factory=list)
    size: int = 0
    deltas: list[Raw] = field(factory=list)
    unknown: bool = False


class BlockBook:
    """Follow the blocks of one answer, by their index.

    Its methods raise ``ValueError``, ``KeyError`` or an error of msgspec for what has no shape of this dialect, and
    ``AttemptFailed`` for what cannot be carried.

    Attributes:
        hosted: what the provider ran.
        calls: how many calls the application is to answer.
        indirect: whether code that the provider runs made one of them.
    """

    def __init__(self, origin: Origin, unknown_content: UnknownContent, open_work: OpenWork) -> None:
        self.hosted = HostedBook(origin, open_work)
        self.calls = 0
        self.indirect = False
        self._origin = origin
        self._carry = unknown_content == "carry"
        self._out: list[StreamEvent] = []
        self._open: dict[int, _Block] = {}
        self._seen: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._open)

    def drain(self) -> list[StreamEvent]:
        """Give the events that were gathered since the last time."""
        out, self._out = self._out, []
        return out

    def start(self, index: int, raw: Raw) -> None:
        """Take the beginning of a block, with what it holds already: all of it in a whole answer."""
        if index in self._seen:
            raise ValueError("a block that begins twice")
        kind = KINDS.decode(raw).type
        self._seen.add(index)
        block = self._open[index] = _Block(kind, MEMBERS.decode(raw))
        if kind == "text":
            text = _TEXTS.decode(raw)
            self._cite(index, text.citations or ())
            self._say(index, text.text)
        elif kind in ("thinking", "redacted_thinking"):
            self._think(index, kind, _THOUGHTS.decode(raw))
        elif kind == "tool_use":
            self._call(index, block, raw)
        elif kind not in _KNOWN:
            block.unknown = True
        elif kind in CALLS and not self.hosted.knows(block.members, kind):
            block.kind = f"{kind} of {clean(_CALLS.decode(raw).name, 60) or 'no name'}"
            block.unknown = True
        if block.unknown and not self._carry:
            self.unknown(block.kind, block.members, index)

    def add(self, index: int, raw: Raw) -> None:
        """Take a piece of a block."""
        block = self._open[index]
        kind = KINDS.decode(raw).type
        if block.unknown:
            self._grow(block, len(bytes(raw)))
            block.deltas.append(raw)
        elif kind not in _PIECES:
            self.unknown(f"{block.kind}.{kind}", MEMBERS.decode(raw), index)
        elif block.kind not in _PIECES[kind]:
            raise ValueError("a piece of another kind than its block")
        else:
            self._add(index, block, DELTAS.decode(raw), kind=kind)

    def end(self, index: int) -> None:
        """Take the end of a block."""
        block = self._open.pop(index)
        if block.unknown:
            self.unknown(block.kind, block.members, index, deltas=block.deltas)
        elif block.kind in CALLS:
            if block.pieces:
                block.members["input"] = Raw("".join(block.pieces).encode())
            self._out.append(self.hosted.start(block.members, block.kind, index))
        elif block.kind in RESULTS:
            self._out.append(self.hosted.finish(block.members, block.kind, index))
        elif block.kind in SINGLES:
            self._out.append(self.hosted.single(block.members, block.kind, index))
        else:
            if block.kind == "tool_use" and not block.pieces and read_plain(block.members.get("input", NULL)):
                # Spaced as the provider's own streams are, so that a call is the same however it came.
                written = msgspec.json.format(bytes(block.members["input"]), indent=0).decode()
                self._out.append(ToolCallDelta(index, arguments=written))
            self._out.append(PartEnded(index))

    def close(self, *, cut: bool) -> None:
        """Take the end of the answer; blocks that were not ended are as they are, but calls only in one that is `cut`.

        Raises:
            AttemptFailed: an answer that was to be whole ends inside a call.
        """
        for index in [*self._open]:
            if self._open[index].kind not in _INPUT_KINDS:
                self.end(index)
            elif not cut:
                raise AttemptFailed(malformed(f"the answer ended inside a call (block {index})"))

    def unknown(self, kind: str, members: Members, position: int, *, deltas: list[Raw] | None = None) -> None:
        """Take content that nobody knows: a block with the pieces it streamed in, or None for what is no block."""
        named = clean(kind, 80)
        if not self._carry:
            message = f"the answer holds content of the kind {named}, which this dialect does not carry"
            raise AttemptFailed(Failure(kind="provider", reason="unsupported_content", message=message))
        self._out.append(self.hosted.keep(named, members, position, deltas=deltas))

    def _call(self, index: int, block: _Block, raw: Raw) -> None:
        call = _CALLS.decode(raw)
        if not call.id or not call.name:
            raise ValueError("a call without id or name")
        self.calls += 1
        self._out.append(ToolCallDelta(index, call.id, call.name))
        extra = {key: value for key, value in block.members.items() if key not in _CALL_MEMBERS and given(value)}
        if "caller" in extra:
            direct = read_plain(extra["caller"]) == _DIRECT
            self.indirect = self.indirect or not direct
            if direct:
                del extra["caller"]
        if extra:
            self._out.append(PartPayload(index, payload(self._origin, TOOL_USE_FORMAT, compact(extra))))

    def _think(self, index: int, kind: str, thought: ThinkingBlock) -> None:
        if kind == "redacted_thinking":
            self._seal(index, REDACTED_FORMAT, thought.data)
            return
        if thought.thinking:
            self._out.append(ReasoningDelta(index, thought.thinking))
        self._seal(index, THINKING_FORMAT, thought.signature)

    def _seal(self, index: int, form: str, sealed: str | None) -> None:
        # Servers that know no signatures write an empty one.
        if sealed:
            self._out.append(ReasoningSealed(index, ReasoningState(self._origin, form, sealed.encode())))

    def _add(self, index: int, block: _Block, delta: Delta, *, kind: str) -> None:
        if kind == "text_delta":
            self._say(index, delta.text)
        elif kind == "citations_delta":
            self._cite(index, (delta.citation,))
        elif kind == "thinking_delta":
            if delta.thinking:
                self._out.append(ReasoningDelta(index, delta.thinking))
        elif kind == "signature_delta":
            self._seal(index, THINKING_FORMAT, delta.signature)
        elif kind == "input_json_delta":
            self._input(index, block, delta.partial_json or "")
        else:
            self._compact(block, delta)

    def _input(self, index: int, block: _Block, piece: str) -> None:
        if not piece:
            return
        self._grow(block, len(piece))
        block.pieces.append(piece)
        if block.kind == "tool_use":
            self._out.append(ToolCallDelta(index, arguments=piece))

    def _compact(self, block: _Block, delta: Delta) -> None:
        if delta.content is not None:
            self._grow(block, len(delta.content))
            block.pieces.append(delta.content)
            block.members["content"] = Raw(msgspec.json.encode("".join(block.pieces)))
        if delta.encrypted_content is not None:
            block.members["encrypted_content"] = Raw(msgspec.json.encode(delta.encrypted_content))

    def _grow(self, block: _Block, size: int) -> None:
        block.size += size
        if block.size > MAX_EVENT_BYTES:
            message = f"the server sent a block of the kind {clean(block.kind, 60)} of more than 16 MiB"
            raise AttemptFailed(Failure(kind="provider", reason="event_too_large", message=message))

    def _say(self, index: int, text: str | None) -> None:
        if text:
            self._out.append(TextDelta(index, text))

    def _cite(self, index: int, citations: Iterable[Raw]) -> None:
        for raw in citations:
            attribution, kind = read_citation(raw, self._origin)
            self._out.append(Citation(index, attribution))
            if kind not in CITATION_KINDS:
                self._out.append(Noticed(f"citation.{clean(kind, 60)}"))
