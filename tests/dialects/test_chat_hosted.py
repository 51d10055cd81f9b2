"""What ``openai-chat`` servers ran themselves, and content of kinds that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Text, ToolCall
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import HostedTransition, Noticed, StreamEvent
from furcate.primitives._wire import ModelCall, UnknownContent

_CHAT = dialect_named("openai-chat")
_ORIGIN = Origin("p", "openai-chat", "m")
_SEARCH = {"index": 0, "type": "search", "arguments": '{"query": "tides"}'}


def _chunk(delta: Mapping[str, object], finish: str | None = None, **more: object) -> str:
    chunk = {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    return f"data: {json.dumps(chunk)}\n\n"


def _streamed(*deltas: Mapping[str, object], unknown: UnknownContent = "fail", end: bool = True) -> list[StreamEvent]:
    decoder = _CHAT.decoder(_ORIGIN, unknown)
    body = "".join(map(_chunk, deltas)) + (_chunk({}, "stop") + "data: [DONE]\n\n" if end else "")
    return decoder.feed(body.encode()) + decoder.finish()


def _whole(message: Mapping[str, object], *, unknown: UnknownContent = "fail", **more: object) -> list[StreamEvent]:
    body = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}
    return _CHAT.decode_whole(json.dumps(body).encode(), _ORIGIN, unknown)


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _activities(events: list[StreamEvent]) -> list[HostedActivity]:
    return [event.activity for event in events if isinstance(event, HostedTransition)]


@pytest.mark.req("S1-41")
@pytest.mark.field(47)
def test_executed_tools_start_and_end_in_place() -> None:
    """A tool that the provider ran is told when it starts and when it is done, the same streamed and whole."""
    done = {**_SEARCH, "output": "found", "search_results": {"results": [{"url": "u"}]}}
    events = _streamed(
        {"reasoning": "hm"},
        {"executed_tools": [{**_SEARCH, "search_results": {"results": []}}]},
        {"executed_tools": [done]},
        {"executed_tools": [done]},
        {"content": "a"},
    )
    query = {"type": "search", "queries": ["tides"]}
    started = HostedActivity("executed_0", "web_search", "started", input=query, scope="r")
    ended = HostedActivity("executed_0", "web_search", "completed", input=query, summary="tides", scope="r")
    assert _activities(events) == [started, ended]
    message = _assembled(events).message()
    assert message.parts[1:] == (started, ended, Text("a"))
    whole = _whole({"content": "a", "reasoning": "hm", "executed_tools": [done]})
    assert _assembled(whole).message() == message


@pytest.mark.parametrize(
    ("tool", "name", "normalised", "summary"),
    [
        ({"type": "search", "arguments": '{"query": ""}'}, "web_search", {"type": "search", "queries": []}, ""),
        ({"type": "search"}, "web_search", {"type": "search", "queries": []}, ""),
        (
            {"type": "browser_search", "name": "browser.search", "arguments": {"query": "q"}},
            "web_search",
            {"type": "search", "queries": ["q"]},
            "q",
        ),
        (
            {"type": "browser.open", "arguments": '{"id": "https://a.example"}'},
            "web_search",
            {"type": "open_page", "url": "https://a.example"},
            "opened https://a.example",
        ),
        (
            {"type": "browser.find", "arguments": '{"pattern": "x"}'},
            "web_search",
            {"type": "find_in_page", "url": "", "pattern": "x"},
            "x",
        ),
        ({"type": "visit", "arguments": '{"url": "https://a.example"}'}, "web_fetch", {"url": "https://a.example"}, ""),
        ({"type": "python", "arguments": '{"code": "1"}'}, "code_execution", {"code": "1"}, ""),
        ({"type": "python", "arguments": "print(1)"}, "code_execution", {"code": "print(1)"}, ""),
        ({"type": "wolfram", "arguments": '{"query": "q"}'}, "wolfram", {"query": "q"}, ""),
        ({"type": "od d\x1b", "arguments": "[]"}, "od_d_", {}, ""),
    ],
)
def test_executed_tools_in_our_words(tool: object, name: str, normalised: dict[str, Any], summary: str) -> None:
    """Names, inputs and summaries are normalised; a tool that nobody knows keeps a cleaned name."""
    last = _activities(_whole({"content": "a", "executed_tools": [tool]}))[-1]
    assert (last.name, last.state, last.summary) == (name, "completed", summary)
    assert dict(last.input) == {key: tuple(v) if isinstance(v, list) else v for key, v in normalised.items()}
    assert last.payload is None


def test_several_executed_tools_are_kept_apart() -> None:
    """Tools are told apart by index, or by what they ask; a second use of one index is another tool."""
    two = [{**_SEARCH, "index": n, "output": "o"} for n in (0, 1)]
    assert [one.id for one in _activities(_whole({"content": "a", "executed_tools": two}))][::2] == [
        "executed_0",
        "executed_1",
    ]
    bare = [{"type": "search", "arguments": f'{{"query": "{word}"}}', "output": "o"} for word in ("x", "y")]
    for tools in (bare, [{**one, "index": 0} for one in bare]):
        events = _streamed(*({"executed_tools": [one]} for one in tools), {"content": "a"})
        assert [one.summary for one in _activities(events)] == ["", "x", "", "y"]
    late = _streamed({"executed_tools": [{"index": 0, "type": "search"}]}, {"executed_tools": [_SEARCH]})
    assert [one.summary for one in _activities(late)] == ["", "tides"]


@pytest.mark.req("S0-14")
def test_a_broken_answer_leaves_its_tools_started() -> None:
    """Nothing is made up about a tool whose answer broke off."""
    events = _streamed({"executed_tools": [_SEARCH]}, {"content": "a"}, end=False)
    assert [one.state for one in _activities(events)] == ["started"]
    assert _assembled(events).failure is not None


def test_executed_tools_of_another_shape() -> None:
    """Executed tools that are no list of objects fail the answer."""
    failure = _assembled(_whole({"content": "a", "executed_tools": {"type": "search"}})).failure
    assert failure is not None
    assert failure.reason == "malformed"


@pytest.mark.req("S0-15")
def test_a_conversation_goes_on_after_executed_tools() -> None:
    """The record of what the provider ran is not sent, and the conversation goes on without it."""
    message = _assembled(_whole({"content": "a", "executed_tools": [_SEARCH]})).message()
    body = b"".join(_CHAT.encode(ModelCall(model="m", history=History([message, Message.user("go on")]))).body)
    assert json.loads(body)["messages"] == [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.req("S0-49", "S0-50", "S1-40")
@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"server_tool_use_details": {"tool_calls_requested": 1}}, ["usage.server_tool_use_details"]),
        ({"server_tool_use": {"web_search_requests": 2}}, ["usage.server_tool_use"]),
        ({"num_search_queries": 1}, ["usage.num_search_queries"]),
        ({"num_sources_used": 0, "server_tool_use_details": {"tool_calls_requested": 0}}, []),
        ({}, []),
    ],
)
def test_counts_of_provider_run_work_are_a_diagnostic(usage: dict[str, object], told: list[str]) -> None:
    """Counts of searches never fail an answer and are no part of it; that there were some is told."""
    events = _whole({"content": "a"}, usage={"prompt_tokens": 1, **usage})
    assert [event.kind for event in events if isinstance(event, Noticed)] == told
    assert _assembled(events).message() == Message.assistant("a")


@pytest.mark.req("S1-33")
def test_unknown_content_can_be_carried() -> None:
    """Where the owner wants it, content of an unknown kind is kept byte for byte in its place, and its kind shown."""
    part = {"type": "hologram", "cube": [1, 2]}
    parts = [{"type": "text", "text": "a"}, part, {"type": "text", "text": "b"}]
    for events in (_whole({"content": parts}, unknown="carry"), _streamed({"content": parts}, unknown="carry")):
        assembler = _assembled(events)
        assert assembler.failure is None
        text, kept = assembler.message().parts
        assert text == Text("ab")
        assert isinstance(kept, HostedActivity)
        assert (kept.id, kept.name, kept.state, kept.scope) == ("unknown_1", "hologram", "completed", "r")
        assert kept.payload is not None
        assert (kept.payload.provider, kept.payload.format) == ("p", "openai-chat.unknown")
        assert kept.payload.value == json.dumps(part).encode()
        assert "cube" not in repr(kept)


def test_unknown_content_in_pieces_is_one() -> None:
    """Audio, and a call of an unknown kind, come in pieces and are kept as one; calls of known kinds stay calls."""
    pieces = [{"id": "x", "data": "AA=="}, {"data": "AQ=="}]
    teleports = [{"index": 0, "id": "c0", "type": "teleport", "teleport": {}}, {"index": 0, "teleport": {"to": "y"}}]
    call = {"index": 1, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events = _streamed(
        *({"audio": piece} for piece in pieces),
        {"tool_calls": [teleports[0], call]},
        {"tool_calls": [teleports[1]]},
        unknown="carry",
    )
    found = [(one.name, one.state) for one in _activities(events)]
    assert found == [("audio", "started"), ("teleport", "started"), ("audio", "completed"), ("teleport", "completed")]
    values = [json.loads(one.payload.value) for one in _activities(events) if one.payload is not None]
    assert values == [pieces, teleports]
    assert _assembled(events).message().tool_calls == (ToolCall("c1", "f", "{}"),)
