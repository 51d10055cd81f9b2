"""What may go back to a provider: the one place that decides what is foreign.

Opaque state means something to its origin only. State of earlier turns that is foreign is left out and counted; in an
open tool exchange (the messages after the user's last, where they call tools and end with their results) it cannot be
left out without changing what the model knows, so the request is refused. Payloads of provider-run work and of
citations are left out wherever they are foreign; what they were about stays.
"""

from __future__ import annotations

from typing import assert_never

import attrs
from attrs import frozen

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import ForeignReasoningState
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import Message
from furcate.primitives._open_work import open_activities


@frozen
class Partition:
    """Hold what may be sent.

    Attributes:
        history: the history without anything foreign; the very same object where nothing was.
        reasoning_dropped: how many foreign reasoning items were left out.
        payloads_dropped: how many foreign payloads were.
    """

    history: History
    reasoning_dropped: int
    payloads_dropped: int


@frozen
class _Share:
    """Hold what one node of a history adds for one origin."""

    messages: tuple[Message, ...]
    reasoning: int
    payloads: int


_CLEAN: MemoKey[list[Origin]] = MemoKey("origins to which nothing so far is foreign")
_SHARES: MemoKey[dict[tuple[Origin, bool], _Share]] = MemoKey("partition")


def partition_reasoning(history: History, origin: Origin) -> Partition:
    """Leave out of a history what `origin` cannot read.

    Raises:
        ForeignReasoningState: the history ends in an open tool exchange that holds such state.
    """
    if _is_clean(history, origin):
        return Partition(history, 0, 0)
    flight = _flight(history)
    foreign = _foreign_in(flight, origin)
    if foreign:
        raise ForeignReasoningState(origin.provider, foreign)
    shares = _shares(history, origin, len(flight))
    reasoning = sum(share.reasoning for _, share in shares)
    payloads = sum(share.payloads for _, share in shares)
    if not reasoning and not payloads:
        return Partition(history, 0, 0)
    kept: History | None = None
    for node, share in shares:
        untouched = not share.reasoning and not share.payloads
        # A clean beginning is still shared with every relative, encoded form included.
        kept = node if untouched and node.parent is kept else History(share.messages, kept)
    assert kept is not None
    return Partition(kept, reasoning, payloads)


def open_work(history: History, origin: Origin) -> tuple[HostedActivity, ...]:
    """Give the provider-run work that an answer of `origin` may end; what another provider runs does not end there."""
    opened = open_activities(history)
    return tuple(one for one in opened if one.payload is None or one.payload.provider == origin.provider)


def _is_clean(history: History, origin: Origin) -> bool:
    """Tell whether nothing in a history is foreign to an origin; what was found clean is not looked at again."""
    pending: list[History] = []
    node: History | None = history
    while node is not None and origin not in node.memo(_CLEAN, _of_nobody):
        pending.append(node)
        node = node.parent
    for node in reversed(pending):
        share = _separate(node.added, origin, any_model=False)
        if share.reasoning or share.payloads:
            return False
        node.memo(_CLEAN, _of_nobody).append(origin)
    return True


def _of_nobody(_node: History) -> list[Origin]:
    return []


def _flight(history: History) -> tuple[Message, ...]:
    """Find the open tool exchange at the end of a history, newest message first; empty where there is none."""
    if history.last is None or history.last.role != "tool":
        return ()
    found: list[Message] = []
    node: History | None = history
    while node is not None:
        for message in reversed(node.added):
            if message.role == "user":
                return tuple(found)
            found.append(message)
        node = node.parent
    return tuple(found)


def _foreign_in(flight: tuple[Message, ...], origin: Origin) -> tuple[str, ...]:
    if not any(message.tool_calls for message in flight):
        return ()
    states = (part.state for message in flight for part in message.parts if isinstance(part, Reasoning))
    return tuple(state.origin.provider for state in states if state is not None and not _same_realm(state, origin))


def _same_realm(state: ReasoningState, origin: Origin) -> bool:
    return (state.origin.provider, state.origin.dialect) == (origin.provider, origin.dialect)


def _shares(history: History, origin: Origin, in_flight: int) -> list[tuple[History, _Share]]:
    """Give each node's share, oldest first. Within a tool exchange another model of the realm is no stranger."""
    found: list[tuple[History, _Share]] = []
    for node in reversed(history.nodes()):
        size = len(node.added)
        if 0 < in_flight < size:
            past = _separate(node.added[: size - in_flight], origin, any_model=False)
            open_part = _separate(node.added[size - in_flight :], origin, any_model=True)
            share = _Share(
                past.messages + open_part.messages,
                past.reasoning + open_part.reasoning,
                past.payloads + open_part.payloads,
            )
        else:
            share = _share(node, origin, any_model=in_flight > 0)
        in_flight = max(0, in_flight - size)
        found.append((node, share))
    found.reverse()
    return found


def _share(node: History, origin: Origin, *, any_model: bool) -> _Share:
    by_origin = node.memo(_SHARES, lambda _: {})
    found = by_origin.get((origin, any_model))
    if found is None:
        found = by_origin[origin, any_model] = _separate(node.added, origin, any_model=any_model)
    return found


def _separate(messages: tuple[Message, ...], origin: Origin, *, any_model: bool) -> _Share:
    reasoning = payloads = 0
    kept = []
    for message in messages:
        parts = []
        changed = False
        for part in message.parts:
            left, dropped_reasoning, dropped_payloads = _filtered(part, origin, any_model)
            reasoning += dropped_reasoning
            payloads += dropped_payloads
            changed = changed or bool(dropped_reasoning or dropped_payloads)
            parts.append(left)
        kept.append(attrs.evolve(message, parts=tuple(parts)) if changed else message)
    return _Share(tuple(kept), reasoning, payloads)


def _own(payload: ProviderPayload, origin: Origin) -> bool:
    # A payload's format begins with the dialect that wrote it, and two dialects may share one realm.
    return payload.provider == origin.provider and payload.format.startswith(f"{origin.dialect}.")


def _filtered(part: Part, origin: Origin, any_model: bool) -> tuple[Part, int, int]:
    match part:
        case Reasoning(state=ReasoningState() as state) if not (
            _same_realm(state, origin) if any_model else state.origin == origin
        ):
            return attrs.evolve(part, state=None), 1, 0
        case HostedActivity(payload=ProviderPayload() as payload) if not _own(payload, origin):
            return attrs.evolve(part, payload=None), 0, 1
        case ToolCall(payload=ProviderPayload() as payload) if not _own(payload, origin):
            return attrs.evolve(part, payload=None), 0, 1
        case Text():
            return _filtered_text(part, origin)
        case Reasoning() | HostedActivity() | ToolCall():
            return part, 0, 0  # nothing foreign in it
        case Refusal() | ToolResult() | Media():
            return part, 0, 0  # never anything opaque in it
        case _:
            assert_never(part)


def _filtered_text(part: Text, origin: Origin) -> tuple[Text, int, int]:
    if part.payload is None and not part.attributions:
        return part, 0, 0
    own = part.payload is None or _own(part.payload, origin)
    foreign = [one for one in part.attributions if one.replay is not None and not _own(one.replay, origin)]
    if own and not foreign:
        return part, 0, 0

    def cleaned(one: Attribution) -> Attribution:
        return attrs.evolve(one, replay=None) if one in foreign else one

    left = attrs.evolve(
        part,
        attributions=tuple(cleaned(one) for one in part.attributions),
        payload=part.payload if own else None,
    )
    return left, 0, len(foreign) + (not own)
