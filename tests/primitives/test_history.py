"""The messages of a conversation, shared between all that continue it."""

import copy
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import CacheHint, Message

_WORDS = st.text(max_size=8)
_BYTES = st.binary(max_size=6)
_PAYLOADS = st.builds(ProviderPayload, provider=_WORDS, format=_WORDS, version=_WORDS, value=_BYTES)
_ATTRIBUTIONS = st.builds(
    Attribution,
    st.builds(Source, _WORDS, _WORDS),
    excerpt=st.none() | _WORDS,
    range=st.none() | st.just((0, 2)),
    replay=st.none() | _PAYLOADS,
)
_ASSISTANT_PARTS = st.one_of(
    st.builds(Text, _WORDS, attributions=st.lists(_ATTRIBUTIONS, max_size=2), attribution_complete=st.booleans()),
    st.builds(Refusal, _WORDS),
    st.builds(
        Reasoning,
        _WORDS,
        st.none() | st.builds(ReasoningState, st.builds(Origin, _WORDS, _WORDS, _WORDS), _WORDS, _BYTES),
    ),
    st.builds(ToolCall, _WORDS, _WORDS, _WORDS, st.sampled_from(["function", "custom"])),
    st.builds(
        HostedActivity,
        _WORDS,
        _WORDS,
        st.sampled_from(["started", "completed", "failed"]),
        input=st.dictionaries(_WORDS, _WORDS, max_size=2),
        summary=_WORDS,
        payload=st.none() | _PAYLOADS,
        position=st.none() | st.integers(0, 9),
        scope=_WORDS,
    ),
    st.builds(Media, _WORDS, data=_BYTES, name=st.none() | _WORDS),
)
_MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(lambda text, ttl: Message.user(text, cache=ttl), _WORDS, st.none() | st.builds(CacheHint, st.integers())),
    st.builds(lambda parts: Message("assistant", parts), st.lists(_ASSISTANT_PARTS, max_size=3)),
    st.builds(lambda result: Message.tool(result), st.builds(ToolResult, _WORDS, _WORDS, st.booleans())),
)


def _cut(messages: Sequence[Message], places: list[int]) -> History:
    history = History()
    edges = sorted(place % (len(messages) + 1) for place in places)
    for start, end in zip([0, *edges], [*edges, len(messages)], strict=True):
        history = History(messages[start:end], history)
    return history


@given(st.lists(_MESSAGES, max_size=6), st.lists(st.integers(0, 99), max_size=4), st.integers(0, 99))
def test_equal_content_has_an_equal_digest_however_it_was_cut(
    messages: list[Message], places: list[int], asked_before: int
) -> None:
    """Neither the nodes it is made of, nor which of them were asked before, shows in a history's digest."""
    whole, cut = History(messages), _cut(copy.deepcopy(messages), places)
    nodes = cut.nodes()
    assert len(nodes[asked_before % len(nodes)].digest) == 32
    assert cut.digest == whole.digest
    assert cut == whole
    assert hash(cut) == hash(whole)
    assert tuple(cut) == tuple(whole) == tuple(messages)
    assert len(cut) == len(messages)
    assert cut.last == (messages[-1] if messages else None)


@given(st.lists(_MESSAGES, max_size=4), st.lists(_MESSAGES, max_size=4))
def test_different_content_has_a_different_digest(left: list[Message], right: list[Message]) -> None:
    """Two histories have one digest exactly where their messages are equal."""
    assert (History(left).digest == History(right).digest) == (left == right)


_ORIGIN = Origin("p", "d", "m")
_PAYLOAD = ProviderPayload("p", "f", "1", b"value")
_CITED = Attribution(Source("u", "t"), excerpt="e", range=(0, 1), replay=_PAYLOAD)
_ACTIVITY = HostedActivity("i", "n", "started", input={"q": 1}, summary="s", payload=_PAYLOAD, position=1, scope="r")


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        (Text("a", (_CITED,)), {"text": "b", "attributions": (), "attribution_complete": False}),
        (Refusal("a"), {"text": "b"}),
        (Reasoning("a", ReasoningState(_ORIGIN, "f", b"x")), {"text": "b", "state": None}),
        (ToolCall("i", "n", "a"), {"id": "j", "name": "m", "arguments": "b", "kind": "custom"}),
        (
            _ACTIVITY,
            {
                "id": "j",
                "name": "m",
                "state": "completed",
                "input": {"q": 2},
                "summary": "t",
                "payload": None,
                "position": 2,
                "scope": "q",
            },
        ),
        (Media("image/png", b"x", None, "n"), {"media_type": "image/gif", "data": b"y", "name": None}),
    ],
    ids=lambda value: type(value).__name__ if attrs.has(type(value)) else "",
)
def test_every_field_of_a_part_counts_in_the_digest(part: Any, changes: dict[str, Any]) -> None:
    """Changing any one thing in a part, opaque values included, changes the digest."""
    digests = {History([Message.assistant(part)]).digest}
    for name, value in changes.items():
        digests.add(History([Message.assistant(attrs.evolve(part, **{name: value}))]).digest)
    assert len(digests) == len(changes) + 1


@pytest.mark.parametrize(
    "changed",
    [
        attrs.evolve(_CITED, source=Source("v", "t")),
        attrs.evolve(_CITED, source=Source("u", "w")),
        attrs.evolve(_CITED, excerpt=None),
        attrs.evolve(_CITED, range=(0, 2)),
        attrs.evolve(_CITED, replay=None),
        attrs.evolve(_CITED, replay=attrs.evolve(_PAYLOAD, value=b"other")),
        attrs.evolve(_CITED, replay=attrs.evolve(_PAYLOAD, version="2")),
    ],
)
def test_every_field_of_a_citation_counts_in_the_digest(changed: Attribution) -> None:
    """Changing any one thing in a citation changes the digest."""
    one, other = (History([Message.assistant(Text("a", (cited,)))]) for cited in (_CITED, changed))
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([Message.user("ab")], [Message.user("a", "b")]),
        ([Message.user("a"), Message.user("b")], [Message.user("a", "b")]),
        ([Message.user("a")], [Message.system("a")]),
        ([Message.user("a")], [Message.user("a", cache=CacheHint())]),
        ([Message.assistant("a")], [Message.assistant(Refusal("a"))]),
        ([Message.user("a"), Message.user("b")], [Message.user("b"), Message.user("a")]),
    ],
)
def test_structure_counts_in_the_digest(one: list[Message], other: list[Message]) -> None:
    """The same words in other parts, messages, roles or order are another conversation."""
    assert History(one).digest != History(other).digest


@pytest.mark.req("S4-024")
def test_branches_share_their_past_and_nothing_else() -> None:
    """Two continuations hold the same past by identity, and neither sees the other's messages."""
    past = History([Message.user("long"), Message.assistant("past")])
    before = past.digest
    left, right = past.extend([Message.user("left")]), past.extend([Message.user("right")])
    assert left.parent is past
    assert right.parent is past
    assert left.added == (Message.user("left"),)
    assert [message.text for message in right] == ["long", "past", "right"]
    assert past.digest == before
    assert len(past) == 2
    assert left != right


def test_adding_nothing_gives_the_same_history() -> None:
    """There is no node without messages where nothing was added."""
    past = History([Message.user("a")])
    assert past.extend([]) is past


def test_the_caller_s_list_is_copied() -> None:
    """Changing the list that a history was made of changes nothing in it."""
    messages = [Message.user("a")]
    history = History(messages)
    messages.append(Message.user("b"))
    assert len(history) == 1
    assert [message.text for message in history] == ["a"]


def test_copies_are_the_same_object() -> None:
    """A history cannot change, so a copy of it is the history."""
    history = History([Message.user("a")])
    assert copy.copy(history) is history
    assert copy.deepcopy(history) is history


def test_a_history_shows_no_content() -> None:
    """Its text form counts the messages and quotes none."""
    assert repr(History([Message.user("secret")])) == "<History of 1 messages>"


def test_memos_are_computed_once_for_each_node_and_key() -> None:
    """What was computed of the past is not computed again for a continuation, nor is it mixed up with another key."""
    past = History([Message.user("a")])
    length, words = MemoKey[int]("length"), MemoKey[str]("words")
    seen: list[History] = []

    def count(node: History) -> int:
        seen.append(node)
        return len(node.added) + (node.parent.memo(length, count) if node.parent is not None else 0)

    children = [past.extend([Message.user(str(number))]) for number in range(3)]
    assert [child.memo(length, count) for child in (*children, *children)] == [2] * 6
    assert seen.count(past) == 1
    assert len(seen) == 4
    assert past.memo(words, lambda node: repr(node)) == "<History of 1 messages>"
    assert past.memo(length, count) == 1


def test_a_very_long_chain_is_walked_without_recursion() -> None:
    """Twenty thousand turns, each a node of its own, can be counted, hashed, walked and dropped."""
    history = History()
    for number in range(20_000):
        history = history.extend([Message.user(str(number))])
    assert len(history) == 20_000
    assert len(history.digest) == 32
    assert sum(1 for _ in history) == 20_000
    assert history.last == Message.user("19999")
    del history
