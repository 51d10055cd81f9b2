"""Answers of ``openai-chat`` servers, cut in every way, against what a second opinion counted in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Origin, Reasoning, Text
from furcate.primitives._stream import StreamEvent
from furcate.primitives._wire import ResponseHead

_OWN = Path(__file__).parent.parent / "data" / "openai-chat"
_ORIGIN = Origin("own", "openai-chat", "own-model")
_CHAT = dialect_named("openai-chat")

_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_output_tokens", "content_filter": "refusal"}


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "openai-chat" for parent in Path(__file__).parents)
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
    cited = [one for part in message.parts if isinstance(part, Text) for one in part.attributions]
    assert len(cited) == expect["citations"]["count"]
    assert sorted({one.source.url for one in cited}) == expect["citations"]["urls"]
    calls = [{"name": call.name, "id": call.id, "arguments": call.parsed()} for call in message.tool_calls]
    assert calls == [{key: call[key] for key in ("name", "id", "arguments")} for call in expect["tool_calls"]]
    _check_ending(assembler, expect)
    _check_usage(assembler, expect.get("usage") or {})


def _opaque(thought: Reasoning) -> int:
    if thought.state is None:
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
