"""Answers of ``openai-responses`` servers, cut in every way, against what a second opinion counted in them.

What a field of ``expect.json`` maps to:

| field | here |
| --- | --- |
| ``text`` | the message's text |
| ``refusal`` | the message's refusal |
| ``hosted.calls`` | the terminal transitions, by our names; a status that is not final counts as completed |
| ``client_actions`` | transitions that are only started, with a payload, since the client would have to act |
| ``citations`` | the attributions of all texts; ``urls`` are those of sources that have one |
| ``reasoning`` | ``Reasoning`` parts; parts of one are joined with an empty line; ``opaque`` counts states |
| ``tool_calls`` | ``ToolCall`` parts; free-form ``input`` is their arguments |
| ``stop`` | the stop reason |
| ``usage`` | the usage, cached input taken off the input |
| ``errors`` | the failure |

Deviations: none of text, calls, citations or usage. A reasoning block without text and without sealed state says
nothing and is no part. Items that ``expect.json`` counts as other (outputs of hosted work, compaction) are activities.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Part, Reasoning, ReasoningState, Text, ToolResult
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._settings import Tool
from furcate.primitives._stream import Citation, StreamEvent
from furcate.primitives._wire import ModelCall, ResponseHead

_OWN = Path(__file__).parent.parent / "data" / "openai-responses"
_ORIGIN = Origin("own", "openai-responses", "own-model")
_RESPONSES = dialect_named("openai-responses")

_NAMES = {
    "web_search_call": "web_search",
    "file_search_call": "file_search",
    "code_interpreter_call": "code_execution",
    "image_generation_call": "image_generation",
    "mcp_call": "mcp_call",
    "mcp_list_tools": "mcp_list_tools",
    "shell_call": "shell",
    "tool_search_call": "tool_search",
    "mcp_approval_request": "mcp_approval_request",
}
_STATES = {"completed": "completed", "searching": "completed", "generating": "completed", "failed": "failed"}
_OTHER = ("compaction", "shell_output", "tool_search_output")


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "openai-responses" for parent in Path(__file__).parents)
    return next((place for place in places if place.is_dir()), None)


def _is(kind: str, folder: Path) -> bool:
    if kind == "stream":
        return (folder / "response.sse").exists()
    return ("http_error" in _expectation(folder)) == (kind == "error")


def _cases(kind: str) -> list[Any]:
    found = _recordings()
    folders = [*sorted(_OWN.iterdir()), *(sorted(found.iterdir()) if found is not None else ())]
    cases = [
        pytest.param(folder, id=f"{'own' if folder.parent == _OWN else 'recorded'}-{folder.name}")
        for folder in folders
        if _is(kind, folder)
    ]
    if found is None:
        skip = pytest.mark.skip(reason="the recorded traffic is not on this machine; our own fixtures were decoded")
        cases.append(pytest.param(None, marks=skip, id="recorded"))
    return cases


def _recorded(name: str) -> Path:
    found = _recordings()
    if found is None:
        pytest.skip("the recorded traffic is not on this machine")
    return found / name


def _expectation(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    return loaded


def _decode(folder: Path, size: int | None = None) -> list[StreamEvent]:
    whole = folder / "response.json"
    if whole.exists():
        return _RESPONSES.decode_whole(whole.read_bytes(), _ORIGIN)
    body = (folder / "response.sse").read_bytes()
    decoder = _RESPONSES.decoder(_ORIGIN)
    step = size if size is not None else len(body)
    events: list[StreamEvent] = []
    for start in range(0, len(body), step):
        events += decoder.feed(body[start : start + step])
    return events + decoder.finish()


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.req("S0-02", "S1-33", "S1-65", "S1-67")
@pytest.mark.parametrize("folder", _cases("answer"))
def test_answers_hold_what_was_counted(folder: Path) -> None:
    """Text, refusal, hosted work, citations, reasoning, calls, ending and usage are those that were counted."""
    expect = _expectation(folder)
    events = _decode(folder)
    assembler = _assembled(events)
    message = assembler.message() if assembler.failure is None else assembler.partial() or Message("assistant", ())
    assert (len(message.text), _sha(message.text)) == (expect["text"]["codepoints"], expect["text"]["sha256"])
    refusal = message.refusal
    counted = expect["refusal"]
    assert (refusal is None) if counted is None else refusal is not None and _sha(refusal) == counted["sha256"]
    _check_hosted(message, expect)
    _check_reasoning(message, expect["reasoning"])
    cited = [one for part in message.parts if isinstance(part, Text) for one in part.attributions]
    assert len(cited) == expect["citations"]["count"]
    assert sorted({one.source.url for one in cited} - {""}) == expect["citations"]["urls"]
    assert [event.attribution for event in events if isinstance(event, Citation)] == cited
    calls = [{"name": call.name, "id": call.id, **_arguments(call.kind, call.arguments)} for call in message.tool_calls]
    assert calls == [
        {key: call[key] for key in ("name", "id", "arguments", "input") if key in call} for call in expect["tool_calls"]
    ]
    _check_ending(assembler, expect)
    _check_usage(assembler, expect.get("usage") or {})


def _arguments(kind: str, written: str) -> dict[str, Any]:
    return {"input": written} if kind == "custom" else {"arguments": json.loads(written or "{}")}


def _check_hosted(message: Message, expect: Mapping[str, Any]) -> None:
    ended = [
        (part.name, part.state)
        for part in message.parts
        if isinstance(part, HostedActivity) and part.state != "started" and part.name not in _OTHER
    ]
    told = [
        (_NAMES.get(call["name"], call["name"]), _STATES[call["status"]])
        for call in expect["hosted"]["calls"]
        if call["name"] not in _OTHER
    ]
    assert sorted(ended) == sorted(told)
    waiting = [
        part.name
        for part in message.parts
        if isinstance(part, HostedActivity) and part.state == "started" and part.payload is not None
    ]
    assert waiting == [_NAMES[call["name"]] for call in expect["client_actions"]["calls"]]


def _check_reasoning(message: Message, counted: Mapping[str, Any]) -> None:
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    told = sum(len(thought.text.replace("\n\n", "")) for thought in thoughts)
    shown = sum(len(thought.text) for thought in thoughts)
    assert told <= counted["summary_codepoints"] + counted["text_codepoints"] <= shown
    assert sum(thought.state is not None for thought in thoughts) == counted["opaque"]


def _check_ending(assembler: Assembler, expect: Mapping[str, Any]) -> None:
    if expect["errors"]:
        assert assembler.stop is None
        assert assembler.failure is not None
        assert assembler.failure.kind == "provider"
        assert expect["errors"][0]["message"] in assembler.failure.message
        return
    assert assembler.failure is None
    assert assembler.stop is not None
    if expect["stop"]["status"] == "incomplete":
        assert assembler.stop.reason == expect["stop"]["reason"] == "max_output_tokens"
    elif expect["tool_calls"]:
        assert assembler.stop.reason == "tool_use"
    else:
        assert assembler.stop.reason == ("end_turn" if expect["refusal"] is None else "refusal")


def _check_usage(assembler: Assembler, told: Mapping[str, Any]) -> None:
    usage = assembler.usage
    details = told.get("input_tokens_details") or {}
    read, written = details.get("cached_tokens"), details.get("cache_write_tokens")
    total = told.get("input_tokens")
    assert usage.input_tokens == (None if total is None else total - (read or 0) - (written or 0))
    assert usage.cache_read_tokens == read
    assert usage.cache_write_tokens == written
    assert usage.output_tokens == told.get("output_tokens")
    assert usage.reasoning_tokens == (told.get("output_tokens_details") or {}).get("reasoning_tokens")


@pytest.mark.parametrize("folder", _cases("error"))
def test_error_responses_are_understood(folder: Path) -> None:
    """An error response gives its status, its kind and the provider's own words."""
    told = _expectation(folder)["http_error"]
    head = ResponseHead(told["http_status"], (("content-type", "application/json"),))
    failure = _RESPONSES.decode_error(head, (folder / "response.json").read_bytes())
    kinds = {400: "invalid_request", 401: "authentication", 429: "rate_limited"}
    assert (failure.status, failure.kind) == (told["http_status"], kinds[told["http_status"]])
    assert failure.message.startswith(f"HTTP {told['http_status']}: {told['message']}")
    assert failure.retryable is (told["http_status"] == 429)


@pytest.mark.parametrize("size", [1, 3, 17, 64])
@pytest.mark.parametrize("folder", _cases("stream"))
def test_cutting_changes_nothing(folder: Path, size: int) -> None:
    """A stream gives the same events whole, byte by byte, and in pieces of 3, 17 and 64 bytes."""
    assert _decode(folder, size) == _decode(folder)


def _comparable(part: Part) -> Part:
    if isinstance(part, Reasoning) and part.state is not None:  # sealed anew each time that it is told
        return Reasoning(part.text, attrs.evolve(part.state, data=b""))
    if isinstance(part, HostedActivity) and part.name == "compaction" and part.payload is not None:
        return attrs.evolve(part, payload=attrs.evolve(part.payload, value=b""))
    return part


@pytest.mark.req("S0-40")
@pytest.mark.parametrize("folder", _cases("stream"))
def test_the_last_event_alone_says_the_same(folder: Path) -> None:
    """What a stream told in pieces, its last event tells again, and both give the same parts in the same order."""
    body = (folder / "response.sse").read_bytes().replace(b"\r\n", b"\n")
    last = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")][-1]
    streamed = _assembled(_decode(folder))
    response = json.dumps(json.loads(last)["response"], indent=2, ensure_ascii=False)
    whole = _assembled(_RESPONSES.decode_whole(response.encode(), _ORIGIN))
    if streamed.failure is not None:
        assert whole.failure == streamed.failure
        return
    told, again = [[_comparable(part) for part in one.message().parts] for one in (streamed, whole)]
    if folder.name in ("mcp-list-tools-parallel", "web-search-done-last"):  # ended later than the text began
        told, again = sorted(told, key=repr), sorted(again, key=repr)
    assert told == again
    assert (streamed.stop, streamed.usage, streamed.response_id) == (whole.stop, whole.usage, whole.response_id)


def _weather_call() -> ModelCall:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "latitude": {"type": "string", "description": "Latitude (e.g., 52.5200)"},
            "longitude": {"type": "string", "description": "Longitude (e.g., 13.4050)"},
        },
        "required": ["latitude", "longitude"],
        "additionalProperties": False,
        "strict": True,
    }
    tool = Tool("weather", "Gets current weather for a location", FrozenMap(schema))
    asked = Message.user("What's the weather in Berlin? (52.5200, 13.4050)")
    return ModelCall(model="gpt-5-nano", history=History([asked]), tools=(tool,))


def _body(call: ModelCall) -> Any:
    return json.loads(b"".join(_RESPONSES.encode(call).body))


@pytest.mark.req("S2-24", "S2-30")
@pytest.mark.field(41, 43)
def test_a_recorded_tool_exchange_is_sent_as_it_was() -> None:
    """Asked, answered by a recording and continued, a conversation encodes to the very requests that were recorded."""
    first, second = _recorded("tool-call-encrypted-reasoning-1"), _recorded("tool-call-encrypted-reasoning-2")
    call = _weather_call()
    assert _body(call) == json.loads((first / "request.json").read_bytes())
    answer = _assembled(_decode(first)).message()
    sent = json.loads((second / "request.json").read_bytes())
    result = next(item for item in sent["input"] if item.get("type") == "function_call_output")
    history = call.history.extend([answer, Message.tool(ToolResult(result["call_id"], result["output"]))])
    body = _body(attrs.evolve(call, history=history))
    assert body == sent


def test_states_are_the_items_as_they_ended() -> None:
    """A sealed state holds the item as the stream ended it, with its id and its empty summary."""
    folder = _recorded("tool-call-encrypted-reasoning-1")
    thought = next(part for part in _assembled(_decode(folder)).message().parts if isinstance(part, Reasoning))
    assert isinstance(thought.state, ReasoningState)
    held = json.loads(thought.state.data)
    assert held["summary"] == []
    assert held["id"].startswith("rs_")
