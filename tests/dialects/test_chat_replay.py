"""What of an ``openai-chat`` answer goes back to the server that gave it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import (
    HostedActivity,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._wire import ModelCall

_CHAT = dialect_named("openai-chat")
_ORIGIN = Origin("p", "openai-chat", "m")
_USER = Message.user("hi")
_CALL = ToolCall("c", "f", "{}")
_RESULT = Message.tool(ToolResult("c", "1"))


def _body(*messages: Message) -> bytes:
    return b"".join(_CHAT.encode(ModelCall(model="m", history=History(messages))).body)


def _sent(*messages: Message) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = json.loads(_body(*messages))["messages"]
    return sent


def _state(form: str, data: bytes) -> Reasoning:
    return Reasoning("shown", ReasoningState(_ORIGIN, form, data))


def _wanted(text: str) -> Reasoning:
    return _state("openai-chat.reasoning_content", text.encode())


def _answer(*deltas: Mapping[str, object], whole: bool = False) -> Message:
    assembler = Assembler()
    if whole:
        body = {"choices": [{"index": 0, "message": deltas[0], "finish_reason": "stop"}]}
        events = _CHAT.decode_whole(json.dumps(body).encode(), _ORIGIN)
    else:
        decoder = _CHAT.decoder(_ORIGIN)
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        body_text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        events = decoder.feed(body_text.encode()) + decoder.finish()
    for event in events:
        assembler.add(event)
    assert assembler.stop is not None
    return assembler.message()


def test_reasoning_text_goes_back_around_tool_calls() -> None:
    """DeepSeek's reasoning goes back with the answers of a tool exchange, be it over or not, and with no others."""
    sent = _sent(
        _USER,
        Message.assistant(_wanted("before"), "a"),
        _USER,
        Message.assistant(_wanted("one"), _CALL),
        _RESULT,
        Message.assistant(_wanted("two"), "then", ToolCall("c", "f", "")),
        _RESULT,
        Message.assistant(_wanted("three"), "so"),
        _USER,
        Message.assistant(_wanted("after"), "b"),
    )
    found = [one.get("reasoning_content") for one in sent if one["role"] == "assistant"]
    assert found == [None, "one", "two", "three", None]


def test_an_exchange_over_nodes() -> None:
    """An answer after a tool result is known as such across the nodes of a shared history, for any branch."""
    base = History([_USER, Message.assistant(_wanted("one"), _CALL), _RESULT])
    for branch in (
        base.extend([Message.assistant(_wanted("two"), "so")]),
        base.extend([_USER, Message.assistant("a")]),
    ):
        body = json.loads(b"".join(_CHAT.encode(ModelCall(model="m", history=branch)).body))
        assert body["messages"][1]["reasoning_content"] == "one"
        assert body["messages"][-1].get("reasoning_content") == ("two" if len(branch) == 4 else None)


@pytest.mark.field(47)
def test_reasoning_text_round_trip() -> None:
    """Reasoning that came in pieces, or whole, or empty beside a call, goes back as one text."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    pieces: list[Mapping[str, object]]
    pieces = [{"reasoning_content": ""}, {"reasoning_content": "h"}, {"reasoning_content": "m"}, {"tool_calls": [call]}]
    streamed = _answer(*pieces)
    assert streamed == _answer({"reasoning_content": "hm", "tool_calls": [call]}, whole=True)
    assert _sent(_USER, streamed, _RESULT)[1]["reasoning_content"] == "hm"
    empty = _answer({"reasoning_content": ""}, {"tool_calls": [call]})
    assert _sent(_USER, empty, _RESULT)[1]["reasoning_content"] == ""
    # Without a call, an empty text says nothing, and other names of the member are not wanted back.
    assert _answer({"reasoning_content": ""}, {"content": "a"}) == Message.assistant("a")
    assert _answer({"reasoning": "hm"}, {"tool_calls": [call]}) == Message.assistant(Reasoning("hm"), _CALL)


@pytest.mark.req("S0-40")
@pytest.mark.field(47, 48)
def test_reasoning_details_round_trip() -> None:
    """Opaque details go back in every message, in order, with what the provider sealed unchanged."""
    signed = {"type": "reasoning.text", "text": "hm", "signature": "c2ln+/=", "format": "x-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "é\u2028\\/", "id": "r1", "format": "x-v1", "index": 1}
    novel = {"type": "reasoning.novel", "n": 1.5, "index": 2}
    streamed = _answer(
        {"reasoning": "h", "reasoning_details": [{**signed, "text": "h", "signature": None}]},
        {"reasoning": "m", "reasoning_details": [{**signed, "text": "m"}]},
        {"reasoning_details": [sealed, novel]},
        {"content": "a"},
    )
    whole = _answer({"content": "a", "reasoning": "hm", "reasoning_details": [signed, sealed, novel]}, whole=True)
    assert streamed.text == whole.text == "a"
    for message in (streamed, whole):
        assert _sent(_USER, message, _USER)[1] == {
            "role": "assistant",
            "content": "a",
            "reasoning_details": [signed, sealed, novel],
        }
        thought = message.parts[0]
        assert isinstance(thought, Reasoning)
        assert thought.state is not None
        assert thought.state.data in _body(_USER, message)


def test_plain_details_go_back_beside_calls() -> None:
    """Details without a seal are wanted back where the model goes on after a call, and nowhere else."""
    text = {"type": "reasoning.text", "text": "hm", "index": 0}
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    called = _answer({"reasoning_details": [text]}, {"tool_calls": [call]})
    assert _sent(_USER, called, _RESULT)[1]["reasoning_details"] == [text]
    assert _answer({"reasoning_details": [text]}, {"content": "a"}) == Message.assistant(Reasoning("hm"), "a")


@pytest.mark.req("S0-26", "S0-27")
@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("anthropic-messages.thinking", b"{}"),
        ("openai-chat.reasoning_content", b"\xff"),
        ("openrouter.reasoning_details", b"SECRET"),
        ("openrouter.reasoning_details", b'{"SECRET": 1}'),
        ("openrouter.reasoning_details", b"[]"),
    ],
)
def test_state_that_cannot_be_read(form: str, data: bytes) -> None:
    """Own reasoning state of an unknown format, or damaged, is an error that names its message and shows nothing."""
    with pytest.raises(PayloadError, match=r"^message 2 \(assistant\) holds reasoning state") as caught:
        _body(_USER, Message.assistant(_state(form, data), "a"))
    assert isinstance(caught.value, RequestError)
    assert not isinstance(caught.value, UnsupportedError)
    assert form in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.req("S0-25", "S1-45")
def test_native_forms_cannot_go() -> None:
    """Provider-run work with a native form has no place here: the request is refused, and the form not shown."""
    payload = ProviderPayload("p", "openai-responses.item", "1", b"SECRET")
    ran = HostedActivity("h", "web_search", "completed", payload=payload)
    with pytest.raises(
        UnsupportedError, match=r"^message 2 \(assistant\) holds the native form of 'web_search'"
    ) as caught:
        _body(_USER, Message.assistant(ran, Text("a")))
    assert "SECRET" not in str(caught.value)
