"""Answers of ``anthropic-messages`` servers, cut in every way, against what a second opinion counted in them.

How what was counted maps to our values:

| counted | ours |
| --- | --- |
| text, blocks | the text parts that are not empty |
| hosted calls | activities by their call's native name; `ok` is completed, `error` failed, `no-result` only started |
| results of earlier turns | terminal activities whose call is not in the message |
| citations | attributions; those of documents have a source without a URL, which was not counted |
| reasoning | reasoning parts, their text, and their states |
| tool calls | tool calls; a caller other than the model itself is in the call's payload |
| stop, usage | by the tables below; `pause_turn` is a pause and an end of turn |
| errors | a failure of the kind `provider` with the provider's words |

Deviations: tools with several native names share one of ours, so the native name is read from the payload. Blocks that
stand for themselves (compaction, fallback, container_upload) and the container of open work are activities too, which
were not counted as hosted calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Reasoning, Text
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import StreamEvent
from furcate.primitives._wire import ModelCall, ResponseHead

_OWN = Path(__file__).parent.parent / "data" / "anthropic-messages"
_ORIGIN = Origin("own", "anthropic-messages", "own-model")
_MESSAGES = dialect_named("anthropic-messages")

_STOPS = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_output_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    "pause_turn": "end_turn",
}
_NAMES = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
}
_UNCOUNTED = ("compaction", "fallback", "container_upload", "container")


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "anthropic-messages" for parent in Path(__file__).parents)
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


def _recorded(name: str, file: str) -> Path:
    found = _recordings()
    if found is None or not (found / name / file).exists():
        pytest.skip("the recorded traffic is not on this machine")
    return found / name / file


def _expectation(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    return loaded


def _decode(folder: Path, size: int | None = None) -> list[StreamEvent]:
    whole = folder / "response.json"
    if whole.exists():
        return _MESSAGES.decode_whole(whole.read_bytes(), _ORIGIN)
    body = (folder / "response.sse").read_bytes()
    decoder = _MESSAGES.decoder(_ORIGIN)
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


@pytest.mark.req("S0-04", "S0-35")
@pytest.mark.parametrize("folder", _cases("answer"))
def test_answers_hold_what_was_counted(folder: Path) -> None:
    """Text, reasoning, hosted work, citations, calls, ending, usage and errors of an answer are those counted."""
    expect = _expectation(folder)
    assembler = _assembled(folder)
    message = assembler.message()
    texts = [part for part in message.parts if isinstance(part, Text)]
    assert (len(message.text), _sha(message.text)) == (expect["text"]["codepoints"], expect["text"]["sha256"])
    assert len(texts) == expect["text"]["blocks"]
    thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
    assert len(thoughts) == expect["reasoning"]["blocks"]
    assert sum(len(thought.text) for thought in thoughts) == expect["reasoning"]["text_codepoints"]
    assert sum(thought.state is not None for thought in thoughts) == expect["reasoning"]["opaque"]
    cited = [one for text in texts for one in text.attributions]
    assert len(cited) == expect["citations"]["count"]
    assert sorted({one.source.url for one in cited if one.source.url}) == expect["citations"]["urls"]
    assert all(one.range is None and one.replay is not None for one in cited)
    _check_calls(message, expect["tool_calls"])
    _check_hosted(message, expect)
    _check_ending(assembler, expect)
    _check_usage(assembler, expect["usage"])


def _check_calls(message: Message, told: list[Mapping[str, Any]]) -> None:
    assert [(call.name, call.id) for call in message.tool_calls] == [(call["name"], call["id"]) for call in told]
    for call, one in zip(message.tool_calls, told, strict=True):
        if "arguments_unparsable" in one:
            assert call.arguments == one["arguments_unparsable"]
        else:
            assert call.parsed() == one["arguments"]
        if one.get("caller", "direct") != "direct":
            assert call.payload is not None
            assert json.loads(call.payload.value)["caller"]["type"] == one["caller"]


def _check_hosted(message: Message, expect: Mapping[str, Any]) -> None:
    work = [part for part in message.parts if isinstance(part, HostedActivity) and part.name not in _UNCOUNTED]
    ended = {part.id: part.state for part in work if part.state != "started"}
    found = []
    for part in work:
        if part.state == "started":
            assert part.payload is not None
            native = json.loads(part.payload.value)
            assert part.name == ("mcp_call" if "server_name" in native else _NAMES.get(native["name"], native["name"]))
            status = {"completed": "ok", "failed": "error", None: "no-result"}[ended.pop(part.id, None)]
            found.append((native["name"], status, native["input"]))
    told = expect["hosted"]["calls"]
    assert found == [(one["name"], one["status"].partition(":")[0], one["arguments"]) for one in told]
    earlier = expect.get("results_of_earlier_turns") or []
    assert list(ended.values()) == ["completed" if one["status"] == "ok" else "failed" for one in earlier]


def _check_ending(assembler: Assembler, expect: Mapping[str, Any]) -> None:
    if expect["errors"]:
        assert assembler.stop is None
        assert assembler.failure is not None
        assert assembler.failure.kind == "provider"
        assert expect["errors"][0]["message"] in assembler.failure.message
        return
    assert assembler.failure is None
    assert assembler.stop is not None
    assert assembler.stop.reason == _STOPS[expect["stop"]["reason"]]
    assert assembler.paused is (expect["stop"]["reason"] == "pause_turn")
    if expect["stop"]["sequence"]:
        assert assembler.stop.detail == expect["stop"]["sequence"]


def _check_usage(assembler: Assembler, told: Mapping[str, Any]) -> None:
    usage = assembler.usage
    assert usage.input_tokens == told["input_tokens"]
    assert usage.cache_read_tokens == (told.get("cache_read_input_tokens") or 0)
    assert usage.cache_write_tokens == (told.get("cache_creation_input_tokens") or 0)
    assert usage.output_tokens == told["output_tokens"]
    assert usage.reasoning_tokens == (told.get("output_tokens_details") or {}).get("thinking_tokens")


@pytest.mark.parametrize("folder", _cases("error"))
def test_error_responses_are_understood(folder: Path) -> None:
    """An error response gives its status, its kind and the provider's own words."""
    told = _expectation(folder)["http_error"]
    status = told["http_status"]
    head = ResponseHead(status, (("content-type", "application/json"),))
    failure = _MESSAGES.decode_error(head, (folder / "response.json").read_bytes())
    kinds = {400: "invalid_request", 401: "authentication", 429: "rate_limited", 529: "unavailable"}
    assert (failure.status, failure.kind) == (status, kinds[status])
    assert failure.message.startswith(f"HTTP {status}: {told['message']}")
    assert failure.retryable is (status in (429, 529))


@pytest.mark.parametrize("size", [1, 3, 17, 64])
@pytest.mark.parametrize("folder", _cases("stream"))
def test_cutting_changes_nothing(folder: Path, size: int) -> None:
    """A stream gives the same events whole, byte by byte, and in pieces of 3, 17 and 64 bytes."""
    assert _decode(folder, size) == _decode(folder)


def _native_blocks(folder: Path) -> list[dict[str, Any]]:
    """Put the blocks of an answer together in the plainest way, to compare what goes back with them."""
    if (folder / "response.json").exists():
        whole: list[dict[str, Any]] = json.loads((folder / "response.json").read_bytes())["content"]
        return [_bare(block) for block in whole]
    blocks: dict[int, dict[str, Any]] = {}
    pieces: dict[int, str] = {}
    for line in (folder / "response.sse").read_bytes().decode().replace("\r\n", "\n").split("\n"):
        event = json.loads(line[5:]) if line.startswith("data:") else {"type": ""}
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "citations_delta":
                block["citations"] = [*block.get("citations", []), delta["citation"]]
            elif delta["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + delta["partial_json"]
            else:
                member = delta["type"].removesuffix("_delta").replace("compaction", "content")
                block[member] = (block.get(member) or "") + delta[member]
    for index, written in pieces.items():
        if written:
            blocks[index]["input"] = json.loads(written)
    return [_bare(block) for block in blocks.values()]


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use" and block.get("caller") == {"type": "direct"}:
        del block["caller"]  # what the model itself calls needs no caller
    if block["type"] == "text" and not block.get("citations"):
        return {"type": "text", "text": block["text"]}
    return block


# What ends in the middle of something, or begins there, does not go back as it came.
_HALVES = (
    "cut-call",
    "max-tokens-partial-tool-json",
    "pause-turn-rest",
    "pause-turn-2",
    "programmatic-tool-calling-last",
)


def _whole_cases() -> list[Any]:
    def fits(case: Any) -> bool:
        folder = case.values[0]
        return folder is None or (folder.name not in _HALVES and not _expectation(folder)["errors"])

    return [case for case in _cases("answer") if fits(case)]


@pytest.mark.req("S0-40")
@pytest.mark.field(48)
@pytest.mark.parametrize("folder", _whole_cases())
def test_answers_go_back_as_they_came(folder: Path) -> None:
    """Every block of a whole answer goes back to its origin in its place, with all that it held."""
    expect = _expectation(folder)
    history = History([Message.user("hi"), _assembled(folder).message()])
    if expect["stop"]["reason"] == "end_turn":
        history = history.extend([Message.user("go on")])
    body = json.loads(b"".join(_MESSAGES.encode(ModelCall(model="m", history=history)).body))
    sent, came = body["messages"][1]["content"], [block for block in _native_blocks(folder) if block.get("text") != ""]
    if expect["stop"]["reason"] != "end_turn" and came[-1]["type"] == "text":
        came[-1]["text"] = came[-1]["text"].rstrip()
    assert sent == came


def test_a_paused_turn_goes_back_with_what_followed() -> None:
    """A call that was open at a pause and the result that opened the next answer go back as the pair that they are."""
    first, second = (_assembled(_OWN / name).message() for name in ("pause-turn", "pause-turn-rest"))
    history = History([Message.user("hi")]).extend([first]).extend([second, Message.user("go on")])
    body = json.loads(b"".join(_MESSAGES.encode(ModelCall(model="m", history=history)).body))
    blocks = [block for message in body["messages"][1:3] for block in message["content"]]
    assert blocks == [*_native_blocks(_OWN / "pause-turn"), *_native_blocks(_OWN / "pause-turn-rest")]


@pytest.mark.field(47)
@pytest.mark.parametrize("name", ["web-search", "parallel-tools"])
def test_streamed_and_whole_are_one(name: str) -> None:
    """An answer has the same message and digest whether it was streamed or came whole."""
    streamed, whole = (_assembled(_OWN / case) for case in (name, f"json-{name}"))
    assert streamed.message() == whole.message()
    assert History([streamed.message()]).digest == History([whole.message()]).digest
    assert (streamed.usage, streamed.stop) == (whole.usage, whole.stop)


def test_a_paused_request_is_the_recorded_one() -> None:
    """The turn that a recorded client sent back after a pause is the one that we send, but for what it normalised."""
    told = json.loads(_recorded("pause-turn-2", "request.json").read_bytes())
    message = _assembled(_recorded("pause-turn-1", "response.sse").parent).message()
    history = History([Message.user(told["messages"][0]["content"][0]["text"])]).extend([message])
    call = ModelCall(model=told["model"], history=history, server_tools=("web_search",))
    sent = json.loads(b"".join(_MESSAGES.encode(call).body))
    ours, theirs = sent["messages"][1]["content"], told["messages"][1]["content"]
    for block in ours:
        block.pop("caller", None)  # that client left it out
    # It also wrote some titles of pages anew, in plainer characters.
    assert json.dumps(_untitled(ours), sort_keys=True) == json.dumps(_untitled(theirs), sort_keys=True)


def _untitled(value: Any) -> Any:
    if isinstance(value, list):
        return [_untitled(one) for one in value]
    if isinstance(value, dict):
        return {key: _untitled(one) for key, one in value.items() if key != "title"}
    return value
