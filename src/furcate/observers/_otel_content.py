"""What was said, as the JSON texts that the conventions put on spans: cut at a limit, and valid JSON all the same.

Opaque state of providers and the bytes of media are never in them.
"""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, assert_never

from attrs import frozen

from furcate.primitives._content import HostedActivity, Media, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from furcate.primitives._json import Plain, thaw
from furcate.primitives._message import Message

Described: TypeAlias = dict[str, Plain]

CUT_MARK = "\N{HORIZONTAL ELLIPSIS}[cut]"
_INSTRUCTIONS = ("system", "developer")
# The member of a described part that may be long; it is cut where the whole part does not fit.
_LONG = ("content", "response", "arguments", "uri")
# What stands for parts that are left out altogether.
_MARK = f'{{"type":"text","content":"{CUT_MARK}"}}'
_ROOM_OF_MARK = len(_MARK) + 1
_LEAST_MESSAGE = 128
_JOINER = "\N{ZERO WIDTH JOINER}"
_LONGEST_CHARACTER = 64


@frozen(kw_only=True)
class Told:
    """Hold the three texts of a span; None where there is nothing to tell.

    Attributes:
        system: the instructions at the beginning, as a JSON list of parts.
        input: the messages after them, as a JSON list.
        output: the answer, as a JSON list of one message.
        cut: whether anything was left out for the limit's sake.
    """

    system: str | None
    input: str | None
    output: str | None
    cut: bool


@frozen
class _Written:
    """Hold a text, and whether it says less than all."""

    text: str = ""
    cut: bool = False


def tell(sent: Sequence[Message], received: Message | None, *, limit: int, finished: str) -> Told:
    """Write what a run adds to its conversation, in at most `limit` characters altogether.

    Where that is too little, the answer has half of it, or more if what was sent needs less.

    Arguments:
        sent: the messages sent after those of the exchange that is continued.
        received: the answer, whole or in part.
        limit: in characters of JSON.
        finished: why the answer ended, in a word of the conventions.
    """
    lead = next((n for n, message in enumerate(sent) if message.role not in _INSTRUCTIONS), len(sent))
    instructions = [part for message in sent[:lead] for part in message.parts]
    answers = () if received is None else (received,)
    tail = f'],"finish_reason":"{finished}"}}'
    output = _messages(answers, limit // 2, tail)
    system = _list(instructions, limit - len(output.text))
    asked = _messages(sent[lead:], limit - len(output.text) - len(system.text))
    if output.cut:
        output = _messages(answers, limit - len(system.text) - len(asked.text), tail)
    return Told(
        system=_encodable(system.text),
        input=_encodable(asked.text),
        output=_encodable(output.text),
        cut=system.cut or asked.cut or output.cut,
    )


def _encodable(text: str) -> str | None:
    """Put a question mark in the place of each half of a character, which no exporter can send."""
    return (text if text.isascii() else text.encode("utf-8", "replace").decode()) or None


def _list(parts: Sequence[Part], room: int) -> _Written:
    if not parts:
        return _Written()
    inside = _parts(parts, room - 2)
    return _Written(f"[{inside.text}]", inside.cut) if inside.text else _Written(cut=True)


def _messages(messages: Iterable[Message], room: int, tail: str = "]}") -> _Written:
    """Write a JSON list of as many messages as there is room for; nothing where there is none to write."""
    waiting = list(messages)
    written: list[str] = []
    left = room - 2
    cut = False
    for number, message in enumerate(waiting, 1):
        role = "system" if message.role == "developer" else message.role
        head = f'{"," if written else ""}{{"role":"{role}","parts":['
        inside = _parts(message.parts, left - len(head) - len(tail))
        whole = f"{head}{inside.text}{tail}"
        if (
            number < len(waiting)
            and len(whole) + _LEAST_MESSAGE > left
            and not _fit(waiting[number:], left - len(whole))
        ):
            # Nothing of those after it will fit, so this is the one that has to say so.
            inside = _parts(message.parts, left - len(head) - len(tail), more=True)
            whole = f"{head}{inside.text}{tail}"
        cut = inside.cut
        if (cut and not inside.text) or len(whole) > left:
            cut = True
            break
        written.append(whole)
        left -= len(whole)
        if cut:
            break
    return _Written(f"[{''.join(written)}]" if written else "", cut)


def _fit(messages: Sequence[Message], room: int) -> bool:
    """Tell whether all of these messages fit, of which only short ones can be asked about."""
    left = room
    for message in messages:
        inside = _parts(message.parts, left)
        role = "system" if message.role == "developer" else message.role
        left -= len(f',{{"role":"{role}","parts":[]}}') + len(inside.text)
        if inside.cut or left < 0:
            return False
    return True


def _parts(parts: Iterable[Part], room: int, *, more: bool = False) -> _Written:
    """Write parts one after the other, the last one cut where there is no room for more.

    Where one is left out altogether, a mark stands in its place.

    Args:
        parts: what to write.
        room: in characters.
        more: whether something is left out after them in any case.
    """
    described = list(_described(parts))
    whole = None if more else _whole(described, room)
    if whole is not None:
        return _Written(whole)
    written: list[str] = []
    left = room
    for number, part in enumerate(described, 1):
        left -= bool(written)
        # Room is kept for the mark as long as there is something that may have to be left out.
        kept = _ROOM_OF_MARK if more or number < len(described) else 0
        found = _fitting(part, left - kept)
        if found.text:
            written.append(found.text)
            left -= len(found.text)
        elif len(_MARK) <= left:
            written.append(_MARK)
        if found.cut:
            return _Written(",".join(written), cut=True)
    if more and described and left >= _ROOM_OF_MARK:
        written.append(_MARK)
    return _Written(",".join(written), cut=more)


def _whole(described: Sequence[Described], room: int) -> str | None:
    """Write parts if all of them fit; None where they do not."""
    written: list[str] = []
    left = room + 1
    for part in described:
        long = next((part[key] for key in _LONG if key in part), None)
        if isinstance(long, str) and len(long) > left:
            return None
        text = _dumped(part)
        left -= len(text) + 1
        if left < 0:
            return None
        written.append(text)
    return ",".join(written)


def _fitting(part: Described, room: int) -> _Written:
    """Write a part in at most `room` characters; nothing where not even the mark of a cut fits."""
    name = next((key for key in _LONG if key in part), None)
    long = part.get(name) if name is not None else None
    if name is not None and isinstance(long, dict):
        long = _dumped(long)
    if name is None or not isinstance(long, str):
        text = _dumped(part)
        return _Written(text) if len(text) <= room else _Written(cut=True)
    if len(long) <= room:
        text = _dumped(part)
        if len(text) <= room:
            return _Written(text)
    # Each character takes at least one in JSON, so a longer beginning than this need not be tried.
    beginnings = range(1, min(len(long), max(room, 0)) + 1)
    keep = bisect_right(beginnings, room, key=lambda size: len(_dumped({**part, name: long[:size] + CUT_MARK})))
    keep = _between_characters(long, keep)
    return _Written(_dumped({**part, name: long[:keep] + CUT_MARK}) if keep else "", cut=True)


def _between_characters(text: str, end: int) -> int:
    """Give the last place up to `end` where a text may be cut without parting what is shown as one character."""
    least = max(0, end - _LONGEST_CHARACTER)
    place = end
    while place > least and place < len(text) and _belong_together(text, place):
        place -= 1
    return place if place > least or place == 0 else end


def _belong_together(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if (
        before == _JOINER
        or after == _JOINER
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
    ):
        return True
    if _is_half_a_flag(after) and _is_half_a_flag(before):
        halves = next((n for n in range(1, place) if not _is_half_a_flag(text[place - 1 - n])), place)
        return halves % 2 == 1
    return unicodedata.category(after) in ("Mn", "Mc", "Me") or (before, after) == ("\r", "\n")


def _is_half_a_flag(letter: str) -> bool:
    return "\U0001f1e6" <= letter <= "\U0001f1ff"


def _dumped(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _described(parts: Iterable[Part]) -> Iterator[Described]:
    for part in parts:
        found = _describe(part)
        if found is not None:
            yield found


def _describe(part: Part) -> Described | None:
    """Give a part in the form of the conventions; None where it holds opaque state alone."""
    match part:
        case Text():
            return {"type": "text", "content": part.text}
        case Refusal():
            return {"type": "refusal", "content": part.text}
        case Reasoning():
            return {"type": "reasoning", "content": part.text} if part.text else None
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": _arguments(part)}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.content}
        case HostedActivity():
            return _describe_activity(part)
        case Media():
            return _describe_media(part)
        case _:
            assert_never(part)


def _arguments(call: ToolCall) -> Plain:
    """Give a call's arguments as an object where they are one, else as the model wrote them."""
    try:
        found = json.loads(call.arguments, parse_constant=_refuse) if call.kind == "function" else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else call.arguments


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _describe_activity(part: HostedActivity) -> Described:
    if part.state == "started":
        call: Described = {"type": part.name, "input": thaw(part.input)}
        return {"type": "server_tool_call", "id": part.id, "name": part.name, "server_tool_call": call}
    response: Described = {"type": part.name, "state": part.state, "summary": part.summary}
    return {"type": "server_tool_call_response", "id": part.id, "server_tool_call_response": response}


def _describe_media(part: Media) -> Described:
    kind = part.media_type.partition("/")[0]
    shown: Described = {"mime_type": part.media_type, "modality": kind if kind in _MODALITIES else "document"}
    if part.url is not None:
        return {"type": "uri", **shown, "uri": part.url}
    return {"type": "media", **shown, "name": part.name, "size_bytes": len(part.data or b"")}


_MODALITIES = ("image", "audio", "video")
