"""Requests of ``openai-chat``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    ProviderPayload,
    Reasoning,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap, Json
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ChatSwitches, ModelCall

_CHAT = dialect_named("openai-chat")
_USER = Message.user("hi")
_ADD = Tool("add", "Adds.", FrozenMap({"type": "object", "properties": {"a": {"type": "integer"}}}))


def _body(*messages: Message, **options: Any) -> dict[str, Any]:
    call = ModelCall(model="m", history=History(messages or (_USER,)), **options)
    loaded: dict[str, Any] = json.loads(b"".join(_CHAT.encode(call).body))
    return loaded


def _sent(*messages: Message, **options: Any) -> list[Any]:
    sent: list[Any] = _body(*messages, **options)["messages"]
    return sent


def test_plain_request() -> None:
    """A bare call has model, messages and streaming, and goes to the one path."""
    wire = _CHAT.encode(ModelCall(model="m", history=History([_USER])))
    assert (wire.path, wire.stream) == ("/chat/completions", True)
    assert ("content-type", "application/json") in wire.headers
    assert _body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert _body(stream=False) == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": False}


def test_settings_and_switches() -> None:
    """Settings are spelled as the switches say, and what is not set is not sent."""
    settings = Settings(max_output_tokens=9, temperature=0.0, top_p=0.5, seed=0, stop=("x",), reasoning_effort="low")
    switches = ChatSwitches(max_tokens_field="max_completion_tokens", stream_usage=False, system_role="developer")
    assert _body(Message.system("s"), _USER, settings=settings, switches=switches) == {
        "model": "m",
        "messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "hi"}],
        "max_completion_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 0,
        "stop": ["x"],
        "reasoning_effort": "low",
        "stream": True,
    }
    assert _body(settings=settings)["max_tokens"] == 9


def test_roles() -> None:
    """System messages may come late; developer messages keep their role; tool results go one by one."""
    asked = Message.assistant(ToolCall("c1", "add", ""), ToolCall("c2", "sh", "ls", "custom"))
    sent = _sent(
        _USER,
        Message("developer", (Text("d"),)),
        asked,
        Message.tool(ToolResult("c1", "1"), ToolResult("c2", "no", is_error=True)),
        Message.system("late"),
    )
    assert sent[1:] == [
        {"role": "developer", "content": "d"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "no"},
        {"role": "system", "content": "late"},
    ]


def test_what_an_assistant_message_sends() -> None:
    """Text and refusals are sent; unsigned reasoning, records of provider-run work and citations are not."""
    payload = ProviderPayload("p", "f", "1", b"OPAQUE")
    hidden = (
        Reasoning("OPAQUE"),
        HostedActivity("h", "web_search", "started"),
        HostedActivity("h", "web_search", "completed", summary="OPAQUE"),
    )
    cited = Text("said", (Attribution(Source("OPAQUE"), replay=payload),), payload=payload)
    messages = (
        _USER,
        Message.assistant(*hidden, cited, Text("")),
        Message.assistant(Refusal("declined")),
        Message.assistant(*hidden),
        Message.assistant(Text("")),
        Message.assistant(),
    )
    sent = _sent(*messages)
    assert sent[1:] == [{"role": "assistant", "content": "said"}, {"role": "assistant", "content": "declined"}]
    assert "OPAQUE" not in json.dumps(sent)


def test_media() -> None:
    """Images go by value or address, audio and files by value, between the texts where they stood."""
    sent = _sent(
        Message.user(
            "see",
            Media("image/png", b"\x01"),
            Media("image/*", url="https://i.example/x"),
            Media("audio/wav", b"\x02"),
            Media("application/pdf", b"\x03", name="a.pdf"),
            "end",
        )
    )
    assert sent[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}},
        {"type": "image_url", "image_url": {"url": "https://i.example/x"}},
        {"type": "input_audio", "input_audio": {"data": "Ag==", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,Aw=="}},
        {"type": "text", "text": "end"},
    ]


@pytest.mark.parametrize("media", [Media("video/mp4", b"v"), Media("application/pdf", url="https://f.example")])
def test_media_that_cannot_go(media: Media) -> None:
    """A medium without a form here is refused with the number of its message."""
    with pytest.raises(UnsupportedError, match=r"^message 2 \(user\) holds "):
        _body(_USER, Message.user("see", media))


def test_media_of_assistants_cannot_go() -> None:
    """An image that a model made has no place in an assistant message here."""
    with pytest.raises(UnsupportedError, match=r"^message 2 \(assistant\) holds "):
        _body(_USER, Message.assistant(Media("image/png", b"i")))


def test_half_characters_are_refused() -> None:
    """A lone surrogate is refused with the number of its message, counted over the whole history."""
    history = History([_USER]).extend([Message.assistant("a")]).extend([Message.user("b"), Message.user("\ud83d")])
    with pytest.raises(RequestError, match=r"^message 4 \(user\) holds half a character"):
        _CHAT.encode(ModelCall(model="m", history=history))
    with pytest.raises(RequestError, match=r"^tools holds half a character"):
        _body(tools=(Tool("t", "\udc00"),))
    with pytest.raises(RequestError, match=r"^extra_body\.x holds half a character"):
        _body(settings=Settings(extra_body=FrozenMap({"x": "\udc00"})))


def test_shared_history_is_shared_bytes() -> None:
    """Branches of one conversation send the very same bytes for what they share, and bodies stay valid JSON."""
    base = History([]).extend([Message.assistant()]).extend([Message.system("s"), _USER])
    bodies = [
        _CHAT.encode(ModelCall(model="m", history=base.extend([Message.assistant()]).extend([Message.user(word)]))).body
        for word in ("left", "right")
    ]
    assert bodies[0][1] is bodies[1][1]
    for body, word in zip(bodies, ("left", "right"), strict=True):
        assert [one["content"] for one in json.loads(b"".join(body))["messages"]] == ["s", "hi", word]


def test_long_chains_do_not_recurse() -> None:
    """A conversation of thousands of turns is encoded like any other."""
    history = History()
    for turn in range(3000):
        history = history.extend([Message.user(str(turn))])
    body = json.loads(b"".join(_CHAT.encode(ModelCall(model="m", history=history)).body))
    assert [one["content"] for one in body["messages"]] == [str(turn) for turn in range(3000)]


def test_the_switch_is_not_remembered() -> None:
    """One history sent to two servers follows each one's system role."""
    history = History([Message.system("s")])
    for role in ("system", "developer", "system"):
        call = ModelCall(model="m", history=history, switches=ChatSwitches(system_role=role))
        assert json.loads(b"".join(_CHAT.encode(call).body))["messages"][0]["role"] == role


def test_tools_and_choice() -> None:
    """Tools are function objects, and a chosen tool is named by one."""
    body = _body(tools=(_ADD, Tool("bare")), tool_choice="add")
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Adds.",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
            },
        },
        {"type": "function", "function": {"name": "bare", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert _body(tools=(_ADD,), tool_choice="required")["tool_choice"] == "required"
    assert "tool_choice" not in _body(tools=(_ADD,))
    assert "tool_choice" not in _body(tool_choice="auto")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tool_choice": "required"}, "'required' but the request declares no tools"),
        ({"tool_choice": "add"}, "'add' but the request declares no tools"),
        ({"tools": (_ADD,), "tool_choice": "sub"}, "names 'sub', which is not declared; there are: add"),
        ({"tools": (_ADD, _ADD)}, "'add' is declared twice"),
    ],
)
def test_tools_that_do_not_fit(options: dict[str, Any], problem: str) -> None:
    """Tools and a choice that contradict each other are refused."""
    with pytest.raises(RequestError, match=problem):
        _body(**options)


def test_tools_where_there_are_none() -> None:
    """A server without function tools refuses them with what to do about it."""
    with pytest.raises(UnsupportedError, match="leave the tools out, or choose a profile"):
        _body(tools=(_ADD,), switches=ChatSwitches(function_tools=False))


_CLOSED: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/B"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"B": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}},
}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (_CLOSED, True),
        ({**_CLOSED, "required": ["a"]}, False),
        ({**_CLOSED, "additionalProperties": True}, False),
        ({**_CLOSED, "$defs": {"B": {"type": "object", "properties": {"c": {"type": "null"}}}}}, False),
        ({**_CLOSED, "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "null"}}}, False),
        ({**_CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object"}}, "b": {}}}, False),
        ({"type": "string"}, False),
    ],
)
def test_strict_only_where_servers_take_it(schema: dict[str, Json], strict: bool) -> None:
    """A schema goes as it is; strict is asked for only where it is closed, complete and made of known words."""
    sent = _body(schema=("my answer", FrozenMap(schema)))["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "my_answer", "schema": schema, "strict": strict}}


def test_structured_output_by_switch() -> None:
    """Servers without schemas get a JSON mode or nothing."""
    asked = ("a", FrozenMap(_CLOSED))
    loose = ChatSwitches(structured_output="json_object")
    assert _body(schema=asked, switches=loose)["response_format"] == {"type": "json_object"}
    assert "response_format" not in _body(schema=asked, switches=ChatSwitches(structured_output="none"))


def test_extra_body_comes_last() -> None:
    """Members of extra_body are added, and stand in the place of ours."""
    extra = FrozenMap({"model": "other", "temperature": 1, "vendor": {"deep": [None, 2**70]}})
    body = _body(settings=Settings(temperature=0.5, extra_body=extra))
    assert (body["model"], body["temperature"], body["vendor"]) == ("other", 1, {"deep": [None, 2**70]})


@pytest.mark.parametrize("key", ["messages", "stream"])
def test_extra_body_cannot_replace_the_request(key: str) -> None:
    """What a request says itself is not to be replaced behind its back."""
    with pytest.raises(RequestError, match=f"extra_body holds '{key}'"):
        _body(settings=Settings(extra_body=FrozenMap({key: None})))


@pytest.mark.req("S1-16", "S1-20", "S1-22")
def test_server_tools_stand_beside_the_tools() -> None:
    """A declared web search is a member of its own, beside function tools or without; undeclared, it is nowhere."""
    assert _body(server_tools=("web_search",)) == {**_body(), "web_search_options": {}}
    both = _body(server_tools=("web_search",), tools=(_ADD,), tool_choice="required")
    assert both == {**_body(tools=(_ADD,), tool_choice="required"), "web_search_options": {}}
    assert [tool["type"] for tool in both["tools"]] == ["function"]


def test_a_tool_choice_never_means_a_server_tool() -> None:
    """A choice that asks for a call is refused where only the provider has tools; others are left out there."""
    assert "tool_choice" not in _body(server_tools=("web_search",), tool_choice="auto")
    with pytest.raises(RequestError, match=r"^tool_choice is 'required' but the request declares no tools"):
        _body(server_tools=("web_search",), tool_choice="required")


def test_server_tools_without_a_spelling_never_go_quietly() -> None:
    """A capability without a spelling here, which no configuration lets through, is no silence either."""
    with pytest.raises(AssertionError, match="code_execution"):
        _body(server_tools=("code_execution",))


def test_cache_hints_change_nothing() -> None:
    """A cache hint has no form here; the request is the one without it."""
    hinted = Message.user("hi", cache=CacheHint(300))
    assert _body(hinted) == _body(_USER)
