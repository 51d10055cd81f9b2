"""Values that are stored and read again."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import furcate
from furcate.primitives._content import (
    HostedActivity,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Text,
    ToolCall,
)
from furcate.primitives._errors import StorageError
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._result import Result, Validation
from furcate.storage import Storable, base_of, from_bytes, to_bytes
from furcate.testing import StubProvider, StubRequest, answer
from furcate.testing.strategies import exchanges, histories, json_objects, messages, results

VALUES: st.SearchStrategy[Any] = st.one_of(
    messages(), histories(most_messages=2), exchanges(most_messages=2), results()
)


@pytest.mark.req("S0-18", "S0-22", "S0-23", "S0-41")
@settings(max_examples=50)
@given(VALUES)
def test_values_come_back_equal(value: Storable) -> None:
    """Whatever a value holds, it comes back equal, and its bytes are the same again."""
    data = to_bytes(value)
    loaded = from_bytes(data, type(value))
    assert loaded == value
    assert to_bytes(loaded) == data
    assert from_bytes(data) == value


@settings(max_examples=20)
@given(exchanges(most_messages=2))
def test_exchanges_keep_their_digest(exchange: Exchange) -> None:
    """The digest covers every member that matters, opaque ones too."""
    loaded = from_bytes(to_bytes(exchange), Exchange)
    assert loaded.digest == exchange.digest
    assert loaded.details() == exchange.details()
    assert dict(loaded.carrier) == dict(exchange.carrier)
    assert (loaded.run_id, loaded.parent_run_id) == (exchange.run_id, exchange.parent_run_id)


@settings(max_examples=20)
@given(histories(most_messages=3), messages("assistant"))
def test_equal_conversations_have_equal_bytes(history: History, last: Message) -> None:
    """How a conversation was cut into pieces makes no difference to its bytes."""
    pieces = Exchange(history.extend([last]), "r")
    whole = Exchange(History([*history, last]), "r")
    assert to_bytes(pieces) == to_bytes(whole)


@given(json_objects())
def test_the_order_of_members_makes_no_difference(members: dict[str, Any]) -> None:
    """Objects are equal whatever the order of their members, and so are their bytes."""
    backwards = dict(reversed(members.items()))
    one, other = (
        Message.assistant(HostedActivity("a", "web_search", "started", input=FrozenMap(told)))
        for told in (members, backwards)
    )
    assert to_bytes(one) == to_bytes(other)


@pytest.mark.req("S0-12")
def test_a_later_transition_leaves_the_earlier_bytes_alone() -> None:
    """An activity that ends is a further transition: what was stored of its start is the same bytes."""
    start = HostedActivity("srv", "web_search", "started", payload=ProviderPayload("p", "f", "1", b"\xff\x00"))
    end = attrs.evolve(start, state="completed", summary="a")
    before = to_bytes(Message.assistant(start))
    both = Message.assistant(start, end)
    assert to_bytes(Message.assistant(both.parts[0])) == before
    assert from_bytes(to_bytes(both), Message).parts == (start, end)


@pytest.mark.req("S0-22", "S0-23")
@pytest.mark.parametrize("value", [b"", b"\xff\xfe\x00", b'{"b": 1,  "a":2}', b"eyJhIjoxfQ=="])
def test_opaque_values_are_not_looked_at(value: bytes) -> None:
    """Bytes of any form and version come back as they are, those that look like text or base64 too."""
    kept = ProviderPayload("lab", "some.future/format", "2031-01", value)
    state = ReasoningState(Origin("lab", "d", "m"), "sealed", value)
    message = Message.assistant(Text("x", payload=kept), Reasoning("", state), ToolCall("c", "n", payload=kept))
    assert from_bytes(to_bytes(message), Message) == message
    assert value in to_bytes(message)


def test_arguments_of_calls_are_kept_as_they_were_written() -> None:
    """Spaces, order and broken JSON of a call's arguments stay."""
    for written in ('{"b": 1,  "a": 2}', '{"a": ', "", "free text"):
        message = Message.assistant(ToolCall("c", "n", written))
        [call] = from_bytes(to_bytes(message), Message).tool_calls
        assert call.arguments == written


def test_a_message_of_a_captured_result_is_written_once(result: Result) -> None:
    """The answer is the last message of the exchange already."""
    bare = attrs.evolve(result, exchange=None)
    assert len(to_bytes(result)) < len(to_bytes(bare)) + len(to_bytes(Exchange(result.exchange.history, "r"))) - 500
    other = attrs.evolve(result, message=Message.assistant("Another one."))
    assert from_bytes(to_bytes(other), Result) == other


def test_an_instance_of_a_class_comes_back_as_plain_data(result: Result) -> None:
    """A class cannot be stored, what its instance consists of can."""

    @attrs.frozen
    class Finding:
        line: int
        words: tuple[str, ...]

    made = attrs.evolve(result, validation=Validation(status="passed", value=Finding(3, ("a", "b"))))
    assert from_bytes(to_bytes(made), Result).value == {"line": 3, "words": ["a", "b"]}


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"raw" * 3 + b"\xff", [object()]])
def test_a_value_that_is_no_json_is_refused(result: Result, value: object) -> None:
    """What has no form is refused when it is stored, not found missing when it is read."""
    made = attrs.evolve(result, validation=Validation(status="passed", value=value))
    if isinstance(value, bytes):
        assert from_bytes(to_bytes(made), Result).value  # as JSON has it, in base64
        return
    with pytest.raises(StorageError) as caught:
        to_bytes(made)
    assert caught.value.reason == "value"


def test_half_characters_are_refused() -> None:
    """Text that no request can carry has no stored form either."""
    with pytest.raises(StorageError, match="half a character") as caught:
        to_bytes(Message.user("\ud800"))
    assert caught.value.reason == "value"


@pytest.mark.parametrize("count", ["7", 2**64, 1.5])
def test_nothing_is_written_that_could_not_be_read(result: Result, count: object) -> None:
    """A member of another type than its class says is refused."""
    [first, *_] = result.attempts
    made = attrs.evolve(result, attempts=(attrs.evolve(first, payloads_dropped=count),))
    with pytest.raises(StorageError) as caught:
        to_bytes(made)
    assert caught.value.reason == "value"


def test_only_what_has_a_form_is_taken() -> None:
    """Another value is a mistake in the program, and the sentence says what would be right."""
    with pytest.raises(TypeError, match="give an Exchange"):
        to_bytes("words")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give bytes"):
        from_bytes("words")  # type: ignore[call-overload]


# --- conversations that continue others


@settings(max_examples=20)
@given(exchanges(most_messages=2), st.lists(messages(), max_size=2), messages("assistant"), st.data())
def test_a_continued_conversation_leaves_its_beginning_out(
    parent: Exchange, added: list[Message], last: Message, data: st.DataObject
) -> None:
    """With its base it is what it was, shares the base's messages, and its bytes hold only what came after."""
    child = Exchange(parent.history.extend([*added, last]), "child", parent.run_id)
    if data.draw(st.booleans(), label="cut otherwise"):
        child = attrs.evolve(child, history=History(child.history))
    kept = to_bytes(child, base=parent)
    assert base_of(kept) == parent.digest
    again = from_bytes(to_bytes(parent), Exchange)
    loaded = from_bytes(kept, Exchange, base=again)
    assert loaded == child
    assert loaded.digest == child.digest
    assert loaded.history.parent is again.history
    assert len(kept) < len(to_bytes(child)) + 48


def test_a_tree_of_exchanges_is_stored_once_per_message() -> None:
    """Of ten thousand branches of a long conversation, none repeats it, stored or loaded."""
    trunk = Exchange(History([Message.user("long " * 50_000), Message.assistant("Yes?")]), "trunk")
    kept = to_bytes(trunk)
    branches = [
        to_bytes(
            Exchange(trunk.history.extend([Message.user(str(number)), Message.assistant("ok")]), str(number), "trunk"),
            base=trunk,
        )
        for number in range(10_000)
    ]
    assert sum(map(len, branches)) < 3_000_000
    loaded = from_bytes(kept, Exchange)
    forest = [from_bytes(one, Exchange, base=loaded) for one in branches]
    assert all(one.history.parent is loaded.history for one in forest)
    assert forest[7].messages[2] == Message.user("7")


def test_results_and_histories_have_bases_too(result: Result) -> None:
    """What holds a conversation can leave out its beginning."""
    base = result.exchange.history.nodes()[1]
    for value in (result, result.exchange.history):
        kept = to_bytes(value, base=base)
        assert base_of(kept) == base.digest.hex()
        assert from_bytes(kept, type(value), base=base) == value
    with pytest.raises(TypeError, match="stands alone"):
        to_bytes(result.message, base=base)


def test_values_without_a_conversation_have_no_base(result: Result) -> None:
    """A base is named by conversations alone, and one that is not needed is passed over."""
    for value in (result, result.message, attrs.evolve(result, exchange=None)):
        assert base_of(to_bytes(value)) is None
        assert from_bytes(to_bytes(value), base=result.exchange) == value


def test_a_wrong_base_is_refused(exchange: Exchange) -> None:
    """Neither writing nor reading guesses: the base is what the conversation begins with."""
    other = History([Message.user("Hello"), Message.assistant("Hello")])
    longer = exchange.history.extend([Message.user("more")])
    for base in (other, longer):
        with pytest.raises(StorageError, match="does not begin") as refused:
            to_bytes(exchange, base=base)
        assert refused.value.reason == "base"
    base = exchange.history.nodes()[0]
    kept = to_bytes(exchange, base=base)
    for wrong in (None, other):
        with pytest.raises(StorageError, match=base.digest.hex()) as caught:
            from_bytes(kept, Exchange, base=wrong)
        assert caught.value.reason == "base"
        assert caught.value.base == base.digest.hex()


@pytest.mark.anyio
async def test_a_stored_exchange_is_continued_like_the_one_that_was_captured() -> None:
    """The next request has the same bytes on the wire, whether the exchange was stored in between or not."""
    bodies: list[bytes] = []

    def script(request: StubRequest) -> object:
        bodies.append(request.raw)
        return answer("Yes.")

    async with StubProvider(script) as stub:  # type: ignore[arg-type]
        backend = furcate.Backend("b", dialect="anthropic-messages", base_url=stub.base_url, api_key="key-key-key")
        profile = furcate.Profile("p", "b", "m", settings=furcate.Settings(max_output_tokens=50))
        async with furcate.Engine(backends=[backend], profiles=[profile]) as engine:
            asked = furcate.Request(messages=[Message.user("Well?")], profile="p", capture=True)
            first = await engine.run(asked)
            kept = to_bytes(first)
            assert b"key-key-key" not in kept
            await engine.continue_from(first.exchange, asked)
            await engine.continue_from(from_bytes(kept, Result).exchange, asked)
    assert bodies[1] == bodies[2]


def test_bytes_are_messagepack_behind_their_frame(exchange: Exchange) -> None:
    """Any MessagePack reader shows what is in them."""
    plain = msgspec.msgpack.decode(to_bytes(exchange)[14:])
    assert plain["value"] == "exchange"
    assert plain["history"]["messages"][0]["role"] == "system"
