"""Messages as input items of ``openai-responses``.

What an answer of this provider held goes back as it came and in its order, but for the ids of its items: they name
what the provider keeps, and it keeps nothing. A reasoning item goes back together with the item that followed it, or
not at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE
from furcate.dialects.openai_responses._citations import ANNOTATION_FORMAT
from furcate.dialects.openai_responses._sheet import (
    ITEM_FORMAT,
    REASONING_FORMAT,
    UNKNOWN_FORMAT,
    UNKNOWN_PIECE_FORMAT,
)
from furcate.dialects.openai_responses._wire import Members, compact, read_members
from furcate.primitives._content import (
    HostedActivity,
    Media,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._json import Frozen, Plain, thaw
from furcate.primitives._message import Message

_CALL_ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_EMPTY = (Raw(b"null"), Raw(b"[]"))


def write(value: Plain, what: str) -> bytes:
    """Write a value as JSON.

    Raises:
        RequestError: a text in it holds half a character.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} holds half a character (a lone surrogate), which no request can carry") from error


def message_items(message: Message, number: int, *, ids: bool, custom: frozenset[str]) -> list[bytes]:
    """Give the items that say a message.

    Args:
        message: what is said.
        number: its place in the conversation, from 1, for errors.
        ids: whether ids of earlier items go back with them.
        custom: the ids of calls with free-form input, whose results are items of another type.

    Raises:
        RequestError: a text holds half a character.
        UnsupportedError: a medium that the dialect does not carry.
        PayloadError: a payload of this provider cannot be read.
    """
    where = f"message {number} ({message.role})"
    if message.role == "assistant":
        return _Answer(where, ids).items(message.parts)
    if message.role == "tool":
        return [write(_result(part, custom), where) for part in message.parts if isinstance(part, ToolResult)]
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        return [write({"role": message.role, "content": message.text}, where)]
    content = [_given_part(part, where) for part in message.parts]
    return [write({"role": message.role, "content": content}, where)]


def _result(result: ToolResult, custom: frozenset[str]) -> Plain:
    kind = "custom_tool_call_output" if result.call_id in custom else "function_call_output"
    return {"type": kind, "call_id": _call_id(result.call_id), "output": result.content}


def _call_id(its_id: str) -> str:
    """Give an id that the dialect takes; those of other providers may hold anything."""
    if _CALL_ID.fullmatch(its_id):
        return its_id
    return "call_" + hashlib.sha256(its_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _given_part(part: Part, where: str) -> Plain:
    if not isinstance(part, Media):
        return {"type": "input_text", "text": part.text if isinstance(part, Text) else ""}
    kind = part.media_type.partition(";")[0].strip().lower()
    family = kind.partition("/")[0]
    data = f"data:{kind};base64,{base64.b64encode(part.data).decode()}" if part.data is not None else None
    if family == "image":
        return {"type": "input_image", "image_url": data or part.url, "detail": "auto"}
    if family in ("application", "text"):
        if data is None:
            return {"type": "input_file", "file_url": part.url}
        return {"type": "input_file", "filename": part.name or "file", "file_data": data}
    raise UnsupportedError(
        f"{where} holds {kind}, which openai-responses does not carry; it takes images, application/* and text/* files"
    )


@define
class _Answer:
    """The items of one assistant message."""

    _where: str
    _ids: bool
    _items: list[bytes] = field(factory=list)
    _waiting: list[bytes] = field(factory=list)  # reasoning, until what follows it is there
    _texts: list[Text | Refusal] = field(factory=list)
    _pictured: bool = False

    def items(self, parts: Iterable[Part]) -> list[bytes]:
        """Give the items; each activity stands where it began and is as it ended."""
        listed = tuple(parts)
        ends = {
            (part.scope, part.id): part
            for part in reversed(listed)
            if isinstance(part, HostedActivity) and part.state != "started"
        }
        begun: set[tuple[str, str]] = set()
        for part in listed:
            if isinstance(part, Text | Refusal):
                self._say(part)
                continue
            self._end_message()
            if isinstance(part, HostedActivity):
                key = (part.scope, part.id)
                if key not in begun:
                    begun.add(key)
                    self._redo(ends.get(key), part.name)
            elif isinstance(part, Reasoning):
                self._think(part)
            elif isinstance(part, ToolCall):
                self._add(self._call(part))
            elif isinstance(part, Media):
                self._check_picture()
            else:
                _refuse(part)
        self._end_message()
        return self._items

    def _check_picture(self) -> None:
        if not self._pictured:
            raise UnsupportedError(
                f"{self._where} holds an image or a file, which openai-responses takes from users only; "
                "send it in a user message"
            )

    def _add(self, item: bytes) -> None:
        self._items.extend(self._waiting)
        self._waiting.clear()
        self._items.append(item)

    def _say(self, part: Text | Refusal) -> None:
        # Texts of one message carry the same payload, and refusals carry none.
        first = next((text for text in self._texts if isinstance(text, Text)), None)
        if isinstance(part, Text) and first is not None and part.payload != first.payload:
            self._end_message()
        if part.text:
            self._texts.append(part)

    def _end_message(self) -> None:
        texts, self._texts = self._texts, []
        if not texts:
            return
        payload = next((text.payload for text in texts if isinstance(text, Text)), None)
        if payload is None and len(texts) == 1 and isinstance(texts[0], Text) and not texts[0].attributions:
            self._add(write({"role": "assistant", "content": texts[0].text}, self._where))
            return
        members = self._members(payload, {ITEM_FORMAT}) if payload is not None else {}
        content = b",".join(self._content(text) for text in texts)
        members["type"], members["role"] = Raw(b'"message"'), Raw(b'"assistant"')
        members["content"] = Raw(b"[" + content + b"]")
        self._add(compact(members))

    def _content(self, said: Text | Refusal) -> bytes:
        if isinstance(said, Refusal):
            return write({"type": "refusal", "refusal": said.text}, self._where)
        replays = [one.replay for one in said.attributions if one.replay is not None]
        noted = b",".join(compact(self._read(one, {ANNOTATION_FORMAT}), nulls=True) for one in replays)
        return b'{"type":"output_text","text":' + write(said.text, self._where) + b',"annotations":[' + noted + b"]}"

    def _think(self, part: Reasoning) -> None:
        if part.state is None:
            return
        members = self._members(part.state, {REASONING_FORMAT})
        if members.get("content") in _EMPTY:
            del members["content"]
        members.setdefault("summary", Raw(b"[]"))
        self._waiting.append(compact(members))

    def _call(self, call: ToolCall) -> bytes:
        members = self._members(call.payload, {ITEM_FORMAT}) if call.payload is not None else {}
        kind = "custom_tool_call" if call.kind == "custom" else "function_call"
        argument = "input" if call.kind == "custom" else "arguments"
        told = call.arguments if call.kind == "custom" or call.arguments.strip() else "{}"
        for key, value in (("type", kind), ("call_id", _call_id(call.id)), ("name", call.name), (argument, told)):
            members[key] = Raw(write(value, self._where))
        return compact(members)

    def _redo(self, activity: HostedActivity | None, name: str) -> None:
        self._pictured = self._pictured or name == "image_generation"
        payload = activity.payload if activity is not None else None
        if activity is None or payload is None or payload.format == UNKNOWN_PIECE_FORMAT:
            self._waiting.clear()  # what was thought before it has lost its follower
            return
        members = self._members(payload, {ITEM_FORMAT, UNKNOWN_FORMAT})
        if activity.name == "web_search" and activity.input:
            members["action"] = Raw(write(_action(activity), self._where))
        self._add(compact(members, nulls=True))

    def _members(self, opaque: ProviderPayload | ReasoningState, formats: set[str]) -> Members:
        members = self._read(opaque, formats)
        if not self._ids:
            members.pop("id", None)
        return members

    def _read(self, opaque: ProviderPayload | ReasoningState, formats: set[str]) -> Members:
        version = opaque.version if isinstance(opaque, ProviderPayload) else "1"
        if opaque.format not in formats or version != "1":
            raise PayloadError(
                f"{self._where} holds a payload of the format {opaque.format!r}, version {version!r}, which "
                "openai-responses cannot read; leave the part out, or take a release of furcate that wrote it"
            )
        try:
            return read_members(opaque.data if isinstance(opaque, ReasoningState) else opaque.value)
        except UNREADABLE as error:
            raise PayloadError(
                f"{self._where} holds a payload of the format {opaque.format!r} that is no JSON object; "
                "it was changed since the provider wrote it"
            ) from error


def _refuse(part: ToolResult) -> None:
    """Refuse the one kind of part that no assistant message holds."""
    raise AssertionError(f"an assistant message never holds a {type(part).__name__}")


def _action(activity: HostedActivity) -> Plain:
    asked = activity.input
    kind = asked.get("type")
    if kind != "search":
        found: dict[str, Frozen] = {"type": kind, "url": asked.get("url") or None}
        if kind == "find_in_page":
            found["pattern"] = asked.get("pattern", "")
        return {key: thaw(value) for key, value in found.items()}
    queries = asked.get("queries", ())
    action: dict[str, Plain] = {"type": "search", "queries": thaw(queries)}
    if isinstance(queries, tuple) and len(queries) == 1:
        action["query"] = thaw(queries[0])
    return action
