"""Answers of ``openai-responses``: text, reasoning, calls, usage, how they end, and what breaks them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, Part, Reasoning, Refusal, Text, ToolCall
from furcate.primitives._stream import Noticed, ReasoningDelta, ResponseStarted, Stopped, StreamEvent, StreamFailed
from furcate.primitives._usage import Usage
from furcate.primitives._wire import AttemptFailed, StopReason, UnknownContent

_RESPONSES = dialect_named("openai-responses")
_ORIGIN = Origin("p", "openai-responses", "m")

Json = dict[str, Any]


def _event(kind: str, **members: object) -> Json:
    return {"type": f"response.{kind}", **members}


def _added(place: int, item: Json) -> Json:
    return _event("output_item.added", output_index=place, item=item)


def _done(place: int, item: Json) -> Json:
    return _event("output_item.done", output_index=place, item=item)


def _delta(text: str, place: int = 0, part: int = 0) -> Json:
    return _event("output_text.delta", output_index=place, content_index=part, delta=text)


def _message(*texts: str, **more: object) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": "msg", "type": "message", "role": "assistant", "content": content, **more}


def _call(arguments: str = "{}", **more: object) -> Json:
    return {"id": "fc", "type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments, **more}


def _completed(*output: Json, **more: object) -> Json:
    return _event("completed", response={"id": "r", "model": "m", "status": "completed", "output": output, **more})


_BEGIN = _event("created", response={"id": "r", "model": "m", "status": "in_progress", "output": []})
_OPEN = _added(0, {"id": "msg", "type": "message", "role": "assistant", "content": []})


def _sse(*events: Json | str) -> bytes:
    written = (one if isinstance(one, str) else f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return "".join(written).encode()


def _events(*events: Json | str, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    decoder = _RESPONSES.decoder(_ORIGIN, unknown)
    found = decoder.feed(_sse(*events))
    found += decoder.finish()
    assert decoder.done
    return found


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _streamed(*events: Json | str, unknown: UnknownContent = "fail") -> Assembler:
    return _assembled(_events(*events, unknown=unknown))


def _whole(response: object, unknown: UnknownContent = "fail") -> Assembler:
    return _assembled(_RESPONSES.decode_whole(json.dumps(response).encode(), _ORIGIN, unknown))


def _failure(*events: Json | str) -> tuple[str, str]:
    found = _streamed(*events)
    assert found.stop is None
    assert found.failure is not None
    assert found.failure.kind == "provider"
    return found.failure.reason, found.failure.message


def _bare(parts: tuple[Part, ...]) -> list[Part]:
    return [Text(part.text) if isinstance(part, Text) else part for part in parts]


def test_the_start_is_told_once() -> None:
    """The response's id and model are told with the first event that has them."""
    events = _events(_BEGIN, _event("in_progress", response={"id": "r", "model": "m"}), _completed(_message("a")))
    assert events[0] == ResponseStarted("r", "m")
    assert sum(isinstance(event, ResponseStarted) for event in events) == 1


def test_text_comes_in_pieces_or_at_once() -> None:
    """Deltas are the text; a done event confirms them, or is the only copy; so is the item, so is the response."""
    done = _event("output_text.done", output_index=0, content_index=0, text="a tide")
    tellings = [
        [_OPEN, _delta("a "), _delta("tide"), done, _done(0, _message("a tide"))],
        [_OPEN, done, _done(0, _message("a tide"))],
        [_OPEN, _done(0, _message("a tide"))],
        [_delta("a "), _delta("tide")],
        [],
    ]
    for telling in tellings:
        assert _streamed(_BEGIN, *telling, _completed(_message("a tide"))).message().text == "a tide"


def test_two_parts_stay_two_texts() -> None:
    """Each content part is a text of its own, so that offsets into it stay true."""
    found = _streamed(_BEGIN, _OPEN, _delta("a"), _delta("b", part=1), _completed(_message("a", "b"))).message()
    assert _bare(found.parts) == [Text("a"), Text("b")]


@pytest.mark.parametrize(
    "events",
    [
        [_OPEN, _delta("a"), _event("output_text.done", output_index=0, content_index=0, text="b")],
        [_OPEN, _delta("a"), _done(0, _message("b"))],
        [_OPEN, _delta("a"), _done(0, _message("a")), _completed(_message("b"))],
        [_OPEN, _delta("a"), _done(0, _call())],
        [_OPEN, _added(0, _call())],
        [_OPEN, _done(0, _message("a")), _delta("more")],
        [_added(0, _call()), _delta("a")],
        [_added(0, _call()), _event("function_call_arguments.done", output_index=0, arguments='{"a":1}'),
         _done(0, _call('{"b":1}'))],
        [_event("output_text.delta", delta="nowhere")],
    ],
)  # fmt: skip
def test_contradictions_break_the_answer(events: list[Json]) -> None:
    """An item that says two different things, or two items in one place, are a typed failure."""
    assert _failure(_BEGIN, *events, _completed())[0] == "malformed"


def test_an_event_with_two_names_breaks_the_answer() -> None:
    """The name of a server-sent event and the type in its data must agree."""
    body = f"event: response.created\ndata: {json.dumps(_delta('a'))}\n\n"
    assert "is called response.created" in _failure(_BEGIN, body)[1]


@pytest.mark.parametrize(
    "data", ["{", "[1]", "no json", '{"type": 3}', '{"type":"response.output_text.delta","delta":{},"output_index":0}']
)
def test_what_is_no_event_breaks_the_answer(data: str) -> None:
    """Data that is no event of this dialect is a typed failure that tells its place and size."""
    reason, message = _failure(_BEGIN, f"data: {data}\n\n", _completed())
    assert reason == "malformed"
    assert "event 2 of the stream" in message


def test_bytes_that_are_no_text_break_the_answer() -> None:
    """Broken UTF-8 inside a delta is a failure, and no silent gap."""
    decoder = _RESPONSES.decoder(_ORIGIN)
    events = decoder.feed(_sse(_BEGIN, _OPEN) + _sse(_delta("a?b")).replace(b"?", b"\xff"))
    assert isinstance(events[-1], StreamFailed)


def test_half_characters_are_mended() -> None:
    """A delta that ends in half a character does not cost the answer."""
    body = _sse(_BEGIN, _OPEN, _delta("a@"), _completed(_message("a\U0001f6b2"))).replace(b"@", rb"\ud83d")
    found = _assembled(_RESPONSES.decode_whole(body, _ORIGIN))
    assert found.failure is None
    assert found.message().text == "a\ufffd"


@pytest.mark.req("S1-38")
@pytest.mark.parametrize(
    ("response", "reason", "detail"),
    [
        ({"status": "completed", "output": [_message("a")]}, "end_turn", None),
        ({"status": "completed", "output": [_message("a"), _call()]}, "tool_use", None),
        ({"status": "incomplete", "output": [], "incomplete_details": {"reason": "max_output_tokens"}},
         "max_output_tokens", None),
        ({"status": "incomplete", "output": [_message("a")], "incomplete_details": {"reason": "content_filter"}},
         "refusal", None),
        ({"status": "incomplete", "output": [_message("a")], "incomplete_details": {"reason": "new\x1bword"}},
         "max_output_tokens", "new_word"),
        ({"output": [_message("a")]}, "end_turn", None),
    ],
)  # fmt: skip
def test_endings_have_our_words(response: Json, reason: StopReason, detail: str | None) -> None:
    """The status and the reason of an incomplete response become one of our stop reasons."""
    assert _whole(response).stop == Stopped(reason, detail)


@pytest.mark.field(36)
def test_a_refusal_is_an_ending_with_its_text() -> None:
    """A refusal part is kept as such and ends the answer as a refusal."""
    item = {"id": "m", "type": "message", "content": [{"type": "refusal", "refusal": "No."}]}
    pieces = [_event("refusal.delta", output_index=0, content_index=0, delta=text) for text in ("N", "o.")]
    found = _streamed(_BEGIN, _OPEN, *pieces, _done(0, item), _completed(item))
    assert found.message().parts == (Refusal("No."),)
    assert found.stop == Stopped("refusal")
    assert _whole({"status": "completed", "output": [item]}).message() == found.message()


@pytest.mark.req("S2-14")
@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
          "output_tokens_details": {"reasoning_tokens": 1}},
         Usage(input_tokens=4, cache_read_tokens=3, cache_write_tokens=2, output_tokens=4, reasoning_tokens=1)),
        ({"input_tokens": 9, "output_tokens": 4}, Usage(input_tokens=9, output_tokens=4)),
        ({"input_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}, Usage(input_tokens=0, cache_read_tokens=3)),
        ({"input_tokens": -1, "output_tokens": 0}, Usage(output_tokens=0)),
        (None, Usage()),
        ("many", Usage()),
    ],
)  # fmt: skip
def test_usage_counts_what_was_told(told: object, usage: Usage) -> None:
    """Cached input is counted apart and never twice; what was not told is not zero."""
    assert _whole({"output": [], "usage": told}).usage == usage


@pytest.mark.req("S1-40", "S0-49", "S0-50")
def test_counters_of_hosted_work_are_notices() -> None:
    """What the provider counts of its own work is told as a notice and is no usage."""
    events = _events(_BEGIN, _completed(_message("a"), tool_usage={"web_search": {"num_requests": 2}}))
    assert Noticed("tool_usage.web_search.num_requests:2") in events


def test_raw_thought_and_summaries_are_shown() -> None:
    """Parts of a summary and raw thought are one reasoning, with an empty line between its parts."""
    item = {"id": "rs", "type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in ("ab", "c")]}
    pieces = [
        _event("reasoning_summary_text.delta", output_index=0, summary_index=n, delta=t)
        for n, t in ((0, "a"), (0, "b"), (1, "c"))
    ]
    streamed = _streamed(_BEGIN, _added(0, {**item, "summary": []}), *pieces, _done(0, item), _completed(item))
    assert streamed.message().parts == (Reasoning("ab\n\nc"),)
    assert _whole({"output": [item]}).message() == streamed.message()
    raw = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert _whole({"output": [raw]}).message().parts == (Reasoning("hm"),)


@pytest.mark.field(42)
def test_reasoning_without_sealed_content_has_no_state() -> None:
    """A reasoning item that is only an id stands for nothing here; one with sealed content is state."""
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    found = _whole({"output": [bare, {**bare, "id": "rs_2", "encrypted_content": "sealed"}, _message("a")]}).message()
    thoughts = [part for part in found.parts if isinstance(part, Reasoning)]
    assert [json.loads(one.state.data)["id"] for one in thoughts if one.state] == ["rs_2"]
    assert len(thoughts) == 1


@pytest.mark.field(42)
def test_reasoning_that_is_dropped_is_told_of() -> None:
    """A thought that cannot be sent back is noticed once for an answer, and a sealed one is not."""
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    sealed = {**bare, "encrypted_content": "sealed"}
    for output, notices in (([bare, {**bare, "id": "rs_2"}], ["reasoning.unsealed"]), ([sealed], [])):
        body = json.dumps({"output": [*output, _message("a")]}).encode()
        events = _RESPONSES.decode_whole(body, _ORIGIN, "fail")
        assert [event.kind for event in events if isinstance(event, Noticed)] == notices


def test_reasoning_that_ends_late_keeps_its_place() -> None:
    """Reasoning that another item overtakes stands where it began."""
    item = {"id": "rs", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    events = _events(_BEGIN, _added(0, item), _done(1, _message("a")), _done(0, item), _completed(item, _message("a")))
    kinds = [type(part).__name__ for part in _assembled(events).message().parts]
    assert kinds == ["Reasoning", "Text"]
    assert ReasoningDelta(0, "") in events


def test_calls_come_in_pieces_or_at_once() -> None:
    """Arguments are joined; an item that was never in pieces is whole; what has no id gets one."""
    pieces = [_event("function_call_arguments.delta", output_index=0, delta=text) for text in ('{"a"', ":1}")]
    begun = _added(0, _call("", status="in_progress"))
    ended = _call('{"a":1}', status="completed")
    expected = ("c1", "f", '{"a":1}', "function")
    for telling in ([begun, *pieces, _done(0, ended)], [_done(0, ended)], []):
        (call,) = _streamed(_BEGIN, *telling, _completed(ended)).message().tool_calls
        assert (call.id, call.name, call.arguments, call.kind) == expected
    nameless = {**_call(), "call_id": None}
    assert _whole({"output": [_message("a"), nameless]}).message().tool_calls[0].id == "call_1"


def test_free_form_input_is_a_custom_call() -> None:
    """A custom tool call keeps its input as text, whatever is in it."""
    item = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select\n1"}
    pieces = [_event("custom_tool_call_input.delta", output_index=0, delta=text) for text in ("select", "\n1")]
    found = _streamed(_BEGIN, _added(0, {**item, "input": ""}), *pieces, _done(0, item), _completed(item))
    assert found.message().parts == (ToolCall("c", "sql", "select\n1", "custom"),)


def test_arguments_as_an_object_are_written_out() -> None:
    """A server that writes arguments as an object is understood."""
    assert _whole({"output": [{**_call(), "arguments": {"a": 1}}]}).message().tool_calls[0].arguments == '{"a":1}'


def test_an_unfinished_call_breaks_the_answer() -> None:
    """A completed response whose call never ended is a failure; one whose arguments were whole is taken."""
    begun = [_BEGIN, _added(0, _call(""))]
    assert _failure(*begun, _event("function_call_arguments.delta", output_index=0, delta="{"), _completed()) == (
        "malformed",
        "the answer ends although a tool call in it is not finished",
    )
    whole = _event("function_call_arguments.done", output_index=0, arguments="{}")
    assert _streamed(*begun, whole, _completed()).message().tool_calls[0].arguments == "{}"


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        ({"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "slow"}},
         "rate_limited", True),
        ({"type": "error", "code": "server_error", "message": "slow", "param": None}, "server_error", True),
        (_event("failed", response={"status": "failed", "error": {"code": "invalid_prompt", "message": "slow"}}),
         "invalid_request", False),
        (_event("failed", response={"status": "failed", "error": None}), "provider_error", False),
        (_event("cancelled", response={"status": "cancelled", "output": []}), "provider_error", False),
    ],
)  # fmt: skip
def test_errors_in_the_middle_fail_and_keep_the_text(error: Json, reason: str, retryable: bool) -> None:
    """An error inside a stream is a failure of the provider; what was said so far is the partial message."""
    found = _streamed(_BEGIN, _OPEN, _delta("so far"), error)
    assert found.failure is not None
    assert (found.failure.reason, found.failure.retryable) == (reason, retryable)
    partial = found.partial()
    assert partial is not None
    assert partial.parts == (Text("so far", attribution_complete=False),)


def test_a_cut_stream_fails() -> None:
    """A stream without its last event is cut off, with or without an end marker."""
    assert _failure(_BEGIN, _OPEN, _delta("a"))[0] == "cut_off"
    assert _failure(_BEGIN, _OPEN, _delta("a"), "data: [DONE]\n\n")[0] == "cut_off"
    assert _failure() == ("cut_off", "the answer broke off: its stream ended without one event")


def test_nothing_is_read_after_the_end() -> None:
    """What follows the last event changes nothing, a second last event included."""
    events = _events(_BEGIN, _completed(_message("a")), _completed(_message("b")), "data: [DONE]\n\n")
    assert _assembled(events).message().text == "a"
    assert isinstance(events[-1], Stopped)


def test_repetitions_are_noticed() -> None:
    """An item that is announced or ended twice in the same words is taken once."""
    ended = _done(0, _message("a"))
    events = _events(_BEGIN, _OPEN, _OPEN, _delta("a"), ended, ended, _completed(_message("a")))
    assert _assembled(events).message().text == "a"
    notices = [event.kind for event in events if isinstance(event, Noticed)]
    assert notices == ["duplicate.output_item.added", "duplicate.output_item.done"]


@pytest.mark.req("S1-33", "S0-03")
def test_unknown_events_are_noticed_or_break() -> None:
    """An unknown event without content is told of once and ignored; one with content breaks the answer."""
    tick = {"type": "response.moon_phase", "sequence_number": 4, "item_id": "x"}
    events = _events(_BEGIN, tick, tick, _completed(_message("a")))
    assert [event.kind for event in events if isinstance(event, Noticed)] == ["event.response.moon_phase"]
    reason, message = _failure(_BEGIN, _event("hologram.delta", delta="x"))
    assert (reason, "response.hologram.delta" in message) == ("unsupported_content", True)


@pytest.mark.req("S1-33")
def test_unknown_items_and_parts_break_or_are_carried() -> None:
    """An item or a part of an unknown kind breaks the answer and is named, or is kept with its kind."""
    item = {"id": "h1", "type": "hologram_call", "beams": [1, 2.5]}
    odd = {"id": "m", "type": "message", "content": [{"type": "smell", "smell": "salt"}]}
    for output, kind in ((item, "hologram_call"), (odd, "smell")):
        reason, message = _failure(_BEGIN, _done(0, output), _completed(output))
        assert (reason, kind in message) == ("unsupported_content", True)
    found = _streamed(
        _BEGIN, _added(0, item), _event("hologram_call.beam.delta", output_index=0, delta="x"), _done(0, item),
        _completed(item, odd), unknown="carry",
    ).message()  # fmt: skip
    first, second = found.parts
    assert isinstance(first, HostedActivity)
    assert isinstance(second, HostedActivity)
    assert (first.id, first.name, first.state, second.name) == ("h1", "hologram_call", "completed", "smell")
    assert first.payload is not None
    assert first.payload.value == b'{"beams":[1,2.5],"id":"h1","type":"hologram_call"}'
    assert _whole({"id": "r", "output": [item, odd]}, "carry").message() == found


def test_whole_answers_that_are_none_raise() -> None:
    """HTML, broken JSON, JSON of another dialect and an error object are told apart."""
    for body, said in (
        (b"<html>", "HTML page"),
        (b'{"output": [', "breaks off"),
        (b'{"choices": []}', "no output"),
        (b"[]", "another shape"),
        (b"", "empty body"),
    ):
        with pytest.raises(AttemptFailed, match=said):
            _RESPONSES.decode_whole(body, _ORIGIN)
    (event,) = _RESPONSES.decode_whole(b'{"error": {"message": "no", "code": "server_error"}}', _ORIGIN)
    assert isinstance(event, StreamFailed)
    assert event.failure.reason == "server_error"


def test_answers_come_in_the_form_that_was_not_asked_for() -> None:
    """A whole answer in the place of a stream is understood, and so is a stream in the place of a whole answer."""
    decoder = _RESPONSES.decoder(_ORIGIN)
    body = json.dumps({"id": "r", "output": [_message("a")]}, indent=1).encode()
    assert _assembled(decoder.feed(body) + decoder.finish()).message().text == "a"
    streamed = _RESPONSES.decode_whole(_sse(_BEGIN, _completed(_message("a"))), _ORIGIN)
    assert _assembled(streamed).message().text == "a"


def test_a_background_response_is_not_taken_for_an_answer() -> None:
    """A response that is only queued is a failure that says so."""
    found = _whole({"id": "r", "status": "queued", "output": []})
    assert found.failure is not None
    assert found.failure.reason == "unfinished"


def test_an_event_without_end_is_cut_at_its_limit() -> None:
    """An event of more than 16 MiB ends the answer."""
    decoder = _RESPONSES.decoder(_ORIGIN)
    events = decoder.feed(b"data: " + b"x" * (16 * 2**20 + 1))
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].failure.reason == "event_too_large"


def test_items_left_out_of_the_last_event_stay() -> None:
    """A server whose last event repeats only some of the items, under other numbers, is understood."""
    thought = {"id": "rs", "type": "reasoning", "summary": []}
    told = [_done(0, thought), _done(1, _message("a")), _done(2, _call())]
    found = _streamed(_BEGIN, *told, _completed(_message("a"), _call()))
    assert found.failure is None
    assert (found.message().text, len(found.message().tool_calls)) == ("a", 1)
