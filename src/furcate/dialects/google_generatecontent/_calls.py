"""Function calls of ``google-generatecontent``, whole or in pieces.

A streamed call begins with its name, goes on in pieces that say by a JSON path where in the arguments they belong,
and ends with the first piece that does not announce another. The arguments are told once they are whole: what the
pieces spell is a tree, and no text that could be passed on as it comes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import msgspec
from attrs import define, field
from msgspec import Raw, Struct

from furcate.dialects._failures import malformed
from furcate.dialects.google_generatecontent._wire import NULL, PartialArg, given, rewritten
from furcate.primitives._json import Plain
from furcate.primitives._stream import PartEnded, StreamEvent, ToolCallDelta
from furcate.primitives._wire import AttemptFailed

MADE_ID = "gcall_"
"""What the ids begin with that are made here, for models that give none; such an id is never sent to the provider."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_MAX_STEPS = 64


class _Piece(Struct, rename="camel"):
    name: str | None = None
    id: str | None = None
    args: Raw = NULL
    partial_args: list[PartialArg] | None = None
    will_continue: bool = False


@define
class _Letters:
    """A string that may go on."""

    pieces: list[str]
    open: bool


_Tree: TypeAlias = None | bool | int | float | _Letters | list["_Tree"] | dict[str, "_Tree"]

_PIECES = msgspec.json.Decoder(_Piece)


def _steps(path: str) -> list[str | int]:
    found: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path) and len(found) < _MAX_STEPS:
        match = _STEP.match(path, at)
        if match is None:
            break
        plain, number, single, double = match.groups()
        quoted = single if single is not None else double
        if number is not None:
            found.append(int(number))
        else:
            found.append(plain if plain is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = match.end()
    if not found or at < len(path):
        raise ValueError("no path")
    return found


class _Arguments:
    """Arguments that grow piece by piece."""

    def __init__(self) -> None:
        self._root: dict[str, _Tree] = {}

    def put(self, piece: PartialArg) -> None:
        """Take a piece; a ``ValueError`` says that its path fits nothing."""
        steps = _steps(piece.json_path)
        last = steps[-1]
        place: _Tree = self._root
        for step, following in pairwise(steps):
            below = self._look(place, step)
            if below is None:
                below = {} if isinstance(following, str) else []
                self._set(place, step, below)
            place = below
        if piece.string_value is not None:
            old = self._look(place, last)
            if isinstance(old, _Letters) and old.open:
                old.pieces.append(piece.string_value)
                old.open = piece.will_continue
            else:
                self._set(place, last, _Letters([piece.string_value], piece.will_continue))
        elif not piece.empty:
            self._set(place, last, piece.bool_value if piece.bool_value is not None else piece.number_value)
        elif self._look(place, last) is None:
            self._set(place, last, None)

    def build(self) -> Plain:
        """Give the arguments as they are."""
        return _built(self._root)

    def _look(self, place: _Tree, step: str | int) -> _Tree:
        if isinstance(place, dict) and isinstance(step, str):
            return place.get(step)
        if isinstance(place, list) and isinstance(step, int):
            return place[step] if step < len(place) else None
        raise ValueError("the path goes through a value")

    def _set(self, place: _Tree, step: str | int, value: _Tree) -> None:
        if isinstance(place, dict) and isinstance(step, str):
            place[step] = value
        elif isinstance(place, list) and isinstance(step, int) and step <= len(place):
            place[step : step + 1] = [value]
        else:
            raise ValueError("the path leaves a gap")


def _built(tree: _Tree) -> Plain:
    if isinstance(tree, dict):
        return {key: _built(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_built(value) for value in tree]
    return "".join(tree.pieces) if isinstance(tree, _Letters) else tree


@define
class _Call:
    part: int
    name: str
    id: str = ""
    base: bytes = b""
    grown: _Arguments | None = None

    def arguments(self) -> str:
        if self.grown is None:
            return (self.base or b"{}").decode()
        written: Plain = msgspec.json.decode(self.base) if self.base else {}
        built = self.grown.build()
        if isinstance(written, dict) and isinstance(built, dict):
            written.update(built)
        return msgspec.json.encode(written).decode()


@define
class CallBook:
    """Follow the function calls of one answer.

    Attributes:
        scope: the id of the response, for ids of calls that come without.
        count: how many calls have begun.
    """

    _allot: Callable[[], int]
    scope: str = ""
    count: int = 0
    _open: _Call | None = field(default=None)

    @property
    def open(self) -> bool:
        """Whether a call has begun and not ended."""
        return self._open is not None

    def goes_on(self, raw: Raw) -> bool:
        """Tell whether a piece belongs to the call that has begun."""
        return self._belongs(_PIECES.decode(raw))

    def take(self, raw: Raw) -> list[StreamEvent]:
        """Take a call or a piece of one; an empty list means that it says nothing.

        Raises:
            AttemptFailed: it cannot be understood.
            msgspec.DecodeError: it has another shape.
        """
        piece = _PIECES.decode(raw)
        events: list[StreamEvent] = []
        if not self._belongs(piece):
            if not piece.name:
                if given(piece.args) or piece.partial_args:
                    raise AttemptFailed(malformed("the answer holds arguments of a call that never began"))
                return events
            events.extend(self._end())
            events.append(self._begin(piece))
        call = self._open
        if call is None:
            return events
        if given(piece.args):
            call.base = rewritten(piece.args)
            if not call.base.startswith(b"{"):
                raise AttemptFailed(malformed("the answer holds a call whose arguments are no object"))
        for one in piece.partial_args or ():
            call.grown = call.grown or _Arguments()
            try:
                call.grown.put(one)
            except ValueError as error:
                raise AttemptFailed(malformed("the answer holds a piece of a call that fits nowhere")) from error
        return events if piece.will_continue else events + self._end()

    def cut(self) -> list[StreamEvent]:
        """Give what there is of a call that a limit cut off: its arguments without their end, which are no JSON."""
        call, self._open = self._open, None
        if call is None:
            return []
        return [ToolCallDelta(call.part, call.id or self._made(call), arguments=call.arguments()[:-1])]

    def _belongs(self, piece: _Piece) -> bool:
        call = self._open
        if call is None or (piece.id and call.id and piece.id != call.id):
            return False
        return not piece.name or (piece.name == call.name and bool(piece.partial_args))

    def _begin(self, piece: _Piece) -> StreamEvent:
        self.count += 1
        call = self._open = _Call(self._allot(), piece.name or "", piece.id or "")
        if not call.id and self.scope:
            call.id = self._made(call)
        return ToolCallDelta(call.part, call.id, call.name)

    def _end(self) -> list[StreamEvent]:
        call, self._open = self._open, None
        if call is None:
            return []
        arguments = call.arguments()
        late = "" if call.id else self._made(call, arguments)
        return [ToolCallDelta(call.part, late, arguments=arguments), PartEnded(call.part)]

    def _made(self, call: _Call, arguments: str = "") -> str:
        # Other dialects take ids of up to 40 letters, digits, `_` and `-`, and no id twice in one conversation.
        if re.fullmatch(r"[\w\-]{1,28}", self.scope, re.ASCII):
            return f"{MADE_ID}{self.count}_{self.scope}"
        whole = "\0".join((self.scope, call.name, arguments))
        return f"{MADE_ID}{self.count}_{hashlib.sha256(whole.encode()).hexdigest()[:20]}"
