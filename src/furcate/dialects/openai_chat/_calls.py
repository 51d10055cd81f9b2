"""Tool calls of ``openai-chat``: which piece belongs to which call.

The index is meant to say it. Servers were seen that leave it out, that number every call 0, that repeat the name
with every piece, that give no id, and that write the arguments as an object or as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import UNREADABLE
from furcate.dialects.openai_chat._wire import Call, given, read_text
from furcate.primitives._stream import ToolCallDelta


@define
class _Known:
    part: int
    id: str = ""
    name: str = ""
    custom: bool = False
    arguments: list[str] = field(factory=list)

    @property
    def empty(self) -> bool:
        return not (self.id or self.name or any(self.arguments))

    def complete(self) -> bool:
        """Tell whether the arguments so far are whole JSON; free-form input has no such mark."""
        return self.custom or _is_json("".join(self.arguments))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except UNREADABLE:
        return False
    return True


def _arguments(raw: Raw) -> str:
    if not given(raw):
        return ""
    written = read_text(raw)
    return written if written is not None else bytes(raw).decode()


class CallBook:
    """Follow the tool calls of one answer.

    `allot` gives the index of a new part.
    """

    def __init__(self, allot: Callable[[], int]) -> None:
        self._allot = allot
        self._calls: list[_Known] = []
        self._by_index: dict[int, _Known] = {}

    def __bool__(self) -> bool:
        return any(not call.empty for call in self._calls)

    @property
    def finished(self) -> bool:
        """Whether every call has whole arguments; none at all count as whole."""
        return all(call.complete() for call in self._calls if any(call.arguments))

    @property
    def nameless(self) -> bool:
        """Whether a call came without saying what it calls."""
        return any(not call.name and not call.empty for call in self._calls)

    def take(self, pieces: Sequence[Call], *, whole: bool) -> list[ToolCallDelta]:
        """Take the pieces of one delta, or all calls of a whole answer, where the place in the list is the index."""
        return [
            told
            for position, piece in enumerate(pieces)
            if (told := self._add(piece, position, position if whole else piece.index)) is not None
        ]

    def missing_ids(self) -> list[ToolCallDelta]:
        """Give an id to each call that came without, since results are answered by id."""
        told = []
        for number, call in enumerate(self._calls):
            if not call.id and not call.empty:
                call.id = f"call_{number}"
                told.append(ToolCallDelta(call.part, id=call.id))
        return told

    def _add(self, piece: Call, position: int, index: int | None) -> ToolCallDelta | None:
        if piece.custom is not None:
            name, written, custom = piece.custom.name or "", piece.custom.input or "", True
        elif piece.function is not None:
            name, written, custom = piece.function.name or "", _arguments(piece.function.arguments), False
        else:
            name, written, custom = "", "", False
        call = self._find(piece.id or "", name, position=position, index=index)
        new_id = "" if call.id else piece.id or ""
        new_name = "" if call.name else name
        call.id = call.id or new_id
        call.name = call.name or new_name
        call.custom = call.custom or custom
        if written:
            call.arguments.append(written)
        if not (new_id or new_name or written):
            return None
        return ToolCallDelta(call.part, new_id, new_name, written, call.custom)

    def _find(self, its_id: str, name: str, *, position: int, index: int | None) -> _Known:
        if index is not None:
            call = self._by_index.get(index)
            # A named piece with another id is another call, whatever its index says.
            if call is None or (name and its_id and call.id and its_id != call.id):
                call = self._by_index[index] = self._open()
            return call
        if its_id:
            return next((call for call in self._calls if call.id == its_id), None) or self._open()
        current = self._calls[-1] if self._calls else None
        if current is None:
            return self._open()
        another = name and current.name and (position > 0 or name != current.name or current.complete())
        return self._open() if another else current

    def _open(self) -> _Known:
        call = _Known(self._allot())
        self._calls.append(call)
        return call
