"""Messages as content blocks of ``anthropic-messages``."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, TypeAlias, assert_never

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE
from furcate.dialects.anthropic_messages._wire import (
    BLOCK_FORMAT,
    CALL_FORMAT,
    CITATION_FORMAT,
    CONTAINER_FORMAT,
    PIECES_FORMAT,
    REDACTED_FORMAT,
    RESULT_FORMAT,
    THINKING_FORMAT,
    TOOL_USE_FORMAT,
    UNKNOWN_FORMAT,
    VERSION,
    Members,
)
from furcate.primitives._content import (
    HostedActivity,
    Media,
    Part,
    ProviderPayload,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._message import CacheHint, Message

Block: TypeAlias = dict[str, object] | Raw
"""A content block: made here, or native bytes that go back as they came."""

Sends: TypeAlias = Callable[[int, int], bool]
"""Tells whether the provider-run work in a place (message, part) goes back."""

_HOSTED_FORMATS = frozenset({BLOCK_FORMAT, CALL_FORMAT, CONTAINER_FORMAT, PIECES_FORMAT, RESULT_FORMAT, UNKNOWN_FORMAT})
_UNSENT_FORMATS = frozenset({CONTAINER_FORMAT, PIECES_FORMAT})

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MEMBERS = msgspec.json.Decoder(Members)


@define
class Draft:
    """Hold one message of the wire while it is made.

    Attributes:
        role: whose turn it is.
        blocks: its content.
        hints: blocks that a cache hint may be put on, with the hint in wire form, in order.
        results: whether it answers tool calls, so that the user's words may follow in the same message.
    """

    role: Literal["user", "assistant"]
    blocks: list[Block] = field(factory=list)
    hints: list[tuple[dict[str, object], dict[str, object]]] = field(factory=list)
    results: bool = False

    def hint(self, cache: CacheHint | None, begin: int = 0) -> None:
        """Take a cache hint for the blocks from `begin` on; it is put on the last of them that can carry one."""
        block = self._carrier(begin) if cache is not None else None
        if cache is not None and block is not None:
            self.hints.append((block, _control(cache)))

    def mark(self, cache: CacheHint) -> bool:
        """Mark the end for caching, unless a hint does that already; tell whether a block can carry it."""
        block = self._carrier()
        if block is None:
            return False
        block.setdefault("cache_control", _control(cache))
        return True

    def _carrier(self, begin: int = 0) -> dict[str, object] | None:
        """Find the last block from `begin` on that may carry a cache hint."""
        for block in reversed(self.blocks[begin:]):
            if isinstance(block, dict) and block["type"] not in ("thinking", "redacted_thinking"):
                return block
        return None

    def trim(self) -> None:
        """Take the white space off the end of a text that the model is to go on from; it is refused there."""
        last = self.blocks[-1] if self.blocks else None
        if isinstance(last, dict) and last["type"] == "text":
            last["text"] = str(last["text"]).rstrip()
            if not last["text"]:
                self.blocks.pop()

    def plain(self) -> dict[str, object]:
        """Give the message as the wire has it; a single text of a user is written without a block."""
        only = self.blocks[0] if len(self.blocks) == 1 else None
        if self.role == "user" and isinstance(only, dict) and only.keys() == {"type", "text"}:
            return {"role": self.role, "content": only["text"]}
        return {"role": self.role, "content": self.blocks}


def system_draft(messages: Iterable[Message]) -> Draft:
    """Make the blocks of system messages; those that say nothing are left out."""
    draft = Draft("user")
    for message in messages:
        begin = len(draft.blocks)
        draft.blocks.extend(_text(part.text) for part in message.parts if isinstance(part, Text) and part.text.strip())
        draft.hint(message.cache, begin)
    return draft


def drafts(messages: Iterable[Message], number: int, sends: Sends) -> list[tuple[int, Draft]]:
    """Make the messages of the wire, each with the number of the first message that it is made of.

    The results of one turn's calls belong into one message, before anything that the user says to them. An assistant
    message that has nothing to send is left out.

    Args:
        messages: without system messages.
        number: the number of the first of them in the conversation.
        sends: as `Sends` says, the first message having the number 0.
    """
    made: list[tuple[int, Draft]] = []
    for position, message in enumerate(messages):
        if message.role == "assistant":
            draft = Draft("assistant", _assistant(message, number + position, partial(sends, position)))
            draft.hint(message.cache)
            if draft.blocks:
                made.append((number + position, draft))
        elif message.role == "tool":
            results: list[Block] = [_result(part) for part in message.parts if isinstance(part, ToolResult)]
            _join(made, number + position, results, cache=message.cache)
            made[-1][1].results = True
        elif message.role == "user":
            words = _user(message, number + position)
            _join(made, number + position, words, cache=message.cache)
            made[-1][1].results = False
    return made


def _join(made: list[tuple[int, Draft]], number: int, blocks: list[Block], *, cache: CacheHint | None) -> None:
    """Add blocks of the user's turn, to the message that answers calls where there is one before them."""
    last = made[-1][1] if made else None
    if last is None or not last.results:
        last = Draft("user")
        made.append((number, last))
    begin = len(last.blocks)
    last.blocks.extend(blocks)
    last.hint(cache, begin)


def hosted_form(activity: HostedActivity, where: str) -> str | None:
    """Give the format of an activity's native form, or None where it has none.

    Raises:
        PayloadError: the form is none of this dialect's.
    """
    payload = activity.payload
    if payload is None:
        return None
    _check(payload, _HOSTED_FORMATS, f"the {activity.name} of {where}")
    return payload.format


def _check(payload: ProviderPayload, formats: Iterable[str], what: str) -> None:
    if payload.format not in formats or payload.version != VERSION:
        raise PayloadError(
            f"{what} holds a payload of its provider in the form {payload.format} {payload.version}, which "
            "anthropic-messages cannot decode; continue on a backend of the dialect that wrote it"
        )


def _native(payload: ProviderPayload, what: str) -> Members:
    try:
        payload.value.decode()
        return _MEMBERS.decode(payload.value)
    except (*UNREADABLE, UnicodeDecodeError) as error:
        raise PayloadError(f"{what} holds a payload that is no JSON object") from error


def _control(cache: CacheHint) -> dict[str, object]:
    # Five minutes are the provider's default, and an hour is all the other choice there is.
    return {"type": "ephemeral", "ttl": "1h"} if (cache.ttl_s or 0) > 300 else {"type": "ephemeral"}


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _sendable(texts: Iterable[str]) -> Callable[[str], bool]:
    """Tell which texts can be sent: none that is empty, and white space only beside a text that is more."""
    worded = any(text.strip() for text in texts)
    return lambda text: bool(text) and (worded or bool(text.strip()))


def _user(message: Message, number: int) -> list[Block]:
    sendable = _sendable(part.text for part in message.parts if isinstance(part, Text))
    blocks: list[Block] = []
    for part in message.parts:
        if isinstance(part, Media):
            blocks.append(_medium(part, number))
        elif isinstance(part, Text) and sendable(part.text):
            blocks.append(_text(part.text))
    if not blocks:
        raise RequestError(f"message {number} (user) says nothing, which anthropic-messages refuses; give it a text")
    return blocks


def _result(result: ToolResult) -> Block:
    block: dict[str, object] = {"type": "tool_result", "tool_use_id": _call_id(result.call_id)}
    if result.content:
        block["content"] = result.content
    if result.is_error:
        block["is_error"] = True
    return block


def _assistant(message: Message, number: int, sends: Callable[[int], bool]) -> list[Block]:
    where = f"message {number} (assistant)"
    sendable = _sendable(part.text for part in message.parts if isinstance(part, (Text, Refusal)))
    blocks: list[Block] = []
    for place, part in enumerate(message.parts):
        if isinstance(part, (Text, Refusal)) and not sendable(part.text):
            continue
        if isinstance(part, HostedActivity) and not sends(place):
            continue
        block = _native_or_made(part, where)
        if block is not None:
            blocks.append(block)
    return blocks


def _native_or_made(part: Part, where: str) -> Block | None:
    match part:
        case Text() | Refusal():
            return _said(part, where)
        case Reasoning():
            return _thought(part, where)
        case ToolCall():
            return _call(part, where)
        case HostedActivity():
            return _hosted(part, where)
        case ToolResult():
            return _result(part)
        case Media():
            raise UnsupportedError(
                f"{where} holds an image or a file, which anthropic-messages takes from users only; send it in a user "
                "message"
            )
        case _:
            assert_never(part)


def _said(part: Text | Refusal, where: str) -> Block:
    block = _text(part.text)
    if isinstance(part, Refusal):
        return block  # there is no other place for what was said in declining
    if part.payload is not None:
        _check(part.payload, (), f"a text of {where}")
    citations = [one.replay for one in part.attributions if one.replay is not None]
    for citation in citations:
        _check(citation, (CITATION_FORMAT,), f"a citation of {where}")
    if citations:
        block["citations"] = [_native(citation, f"a citation of {where}") for citation in citations]
    return block


def _hosted(activity: HostedActivity, where: str) -> Block | None:
    form = hosted_form(activity, where)
    if activity.payload is None or form in _UNSENT_FORMATS:
        return None
    _native(activity.payload, f"the {activity.name} of {where}")
    return Raw(activity.payload.value)


def _thought(part: Reasoning, where: str) -> Block | None:
    state = part.state
    if state is None:
        return None  # a thought without its signature is refused
    try:
        sealed = state.data.decode()
    except UnicodeDecodeError as error:
        raise PayloadError(f"{where} holds reasoning state that is no text") from error
    if state.format == THINKING_FORMAT:
        return {"type": "thinking", "thinking": part.text, "signature": sealed}
    if state.format == REDACTED_FORMAT:
        return {"type": "redacted_thinking", "data": sealed}
    raise PayloadError(
        f"{where} holds reasoning state in the form {state.format}, which anthropic-messages cannot decode"
    )


def _call(call: ToolCall, where: str) -> Block:
    block: dict[str, object] = {
        "type": "tool_use",
        "id": _call_id(call.id),
        "name": call.name,
        "input": _input(call),
    }
    if call.payload is not None:
        what = f"the call {call.name} of {where}"
        _check(call.payload, (TOOL_USE_FORMAT,), what)
        block = {**_native(call.payload, what), **block}
    return block


def _input(call: ToolCall) -> object:
    if call.kind == "custom":
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        written = call.arguments.encode()
        _MEMBERS.decode(written)
    except (*UNREADABLE, UnicodeEncodeError):
        # The provider's own advice for arguments that broke off: an object is all that it takes.
        return {"INVALID_JSON": call.arguments}
    return Raw(written)


def _call_id(call_id: str) -> str:
    """Give an id that the provider takes; one of another provider is hashed, alike in a call and in its result."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _medium(media: Media, number: int) -> Block:
    kind = media.media_type.partition(";")[0].strip().lower()
    source: dict[str, object] | None = None
    if media.data is None:
        source = {"type": "url", "url": media.url}
    elif kind in _IMAGES or kind == "application/pdf":
        source = {"type": "base64", "media_type": kind, "data": base64.b64encode(media.data).decode()}
    elif kind.startswith("text/"):
        source = _plain_document(media.data)
    if source is not None and kind.startswith("image/"):
        return {"type": "image", "source": source}
    if source is not None and (kind == "application/pdf" or source["type"] == "text"):
        titled: dict[str, object] = {"title": media.name} if media.name else {}
        return {"type": "document", "source": source, **titled}
    how = "by url" if media.data is None else "by value"
    raise UnsupportedError(
        f"message {number} (user) holds {kind} {how}, which anthropic-messages does not carry; it takes jpeg, png, gif "
        "and webp images and pdf files by url or value, and texts by value"
    )


def _plain_document(data: bytes) -> dict[str, object] | None:
    try:
        return {"type": "text", "media_type": "text/plain", "data": data.decode()}
    except UnicodeDecodeError:
        return None
