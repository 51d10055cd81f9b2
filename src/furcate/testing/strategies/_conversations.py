"""Parts, messages, histories and exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from hypothesis import strategies as st

from furcate.primitives._content import (
    ActivityState,
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message, Role
from furcate.testing.strategies._plain import json_objects, words

_BYTES = st.binary(max_size=12)
_NAMES = st.text("abcxyz019-_", min_size=1, max_size=8)
_PAYLOADS = st.builds(ProviderPayload, _NAMES, _NAMES, _NAMES, _BYTES)
_ORIGINS = st.builds(Origin, _NAMES, _NAMES, _NAMES)
_RANGES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair)))
_ATTRIBUTIONS = st.builds(
    Attribution,
    st.builds(Source, words(), words()),
    st.none() | words(),
    st.none() | _RANGES,
    st.none() | _PAYLOADS,
)
_TEXTS = st.builds(Text, words(), st.lists(_ATTRIBUTIONS, max_size=2), st.booleans(), payload=st.none() | _PAYLOADS)
_REASONING = st.builds(Reasoning, words(), st.none() | st.builds(ReasoningState, _ORIGINS, _NAMES, _BYTES))
_CALLS = st.builds(
    ToolCall, _NAMES, _NAMES, words(), st.sampled_from(["function", "custom"]), payload=st.none() | _PAYLOADS
)
_ACTIVITIES = st.builds(
    HostedActivity,
    _NAMES,
    _NAMES,
    st.sampled_from(get_args(ActivityState)),
    input=json_objects(4),
    summary=words(),
    payload=st.none() | _PAYLOADS,
    position=st.none() | st.integers(0, 99),
    scope=words(),
)
_MEDIA = st.builds(Media, _NAMES, _BYTES, st.none(), st.none() | words()) | st.builds(
    Media, _NAMES, st.none(), words(), st.none() | words()
)
_HINTS = st.none() | st.builds(CacheHint, st.none() | st.integers(0, 10_000))

_PARTS: Mapping[Role, st.SearchStrategy[Part]] = {
    "system": _TEXTS,
    "developer": _TEXTS,
    "user": _TEXTS | _MEDIA,
    "assistant": _TEXTS | st.builds(Refusal, words()) | _REASONING | _CALLS | _ACTIVITIES | _MEDIA,
    "tool": st.builds(ToolResult, _NAMES, words(), st.booleans()),
}


def parts(role: Role = "assistant") -> st.SearchStrategy[Part]:
    """Give parts of every kind that messages of a role are made of, with whatever may be attached to them."""
    return _PARTS[role]


def messages(role: Role | None = None, *, most_parts: int = 3) -> st.SearchStrategy[Message]:
    """Give messages.

    Args:
        role: whose; any where it is None.
        most_parts: how many parts one has at most.
    """
    if role is None:
        return st.sampled_from(list(_PARTS)).flatmap(lambda one: messages(one, most_parts=most_parts))
    least = 0 if role == "assistant" else 1
    return st.builds(Message, st.just(role), st.lists(_PARTS[role], min_size=least, max_size=most_parts), _HINTS)


def histories(*, most_messages: int = 5) -> st.SearchStrategy[History]:
    """Give histories of any messages, which need not answer each other, in one piece or continued piece by piece.

    Args:
        most_messages: how many messages one has at most.
    """
    pieces = st.lists(st.lists(messages(), max_size=most_messages), max_size=3)
    return pieces.map(lambda cut: _continued(cut, most_messages))


def exchanges(*, most_messages: int = 5) -> st.SearchStrategy[Exchange]:
    """Give exchanges: any history, and an assistant message at its end.

    Args:
        most_messages: how many messages come before the last.
    """
    ended = st.builds(
        lambda before, last: before.extend([last]), histories(most_messages=most_messages), messages("assistant")
    )
    carriers = st.dictionaries(_NAMES, words(), max_size=2)
    return st.builds(Exchange, ended, _NAMES, st.none() | _NAMES, carriers)


def _continued(cut: list[list[Message]], most_messages: int) -> History:
    history = History()
    for piece in cut:
        history = history.extend(piece[: most_messages - len(history)])
    return history
