"""Answers of ``google-generatecontent`` servers, cut in every way, against what a second opinion counted in them."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import Assembler
from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent
from furcate.primitives._content import HostedActivity, Media, Origin, Reasoning, Text, ToolResult
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, ModelCall, ResponseHead

_OWN = Path(__file__).parent.parent / "data" / "google-generatecontent"
_ORIGIN = Origin("own", "google-generatecontent", "own-model")
_GOOGLE = GoogleGenerateContent()

# What each field of an expectation stands for in ours.
#   text                 the text parts joined; blocks are text parts that have text
#   hosted.calls         googleSearch: a query of a grounding activity; urlContext, codeExecution, toolCall: activities
#   citations            sources that attributions name; a source that several stretches name counts once there
#   reasoning            length of all thoughts; opaque: states, and signatures inside the native parts of activities
#   tool_calls           calls in order; ours have made ids where the provider gave none
#   stop, errors, usage  see the tables and functions below
_STOPS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_output_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "FAKE_ENUM": "end_turn",
}

# Where we count something else than the expectation does, and why.
_DEVIATIONS = {
    ("recorded-json-url-context-mixed", "ranges"): "two of three stretches name grounding chunks that are not there",
    ("own-server-side-search", "googleSearch"): "the query is that of the tool call, and one search is told of once",
}


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "google-generatecontent" for parent in Path(__file__).parents)
    return next((place for place in places if place.is_dir()), None)


def _is(kind: str, folder: Path) -> bool:
    if kind == "stream":
        return (folder / "response.sse").exists()
    if kind == "success":
        return _is("answer", folder) and not _expectation(folder)["errors"]
    return ("http_error" in _expectation(folder)) == (kind == "error")


def _name(folder: Path) -> str:
    return f"{'own' if folder.parent == _OWN else 'recorded'}-{folder.name}"


def _cases(kind: str) -> list[Any]:
    found = _recordings()
    folders = [*sorted(_OWN.iterdir()), *(sorted(found.iterdir()) if found is not None else ())]
    cases = [pytest.param(folder, id=_name(folder)) for folder in folders if _is(kind, folder)]
    if found is None:
        skip = pytest.mark.skip(reason="the recorded traffic is not on this machine; our own fixtures were decoded")
        cases.append(pytest.param(None, marks=skip, id="recorded"))
    return cases


def _expectation(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    return loaded


def _stream(body: bytes, size: int | None = None) -> list[StreamEvent]:
    decoder = _GOOGLE.decoder(_ORIGIN)
    step = size if size is not None else max(1, len(body))
    events: list[StreamEvent] = []
    for start in range(0, len(body), step):
        events += decoder.feed(body[start : start + step])
    return events + decoder.finish()


def _decode(folder: Path) -> list[StreamEvent]:
    whole = folder / "response.json"
    if whole.exists():
        return _GOOGLE.decode_whole(whole.read_bytes(), _ORIGIN)
    return _stream((folder / "response.sse").read_bytes())


def _assembled(folder: Path) -> Assembler:
    assembler = Assembler()
    for event in _decode(folder):
        assembler.add(event)
    return assembler


def _chunks(folder: Path) -> list[dict[str, Any]]:
    """Read the chunks of an answer without a line of the library."""
    whole = folder / "response.json"
    if whole.exists():
        return [json.loads(whole.read_bytes())]
    text = (folder / "response.sse").read_bytes().decode().replace("\r\n", "\n")
    return [json.loads(event[5:]) for event in text.split("\n\n") if event.startswith("data:")]


def _candidates(folder: Path) -> Iterator[dict[str, Any]]:
    for chunk in _chunks(folder):
        yield from chunk.get("candidates", ())


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("folder", _cases("answer"))
def test_answers_hold_what_was_counted(folder: Path) -> None:
    """Text, thoughts, citations, work of the provider, calls, ending, usage and errors are those that were counted."""
    expect = _expectation(folder)
    assembler = _assembled(folder)
    message = assembler.message()
    assert (len(message.text), _sha(message.text)) == (expect["text"]["codepoints"], expect["text"]["sha256"])
    assert len([part for part in message.parts if isinstance(part, Text) and part.text]) == expect["text"]["blocks"]
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    assert sum(len(thought.text) for thought in thoughts) == expect["reasoning"]["text_codepoints"]
    activities = [part for part in message.parts if isinstance(part, HostedActivity)]
    inside = [one for one in activities if one.payload is not None and b'"thoughtSignature":' in one.payload.value]
    assert sum(one.state is not None for one in thoughts) + len(inside) == expect["reasoning"]["opaque"]
    assert sum(isinstance(part, Media) for part in message.parts) == expect.get("inline_data", 0)
    calls = [(call.name, call.parsed()) for call in message.tool_calls]
    assert calls == [(call["name"], call["arguments"]) for call in expect["tool_calls"]]
    for call, told in zip(message.tool_calls, expect["tool_calls"], strict=True):
        assert call.id == told["id"] or (told["id"] is None and call.id.startswith("gcall_"))
    assert len({call.id for call in message.tool_calls}) == len(calls)
    _check_hosted(folder, activities, expect)
    _check_citations(folder, message, expect)
    _check_ending(assembler, expect)
    _check_usage(assembler, expect.get("usage") or {})


def _check_hosted(folder: Path, activities: list[HostedActivity], expect: Mapping[str, Any]) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for one in activities:
        assert one.payload is not None
        native = json.loads(one.payload.value)
        if "retrievedUrl" in native:
            found["urlContext", native["urlRetrievalStatus"]] += 1
        elif "codeExecutionResult" in native:
            found["codeExecution", native["codeExecutionResult"]["outcome"]] += 1
        elif "toolResponse" in native:
            found[f"toolCall:{native['toolResponse']['toolType']}", "answered"] += 1
        elif one.payload.format.endswith(".grounding"):
            queries = one.input["queries"]
            assert isinstance(queries, tuple)
            found["googleSearch", "done"] += len(queries)
        else:
            assert one.state == "started"
    if (_name(folder), "googleSearch") in _DEVIATIONS:
        found["googleSearch", "done"] += 1
    assert found == Counter((call["name"], call["status"]) for call in expect["hosted"]["calls"])


def _check_citations(folder: Path, message: Message, expect: Mapping[str, Any]) -> None:
    cited = [(part, one) for part in message.parts if isinstance(part, Text) for one in part.attributions]
    assert len({(one.source, one.excerpt) for _, one in cited}) == expect["citations"]["count"]
    assert sorted({one.source.url for _, one in cited if one.source.url}) == expect["citations"]["urls"]
    told = Counter[str]()
    for candidate in _candidates(folder):
        grounding = candidate.get("groundingMetadata", {})
        for support in grounding.get("groundingSupports", ()):
            there = [n for n in support["groundingChunkIndices"] if n < len(grounding["groundingChunks"])]
            told[support["segment"]["text"]] += len(there)
    ranges = [(part.text[one.range[0] : one.range[1]], one) for part, one in cited if one.range is not None]
    if "grounding" in expect:  # counted in the recordings: every stretch fits as bytes
        assert Counter(words for words, _ in ranges if words in told) == +told


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
    if finish is None:
        assert assembler.stop.reason == "refusal"
        assert (assembler.stop.detail or "").startswith(expect["stop"]["block_reason"])
    else:
        called = expect["tool_calls"] and finish == "STOP"
        assert assembler.stop.reason == ("tool_use" if called else _STOPS[finish])
        assert assembler.stop.detail == (None if finish in ("STOP", "MAX_TOKENS") else finish)


def _check_usage(assembler: Assembler, told: Mapping[str, Any]) -> None:
    usage = assembler.usage
    prompt, cached = told.get("promptTokenCount"), told.get("cachedContentTokenCount")
    fed, thoughts = told.get("toolUsePromptTokenCount", 0), told.get("thoughtsTokenCount")
    assert usage.input_tokens == (None if prompt is None else prompt - (cached or 0) + fed)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (cached, None)
    assert usage.reasoning_tokens == thoughts
    if "totalTokenCount" in told:  # the total is the sum of all
        assert (usage.input_tokens or 0) + (cached or 0) + (usage.output_tokens or 0) == told["totalTokenCount"]


@pytest.mark.parametrize("folder", _cases("error"))
def test_error_responses_are_understood(folder: Path) -> None:
    """An error response gives its status, its kind, the provider's own words, and the wait that it asks for."""
    told = _expectation(folder)["http_error"]
    head = ResponseHead(told["http_status"], (("content-type", "application/json"),))
    failure = _GOOGLE.decode_error(head, (folder / "response.json").read_bytes())
    kinds = {400: ("invalid_request", "authentication"), 429: ("rate_limited", "rate_limited")}
    assert failure.status == told["http_status"]
    assert (failure.kind, failure.reason) == kinds[told["http_status"]]
    assert failure.message.startswith(f"HTTP {told['http_status']}: {told['message'][:100]}")
    assert failure.retryable is (told["http_status"] == 429)
    assert failure.wait_s == (
        {"own": 7.5, "recorded": 48.0}[_name(folder).partition("-")[0]] if failure.retryable else None
    )


@pytest.mark.parametrize("size", [1, 3, 17, 64])
@pytest.mark.parametrize("folder", _cases("stream"))
def test_cutting_changes_nothing(folder: Path, size: int) -> None:
    """A stream gives the same events whole, byte by byte, and in pieces of 3, 17 and 64 bytes."""
    body = (folder / "response.sse").read_bytes()
    assert _stream(body, size) == _stream(body)


@pytest.mark.field(47)
@pytest.mark.parametrize("folder", _cases("success"))
def test_whole_answers_are_the_streamed_ones(folder: Path) -> None:
    """An answer's chunks as a JSON list, and as a stream, make the same message, ending and usage."""
    chunks = _chunks(folder)
    listed, streamed = Assembler(), Assembler()
    for event in _GOOGLE.decode_whole(json.dumps(chunks, indent=1).encode(), _ORIGIN):
        listed.add(event)
    for event in _stream(b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)):
        streamed.add(event)
    assert (listed.message(), listed.stop, listed.usage) == (streamed.message(), streamed.stop, streamed.usage)


def _merged(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join what a stream cut: texts that follow each other, and a signature on an empty text with the text ahead."""
    joined: list[dict[str, Any]] = []
    for part in parts:
        last = joined[-1] if joined else {}
        if set(part) <= {"text", "thoughtSignature"} and set(last) - {"thoughtSignature"} == {"text"}:
            signature = last.get("thoughtSignature") or part.get("thoughtSignature")
            joined[-1] = {"text": last["text"] + part["text"], **({"thoughtSignature": signature} if signature else {})}
        elif part != {"text": ""}:
            joined.append(part)
    return joined


def _joined_calls(parts: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the counted arguments in the place of pieces: a piece with a name begins a call."""
    joined = []
    for part in parts:
        if "functionCall" not in part:
            joined.append(part)
        elif "name" in part["functionCall"]:
            told = calls[sum("functionCall" in one for one in joined)]
            call = {key: part["functionCall"][key] for key in ("name", "id") if key in part["functionCall"]}
            joined.append({**part, "functionCall": {**call, "args": told["arguments"]}})
    return joined


@pytest.mark.req("S2-24")
@pytest.mark.parametrize("folder", _cases("success"))
def test_answers_go_back_as_they_came(folder: Path) -> None:
    """What is sent back of an answer are its own parts in their order, but for thoughts that nothing signed."""
    message = _assembled(folder).message()
    native = [part for one in _candidates(folder) for part in one.get("content", {}).get("parts", ())]
    native = _joined_calls(native, _expectation(folder)["tool_calls"])
    sent = _contents(History([Message.user("q"), message, *_answers(message)]))
    replayed = sent[1]["parts"] if len(sent) > 1 and sent[1]["role"] == "model" else []
    kept = [part for part in _merged(native) if not part.get("thought")]
    assert [part for part in replayed if not part.get("thought")] == kept


def _answers(message: Message) -> list[Message]:
    results = [ToolResult(call.id, "ok") for call in message.tool_calls]
    return [Message.tool(*results)] if results else []


def _contents(history: History) -> list[Any]:
    body = b"".join(_GOOGLE.encode(ModelCall(model="m", history=history)).body)
    contents: list[Any] = json.loads(body)["contents"]
    return contents


def _request(case: str) -> Any:
    found = _recordings()
    if found is None:
        pytest.skip("the recorded traffic is not on this machine")
    return json.loads((found / case / "request.json").read_text(encoding="utf-8"))


_TOOLS = {"googleSearch": "google_search", "urlContext": "url_context", "codeExecution": "code_execution"}


def _same(value: Any) -> Any:
    """Take away what says the same in two ways: the spelling of a tool, and objects that are empty for no reason."""
    if isinstance(value, dict):
        named = {_TOOLS.get(key, key): _same(item) for key, item in value.items()}
        return {key: item for key, item in named.items() if item != {} or key in _TOOLS.values()}
    return [_same(item) for item in value] if isinstance(value, list) else value


def _body(history: History, **options: Any) -> Any:
    return json.loads(b"".join(_GOOGLE.encode(ModelCall(model="m", history=history, **options)).body))


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("max-tokens", {"settings": Settings(max_output_tokens=50)}),
        ("google-search-one-chunk", {"settings": Settings(temperature=0), "server_tools": ("web_search",)}),
        ("json-google-search-cached", {"server_tools": ("web_search",)}),
        ("google-search", {"server_tools": ("web_search",)}),
        ("url-context", {"server_tools": ("web_fetch",)}),
        ("code-execution", {"server_tools": ("code_execution",)}),
        ("http-400-api-key", {}),
    ],
)
def test_recorded_requests(case: str, options: dict[str, Any]) -> None:
    """A request like a recorded one is the same JSON value, where the dialect leaves no choice."""
    wanted = _request(case)
    wanted.get("systemInstruction", {}).pop("role", None)
    wanted.get("generationConfig", {}).pop("responseModalities", None)
    instruction = wanted.get("systemInstruction")
    history = [Message.system(instruction["parts"][0]["text"])] if instruction else []
    history.append(Message.user(wanted["contents"][0]["parts"][0]["text"]))
    assert _same(_body(History(history), **options)) == _same(wanted)


@pytest.mark.field(45)
def test_a_recorded_continuation() -> None:
    """The second request of two parallel calls is the recorded one: one turn, and the signature on the first alone."""
    wanted = _request("parallel-tools-2")
    found = _recordings()
    assert found is not None
    message = _assembled(found / "parallel-tools-1").message()
    results = [ToolResult(call.id, text) for call, text in zip(message.tool_calls, ("sage green", "red"), strict=True)]
    history = History(
        [
            Message.system(wanted["systemInstruction"]["parts"][0]["text"]),
            Message.user(wanted["contents"][0]["parts"][0]["text"]),
            message,
            Message.tool(*results),
        ]
    )
    parameters = FrozenMap({"type": "object", "properties": {"_person": {"type": "string"}}, "required": ["_person"]})
    tool = Tool("favorite_color", "Returns a person's favourite colour", parameters)
    ours = _body(history, tools=(tool,), settings=Settings(temperature=0))
    calls = wanted["contents"][1]["parts"]
    # The client that was recorded had decoded the signature and encoded it anew, in the other alphabet of base64.
    calls[0]["thoughtSignature"] = calls[0]["thoughtSignature"].replace("-", "+").replace("_", "/")
    assert ours["contents"] == wanted["contents"]
    assert ours["generationConfig"] == wanted["generationConfig"]


def _damaged(body: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return body[: chance.randrange(len(body))]
    if kind == 1:
        events = body.split(b"\n\n") if b"\r\n" not in body else body.split(b"\r\n\r\n")
        chance.shuffle(events)
        return b"\n\n".join(events)
    damaged = bytearray(body)
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(damaged))
        if kind == 2:
            damaged[at] = chance.randrange(256)
        else:
            del damaged[at : at + chance.randrange(1, 40)]
    return bytes(damaged)


@pytest.mark.parametrize("folder", _cases("answer"))
def test_damage_is_a_result_or_a_failure(folder: Path) -> None:
    """However an answer is cut, shuffled or damaged, it ends as a result or as a typed failure."""
    whole = folder / "response.json"
    body = (whole if whole.exists() else folder / "response.sse").read_bytes()
    chance = random.Random(folder.name)
    for _ in range(25):
        damaged = _damaged(body, chance)
        try:
            if whole.exists():
                events = _GOOGLE.decode_whole(damaged, _ORIGIN)
            else:
                events = _stream(damaged, chance.choice((5, 200, None)))
        except AttemptFailed:
            continue
        assembler = Assembler()
        for event in events:
            assembler.add(event)
        assembler.partial()
        endings = [event for event in events if isinstance(event, (Stopped, StreamFailed))]
        assert endings == events[-1:]
        if isinstance(endings[0], Stopped):
            assembler.message()
