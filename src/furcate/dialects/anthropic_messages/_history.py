"""Conversations as ``anthropic-messages`` takes them.

The messages that a node of a history adds are encoded once and kept with it, so the branches of one conversation
share the bytes of its beginning. Two things depend on what follows: provider-run work that was started and not
finished goes back only while its turn is still open, and of the cache hints only the latest few are sent. A node that
either concerns is encoded anew for the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
from attrs import define, field, frozen

from furcate.dialects.anthropic_messages._blocks import Block, Draft, drafts, hosted_form, system_draft
from furcate.dialects.anthropic_messages._wire import CALL_FORMAT, CONTAINER_FORMAT, RESULT_FORMAT
from furcate.primitives._content import HostedActivity
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import CacheHint, Message

MAX_HINTS = 4
"""How many cache hints the provider takes in one request."""

Place: TypeAlias = tuple[int, int]
"""Where a part stands in a node: the position of its message, and its own in it."""

_SYSTEM = ("system", "developer")


@frozen
class Conversation:
    """Hold what a call sends of its history.

    Attributes:
        system: the blocks of the system text.
        chunks: the messages as bytes, with commas between them.
        container: where code runs for work that is still open, or None.
    """

    system: tuple[Block, ...]
    chunks: tuple[bytes, ...]
    container: str | None


@define
class _Trail:
    """Follow provider-run work through the messages of a node.

    Attributes:
        unpaired: places of calls and results whose counterpart is not in the node; by default they are not sent.
        open: places of calls without a result, by id, where the user has not spoken since.
        late: places of results without a call, by id, where the user has not spoken before.
        spoken: whether the user speaks.
        container: where code runs for work that is still open at the end.
    """

    unpaired: set[Place] = field(factory=set)
    open: dict[str, Place] = field(factory=dict)
    late: dict[str, Place] = field(factory=dict)
    spoken: bool = False
    container: str | None = None

    def speak(self) -> None:
        self.spoken = True
        self.open.clear()
        self.container = None

    def follow(self, activity: HostedActivity, form: str | None, place: Place) -> None:
        if form == CONTAINER_FORMAT and activity.payload is not None:
            self.container = activity.payload.value.decode("utf-8", "replace")
        elif activity.state == "started":
            if form == CALL_FORMAT:
                self.open[activity.id] = place
                self.unpaired.add(place)
        elif activity.id in self.open:
            call = self.open.pop(activity.id)
            if form == RESULT_FORMAT:
                self.unpaired.discard(call)
        elif form == RESULT_FORMAT:
            self.unpaired.add(place)
            if not self.spoken:
                self.late[activity.id] = place


@frozen
class _Node:
    """Hold what is known of a node whatever follows it; `data` has all its hints and none of its unpaired work."""

    trail: _Trail
    leading: int
    late_system: Message | None
    late_number: int
    hints: int
    data: bytes


_NODES: MemoKey[_Node] = MemoKey("anthropic-messages")
_UNHINTED: MemoKey[bytes] = MemoKey("anthropic-messages, no cache hints")
_MARKED: MemoKey[bytes] = MemoKey("anthropic-messages, its end marked for caching")


def conversation(history: History, beginning: History | None = None) -> Conversation:
    """Encode a history.

    Args:
        history: the conversation.
        beginning: the node whose end is marked for caching whatever hints there are, if any.

    Raises:
        RequestError: a message says nothing, or holds half a character.
        UnsupportedError: a system message stands behind others, or a medium that the dialect does not carry.
        PayloadError: a native value of the call's own provider cannot be decoded.
    """
    nodes = history.nodes()
    known = [node.memo(_NODES, _look) for node in nodes]
    system = _system(nodes, known)
    kept = _kept([one.trail for one in known])
    left = MAX_HINTS if beginning is None else MAX_HINTS - 1
    mark = _mark_before(nodes, beginning)
    chunks: list[bytes] = []
    for node, one, places in zip(reversed(nodes), reversed(known), reversed(kept), strict=True):
        hints = min(one.hints, left)
        left -= hints
        final = node is history and bool(node.added) and node.added[-1].role == "assistant"
        marked = node is beginning
        if marked and not places and not final and hints == one.hints and mark.ttl_s is None:
            data = node.memo(_MARKED, _with_mark)
        elif marked or places or final or 0 < hints < one.hints:
            unsent = one.trail.unpaired - places
            data = _encode(node, one.leading, unsent, hints=hints, final=final, mark=mark if marked else None)[0]
        elif hints < one.hints:
            data = node.memo(_UNHINTED, _without_hints)
        else:
            data = one.data
        if data:
            chunks += (data, b",")
    _place(system.hints, left)
    chunks.reverse()
    return Conversation(tuple(system.blocks), tuple(chunks[1:]), _container([one.trail for one in known]))


def _look(node: History) -> _Node:
    leading = next((n for n, message in enumerate(node.added) if message.role not in _SYSTEM), len(node.added))
    first = len(node) - len(node.added) + 1
    late = next(((n, one) for n, one in enumerate(node.added) if n > leading and one.role in _SYSTEM), None)
    trail = _Trail()
    for number, message in enumerate(node.added[leading:]):
        if message.role == "user":
            trail.speak()
        for place, part in enumerate(message.parts):
            if isinstance(part, HostedActivity):
                where = f"message {first + leading + number} (assistant)"
                trail.follow(part, hosted_form(part, where), (number, place))
    data, hints = _encode(node, leading, trail.unpaired) if late is None else (b"", 0)
    late_number = first + late[0] if late is not None else 0
    return _Node(trail, leading, late[1] if late is not None else None, late_number, hints, data)


def _without_hints(node: History) -> bytes:
    one = node.memo(_NODES, _look)
    return _encode(node, one.leading, one.trail.unpaired, hints=0)[0]


def _with_mark(node: History) -> bytes:
    one = node.memo(_NODES, _look)
    return _encode(node, one.leading, one.trail.unpaired, mark=CacheHint())[0]


def _mark_before(nodes: Sequence[History], beginning: History | None) -> CacheHint:
    """Make the hint for a shared beginning: no lifetime may be shorter than one that stands behind it."""
    if beginning is None:
        return CacheHint()
    behind = (message.cache for node in nodes if len(node) > len(beginning) for message in node.added)
    return CacheHint(max((hint.ttl_s for hint in behind if hint is not None and hint.ttl_s is not None), default=None))


def _encode(
    node: History,
    leading: int,
    unsent: set[Place],
    *,
    hints: int | None = None,
    final: bool = False,
    mark: CacheHint | None = None,
) -> tuple[bytes, int]:
    """Encode a node with its last `hints` cache hints, or all; give how many could be placed beside it."""
    first = len(node) - len(node.added) + 1 + leading
    made = drafts(node.added[leading:], first, lambda message, part: (message, part) not in unsent)
    wished = [hint for _, draft in made for hint in draft.hints]
    _place(wished, len(wished) if hints is None else hints)
    # A model goes on from an assistant message that comes last, and none goes on from a space.
    if final and made and made[-1][1].role == "assistant":
        made[-1][1].trim()
    if mark is not None:
        any(draft.mark(mark) for _, draft in reversed(made))  # the last message that can carry it does
    data = [_bytes(draft, number) for number, draft in made if draft.blocks]
    return b",".join(data), len(wished)


def _bytes(draft: Draft, number: int) -> bytes:
    try:
        return msgspec.json.encode(draft.plain())
    except UnicodeEncodeError as error:
        raise RequestError(
            f"message {number} ({draft.role}) holds half a character (a lone surrogate), which no request can carry"
        ) from error


def _place(hints: Sequence[tuple[dict[str, object], dict[str, object]]], count: int) -> None:
    for block, control in hints[len(hints) - min(count, len(hints)) :]:
        block["cache_control"] = control


def _system(nodes: Sequence[History], known: Sequence[_Node]) -> Draft:
    """Make the system text of the messages in front of all others.

    Raises:
        UnsupportedError: there is a system message behind another.
    """
    messages: list[Message] = []
    in_front = True
    for node, one in zip(nodes, known, strict=True):
        late, number = one.late_system, one.late_number
        if not in_front and one.leading:
            late, number = node.added[0], len(node) - len(node.added) + 1
        if late is not None:
            raise UnsupportedError(
                f"message {number} ({late.role}) is a system text behind other messages, which anthropic-messages "
                "does not carry; put it in front of the conversation, or say it as the user"
            )
        messages.extend(node.added[: one.leading])
        in_front = in_front and one.leading == len(node.added)
    return system_draft(messages)


def _kept(trails: Sequence[_Trail]) -> list[set[Place]]:
    """Find the unpaired work of each node that goes back all the same.

    A call goes back with a result that came in a later answer of the same turn, or while its turn is still open, for
    the provider to go on with. A result goes back with such a call.
    """
    kept: list[set[Place]] = [set() for _ in trails]
    waiting: dict[str, tuple[int, Place]] = {}
    for number, trail in enumerate(trails):
        for its_id, place in trail.late.items():
            if its_id in waiting:
                caller, call = waiting.pop(its_id)
                kept[caller].add(call)
                kept[number].add(place)
        if trail.spoken:
            waiting.clear()
        waiting.update({its_id: (number, place) for its_id, place in trail.open.items()})
    for number, place in waiting.values():
        kept[number].add(place)
    return kept


def _open_end(trails: Sequence[_Trail]) -> Iterator[_Trail]:
    for trail in reversed(trails):
        yield trail
        if trail.spoken:
            return


def _container(trails: Sequence[_Trail]) -> str | None:
    return next((trail.container for trail in _open_end(trails) if trail.container is not None), None)
