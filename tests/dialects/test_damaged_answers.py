"""Damaged answers of ``openai-chat`` and ``google-generatecontent``: a result or a typed failure, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Origin
from furcate.primitives._errors import RequestError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed, UsageReported
from furcate.primitives._usage import Usage
from furcate.primitives._wire import AttemptFailed, ModelCall, UnknownContent

DATA = Path(__file__).parent.parent / "data"
RECORDED = {
    name: [path.read_bytes() for path in sorted((DATA / name).glob("*/response.*")) if b"data:" in path.read_bytes()]
    for name in ("openai-chat", "google-generatecontent")
}
WHOLE = {
    name: [path.read_bytes() for path in sorted((DATA / name).glob("json-*/response.json"))]
    for name in ("openai-chat", "google-generatecontent")
}
PIECES = st.sampled_from(
    [b"", b'"', b"{", b"}", b"[", b"]", b"\\", b"\n", b"\n\n", b"\xff", b"null", b"-1", b"1e999", b"data:", b"\\ud800"]
)
VALUES: Any = st.sampled_from([None, 3, -1, 10**30, "x", "", [], {}, [3], {"a": []}, True, 0.5, [None], "\ud800"])

both = pytest.mark.parametrize("dialect", list(RECORDED))


def _streamed(dialect: str, body: bytes, cuts: list[int], unknown: UnknownContent) -> list[StreamEvent]:
    decoder = dialect_named(dialect).decoder(Origin("p", dialect, "m"), unknown)
    events: list[StreamEvent] = []
    try:
        for start, end in pairwise(sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})):
            events += decoder.feed(body[start:end])
        events += decoder.finish()
    except AttemptFailed as error:
        events.append(StreamFailed(error.failure))
    return events


def _check(dialect: str, events: list[StreamEvent]) -> None:
    ends = [event for event in events if isinstance(event, Stopped | StreamFailed)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    assembler.partial()
    history = History([Message.user("a"), assembler.message(), Message.user("b")])
    with suppress(RequestError):  # such as arguments that are no JSON object any more
        json.loads(b"".join(dialect_named(dialect).encode(ModelCall(model="m", history=history)).body))


UNKNOWN: Any = st.sampled_from(["fail", "carry"])
CUTS = st.lists(st.integers(0, 10**6), max_size=6)


@both
@settings(max_examples=100)
@given(st.data(), CUTS, UNKNOWN)
def test_damaged_bytes(dialect: str, data: st.DataObject, cuts: list[int], unknown: UnknownContent) -> None:
    """Bytes lost, changed or put in anywhere give one ending, the same however they are cut."""
    body = data.draw(st.sampled_from(RECORDED[dialect]))
    for _ in range(data.draw(st.integers(1, 4))):
        place, length = data.draw(st.integers(0, len(body))), data.draw(st.integers(0, 4))
        body = body[:place] + data.draw(PIECES) + body[place + length :]
    events = _streamed(dialect, body, cuts, unknown)
    _check(dialect, events)
    assert _streamed(dialect, body, [], unknown) == events


@both
@settings(max_examples=60)
@given(st.data(), CUTS)
def test_truncated_and_reordered(dialect: str, data: st.DataObject, cuts: list[int]) -> None:
    """Events that come twice, not at all, or in another order, and bodies that break off, give one ending."""
    body = data.draw(st.sampled_from(RECORDED[dialect]))
    events = body.replace(b"\r\n", b"\n").split(b"\n\n")
    places = data.draw(st.lists(st.integers(0, len(events) - 1), max_size=2 * len(events)))
    _check(dialect, _streamed(dialect, b"\n\n".join(events[place] for place in places) + b"\n\n", cuts, "fail"))
    _check(dialect, _streamed(dialect, body[: data.draw(st.integers(0, len(body)))], cuts, "carry"))


def _other_values(value: Any, data: st.DataObject) -> None:
    """Put a value of another kind somewhere into a JSON document."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(value[key], dict | list) and value[key] and data.draw(st.booleans()):
            value = value[key]
            continue
        value[key] = data.draw(VALUES)
        return


@both
@settings(max_examples=100)
@given(st.data(), UNKNOWN)
def test_values_of_other_kinds(dialect: str, data: st.DataObject, unknown: UnknownContent) -> None:
    """Any value of a chunk or of a whole answer replaced by one of another kind gives one ending."""
    lines = data.draw(st.sampled_from(RECORDED[dialect])).split(b"\n")
    chunks = [number for number, line in enumerate(lines) if line.startswith(b"data: {")]
    number = data.draw(st.sampled_from(chunks))
    chunk = json.loads(lines[number][6:])
    _other_values(chunk, data)
    lines[number] = b"data: " + json.dumps(chunk).encode()
    _check(dialect, _streamed(dialect, b"\n".join(lines), [], unknown))
    whole = json.loads(data.draw(st.sampled_from(WHOLE[dialect])))
    _other_values(whole, data)
    with suppress(AttemptFailed):
        _check(
            dialect, dialect_named(dialect).decode_whole(json.dumps(whole).encode(), Origin("p", dialect, "m"), unknown)
        )


def test_usage_counts_where_content_cannot_be_read() -> None:
    """A whole answer of ``openai-chat`` with content of no shape has failed, and has cost what it says."""
    body = {
        "choices": [{"index": 0, "message": {"content": -1, "new": 1}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    origin = Origin("p", "openai-chat", "m")
    events = dialect_named("openai-chat").decode_whole(json.dumps(body).encode(), origin)
    assert events[0] == UsageReported(Usage(input_tokens=7, output_tokens=2))
    assert isinstance(events[1], StreamFailed)
    assert len(events) == 2
