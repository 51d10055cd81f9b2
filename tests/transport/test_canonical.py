"""Requests as canonical MessagePack: equal ones have equal bytes, and opaque state is bytes in them."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.groups import Group
from furcate.observers import Recorder
from furcate.primitives._content import Media, Origin, ProviderPayload, Reasoning, ReasoningState, Text, ToolCall
from furcate.primitives._contract import Contract
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._request import Request
from furcate.primitives._resources import MessageTemplate, Prompt
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._stream import ReasoningSealed
from furcate.primitives._usage import Usage
from furcate.primitives._wire import ModelCall
from furcate.transport import TransportService, native_sha256, provider_request, provider_sha256

HERE = Origin("here", "openai-chat", "m")
ASK = Message.user("Hello")


def state(data: bytes) -> ReasoningState:
    return ReasoningState(HERE, "sealed", data)


def call(*messages: Message, **given: Any) -> ModelCall:
    return ModelCall(**{"model": "m", "history": History(messages or (ASK,)), **given})


def packed(one: ModelCall) -> bytes:
    return b"".join(provider_request(one))


@pytest.mark.req("S2-18")
def test_requests_and_events_both_carry_reasoning_state() -> None:
    """State arrives in an event and goes back in a message part, as the same value."""
    arrived = ReasoningSealed(0, state(b"s"))
    asked = call(ASK, Message("assistant", (Reasoning("", arrived.state),)), ASK)
    assert msgspec.msgpack.decode(packed(asked))["messages"][1]["parts"][0]["state"][-1] == b"s"


@pytest.mark.req("S2-19")
@given(st.binary(max_size=300))
def test_state_is_written_as_bytes(data: bytes) -> None:
    """Any bytes, UTF-8 or not, are one MessagePack bin and come back identical."""
    decoded = msgspec.msgpack.decode(packed(call(ASK, Message("assistant", (Reasoning("", state(data)),)))))
    found = decoded["messages"][1]["parts"][0]["state"][-1]
    assert type(found) is bytes
    assert found == data


@pytest.mark.req("S2-19")
def test_state_that_is_no_text_has_the_type_of_bytes_on_the_wire() -> None:
    """The piece begins with the marker of bin 8, its length, and then the very bytes."""
    assert b"\xc4\x03\xff\xfe\x00" in packed(call(ASK, Message("assistant", (Reasoning("", state(b"\xff\xfe\x00")),))))


def test_a_request_is_one_map_of_known_members() -> None:
    """What is joined from shared pieces decodes as one document."""
    asked = call(
        Message.system("Be brief.", cache=CacheHint(60)),
        Message.user("Look:", Media("image/png", b"\x89")),
        settings=Settings(temperature=0.5, stop=["END"], extra_body={"b": 1, "a": [None]}),
        tools=(Tool("look"),),
        tool_choice="look",
        schema=("answer", FrozenMap({"type": "object"})),
        server_tools=("web_search",),
    )
    decoded = msgspec.msgpack.decode(packed(asked))
    assert list(decoded) == [
        "messages",
        "model",
        "schema",
        "server_tools",
        "settings",
        "tool_choice",
        "tools",
    ]
    assert decoded["messages"][0]["cache"] == 60
    assert decoded["messages"][1]["parts"][1]["data"] == b"\x89"
    assert decoded["settings"]["extra_body"] == {"a": [None], "b": 1}
    assert decoded["schema"] == ["answer", {"type": "object"}]


@pytest.mark.parametrize("length", [1, 15, 16, 300, 65535, 65536])
def test_conversations_of_any_length_decode(length: int) -> None:
    """The head of the list of messages has the right form on both sides of each of its limits."""
    decoded = msgspec.msgpack.decode(packed(call(*[ASK] * length)))
    assert len(decoded["messages"]) == length


@given(st.integers(0, 4), st.integers(0, 4))
def test_equal_requests_have_equal_bytes_however_they_came_about(first: int, second: int) -> None:
    """Neither the cuts of a history nor the order of members in JSON shows."""
    messages = [ASK, Message("assistant", (Text("a"), ToolCall("c", "f", "{}"))), ASK, Message.assistant("b")]
    cut = History(messages[:first]).extend(messages[first:])
    other = History(messages[:second]).extend(messages[second:])
    one = ModelCall(model="m", history=cut, settings=Settings(extra_body={"a": 1, "b": {"c": 2, "d": 3}}))
    two = ModelCall(model="m", history=other, settings=Settings(extra_body={"b": {"d": 3, "c": 2}, "a": 1}))
    assert packed(one) == packed(two)
    assert provider_sha256(one) == provider_sha256(two) == hashlib.sha256(packed(one)).digest()


@pytest.mark.parametrize(
    "other",
    [
        {"model": "n"},
        {"history": History([Message.user("Hello", cache=CacheHint())])},
        {"history": History([Message.system("Hello")])},
        {"settings": Settings(seed=1)},
        {"tools": (Tool("look"),)},
        {"tool_choice": "none"},
        {"schema": ("answer", FrozenMap({}))},
        {"server_tools": ("web_search",)},
    ],
)
def test_another_request_has_another_digest(other: dict[str, Any]) -> None:
    """Everything that a provider would be asked differently is bound."""
    assert provider_sha256(call(**other)) != provider_sha256(call())


def test_relatives_share_the_pieces_of_their_beginning() -> None:
    """A long shared conversation is encoded once for all its branches."""
    beginning = History([ASK, Message.assistant("Good day.")])
    pieces = [provider_request(call(history=beginning.extend([Message.user(text)]))) for text in ("a", "b")]
    shared = [piece for piece in pieces[0] if any(piece is other for other in pieces[1]) and len(piece) > 50]
    assert len(shared) == 1


def test_the_digest_is_taken_before_anything_is_left_out() -> None:
    """Foreign state is bound by the digest and explained by the count; the request that goes out has another one."""
    foreign = ReasoningState(Origin("there", "openai-chat", "m"), "sealed", b"x")
    asked = call(ASK, Message("assistant", (Reasoning("", foreign),)), ASK)
    begun = TransportService(HERE, "r").begin(asked, request_id="1", native_request_sha256=bytes(32))
    receipt = begun.transported(Message.assistant("a"), "end_turn", Usage()).receipt
    assert receipt.provider_request_sha256 == provider_sha256(asked) != provider_sha256(begun.request)
    assert receipt.foreign_reasoning_dropped == 1


REQUEST = Request("greet", vars={"name": "Ada", "n": 1}, profile="p", session_id="s")


def test_the_native_digest_binds_what_was_asked_and_nothing_else() -> None:
    """Credentials, observers, groups and capture change nothing; whatever is asked differently does."""
    same = attrs.evolve(REQUEST, credential="SECRET", observers=[Recorder()], groups=[Group("g")], capture=True)
    assert native_sha256(same, None) == native_sha256(REQUEST, None)
    for other in (
        {"prompt": "part"},
        {"prompt": Prompt("greet", [MessageTemplate("user", "Hi {{ name }}")])},
        {"vars": {"name": "Ada", "n": 2}},
        {"messages": "Hello"},
        {"profile": "q"},
        {"session_id": None},
        {"contract": Contract({"type": "object"})},
        {"inputs": {"text": "in.txt"}},
        {"settings": Settings(seed=1)},
        {"tools": [Tool("look")]},
        {"tool_choice": "none"},
    ):
        assert native_sha256(attrs.evolve(REQUEST, **other), None) != native_sha256(REQUEST, None), other


def test_the_native_digest_binds_the_conversation_that_is_continued() -> None:
    """The same words on top of another conversation are another request; which run it came from is not asked."""
    one, other = (Exchange(History([ASK, Message.assistant(text)]), run_id="r1") for text in ("a", "b"))
    assert native_sha256(REQUEST, one) != native_sha256(REQUEST, other)
    assert native_sha256(REQUEST, one) != native_sha256(REQUEST, None)
    assert native_sha256(REQUEST, attrs.evolve(one, run_id="r2")) == native_sha256(REQUEST, one)


def test_payloads_are_bytes_too() -> None:
    """What a provider wants back with a part is carried byte for byte."""
    payload = ProviderPayload("here", "item", "1", b"\x80\x81")
    decoded = msgspec.msgpack.decode(packed(call(ASK, Message("assistant", (Text("a", payload=payload),)))))
    assert decoded["messages"][1]["parts"][0]["payload"] == ["here", "item", "1", b"\x80\x81"]
