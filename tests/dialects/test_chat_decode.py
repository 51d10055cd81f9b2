"""Answers of ``openai-chat``: text, reasoning, citations, usage, and how they end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import (
    Attribution,
    Media,
    Origin,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
)
from furcate.primitives._message import Message
from furcate.primitives._stream import Noticed, ResponseStarted, Stopped, StreamEvent, StreamFailed, TextDelta
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import AttemptFailed, StopReason

_CHAT = dialect_named("openai-chat")
_ORIGIN = Origin("p", "openai-chat", "m")
_DONE = "data: [DONE]\n\n"
_WANTED_BACK = ReasoningState(_ORIGIN, "openai-chat.reasoning_content", b"hm")


def _sse(*chunks: object, end: str = _DONE) -> bytes:
    written = (chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return ("".join(written) + end).encode()


def _delta(delta: Mapping[str, object], finish: str | None = None, **more: object) -> dict[str, object]:
    return {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def _events(body: bytes, size: int | None = None) -> list[StreamEvent]:
    decoder = _CHAT.decoder(_ORIGIN)
    events: list[StreamEvent] = []
    for start in range(0, len(body), size or len(body) or 1):
        events += decoder.feed(body[start : start + (size or len(body))])
    events += decoder.finish()
    assert decoder.done
    return events


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _streamed(*chunks: object, end: str = _DONE) -> Assembler:
    return _assembled(_events(_sse(*chunks, end=end)))


def _whole(message: object, finish: str = "stop", **more: object) -> Assembler:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    return _assembled(_CHAT.decode_whole(json.dumps(body).encode(), _ORIGIN))


def _reason(assembler: Assembler) -> str | None:
    return assembler.stop.reason if assembler.stop is not None else None


def _failed(assembler: Assembler) -> str | None:
    return assembler.failure.reason if assembler.failure is not None else None


def test_events_come_as_the_bytes_come() -> None:
    """Text is told as soon as its event is complete, and the end only once usage can no longer come."""
    decoder = _CHAT.decoder(_ORIGIN)
    first = _sse({**_delta({"role": "assistant", "content": "a"}), "model": "m1"}, end="")
    assert decoder.feed(first[:-1]) == []
    assert decoder.feed(first[-1:]) == [ResponseStarted("r", "m1"), TextDelta(0, "a")]
    assert decoder.feed(_sse(_delta({}, "stop"), end="")) == []
    assert not decoder.done
    assert decoder.feed(_DONE.encode())[-1] == Stopped("end_turn")
    assert decoder.done
    assert decoder.feed(b"data: {") == decoder.finish() == []


@pytest.mark.field(47)
def test_streamed_and_whole_are_one_message() -> None:
    """The same answer, streamed or whole, makes the same message, whatever the order of its members."""
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 2}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    whole = _whole(
        {"content": "Hello", "tool_calls": [call], "refusal": "no", "reasoning_content": "hm", "annotations": [cited]},
        "tool_calls",
    )
    streamed = _streamed(
        _delta({"reasoning_content": "h"}),
        _delta({"reasoning_content": "m"}),
        _delta({"content": "Hel"}),
        _delta({"content": "lo"}),
        _delta({"refusal": "no"}),
        _delta({"annotations": [cited]}),
        _delta({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}]}),
        _delta({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}, "tool_calls"),
    )
    assert whole.message() == streamed.message()
    assert whole.stop == streamed.stop == Stopped("tool_use")
    assert whole.message().parts == (
        Reasoning("hm", _WANTED_BACK),
        Text("Hello", (Attribution(Source("u", "t"), range=(0, 2)),)),
        Refusal("no"),
        ToolCall("c", "f", '{"a": 1}'),
    )


@given(st.lists(st.text(max_size=8), max_size=6), st.integers(1, 40))
def test_any_text_any_cut(pieces: list[str], size: int) -> None:
    """Any text, escaped or not, comes back whole from events cut at any byte."""
    body = _sse(*(_delta({"content": piece}) for piece in pieces), _delta({}, "stop"))
    plain = "".join(f"data: {json.dumps(_delta({'content': piece}), ensure_ascii=False)}\n\n" for piece in pieces)
    for written in (body, plain.encode() + _sse(_delta({}, "stop"))):
        events = _events(written, size)
        assert events == _events(written)
        assert _assembled(events).message().text == "".join(pieces)


@pytest.mark.parametrize("finish", ["stop", None, "length"])
@given(data=st.data())
def test_any_bytes_end_somehow(finish: str | None, data: st.DataObject) -> None:
    """A stream damaged anywhere still ends, with a stop or with a typed failure."""
    body = bytearray(_sse(_delta({"content": "abc", "tool_calls": [{"index": 0, "id": "c"}]}), _delta({}, finish)))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    with contextlib.suppress(AttemptFailed):  # where nothing of a stream is left, that is said so
        assert isinstance(_events(cut)[-1], Stopped | StreamFailed)


@pytest.mark.parametrize(
    ("finish", "reason", "detail"),
    [
        ("stop", "end_turn", None),
        ("length", "max_output_tokens", None),
        ("content_filter", "refusal", None),
        ("model_length", "context_window", None),
        ("tool_calls", "end_turn", "tool_calls"),
        ("novel", "end_turn", "novel"),
    ],
)
def test_endings(finish: str, reason: StopReason, detail: str | None) -> None:
    """Each finish_reason has its stop reason; one we do not know ends the turn and is told."""
    assert _streamed(_delta({"content": "a"}), _delta({}, finish)).stop == Stopped(reason, detail)
    assert _whole({"content": "a"}, finish).stop == Stopped(reason, detail)


def test_what_came_decides_over_stop() -> None:
    """A stop after tool calls is a tool use, and after a refusal a refusal; cut off by length it is neither."""
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    assert _reason(_streamed(_delta(call), _delta({}, "stop"))) == "tool_use"
    assert _reason(_streamed(_delta({"refusal": "no"}), _delta({}, "stop"))) == "refusal"
    assert _reason(_streamed(_delta(call), _delta({}, "length"))) == "max_output_tokens"


def test_cut_off() -> None:
    """An end without finish_reason or marker is a failure, with what came so far; so is half an event."""
    for tail in ("", 'data: {"id": "r", "choi', "data: [DO"):
        assembler = _streamed(_delta({"content": "so far"}), end=tail)
        assert (_failed(assembler), assembler.stop) == ("cut_off", None)
        assert assembler.partial() == Message.assistant(Text("so far", attribution_complete=False))
    assert _failed(_assembled(_events(b""))) == "cut_off"
    assert _failed(_streamed()) == "cut_off"


def test_end_without_marker() -> None:
    """An end of the body after a finish_reason is the end of the answer, even without the last blank line."""
    assert _reason(_streamed(_delta({"content": "a"}), _delta({}, "stop"), end="")) == "end_turn"
    assert _reason(_assembled(_events(_sse(_delta({"content": "a"}, "stop"), end="")[:-2]))) == "end_turn"
    assert _reason(_streamed(_delta({"content": "a"}, "stop"), end="data: [DONE]")) == "end_turn"


def test_marker_without_finish_reason() -> None:
    """The end marker alone ends an answer that looks whole, and not a call whose arguments are cut."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}
    assert _streamed(_delta({"content": "a"})).stop == Stopped("end_turn", "no finish_reason")
    assert _failed(_streamed(_delta({"tool_calls": [call]}))) == "cut_off"
    assert _failed(_streamed(_delta({"role": "assistant"}))) == "cut_off"


def test_finish_reasons_that_are_none() -> None:
    """An empty finish_reason, or the word null, ends nothing; error in its place is a failure."""
    assert _reason(_streamed(_delta({"content": "a"}, ""), _delta({}, "null"), _delta({}, "stop"))) == "end_turn"
    assert _failed(_streamed(_delta({"content": "a"}, ""), end="")) == "cut_off"
    assert _failed(_streamed(_delta({"content": "a"}, "error"))) == "provider_error"


def test_error_after_text() -> None:
    """An error inside the stream ends it; the overload is told, and what came before is kept."""
    events = _events(_sse(_delta({"content": "a"}), {"error": {"message": "m", "code": 503}}, _delta({"content": "b"})))
    assembler = _assembled(events)
    assert assembler.failure is not None
    assert (assembler.failure.reason, assembler.failure.retryable) == ("overloaded", True)
    assert assembler.partial() == Message.assistant(Text("a", attribution_complete=False))
    assert isinstance(events[-1], StreamFailed)


@pytest.mark.parametrize(
    "error",
    [
        'event: error\ndata: {"message": "m"}\n\n',
        "event: error\ndata: m\n\n",
        'data: {"object": "error", "message": "m", "code": 1}\n\n',
        'data: [{"error": {"message": "m"}}]\n\n',
        'data: {"choices": [{"index": 0, "delta": {}, "error": {"message": "m"}}]}\n\n',
        'error: {"message": "m"}\n\n',
        '{"error": {"message": "m"}}',
    ],
)
def test_errors_in_other_clothes(error: str) -> None:
    """An error is one as a named event, bare, in a list, in a choice, or as plain JSON between the events."""
    assembler = _streamed(_delta({"content": "a"}), error, end="")
    assert assembler.failure is not None
    assert assembler.failure.message == "the provider ended its answer with an error (provider_error): m"
    assert assembler.stop is None


def test_malformed_chunks() -> None:
    """A chunk that is no JSON, or whose members have other shapes, fails the answer without showing it."""
    for chunk in ("data: PRIVATE\n\n", 'data: "PRIVATE"\n\n', 'data: {"choices": "PRIVATE"}\n\n'):
        assembler = _streamed(_delta({"content": "a"}), chunk)
        assert _failed(assembler) == "malformed"
        assert assembler.failure is not None
        assert "PRIVATE" not in assembler.failure.message
    assert _failed(_streamed(_delta({"content": 5}))) == "malformed"
    assert _failed(_streamed(_delta({"tool_calls": {"index": 0}}))) == "malformed"


def test_a_whole_answer_in_place_of_a_stream() -> None:
    """A server that ignores the wish for a stream, or streams unasked, is understood; an HTML page is not."""
    body = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}
    for indent in (None, 2):
        assert _assembled(_events(json.dumps(body, indent=indent).encode(), 5)).message().text == "a"
    assert _streamed(body).message().text == "a"
    assert _assembled(_CHAT.decode_whole(_sse(_delta({"content": "a"}, "stop")), _ORIGIN)).message().text == "a"
    with pytest.raises(AttemptFailed, match="an HTML page instead of JSON"):
        _events(b"<!DOCTYPE html>\n<html>\n<style>a:b</style></html>")


def test_an_event_without_end_is_bounded() -> None:
    """An endless event ends the answer, and not the memory."""
    decoder = _CHAT.decoder(_ORIGIN)
    piece = b"x" * 2**20
    events = decoder.feed(b"data: ")
    while not decoder.done:
        events = decoder.feed(piece)
    assert _failed(_assembled(events)) == "event_too_large"


@pytest.mark.field(18)
@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({}, UNKNOWN),
        ({"usage": None}, UNKNOWN),
        ({"usage": {}}, UNKNOWN),
        ({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, Usage(input_tokens=0, output_tokens=0)),
        (
            {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}},
            Usage(input_tokens=6, cache_read_tokens=4, output_tokens=5),
        ),
        (
            {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 8}}},
            Usage(input_tokens=0, cache_read_tokens=4, cache_write_tokens=8),
        ),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 2}}, Usage(input_tokens=7, cache_read_tokens=2)),
        (
            {"usage": {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}},
            Usage(output_tokens=5, reasoning_tokens=3),
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 1,
                    "completion_tokens": 5,
                    "total_tokens": 9,
                    "completion_tokens_details": {"reasoning_tokens": 3},
                }
            },
            Usage(input_tokens=1, output_tokens=8, reasoning_tokens=3),
        ),
        ({"x_groq": {"usage": {"prompt_tokens": 1}}}, Usage(input_tokens=1)),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": 2}}, Usage(output_tokens=2)),
        ({"usage": "many"}, UNKNOWN),
    ],
)
def test_usage(told: dict[str, Any], usage: Usage) -> None:
    """Usage that is missing is unknown and zero is zero; cached input is taken off, and reasoning is in the output."""
    assert _whole({"content": "a"}, **told).usage == usage
    assert _streamed(_delta({"content": "a"}, "stop"), {"choices": [], **told}).usage == usage
    assert _streamed(_delta({"content": "a"}, "stop", **told)).usage == usage


def test_later_usage_replaces() -> None:
    """A running total is replaced by the next one, not added to."""
    counts = [{"prompt_tokens": 3, "completion_tokens": n} for n in (1, 2, 2)]
    assembler = _streamed(*(_delta({"content": "a"}, usage=count) for count in counts), _delta({}, "stop"))
    assert assembler.usage == Usage(input_tokens=3, output_tokens=2)


def test_reasoning_in_its_spellings() -> None:
    """Reasoning is read under either name, once where both are sent, and as parts of the content."""
    one, other = {"reasoning_content": "hm"}, {"reasoning": "hm"}
    for delta, state in ((one, _WANTED_BACK), (other, None), ({**other, **one}, _WANTED_BACK)):
        assert _streamed(_delta(delta), _delta({"content": "a"}, "stop")).message().parts == (
            Reasoning("hm", state),
            Text("a"),
        )
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]
    assert _whole({"content": thinking}).message().parts == (Reasoning("hm"), Text("a"))


def test_reasoning_details() -> None:
    """Detailed text counts where there is no plain one; opaque pieces are kept together for their model."""
    text = {"type": "reasoning.text", "index": 0, "text": "hm"}
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "xyz"}
    streamed = _streamed(
        _delta({"reasoning_details": [{**text, "text": "h"}]}),
        _delta({"reasoning_details": [{**text, "text": "m", "signature": "s"}, sealed]}),
        _delta({"content": "a"}, "stop"),
    )
    thought = streamed.message().parts[0]
    assert isinstance(thought, Reasoning)
    assert thought.text == "hm"
    assert thought.state is not None
    assert (thought.state.origin, thought.state.format) == (_ORIGIN, "openrouter.reasoning_details")
    assert json.loads(thought.state.data) == [{**text, "signature": "s"}, sealed]
    plain = _streamed(_delta({"reasoning": "hm", "reasoning_details": [text]}), _delta({"content": "a"}, "stop"))
    assert plain.message().parts == (Reasoning("hm"), Text("a"))


def _cited(url: str, start: int | None = None, end: int | None = None) -> dict[str, Any]:
    return {"type": "url_citation", "url_citation": {"url": url, "start_index": start, "end_index": end}}


def _attributions(assembler: Assembler) -> list[tuple[str, tuple[int, int] | None]]:
    texts = [part for part in assembler.message().parts if isinstance(part, Text)]
    return [(one.source.url, one.range) for text in texts for one in text.attributions]


@pytest.mark.req("S0-36", "S0-37")
def test_ranges() -> None:
    """A range is kept where it fits the text and every way of counting agrees; the citation is kept anyhow."""
    text = "äbc def 🚲 ghi"
    given_ranges = [(0, 3), (4, 7), (0, 0), (5, 4), (0, 99), (-1, 2), (9, 12), (4, 8), (None, 3)]
    annotations = [_cited(str(n), *one) for n, one in enumerate(given_ranges)]
    kept = [(0, 3), (4, 7), None, None, None, None, None, (4, 8), None]
    expected = [(str(n), one) for n, one in enumerate(kept)]
    assert _attributions(_whole({"content": text, "annotations": annotations})) == expected
    early = _streamed(_delta({"annotations": annotations}), _delta({"content": text}, "stop"))
    late = _streamed(_delta({"content": text}), _delta({"annotations": annotations}, "stop"))
    assert _attributions(early) == _attributions(late) == expected


def test_each_citation_once() -> None:
    """Citations over several chunks come all and in order; one that is sent again is counted once."""
    chunks = [_delta({"annotations": [_cited(str(n), 0, 1), _cited(str(n - 1), 0, 1)]}) for n in range(1, 5)]
    streamed = _streamed(_delta({"content": "a"}), *chunks, _delta({}, "stop"))
    assert [url for url, _ in _attributions(streamed)] == ["1", "0", "2", "3", "4"]


def test_citations_so_far_are_kept() -> None:
    """A broken answer keeps the citations that came, also those that waited for their text."""
    assembler = _streamed(_delta({"content": "a"}), _delta({"annotations": [_cited("u", 0, 9)]}), end="")
    assert _failed(assembler) == "cut_off"
    assert assembler.partial() == Message.assistant(Text("a", (Attribution(Source("u")),), attribution_complete=False))


def test_listed_pages() -> None:
    """Pages listed beside the text are citations without range, once, and only where nothing was annotated."""
    pages: dict[str, Any] = {
        "citations": ["u1", {"url": "u2"}],
        "search_results": [{"url": "u2", "title": "T", "snippet": "S"}, {"url": "u3"}],
    }
    streamed = _streamed(_delta({"content": "a"}, **pages), _delta({"content": "b"}, "stop", **pages))
    listed = (Attribution(Source("u1")), Attribution(Source("u2", "T"), "S"))
    assert streamed.message() == _whole({"content": "ab"}, **pages).message() == Message.assistant(Text("ab", listed))
    assert _attributions(_whole({"content": "ab", "annotations": [_cited("u9")]}, **pages)) == [("u9", None)]


def test_flat_citations() -> None:
    """A citation without the inner object is one too, and may say what the page says."""
    flat = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    quoted = {"type": "url_citation", "url_citation": {"url": "v", "content": "words"}}
    assert _whole({"content": "a", "annotations": [flat, quoted]}).message() == Message.assistant(
        Text("a", (Attribution(Source("u", "t"), range=(0, 1)), Attribution(Source("v"), "words")))
    )


@pytest.mark.req("S0-03")
def test_what_nobody_knows_is_told() -> None:
    """Other choices, unknown members, annotations and events are told once each, and change nothing."""
    events = _events(
        _sse(
            {"choices": [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "a"}}]},
            _delta({"channel": "x", "novel": None, "annotations": [{"type": "file_path"}]}),
            _delta({"channel": "x"}),
            "event: heartbeat\ndata: now\n\n",
            {"choices": [], "moderation": {}},
            _delta({}, "stop"),
        )
    )
    told = [event.kind for event in events if isinstance(event, Noticed)]
    assert told == ["choices.1", "annotation.file_path", "delta.channel", "event.heartbeat", "chunk.moderation"]
    assert _assembled(events).message() == Message.assistant("a")


@pytest.mark.req("S1-33")
@pytest.mark.parametrize(
    "delta",
    [
        {"content": [{"type": "hologram", "text": "x"}]},
        {"audio": {"data": "AA=="}},
        {"tool_calls": [{"index": 0, "id": "c", "type": "teleport", "teleport": {}}]},
    ],
)
def test_content_that_nobody_can_carry(delta: dict[str, object]) -> None:
    """Content of an unknown kind fails the answer; it is not dropped."""
    assert _failed(_streamed(_delta({"content": "a"}), _delta(delta), _delta({}, "stop"))) == "unsupported_content"


def test_images() -> None:
    """Images come by value or address; one that cannot be read fails the answer."""
    images = [
        {"type": "image_url", "image_url": {"url": url}} for url in ("data:image/png;base64,AQ==", "https://i.example")
    ]
    assert _whole({"content": "a", "images": images}).message().parts == (
        Text("a"),
        Media("image/png", b"\x01"),
        Media("image/*", url="https://i.example"),
    )
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,*"}}
    assert _failed(_whole({"images": [broken]})) == "malformed"


def test_half_characters() -> None:
    """A character that a server cut in two costs that character, and not the answer."""
    body = b'data: {"choices": [{"delta": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}\n\n'
    assert _assembled(_events(body)).message().text == "a\ufffd"
