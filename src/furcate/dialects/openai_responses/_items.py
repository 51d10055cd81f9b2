"""The output items of one ``openai-responses`` answer, each told piece by piece, at once, or both.

What an item says at its end confirms what came before, or supplies what did not come; what contradicts it breaks the
answer. A response tells all its items once more when it ends.
"""

from __future__ import annotations

from typing import TypeAlias

from furcate.dialects._failures import malformed
from furcate.dialects._open_work import recorded_version
from furcate.dialects.openai_responses._hosted import (
    KINDS,
    Input,
    Kind,
    UnknownWord,
    picture_of,
    read_state,
    summary_of,
)
from furcate.dialects.openai_responses._message import MessageItem
from furcate.dialects.openai_responses._sheet import (
    REASONING_FORMAT,
    UNKNOWN_FORMAT,
    VERSION,
    Piece,
    Sheet,
    unsupported,
)
from furcate.dialects.openai_responses._wire import (
    NULL,
    Members,
    clean_kind,
    compact,
    given,
    read_list,
    read_members,
    text_of,
    told,
    told_arguments,
)
from furcate.primitives._content import ActivityState, HostedActivity, ProviderPayload, ReasoningState
from furcate.primitives._json import FrozenMap
from furcate.primitives._stream import (
    HostedTransition,
    MediaArrived,
    PartEnded,
    PartPayload,
    ReasoningDelta,
    ReasoningSealed,
    ToolCallDelta,
)
from furcate.primitives._wire import AttemptFailed

_IN_THE_CALL = frozenset({"type", "call_id", "name", "arguments", "input", "status"})


class ReasoningItem:
    """Follow reasoning: a summary in parts, raw thought, and the sealed state."""

    def __init__(self, sheet: Sheet) -> None:
        self.done = False
        self._sheet = sheet
        self._index = sheet.allot()
        self._placed = False
        self._pieces: dict[tuple[str, int], Piece] = {}

    def place(self) -> None:
        """Fix the item's place among the parts, since another one begins before this one has said anything."""
        if not self._placed and not self.done:
            self._tell("")

    def think(self, where: str, number: int, text: str) -> None:
        """Take a piece of part `number` of the ``summary`` or the ``content``."""
        piece = self._pieces.get((where, number))
        if piece is None:
            piece = self._pieces[where, number] = Piece(self._index)
        if text:
            if not piece.length and any(other.length for other in self._pieces.values()):
                self._tell("\n\n")
            piece.add(text)
            self._tell(text)

    def thought(self, where: str, number: int, whole: str) -> None:
        """Take all of a part."""
        self.think(where, number, "")
        self.think(where, number, self._pieces[where, number].missing(whole, "a thought"))

    def confirm(self, members: Members) -> None:
        """Take the item as a whole."""
        for where in ("summary", "content"):
            for number, raw in enumerate(read_list(members.get(where))):
                self.thought(where, number, told(read_members(raw).get("text")))

    def finish(self, members: Members) -> None:
        """Take the item's end."""
        self.confirm(members)
        # An id alone stands for what the provider keeps, and nothing is kept there for us.
        if text_of(members, "encrypted_content"):
            self._placed = True
            state = ReasoningState(self._sheet.origin, REASONING_FORMAT, compact(members))
            self._sheet.emit(ReasoningSealed(self._index, state))
        else:
            self._sheet.notice("reasoning.unsealed")
        if self._placed:
            self._sheet.emit(PartEnded(self._index))
        self.done = True

    def _tell(self, text: str) -> None:
        self._placed = True
        self._sheet.emit(ReasoningDelta(self._index, text))


class CallItem:
    """Follow a call that waits for the application: a function with JSON arguments, or free-form input."""

    def __init__(self, sheet: Sheet, members: Members, position: int) -> None:
        self.done = False
        self.custom = text_of(members, "type") == "custom_tool_call"
        self.complete = False
        self._sheet = sheet
        self._position = position
        self._id = ""
        self._name = ""
        self._arguments = Piece(sheet.allot())
        self._identify(members)

    @property
    def part(self) -> int:
        """The index of the call's part."""
        return self._arguments.index

    def write(self, text: str) -> None:
        """Take a piece of the arguments."""
        if text:
            self._arguments.add(text)
            self._sheet.emit(ToolCallDelta(self.part, arguments=text, custom=self.custom))

    def written(self, whole: str) -> None:
        """Take all the arguments."""
        self.write(self._arguments.missing(whole, "the arguments of a call"))
        self.complete = True

    def confirm(self, members: Members) -> None:
        """Take the item as a whole."""
        self._identify(members)
        raw = members.get("input" if self.custom else "arguments", NULL)
        if given(raw):
            self.written(told_arguments(raw))

    def finish(self, members: Members) -> None:
        """Take the item's end."""
        self.confirm(members)
        self._end()
        payload = compact(members, without=_IN_THE_CALL)
        if payload != b"{}":
            self._sheet.emit(PartPayload(self.part, self._sheet.payload(payload)))
        self._sheet.emit(PartEnded(self.part))

    def close(self) -> None:
        """Take the end of an answer that never ended this item.

        Raises:
            AttemptFailed: the call is not whole.
        """
        if not self.complete:
            raise AttemptFailed(malformed("the answer ends although a tool call in it is not finished"))
        self._end()
        self._sheet.emit(PartEnded(self.part))

    def _identify(self, members: Members) -> None:
        its_id = "" if self._id else text_of(members, "call_id")
        name = "" if self._name else text_of(members, "name")
        if its_id or name:
            self._id, self._name = self._id or its_id, self._name or name
            self._sheet.emit(ToolCallDelta(self.part, its_id, name, custom=self.custom))

    def _end(self) -> None:
        if not self._name:
            raise AttemptFailed(malformed("the answer holds a tool call without a name"))
        if not self._id:  # results are answered by id
            self._id = f"call_{self._position}"
            self._sheet.emit(ToolCallDelta(self.part, self._id, custom=self.custom))
        self.done = True


class HostedItem:
    """Follow work that the provider runs, or that it asks the client to run."""

    def __init__(self, sheet: Sheet, members: Members, position: int) -> None:
        self.done = False
        self.type = text_of(members, "type")
        self._kind: Kind = KINDS[self.type]
        self._sheet = sheet
        self._position = position
        given = text_of(members, "id")
        self._id = given or f"item_{position}"
        self._start = sheet.open_work.find(given)
        self.waits = self._kind.waits(members)
        if not self.waits and self._start is None:
            self._tell("started")

    def confirm(self, members: Members) -> None:
        """Take the item once more; its end was told, and what is told again changes nothing."""

    def finish(self, members: Members) -> None:
        """Take the item's end.

        Raises:
            AttemptFailed: it says something that nobody decided about.
        """
        version = recorded_version(self._start, VERSION)
        payload = self._sheet.payload(compact(members, nulls=True), version=version)
        state: ActivityState = "completed"
        asked: Input = {}
        try:
            state, status = read_state(self.type, members)
            if status is not None and not self.waits:
                self._sheet.notice(f"{self.type}.status:{status}")
            asked = self._kind.read(members)
        except UnknownWord as error:
            if self._sheet.unknown_content != "carry":
                raise unsupported(error.place) from error
            self._sheet.notice(error.place)
        # What waits for the client has not been run, whatever the item says of itself.
        state = "started" if self.waits else state
        summary = summary_of(self._kind.name, asked)
        self._tell(state, asked=FrozenMap(asked), summary=summary, payload=payload)
        picture = picture_of(members) if self.type == "image_generation_call" else None
        if picture is not None:
            self._sheet.emit(MediaArrived(self._sheet.allot(), picture))
        self.done = True

    def _tell(
        self,
        state: ActivityState,
        *,
        asked: FrozenMap | None = None,
        summary: str = "",
        payload: ProviderPayload | None = None,
    ) -> None:
        activity = HostedActivity(
            self._id,
            self._kind.name,
            state,
            input=asked if asked is not None else FrozenMap(),
            summary=summary,
            payload=payload,
            position=self._position,
            scope=self._sheet.scope if self._start is None else self._start.scope,
        )
        self._sheet.emit(HostedTransition(activity))


class UnknownItem:
    """Keep an item of an unknown kind as it is, where that is wanted."""

    def __init__(self, sheet: Sheet, members: Members, position: int) -> None:
        self.done = False
        self._kind = clean_kind(text_of(members, "type"))
        if sheet.unknown_content != "carry":
            raise unsupported(f"an item of the kind {self._kind}")
        self._sheet = sheet
        self._position = position

    def confirm(self, members: Members) -> None:
        """Take the item once more."""

    def finish(self, members: Members) -> None:
        """Take the item's end."""
        its_id = text_of(members, "id") or f"item_{self._position}"
        written = compact(members, nulls=True)
        self._sheet.carry(self._kind, written, id=its_id, position=self._position, form=UNKNOWN_FORMAT)
        self.done = True


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | HostedItem | UnknownItem


def open_item(sheet: Sheet, members: Members, position: int) -> Item:
    """Begin to follow an item.

    Raises:
        AttemptFailed: it is of an unknown kind, and such content is not to be carried.
    """
    kind = text_of(members, "type")
    if kind == "message":
        return MessageItem(sheet)
    if kind == "reasoning":
        return ReasoningItem(sheet)
    if kind in ("function_call", "custom_tool_call"):
        return CallItem(sheet, members, position)
    if kind in KINDS:
        return HostedItem(sheet, members, position)
    return UnknownItem(sheet, members, position)
