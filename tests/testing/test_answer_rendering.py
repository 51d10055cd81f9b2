"""What an answer becomes on the wire, without a wire."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from furcate.testing import (
    Answer,
    Disconnect,
    Head,
    Hold,
    Send,
    Silence,
    StubRequest,
    StubToolCall,
    Wait,
    answer,
    error,
    error_in_stream,
    events,
    html_error,
    no_head,
    raw,
    steps,
)


def ask(**body: object) -> StubRequest:
    whole = {"model": "m", "messages": [{"role": "user", "content": "two words"}], **body}
    return StubRequest(
        number=1,
        connection=1,
        method="POST",
        path="/v1/chat/completions",
        headers={},
        body=whole,
        raw=json.dumps(whole).encode(),
        at=0.0,
    )


WHOLE = ask()
STREAM = ask(stream=True, stream_options={"include_usage": True})


def sent(chosen: Answer, request: StubRequest) -> bytes:
    return b"".join(step.data for step in chosen.steps_for(request) if isinstance(step, Send))


def chunks(chosen: Answer, request: StubRequest = STREAM) -> list[Any]:
    payloads = [line[6:] for line in sent(chosen, request).split(b"\n\n") if line.startswith(b"data: ")]
    return [json.loads(payload) for payload in payloads if payload != b"[DONE]"]


def deltas(chosen: Answer) -> list[Any]:
    return [choice["delta"] for chunk in chunks(chosen) for choice in chunk["choices"]]


def test_a_whole_answer() -> None:
    """A request without stream gets one JSON body with its length announced."""
    head = answer("Hello there.").steps_for(WHOLE)[0]
    body = sent(answer("Hello there."), WHOLE)
    assert head == Head(200, (("content-type", "application/json"), ("content-length", str(len(body)))))
    parsed = json.loads(body)
    assert parsed["model"] == "m"
    assert parsed["choices"][0]["message"] == {"role": "assistant", "content": "Hello there.", "refusal": None}
    assert parsed["choices"][0]["finish_reason"] == "stop"
    assert parsed["usage"]["prompt_tokens"] == 2
    assert parsed["usage"]["total_tokens"] == 4


def test_a_stream() -> None:
    """A request with stream gets the role, the pieces, the end, the usage and the mark of the end."""
    head = answer("a").steps_for(STREAM)[0]
    assert head == Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")))
    chosen = answer(deltas=("One ", "two.", ""), finish_reason="length", usage={"prompt_tokens": 9})
    assert deltas(chosen) == [
        {"role": "assistant", "content": ""},
        {"content": "One "},
        {"content": "two."},
        {"content": ""},
        {},
    ]
    assert [choice["finish_reason"] for chunk in chunks(chosen) for choice in chunk["choices"]][-1] == "length"
    assert chunks(chosen)[-1]["choices"] == []
    assert chunks(chosen)[-1]["usage"] == {"prompt_tokens": 9}
    assert sent(chosen, STREAM).endswith(b"data: [DONE]\n\n")


def test_text_is_cut_into_pieces_that_join() -> None:
    """A text without deltas goes out in at most four pieces that join to it."""
    for text in ("", "word", "two  spaces here", " lead and trail ", "a b c d e f g h i j"):
        pieces = [delta["content"] for delta in deltas(answer(text)) if "content" in delta][1:]
        assert "".join(pieces) == text
        assert len(pieces) <= 4


def test_usage_follows_the_request_and_the_script() -> None:
    """Usage is streamed where it was asked for; it may be null or absent."""
    assert all("usage" not in chunk for chunk in chunks(answer("a"), ask(stream=True)))
    assert chunks(answer("a", usage=None))[-1]["usage"] is None
    assert all("usage" not in chunk for chunk in chunks(answer("a", usage="omitted")))
    assert json.loads(sent(answer("a", usage=None), WHOLE))["usage"] is None
    assert "usage" not in json.loads(sent(answer("a", usage="omitted"), WHOLE))


def test_tool_calls_refusal_and_reasoning() -> None:
    """Tool calls, refusals and reasoning come in both forms, and the pieces join."""
    calls = (StubToolCall("look", {"at": "me"}), StubToolCall("say", "{broken", id="mine"))
    chosen = answer(tool_calls=calls, reasoning="I think so")
    choice = json.loads(sent(chosen, WHOLE))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "I think so"
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_1", "mine"]
    joined = ["", ""]
    for delta in deltas(chosen):
        for piece in delta.get("tool_calls", ()):
            joined[piece["index"]] += piece["function"]["arguments"]
    assert joined == ['{"at": "me"}', "{broken"]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas(chosen)) == "I think so"
    assert "".join(delta.get("refusal", "") for delta in deltas(answer(refusal="I will not."))) == "I will not."
    assert json.loads(sent(answer(refusal="No."), WHOLE))["choices"][0]["message"]["content"] is None


def test_an_error_inside_a_stream_takes_the_place_of_its_end() -> None:
    """After the text an error object comes, and neither a finish reason nor the mark of the end."""
    chosen = error_in_stream("Half of", "overloaded", code=503)
    assert chunks(chosen)[-1] == {
        "error": {"message": "overloaded", "type": "server_error", "param": None, "code": 503}
    }
    assert b"[DONE]" not in sent(chosen, STREAM)
    assert "error" in json.loads(sent(chosen, WHOLE))


def test_errors_and_pages() -> None:
    """HTTP errors carry status, headers and a body of one's choice."""
    chosen = error(429, "slow down", code="rate_limit_exceeded", headers={"Retry-After": "2"})
    head = chosen.steps_for(STREAM)[0]
    assert isinstance(head, Head)
    assert head.status == 429
    assert ("retry-after", "2") in head.headers
    assert json.loads(sent(chosen, STREAM))["error"]["code"] == "rate_limit_exceeded"
    assert sent(error(500, body={"detail": "x"}), STREAM) == b'{"detail": "x"}'
    assert sent(error(500, body="plain"), STREAM) == b"plain"
    page = html_error()
    assert page.steps_for(WHOLE)[0] == Head(
        502, (("content-type", "text/html; charset=utf-8"), ("content-length", str(len(sent(page, WHOLE)))))
    )


def test_delivery_is_a_matter_of_inserted_steps() -> None:
    """Delays, comments, silence, disconnects and any other step stand where they were asked for."""
    hold = Hold(wait=lambda: pytest.fail("not awaited here"))
    chosen = events("a", "b", done=False, delay_s=1, delta_delay_s=2, comments=True, at={1: hold})
    assert chosen.steps_for(WHOLE) == (
        Wait(1),
        Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))),
        Send(b": keep-alive\n\ndata: a\n\n"),
        hold,
        Wait(2),
        Send(b": keep-alive\n\ndata: b\n\n"),
    )
    assert answer("a b", disconnect_after=2).steps_for(STREAM)[3] == Disconnect()
    assert answer("a b", silence_after=0).steps_for(STREAM)[1] == Silence()
    assert answer("a b", disconnect_after=1).steps_for(WHOLE)[2] == Disconnect()
    assert answer("a b", comments=True).steps_for(WHOLE) == answer("a b").steps_for(WHOLE)


def test_answers_without_content() -> None:
    """No head, exact bytes and exact steps are taken as they are."""
    assert no_head().steps_for(STREAM) == (Disconnect(),)
    assert no_head(silent=True, delay_s=1).steps_for(STREAM) == (Wait(1), Silence())
    assert steps(Head(204)).steps_for(STREAM) == (Head(204),)
    assert sent(raw("ab", b"\xff"), STREAM) == b"ab\xff"


def test_an_answer_is_a_value() -> None:
    """Answers compare by content, cannot be changed, and evolve."""
    assert answer("a", headers={"X": "1"}) == answer("a", headers={"x": "1"})
    slower = attrs.evolve(answer("a", headers={"x": "1"}, at={1: Wait(1)}), delay_s=3)
    assert slower == answer("a", headers={"x": "1"}, at={1: Wait(1)}, delay_s=3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        slower.delay_s = 1  # type: ignore[misc]


def test_mistakes_in_an_answer_are_told() -> None:
    """A step beyond the last event, and deltas that are not the text, are refused."""
    with pytest.raises(ValueError, match=r"Disconnect is due after 9 events, but this answer has 2; give a number"):
        answer("a", disconnect_after=9).steps_for(WHOLE)
    with pytest.raises(ValueError, match="give only one of them"):
        answer("ab", deltas=("a", "c"))


def test_words_are_counted_in_parts_too() -> None:
    """Input words count in strings and text parts, and a strange body counts as none."""
    parts = [{"type": "text", "text": "three words here"}, {"type": "image_url"}]
    assert ask(messages=[{"role": "user", "content": parts}, "odd"]).words() == 3
    assert ask(messages=None).words() == 0
    assert not attrs.evolve(WHOLE, body=None).streaming
    assert attrs.evolve(WHOLE, body=[1]).model == "stub"
