"""Conversations as the ``contents`` of ``google-generatecontent`` requests.

The messages that a node of a history adds are encoded once and kept with it. The results of one turn's calls have to
stand in one content, whichever messages they came in, so a content is closed by what comes after it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import msgspec
from attrs import frozen

from furcate.dialects.google_generatecontent._calls import MADE_ID
from furcate.dialects.google_generatecontent._hosted import FETCHED, GROUNDING, PART, UNKNOWN, VERSION
from furcate.dialects.google_generatecontent._parts import ALONE, OF_NEXT, OF_PREVIOUS, OF_THOUGHT
from furcate.primitives._content import (
    HostedActivity,
    Media,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._json import Plain
from furcate.primitives._message import Message

_Wire = dict[str, Plain]


@frozen
class Chunk:
    """Hold the encoded messages of a node.

    Attributes:
        data: their bytes, beginning with what closes the content before.
        open: which content is left open: none (an empty text), ``user``, ``model`` or ``tool``.
        instructions: the texts of system messages that stand at the beginning.
        served: whether parts of provider-run tools are among them.
    """

    data: bytes
    open: str
    instructions: tuple[str, ...] = ()
    served: bool = False


_CHUNKS: MemoKey[Chunk] = MemoKey("google-generatecontent")


def chunk_of(node: History) -> Chunk:
    """Give the encoded messages of a node; those of its ancestors are asked for first.

    Raises:
        RequestError: a text holds half a character, or a result answers no call.
        PayloadError: reasoning state or provider-run work of a format that is not known here.
        UnsupportedError: a late system message, or a medium or call that cannot be carried.
    """
    return node.memo(_CHUNKS, _encode)


def to_bytes(value: Plain, what: str) -> bytes:
    """Encode a value of a request; `what` names it where it cannot be."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} holds half a character (a lone surrogate), which no request can carry") from error


def _encode(node: History) -> Chunk:
    opened = chunk_of(node.parent).open if node.parent is not None else ""
    first = len(node) - len(node.added) + 1
    pieces: list[bytes] = []
    instructions: list[str] = []
    served = False
    for number, messages in _groups(node.added, first):
        role = messages[0].role
        where = f"message {number} ({role})"
        if role in ("system", "developer"):
            if opened:
                raise UnsupportedError(
                    f"{where} stands behind other messages; google-generatecontent takes system messages at the "
                    "beginning only"
                )
            instructions.append(messages[0].text)
            to_bytes(messages[0].text, where)
            continue
        if role == "tool":
            kind, parts = "tool", _results(node, messages, number)
        elif role == "assistant":
            kind, parts = "model", _model_parts(messages[0], where)
            served = served or any(b'"toolCall":' in part for part in parts if isinstance(part, bytes))
        else:
            kind, parts = "user", [_user_part(part, where) for part in messages[0].parts]
        if not parts:
            continue
        encoded = b",".join(part if isinstance(part, bytes) else to_bytes(part, where) for part in parts)
        if kind == opened == "tool":
            pieces.append(b"," + encoded)
            continue
        role_name = b"model" if kind == "model" else b"user"
        pieces.append((b"]}," if opened else b"") + b'{"role":"' + role_name + b'","parts":[' + encoded)
        opened = kind
    return Chunk(b"".join(pieces), opened, tuple(instructions), served)


def _groups(messages: tuple[Message, ...], first: int) -> Iterator[tuple[int, list[Message]]]:
    """Give each message with its number; messages of results that follow each other come together."""
    group: list[Message] = []
    for number, message in enumerate(messages, first):
        if message.role == "tool":
            group.append(message)
            continue
        if group:
            yield number - len(group), group
            group = []
        yield number, [message]
    if group:
        yield first + len(messages) - len(group), group


def _user_part(part: object, where: str) -> _Wire:
    if isinstance(part, Media):
        return _medium(part, where)
    return {"text": part.text if isinstance(part, Text) else ""}


def _medium(media: Media, where: str) -> _Wire:
    kind = media.media_type.partition(";")[0].strip().lower()
    exact = not kind.endswith("/*")
    if media.data is None:
        kept: _Wire = {"mimeType": kind} if exact else {}
        return {"fileData": {**kept, "fileUri": media.url}}
    if not exact:
        raise UnsupportedError(
            f"{where} holds {kind} by value; google-generatecontent wants to know what it is, such as image/png"
        )
    return {"inlineData": {"mimeType": kind, "data": base64.b64encode(media.data).decode()}}


def _results(node: History, messages: list[Message], number: int) -> list[_Wire | bytes]:
    position = number - (len(node) - len(node.added) + 1)
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    calls: dict[str, tuple[str, int]] = {}
    wanted = {result.call_id for result in results}
    for order, call in enumerate(_calls_before(node, position)):
        if call.id in wanted:
            calls.setdefault(call.id, (call.name, -order))
            if len(calls) == len(wanted):
                break
    missing = next((result.call_id for result in results if result.call_id not in calls), None)
    if missing is not None:
        raise RequestError(f"message {number} (tool) answers the call {missing!r}, which no message before it makes")
    if any(result.call_id.startswith(MADE_ID) for result in results):
        # The provider knows such calls by their order alone.
        results.sort(key=lambda result: calls[result.call_id][1])
    return [_result(result, calls[result.call_id][0]) for result in results]


def _calls_before(node: History, position: int) -> Iterator[ToolCall]:
    """Give the calls ahead of a message of a node, the latest first."""
    messages = node.added[:position]
    at: History | None = node
    while at is not None:
        for message in reversed(messages):
            yield from reversed(message.tool_calls)
        at = at.parent
        messages = at.added if at is not None else ()


def _result(result: ToolResult, name: str) -> _Wire:
    response: Plain = {"error": result.content} if result.is_error else _response(result.content)
    return {"functionResponse": {**_own_id(result.call_id), "name": name, "response": response}}


def _response(content: str) -> Plain:
    # The provider takes an object; what is none stands in one.
    if content.lstrip().startswith(("{", "[")):
        try:
            value: Plain = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return {"result": content}
        return value if isinstance(value, dict) else {"result": value}
    return {"result": content}


def _own_id(call_id: str) -> _Wire:
    return {} if not call_id or call_id.startswith(MADE_ID) else {"id": call_id}


def _model_parts(message: Message, where: str) -> list[_Wire | bytes]:
    ended = {
        (part.scope, part.id) for part in message.parts if isinstance(part, HostedActivity) and part.state != "started"
    }
    # Work that was begun beside calls of the application goes on when they are answered.
    waits = bool(message.tool_calls)
    book = _ModelParts()
    for part in message.parts:
        if isinstance(part, Text):
            _check(part.payload, (GROUNDING,), where)
            if part.text:
                book.add({"text": part.text})
        elif isinstance(part, Refusal):
            book.add({"text": part.text})
        elif isinstance(part, Reasoning):
            if part.state is not None:
                book.sign(part.text, part.state, where)
        elif isinstance(part, ToolCall):
            _check(part.payload, (), where)
            book.add(_call(part, where))
        elif isinstance(part, Media):
            book.add(_medium(part, where))
        elif isinstance(part, HostedActivity):
            _check(part.payload, (PART, UNKNOWN, GROUNDING, FETCHED), where)
            open_ended = part.state == "started" and (part.scope, part.id) not in ended
            if part.payload is None or part.payload.format in (GROUNDING, FETCHED) or (open_ended and not waits):
                continue
            book.add(part.payload.value)
        else:
            _refuse(part)
    return book.close()


def _refuse(part: ToolResult) -> None:
    """Refuse the one kind of part that no assistant message holds."""
    raise AssertionError(f"an assistant message never holds a {type(part).__name__}")


class _ModelParts:
    """The parts of one assistant message, with the signatures where they belong."""

    def __init__(self) -> None:
        self._parts: list[_Wire | bytes] = []
        self._next: str | None = None

    def add(self, part: _Wire | bytes) -> None:
        """Add a part; a signature that waits for it goes onto it."""
        if isinstance(part, bytes):
            self._flush()
        elif self._next is not None:
            part["thoughtSignature"], self._next = self._next, None
        self._parts.append(part)

    def sign(self, text: str, state: ReasoningState, where: str) -> None:
        """Take reasoning that has its signature."""
        try:
            signature = state.data.decode()
        except UnicodeDecodeError as error:
            raise PayloadError(f"{where} holds a thought signature that is no text") from error
        if state.format == OF_THOUGHT:
            self.add({"text": text, "thought": True, "thoughtSignature": signature})
        elif state.format == OF_NEXT:
            self._flush()
            if text:
                self._parts.append({"text": text, "thought": True})
            self._next = signature
        elif state.format in (OF_PREVIOUS, ALONE):
            self._flush()
            last = self._parts[-1] if self._parts and state.format == OF_PREVIOUS else None
            if isinstance(last, dict) and not last.keys() & {"thought", "thoughtSignature"}:
                last["thoughtSignature"] = signature
            else:
                self._parts.append({"text": "", "thoughtSignature": signature})
        else:
            raise PayloadError(f"{where} holds reasoning state of the format {state.format!r}, which is not known here")

    def close(self) -> list[_Wire | bytes]:
        """Give the parts."""
        self._flush()
        return self._parts

    def _flush(self) -> None:
        if self._next is not None:
            self._parts.append({"text": "", "thoughtSignature": self._next})
            self._next = None


def _check(payload: ProviderPayload | None, formats: tuple[str, ...], where: str) -> None:
    if payload is not None and (payload.format not in formats or payload.version != VERSION):
        raise PayloadError(
            f"{where} holds a payload of the format {payload.format!r}, version {payload.version!r}, which is not "
            "known here"
        )


def _call(call: ToolCall, where: str) -> _Wire:
    if call.kind == "custom":
        raise UnsupportedError(
            f"{where} holds a call of {call.name!r} with free-form input; google-generatecontent has calls with "
            "arguments only"
        )
    try:
        arguments = call.parsed()
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise RequestError(
            f"{where} holds a call of {call.name!r} whose arguments are no JSON object; leave a call out that was "
            "cut off"
        )
    return {"functionCall": {**_own_id(call.id), "name": call.name, "args": arguments}}
