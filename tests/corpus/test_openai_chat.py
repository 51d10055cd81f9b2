"""Answers of ``openai-chat`` servers, cut in every way, against what a second opinion counted in them.

| expected | is |
| --- | --- |
| text | the message's text: length in code points, SHA-256 |
| refusal | the message's refusal: SHA-256 |
| hosted.calls | completed hosted activities, by number |
| citations | attributions of the text: how many, which URLs |
| reasoning.text_codepoints | length of the reasoning parts' text |
| reasoning.opaque | sealed or signed items in states of the format openrouter.reasoning_details |
| tool_calls | names, ids, parsed arguments |
| stop.reason | the stop reason by `_STOPS`; a refusal part makes it ``refusal``; with none given, what came decides |
| usage | the usage; input without what was read from a cache or written to one |
| errors | the failure's message holds the first error's |
| http_error | status, kind, words, and whether it may be retried |

Not looked at, since nothing is made of it: logprobs, moderation, content filter results and choices other than the
first (told as notices, or left unread), and the framing facts under ``sse``.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Reasoning, ReasoningState, Text, ToolCall, ToolResult
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, ChatSwitches, ModelCall, ResponseHead

_OWN = Path(__file__).parent.parent / "data" / "openai-chat"
_ORIGIN = Origin("own", "openai-chat", "own-model")
_CHAT = dialect_named("openai-chat")

_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_output_tokens", "content_filter": "refusal"}


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "openai-chat" for parent in Path(__file__).parents)
    return next((place for place in places if place.is_dir()), None)


def _is(kind: str, folder: Path) -> bool:
    if kind == "request":
        return (folder / "request.json").exists()
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


def _expectation(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    return loaded


def _decode(folder: Path, size: int | None = None) -> list[StreamEvent]:
    whole = folder / "response.json"
    if whole.exists():
        return _CHAT.decode_whole(whole.read_bytes(), _ORIGIN)
    body = (folder / "response.sse").read_bytes()
    decoder = _CHAT.decoder(_ORIGIN)
    step = size if size is not None else len(body)
    events: list[StreamEvent] = []
    for start in range(0, len(body), step):
        events += decoder.feed(body[start : start + step])
    return events + decoder.finish()


def _assembled(folder: Path) -> Assembler:
    assembler = Assembler()
    for event in _decode(folder):
        assembler.add(event)
    return assembler


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("folder", _cases("answer"))
def test_answers_hold_what_was_counted(folder: Path) -> None:
    """Text, refusal, reasoning, citations, calls, ending, usage and errors of an answer are those that were counted."""
    expect = _expectation(folder)
    assembler = _assembled(folder)
    message = assembler.message()
    assert (len(message.text), _sha(message.text)) == (expect["text"]["codepoints"], expect["text"]["sha256"])
    refusal = message.refusal
    counted = expect["refusal"]
    assert (refusal is None) if counted is None else refusal is not None and _sha(refusal) == counted["sha256"]
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    assert sum(len(thought.text) for thought in thoughts) == expect["reasoning"]["text_codepoints"]
    assert sum(_opaque(thought) for thought in thoughts) == expect["reasoning"]["opaque"]
    ran = [part for part in message.parts if isinstance(part, HostedActivity) and part.state == "completed"]
    assert len(ran) == len((expect.get("hosted") or {}).get("calls", ()))
    cited = [one for part in message.parts if isinstance(part, Text) for one in part.attributions]
    assert len(cited) == expect["citations"]["count"]
    assert sorted({one.source.url for one in cited}) == expect["citations"]["urls"]
    calls = [{"name": call.name, "id": call.id, "arguments": call.parsed()} for call in message.tool_calls]
    assert calls == [{key: call[key] for key in ("name", "id", "arguments")} for call in expect["tool_calls"]]
    _check_ending(assembler, expect)
    _check_usage(assembler, expect.get("usage") or {})


def _opaque(thought: Reasoning) -> int:
    if thought.state is None or thought.state.format != "openrouter.reasoning_details":
        return 0
    details = json.loads(thought.state.data)
    return sum(1 for detail in details if detail["type"] == "reasoning.encrypted" or detail.get("signature"))


def _check_ending(assembler: Assembler, expect: Mapping[str, Any]) -> None:
    if expect["errors"]:
        assert assembler.stop is None
        assert assembler.failure is not None
        assert assembler.failure.kind == "provider"
        assert expect["errors"][0]["message"] in assembler.failure.message
        return
    assert assembler.failure is None
    assert assembler.stop is not None
    finish = expect["stop"]["reason"]
    if expect["refusal"] is not None:
        assert assembler.stop.reason == "refusal"
    elif finish is None:
        assert assembler.stop.reason == ("tool_use" if expect["tool_calls"] else "end_turn")
    else:
        assert assembler.stop.reason == _STOPS[finish]


def _check_usage(assembler: Assembler, told: Mapping[str, Any]) -> None:
    usage = assembler.usage
    details = told.get("prompt_tokens_details") or {}
    read, written = details.get("cached_tokens"), details.get("cache_write_tokens")
    prompt = told.get("prompt_tokens")
    assert usage.input_tokens == (None if prompt is None else prompt - (read or 0) - (written or 0))
    assert usage.cache_read_tokens == read
    assert usage.cache_write_tokens == written
    assert usage.output_tokens == told.get("completion_tokens")
    assert usage.reasoning_tokens == (told.get("completion_tokens_details") or {}).get("reasoning_tokens")


@pytest.mark.parametrize("folder", _cases("error"))
def test_error_responses_are_understood(folder: Path) -> None:
    """An error response gives its status, its kind and the provider's own words."""
    told = _expectation(folder)["http_error"]
    head = ResponseHead(told["http_status"], (("content-type", "application/json"),))
    failure = _CHAT.decode_error(head, (folder / "response.json").read_bytes())
    kinds = {400: "invalid_request", 401: "authentication", 429: "rate_limited"}
    assert (failure.status, failure.kind) == (told["http_status"], kinds[told["http_status"]])
    assert failure.message.startswith(f"HTTP {told['http_status']}: {told['message']}")
    assert failure.retryable is (told["http_status"] == 429)


@pytest.mark.parametrize("size", [1, 3, 17, 64])
@pytest.mark.parametrize("folder", _cases("stream"))
def test_cutting_changes_nothing(folder: Path, size: int) -> None:
    """A stream gives the same events whole, byte by byte, and in pieces of 3, 17 and 64 bytes."""
    assert _decode(folder, size) == _decode(folder)


@pytest.mark.parametrize("folder", _cases("stream"))
def test_damage_is_a_typed_failure_at_worst(folder: Path) -> None:
    """A recorded stream that is cut, reordered, doubled or damaged gives an answer or a typed failure."""
    body = (folder / "response.sse").read_bytes()
    chance = random.Random(folder.name)
    for _ in range(25):
        damaged = _damage(body, chance)
        decoder = _CHAT.decoder(_ORIGIN, chance.choice(["fail", "carry"]))
        events: list[StreamEvent] = []
        try:
            while damaged:
                size = chance.randint(1, 4000)
                events += decoder.feed(damaged[:size])
                damaged = damaged[size:]
            events += decoder.finish()
        except AttemptFailed:
            continue
        assembler = Assembler()
        for event in events:
            assembler.add(event)
        assembler.partial()
        assembler.message()
        assert sum(isinstance(event, Stopped | StreamFailed) for event in events) == 1


def _damage(body: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return body[: chance.randrange(len(body))]
    if kind == 1:
        changed = bytearray(body)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed)
    events = body.replace(b"\r\n", b"\n").split(b"\n\n")
    if kind == 2:
        chance.shuffle(events)
    else:
        events.insert(chance.randrange(len(events)), chance.choice(events))
    return b"\n\n".join(events)


# Where a request can be written in several ways: what we write, made of what was recorded.
_READ = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format"}
_SETTINGS = ("temperature", "top_p", "seed", "reasoning_effort")


def _call_of(request: Mapping[str, Any]) -> ModelCall:
    field: Literal["max_tokens", "max_completion_tokens"]
    field = "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens"
    functions = [tool["function"] for tool in request.get("tools", ()) if tool["type"] == "function"]
    server_tools = ("web_search",) if request.get("web_search_options") == {} else ()
    read = {*_READ, *_SETTINGS, field, "stop", "web_search_options"}
    extra = {key: value for key, value in request.items() if key not in read}
    if "tools" in request and not functions:  # a gateway's own tools have no name of ours
        extra["tools"] = request["tools"]
    wanted = request.get("response_format", {}).get("json_schema")
    return ModelCall(
        model=request["model"],
        history=History([_message(message) for message in request["messages"]]),
        settings=Settings(
            max_output_tokens=request.get(field),
            stop=tuple(request.get("stop", ())),
            extra_body=extra,
            **{name: request[name] for name in _SETTINGS if name in request},
        ),
        tools=tuple(Tool(one["name"], one.get("description", ""), one["parameters"]) for one in functions),
        tool_choice=request.get("tool_choice"),
        schema=(wanted["name"], FrozenMap(wanted["schema"])) if wanted else None,
        server_tools=server_tools,
        stream=request.get("stream", False),
        switches=ChatSwitches(max_tokens_field=field, stream_usage="stream_options" in request),
    )


def _message(wire: Mapping[str, Any]) -> Message:
    if wire["role"] == "tool":
        return Message.tool(ToolResult(wire["tool_call_id"], wire["content"]))
    content = wire.get("content") or ()
    parts: list[Any] = [Text(content)] if isinstance(content, str) else [Text(one["text"]) for one in content]
    if "reasoning_content" in wire:
        state = ReasoningState(_ORIGIN, "openai-chat.reasoning_content", wire["reasoning_content"].encode())
        parts.append(Reasoning(wire["reasoning_content"], state))
    calls = ((call["id"], call["function"]) for call in wire.get("tool_calls", ()))
    parts.extend(ToolCall(its_id, function["name"], function["arguments"]) for its_id, function in calls)
    return Message(wire["role"], tuple(parts))


def _plainly(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write a recorded request as we do: whether it streams, one text as a string, and no empty description."""
    messages = [
        {**one, "content": one["content"][0]["text"]} if isinstance(one.get("content"), list) else one
        for one in request["messages"]
    ]
    written = {"stream": False, **request, "messages": messages}
    for tool in written.get("tools", ()):
        if not tool.get("function", {}).get("description", "x"):
            del tool["function"]["description"]
    return written


@pytest.mark.parametrize("folder", _cases("request"))
def test_requests_are_those_that_were_sent(folder: Path) -> None:
    """A call like the recorded one is the same JSON wherever the dialect leaves no choice."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    sent = json.loads(b"".join(_CHAT.encode(_call_of(request)).body))
    assert sent == _plainly(request)


def _exchanges() -> list[Any]:
    pairs = [(_OWN, "reasoning-exchange"), (_recordings(), "reasoning-tool-call")]
    return [
        pytest.param(place / f"{name}-1", place / f"{name}-2", id=name) for place, name in pairs if place is not None
    ]


@pytest.mark.parametrize(("first", "second"), _exchanges())
def test_an_exchange_goes_on_as_it_was_sent(first: Path, second: Path) -> None:
    """The request after a tool call, made of the decoded answer, is the request that was sent then."""
    then = json.loads((second / "request.json").read_text(encoding="utf-8"))
    answer = _assembled(first).message()
    result = Message.tool(ToolResult(answer.tool_calls[0].id, then["messages"][-1]["content"]))
    call = _call_of(json.loads((first / "request.json").read_text(encoding="utf-8")))
    call = attrs.evolve(call, history=call.history.extend([answer]).extend([result]))
    assert json.loads(b"".join(_CHAT.encode(call).body)) == then
