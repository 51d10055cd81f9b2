"""Answers of ``anthropic-messages`` where they are odd, broken, or hold what nobody knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Reasoning, Source, Text
from furcate.primitives._stream import (
    Citation,
    HostedTransition,
    Noticed,
    Paused,
    ReasoningSealed,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    UsageReported,
)
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import AttemptFailed, Failure, ResponseHead, UnknownContent

_MESSAGES = dialect_named("anthropic-messages")
_ORIGIN = Origin("own", "anthropic-messages", "m")
_DATA = Path(__file__).parent.parent / "data" / "anthropic-messages"

_STOP = {"type": "message_stop"}


def _start(usage: Any = None, **members: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": usage, **members}}


def _block(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def _ending(reason: str | None, usage: Any = None, **members: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **members}, "usage": usage}


def _text(index: int, text: str) -> list[dict[str, Any]]:
    return [_block(index, type="text", text=""), _delta(index, type="text_delta", text=text), _end(index)]


def _sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


def _stream(*events: dict[str, Any], unknown: UnknownContent = "fail") -> list[StreamEvent]:
    return _bytes(_sse(*events), unknown)


def _bytes(body: bytes, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    decoder = _MESSAGES.decoder(_ORIGIN, unknown)
    return decoder.feed(body) + decoder.finish()


def _whole(*blocks: dict[str, Any], unknown: UnknownContent = "fail", **members: Any) -> list[StreamEvent]:
    body = {"id": "msg_1", "model": "m", "content": blocks, "stop_reason": "end_turn", **members}
    return _MESSAGES.decode_whole(json.dumps(body).encode(), _ORIGIN, unknown)


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _failure(events: list[StreamEvent]) -> Failure:
    last = events[-1]
    assert isinstance(last, StreamFailed)
    return last.failure


def _hosted(events: list[StreamEvent]) -> list[HostedActivity]:
    return [event.activity for event in events if isinstance(event, HostedTransition)]


def _notices(events: list[StreamEvent]) -> list[str]:
    return [event.kind for event in events if isinstance(event, Noticed)]


def _case(name: str) -> list[StreamEvent]:
    return _bytes((_DATA / name / "response.sse").read_bytes())


def test_the_events_of_an_answer() -> None:
    """A plain answer gives its beginning, its usage as it grows, its text, and its end."""
    events = _stream(_start({"input_tokens": 3}), *_text(0, "Hi"), _ending("end_turn", {"output_tokens": 2}), _STOP)
    none = {"cache_read_tokens": 0, "cache_write_tokens": 0}
    assert [event for event in events if not isinstance(event, TextDelta)][:2] == [
        ResponseStarted("msg_1", "m"),
        UsageReported(Usage(input_tokens=3, **none)),
    ]
    assert events[-2:] == [UsageReported(Usage(input_tokens=3, output_tokens=2, **none)), Stopped("end_turn")]


@pytest.mark.req("S0-10")
def test_a_search_is_two_transitions() -> None:
    """A search starts with its query and completes with its results, each with its native block and in its place."""
    started, completed = _hosted(_case("web-search"))
    assert (started.id, started.name, started.state, started.position) == ("srvtoolu_1", "web_search", "started", 1)
    assert started.input == {"type": "search", "queries": ("north lighthouse first lit",)}
    assert (started.summary, completed.summary) == ("", "north lighthouse first lit")
    assert (completed.id, completed.state, completed.position) == ("srvtoolu_1", "completed", 2)
    assert completed.payload is not None
    assert json.loads(completed.payload.value)["content"][0]["encrypted_content"] == "RW5jcnlwdGVk"
    assert "RW5j" not in repr(completed)


@pytest.mark.req("S0-31", "S0-33", "S0-35")
def test_a_citation_belongs_to_its_block() -> None:
    """A citation comes as an event of its own before the text of its block, has no range, and keeps its native form."""
    events = _case("web-search")
    (at,) = (n for n, event in enumerate(events) if isinstance(event, Citation))
    citation, after = events[at], events[at + 1]
    assert isinstance(citation, Citation)
    assert after == TextDelta(citation.index, "It was lit ")
    cited = citation.attribution
    assert (cited.source, cited.range) == (Source("https://lights.example/north", "North light"), None)
    assert cited.excerpt == "The lighthouse was lit in 1859."
    assert cited.replay is not None
    assert json.loads(cited.replay.value)["encrypted_index"] == "SW5kZXg="


def test_documents_without_a_title_are_numbered() -> None:
    """A citation of a document names it by its title, or by its number among the request's documents."""
    body = (_DATA / "json-document-citations" / "response.json").read_bytes()
    events = _MESSAGES.decode_whole(body, _ORIGIN)
    titles = [event.attribution.source.title for event in events if isinstance(event, Citation)]
    assert titles == ["facts", "document 2", "document 3", "Ruby"]


@pytest.mark.req("S1-37")
def test_kinds_of_hosted_work() -> None:
    """Each tool of the provider has our name, a normalised input, and ends well or badly as its result says."""
    ended = [one for one in _hosted(_case("hosted-kinds")) if one.state != "started"]
    assert [(one.name, one.state, one.summary) for one in ended] == [
        ("web_fetch", "completed", "opened https://a.example/x"),
        ("code_execution", "completed", ""),
        ("code_execution", "failed", ""),
        ("tool_search", "completed", "rate.*"),
        ("advisor", "completed", ""),
        ("mcp_call", "failed", ""),
        ("web_search", "failed", ""),
    ]
    assert ended[1].input == {"command": "ls"}
    assert ended[5].input == {"server": "wiki", "tool": "ask", "arguments": {"q": "?"}}
    assert ended[6].input == {"type": "search", "queries": ()}
    assert _case("hosted-kinds")[-1] == Stopped("end_turn")


@pytest.mark.req("S0-04", "S0-05", "S0-07")
@pytest.mark.parametrize("form", ["streamed", "whole"])
def test_the_pieces_of_hosted_search_are_all_read(form: str) -> None:
    """Call, results, a block nobody knows, citations in a block or as deltas, the counters, and the pause."""
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    page = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "E1"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [page]}
    odd = {"type": "hologram", "cube": [1, {"two": None}]}
    place = {"type": "web_search_result_location", "cited_text": "x", "encrypted_index": "I1"}
    cites = [{**place, "url": f"https://{name}.example", "title": name} for name in "ab"]
    counted = {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 1}}
    text = {"type": "text", "text": "a", "citations": cites}
    last = {**call, "id": "s2"}
    if form == "whole":
        events = _whole(call, found, odd, text, last, unknown="carry", stop_reason="pause_turn", usage=counted)
    else:
        events = _stream(
            _start({"input_tokens": 1}),
            _block(0, **{**call, "input": {}}),
            _delta(0, type="input_json_delta", partial_json='{"query": "q"}'),
            _end(0),
            *(step for n, block in ((1, found), (2, odd)) for step in (_block(n, **block), _end(n))),
            _block(3, type="text", text="", citations=[cites[0]]),
            _delta(3, type="citations_delta", citation=cites[1]),
            _delta(3, type="text_delta", text="a"),
            _end(3),
            _block(4, **last),
            _end(4),
            _ending("pause_turn", counted),
            _STOP,
            unknown="carry",
        )
    message = _assembled(events).message()
    assert [(one.id, one.name, one.state) for one in _hosted(events)] == [
        ("s1", "web_search", "started"),
        ("s1", "web_search", "completed"),
        ("unknown_1", "hologram", "completed"),
        ("s2", "web_search", "started"),
    ]
    native = [json.loads(one.payload.value) for one in _hosted(events) if one.payload is not None]
    assert native == [call, found, odd, last]
    (said,) = (part for part in message.parts if isinstance(part, Text))
    assert (said.text, [one.source.url for one in said.attributions]) == ("a", [one["url"] for one in cites])
    assert [json.loads(one.replay.value) for one in said.attributions if one.replay] == cites
    assert "usage.web_search_requests=1" in _notices(events)
    assert _assembled(events).usage.output_tokens == 2
    assert events[-2:] == [Paused(), Stopped("end_turn", "pause_turn")]


@pytest.mark.req("S0-05")
def test_a_pause_is_told() -> None:
    """A pause keeps the open call as started, is told before the end, and its rest begins with the result."""
    events = _case("pause-turn")
    assert events[-2:] == [Paused(), Stopped("end_turn", "pause_turn")]
    assert [(one.id, one.state) for one in _hosted(events)][-1] == ("srvtoolu_2", "started")
    (rest,) = _hosted(_case("pause-turn-rest"))
    assert (rest.id, rest.name, rest.state) == ("srvtoolu_2", "web_search", "completed")
    assert rest.scope == _hosted(events)[-1].scope


def test_compaction_is_resumed_too() -> None:
    """A provider that stops to make room goes on when it gets its summary back."""
    block = {"type": "compaction", "content": "so far"}
    assert _whole(block, stop_reason="compaction")[-2:] == [Paused(), Stopped("end_turn", "compaction")]


def test_open_code_keeps_its_container() -> None:
    """The container goes back where code waits for a call; of a finished answer it is only noticed."""
    container = next(one for one in _hosted(_case("call-from-code")) if one.name == "container")
    assert container.payload is not None
    assert (container.payload.value, container.input) == (b"container_1", {"expires_at": "2030-01-01T00:00:00Z"})
    events = _stream(_start(), *_text(0, "x"), _ending("end_turn", container={"id": "c"}), _STOP)
    assert (_hosted(events), _notices(events)) == ([], ["container"])


@pytest.mark.req("S0-49", "S0-50", "S1-40")
def test_counts_of_hosted_work_are_told_apart() -> None:
    """How often the provider searched is noticed; it is no part of the usage or of the message."""
    events = _case("web-search")
    assert _notices(events) == ["usage.web_search_requests=1"]
    assert "web_search_requests" not in repr(_assembled(events).usage)


@pytest.mark.field(16)
def test_usage_is_a_running_total() -> None:
    """A later report replaces what it mentions, and is never added; whole answers count the same."""
    usage = {"input_tokens": 30, "output_tokens": 2}
    events = _stream(
        _start(usage),
        *_text(0, "x"),
        _ending(None, {"output_tokens": 11}),
        _ending("end_turn", {"output_tokens": 37}),
        _STOP,
    )
    told = _assembled(events).usage
    assert (told.input_tokens, told.output_tokens) == (30, 37)
    whole = _whole({"type": "text", "text": "x"}, usage={"input_tokens": 30, "output_tokens": 37})
    assert _assembled(whole).usage == told


@pytest.mark.field(18)
@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (None, UNKNOWN),
        ({}, UNKNOWN),
        (
            {"input_tokens": 0, "output_tokens": 0},
            Usage(input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0),
        ),
        ({"input_tokens": None, "output_tokens": -1}, UNKNOWN),
    ],
)
def test_missing_usage_is_unknown(usage: Any, told: Usage) -> None:
    """Usage that is missing or empty is unknown, and zeros are zeros."""
    assert _assembled(_whole({"type": "text", "text": "x"}, usage=usage)).usage == told


def test_unreadable_usage_costs_nothing() -> None:
    """Usage of another shape is noticed, and the answer stands."""
    events = _whole({"type": "text", "text": "x"}, usage={"input_tokens": "many"})
    assert (_notices(events), events[-1]) == (["usage.unreadable"], Stopped("end_turn"))


@pytest.mark.field(36)
def test_a_refusal_keeps_its_text_and_reason() -> None:
    """A refusal ends as one, with what was said before it and what the provider says of why."""
    assembler = _assembled(_case("refusal"))
    assert assembler.stop == Stopped("refusal", "cyber: no malware")
    assert assembler.message().text == "I would"


@pytest.mark.parametrize(
    ("reason", "calls", "stopped"),
    [
        ("tool_use", False, Stopped("end_turn", "tool_use")),
        ("end_turn", True, Stopped("tool_use")),
        ("max_tokens", True, Stopped("max_output_tokens")),
        ("something_new", False, Stopped("end_turn", "something_new")),
        (None, False, Stopped("end_turn", "no stop_reason")),
    ],
)
def test_what_came_decides_over_the_word(reason: str | None, calls: bool, stopped: Stopped) -> None:
    """An answer ends in tool use where it holds calls of the application's tools, whatever it says."""
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    blocks = [call] if calls else [{"type": "text", "text": "x"}]
    assert _whole(*blocks, stop_reason=reason)[-1] == stopped


def test_unsigned_thought_has_no_state() -> None:
    """Servers without signatures give thought that is text and nothing more."""
    events = _stream(
        _start(),
        _block(0, type="thinking", thinking="", signature=""),
        _delta(0, type="thinking_delta", thinking="Hm"),
        _delta(0, type="signature_delta", signature=""),
        _end(0),
        _ending("end_turn"),
        _STOP,
    )
    assert _assembled(events).message().parts == (Reasoning("Hm"),)
    assert not any(isinstance(event, ReasoningSealed) for event in events)


@pytest.mark.req("S0-03", "S1-33")
@pytest.mark.parametrize(
    ("events", "named"),
    [
        ([_block(0, type="hologram", data="SECRET")], "hologram"),
        ([_block(0, type="server_tool_use", id="s", name="teleport", input={})], "server_tool_use of teleport"),
        ([_block(0, type="text", text=""), _delta(0, type="smell_delta", smell={"a": 1})], "text.smell_delta"),
        ([{"type": "block_patch", "delta": {"type": "x"}}], "block_patch"),
    ],
)
def test_unknown_content_fails_by_name(events: list[dict[str, Any]], named: str) -> None:
    """Content of an unknown kind ends the answer with a failure that names the kind and nothing of the content."""
    failure = _failure(_stream(_start(), *events))
    assert (failure.kind, failure.reason) == ("provider", "unsupported_content")
    assert f"kind {named}," in failure.message
    assert "SECRET" not in failure.message


def test_unknown_content_can_be_carried() -> None:
    """A backend may carry unknown blocks: each is kept as it came and shown by its kind, and the answer goes on."""
    events = _stream(
        _start(),
        _block(0, type="hologram", data={"depth": 2}),
        _end(0),
        _block(1, type="mist", a=1),
        _delta(1, type="mist_delta", b=2),
        _end(1),
        *_text(2, "Hi"),
        _ending("end_turn"),
        _STOP,
        unknown="carry",
    )
    kept, pieces = _hosted(events)
    assert kept.payload is not None
    assert pieces.payload is not None
    assert (kept.name, kept.state, kept.payload.format) == ("hologram", "completed", "anthropic-messages.unknown")
    assert kept.payload.value == b'{"type":"hologram","data":{"depth":2}}'
    assert json.loads(pieces.payload.value) == {
        "content_block": {"type": "mist", "a": 1},
        "deltas": [{"type": "mist_delta", "b": 2}],
    }
    assert kept.id != pieces.id
    assert _assembled(events).message().text == "Hi"
    whole = _hosted(_whole({"type": "hologram", "data": {"depth": 2}}, unknown="carry"))
    assert whole == [kept]


def test_additive_events_are_noticed() -> None:
    """An event without content that nobody knows is told of once; pings are not told of."""
    events = _stream(
        _start(), {"type": "heartbeat"}, {"type": "ping"}, {"type": "heartbeat"}, _ending("end_turn"), _STOP
    )
    assert _notices(events) == ["event.heartbeat"]
    assert events[-1] == Stopped("end_turn")


def test_citations_of_new_kinds_are_kept() -> None:
    """A citation of an unknown kind keeps what is known of it, and is noticed."""
    block = {"type": "text", "text": "x", "citations": [{"type": "moon_location", "cited_text": "c", "url": "u"}]}
    events = _whole(block)
    (text,) = _assembled(events).message().parts
    assert isinstance(text, Text)
    assert (text.attributions[0].source.url, _notices(events)) == ("u", ["citation.moon_location"])


@pytest.mark.parametrize(
    "events",
    [
        [_start(), _start()],
        [_start(), _block(0, type="text", text=""), _block(0, type="text", text="")],
        [_start(), *_text(0, "x"), *_text(0, "y")],
        [_start(), *_text(0, "x"), _end(0)],
        [_start(), _delta(3, type="text_delta", text="x")],
        [_start(), _block(0, type="text", text=""), _delta(0, type="input_json_delta", partial_json="{")],
        [_start(), _block(0, type="tool_use", id="", name="n", input={})],
        [_start(), _block(0, type="server_tool_use", id="", name="web_search", input={}), _end(0)],
        [_start(), _block(0, type="web_search_tool_result", content=[]), _end(0)],
        [_start(), _ending("end_turn"), _ending("refusal")],
        [_start(), _ending("end_turn"), *_text(0, "x")],
        [_start(), {"type": "content_block_stop"}],
        [_start(), _block(0, type="text", text=7)],
        [_start(), {"type": "content_block_start", "index": 0, "content_block": None}],
        [_start(), _block(0, type="tool_use", id="t", name="n", input={}), _ending("tool_use"), _STOP],
        [_start(), _block(0, type="tool_use", id="t", name="n", input={}), _ending("end_turn"), _STOP],
        [_start(), _block(0, type="server_tool_use", id="s", name="advisor", input={}), _ending("pause_turn"), _STOP],
        [
            _start(),
            _block(0, type="server_tool_use", id="s", name="web_search", input={}),
            _delta(0, type="input_json_delta", partial_json="{oh"),
            _end(0),
        ],
    ],
)
def test_contradictions_are_failures(events: list[dict[str, Any]]) -> None:
    """Blocks that begin, go on or end where they cannot, and calls that were never finished, fail the answer."""
    failure = _failure(_stream(*events))
    assert (failure.kind, failure.reason) == ("provider", "malformed")


def test_duplicate_transitions_are_noticed() -> None:
    """A second start or a second result of one call changes nothing."""
    call = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    events = _whole(call, call, result, result)
    assert [one.state for one in _hosted(events)] == ["started", "completed"]
    assert _notices(events) == ["duplicate.started", "duplicate.finished"]


def test_names_and_types_agree() -> None:
    """An event whose name is not its type is no event of this dialect; unnamed events go by their type."""
    body = b'event: message_stop\ndata: {"type":"message_start","message":{}}\n\n'
    assert _failure(_bytes(body)).reason == "malformed"
    plain = _sse(_start(), *_text(0, "Hi"), _ending("end_turn"), _STOP)
    unnamed = b"".join(line + b"\n" for line in plain.split(b"\n") if not line.startswith(b"event:"))
    assert _bytes(unnamed) == _bytes(plain)
    untyped = plain.replace(b'"type": "message_stop"', b"")
    assert _bytes(untyped) == _bytes(plain)


@pytest.mark.field(64)
def test_answers_that_break_off() -> None:
    """A stream that ends before its stop reason has broken off, and what was said stays."""
    events = _stream(_start(), _block(0, type="text", text=""), _delta(0, type="text_delta", text="Half"))
    assert _failure(events).reason == "cut_off"
    partial = _assembled(events).partial()
    assert partial is not None
    assert partial.parts == (Text("Half", attribution_complete=False),)
    assert _failure(_bytes(b"")).message == "the answer broke off: its stream ended without one event"


def test_the_stop_reason_is_an_end() -> None:
    """An answer that told its stop reason and lacks only the last word is whole, with a proxy's mark or without."""
    whole = _sse(_start(), *_text(0, "Hi"), _ending("end_turn"))
    assert _bytes(whole)[-1] == Stopped("end_turn")
    assert _bytes(whole + b"data: [DONE]\n\n") == _bytes(whole)


@pytest.mark.field(63)
@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", True),
        ({"type": "error", "error": {"type": "api_error", "message": "Oops"}}, "server_error", True),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}, "rate_limited", True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "No"}}, "invalid_request", False),
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded", True),
    ],
)
def test_errors_inside_a_stream(error: dict[str, Any], reason: str, retryable: bool) -> None:
    """An error event ends the answer by what it says, not by the status of the response."""
    failure = _failure(_stream(_start(), error))
    assert (failure.kind, failure.reason, failure.retryable) == ("provider", reason, retryable)
    whole = _MESSAGES.decode_whole(json.dumps(error).encode(), _ORIGIN)
    assert _failure(whole).reason == reason


def test_a_named_error_needs_no_shape() -> None:
    """What comes under the name of an error is one, JSON or not."""
    assert "out of memory" in _failure(_bytes(b"event: error\ndata: out of memory\n\n")).message
    assert _failure(_bytes(b'data: {"error": {"message": "bad"}}\n\n')).message.endswith("bad")


@pytest.mark.parametrize("body", [b"data: {nonsense}\n\n", b'data: "text"\n\n', b'data: {"type":"\xff"}\n\n'])
def test_events_that_are_none(body: bytes) -> None:
    """Events that are no JSON objects of this dialect fail the answer."""
    assert _failure(_bytes(body)).reason == "malformed"


def test_bytes_that_are_no_text_are_caught_where_they_are_kept() -> None:
    """Broken UTF-8 inside a value that is kept as it came fails the answer at once, and not when it goes back."""
    body = (
        _sse(_start())
        + b'data: {"type":"content_block_start","index":0,"content_block":{"type":"fallback","x":"\xff"}}'
    )
    assert _failure(_bytes(body + b"\n\n")).reason == "malformed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty body"),
        (b"<html>no</html>", "HTML page"),
        (b'{"content": [', "breaks off"),
        (b"hello", "no JSON"),
        (b"[]", "another shape"),
        (b'{"choices": []}', "is it an anthropic-messages server"),
        (b'{"content": "\xff"}', "breaks off or is broken"),
    ],
)
def test_bodies_that_are_no_answers(body: bytes, said: str) -> None:
    """A whole body that is no answer says what came instead."""
    with pytest.raises(AttemptFailed, match=said):
        _MESSAGES.decode_whole(body, _ORIGIN)


def test_streams_and_whole_answers_in_each_others_place() -> None:
    """A server that streams unasked, or answers whole where a stream was asked for, is understood."""
    stream = _sse(_start(), *_text(0, "Hi"), _ending("end_turn"), _STOP)
    assert _MESSAGES.decode_whole(stream, _ORIGIN) == _bytes(stream)
    whole = b'{"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}'
    assert _bytes(whole) == _MESSAGES.decode_whole(whole, _ORIGIN)


def test_an_error_between_the_events() -> None:
    """A bare error object after some events ends the answer."""
    body = _sse(_start()) + b'{"error": {"type": "overloaded_error", "message": "Overloaded"}}'
    assert _failure(_bytes(body)).reason == "overloaded"


def test_whole_answers_of_a_broken_shape() -> None:
    """A block of a broken shape or an unknown kind fails a whole answer after what came before it."""
    events = _whole({"type": "text", "text": "Hi"}, {"type": "text", "text": 7})
    assert TextDelta(0, "Hi") in events
    assert _failure(events).reason == "malformed"
    assert _failure(_whole({"type": "hologram"})).reason == "unsupported_content"


def test_growth_is_bounded() -> None:
    """Neither an event nor a call that streams without end grows beyond the limit."""
    big = "x" * (2**20)
    events = _stream(
        _start(),
        _block(0, type="server_tool_use", id="s", name="code_execution", input={}),
        *[_delta(0, type="input_json_delta", partial_json=big) for _ in range(17)],
    )
    assert _failure(events).reason == "event_too_large"
    decoder = _MESSAGES.decoder(_ORIGIN)
    assert _failure(decoder.feed(b"data: " + b"x" * (17 * 2**20))).reason == "event_too_large"
    assert decoder.done
    assert decoder.feed(b"more") == []


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (403, "authentication", False),
        (404, "invalid_request", False),
        (413, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "provider", True),
        (504, "timeout", True),
        (529, "unavailable", True),
    ],
)
def test_error_responses(status: int, kind: str, retryable: bool) -> None:
    """A response with an error status has its kind, the provider's words and its wait hint."""
    body = b'{"type":"error","error":{"type":"some_error","message":"said so"},"request_id":"req_1"}'
    failure = _MESSAGES.decode_error(ResponseHead(status, (("retry-after", "7"),)), body)
    assert (failure.kind, failure.retryable, failure.status) == (kind, retryable, status)
    assert failure.message == f"HTTP {status}: said so"
    assert failure.wait_s == (7.0 if retryable else None)
