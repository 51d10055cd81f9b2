"""Damaged streams of ``openai-responses``: a result or a typed failure, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Origin
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, ModelCall, UnknownContent

_RESPONSES = dialect_named("openai-responses")
_ORIGIN = Origin("p", "openai-responses", "m")
_DATA = Path(__file__).parent.parent / "data" / "openai-responses"
_STREAMS = tuple((folder / "response.sse").read_bytes() for folder in sorted(_DATA.glob("*")) if
                 (folder / "response.sse").exists())  # fmt: skip
_WHOLE = (_DATA / "json-web-search" / "response.json").read_bytes()


def _decoded(body: bytes, size: int, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    decoder = _RESPONSES.decoder(_ORIGIN, unknown)
    events: list[StreamEvent] = []
    try:
        for start in range(0, len(body), size):
            events += decoder.feed(body[start : start + size])
        events += decoder.finish()
    except AttemptFailed as error:
        return [*events, StreamFailed(error.failure)]
    return events


def _check(events: list[StreamEvent]) -> None:
    endings = [event for event in events if isinstance(event, Stopped | StreamFailed)]
    assert len(endings) == 1
    assert events[-1] is endings[0]
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    if assembler.stop is not None:
        history = History([Message.user("a"), assembler.message()])
        request = _RESPONSES.encode(ModelCall(model="m", history=history))
        json.loads(b"".join(request.body))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_never_surprise(data: st.DataObject) -> None:
    """Bytes replaced, cut or doubled anywhere give one ending, and what is taken can be sent again."""
    body = bytearray(data.draw(st.sampled_from(_STREAMS)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        what = data.draw(st.sampled_from(("replace", "cut", "double")))
        if what == "replace":
            body[place] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del body[place : place + data.draw(st.integers(1, 40))]
            body = body or bytearray(b" ")
        else:
            body[place:place] = body[place : place + data.draw(st.integers(1, 40))]
    unknown: UnknownContent = data.draw(st.sampled_from(("fail", "carry")))
    events = _decoded(bytes(body), len(body), unknown)
    _check(events)
    assert _decoded(bytes(body), data.draw(st.integers(1, 50)), unknown) == events


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_reordered_events_never_surprise(data: st.DataObject) -> None:
    """Events left out, repeated or swapped give one ending."""
    events = data.draw(st.sampled_from(_STREAMS)).split(b"\n\n")
    for _ in range(data.draw(st.integers(1, 5))):
        one, two = (data.draw(st.integers(0, len(events) - 1)) for _ in range(2))
        what = data.draw(st.sampled_from(("swap", "drop", "repeat")))
        if what == "swap":
            events[one], events[two] = events[two], events[one]
        elif what == "drop" and len(events) > 1:
            del events[one]
        else:
            events.insert(two, events[one])
    _check(_decoded(b"\n\n".join(events), 4096))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_values_of_other_kinds_never_surprise(data: st.DataObject) -> None:
    """Any value of an event replaced by one of another kind gives one ending."""
    events = [line for line in data.draw(st.sampled_from(_STREAMS)).split(b"\n") if line.startswith(b"data: {")]
    number = data.draw(st.integers(0, len(events) - 1))
    event = json.loads(events[number].removeprefix(b"data: "))
    place = event
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(st.sampled_from((None, 3, -1, 10**30, "x", [], {}, [3], {"a": []}, True, 0.5)))
        break
    events[number] = b"data: " + json.dumps(event).encode()
    _check(_decoded(b"\n\n".join(events) + b"\n\n", 4096, data.draw(st.sampled_from(("fail", "carry")))))


@pytest.mark.parametrize("step", [7])
def test_every_truncation_is_a_failure(step: int) -> None:
    """A stream that ends before its last event fails, wherever it was cut."""
    for body in _STREAMS:
        last = body.rstrip().rfind(b"event: ")
        for end in range(0, last if last > 0 else 0, max(step, len(body) // 60)):
            _check(_decoded(body[:end], 4096))
            assert isinstance(_decoded(body[:end], 4096)[-1], StreamFailed)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(_WHOLE) - 1), st.integers(0, 255))
def test_damaged_whole_answers_never_surprise(place: int, value: int) -> None:
    """A whole answer with a byte replaced gives one ending or a typed failure."""
    body = bytearray(_WHOLE)
    body[place] = value
    try:
        events = _RESPONSES.decode_whole(bytes(body), _ORIGIN)
    except AttemptFailed:
        return
    _check(events)
