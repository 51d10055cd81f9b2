"""Bytes of any kind through the event parser and every decoder: events or a typed failure, however they are cut."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.dialects import Assembler, dialect_named
from furcate.dialects._sse import SseEvent, SseParser
from furcate.primitives._content import Origin
from furcate.primitives._errors import RequestError
from furcate.primitives._history import History
from furcate.primitives._json import TooDeep
from furcate.primitives._message import Message
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, ModelCall

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")
_DATA = Path(__file__).parent.parent / "data"
_STREAMS = {name: [path.read_bytes() for path in sorted(_DATA.glob(f"{name}/*/response.sse"))] for name in DIALECTS}
_BODIES = {
    name: [path.read_bytes() for path in sorted(_DATA.glob(f"{name}/json-*/response.json"))] for name in DIALECTS
}

# More for a session of minutes, such as FUZZ_EXAMPLES=20000.
_FACTOR = int(os.environ.get("FUZZ_EXAMPLES", "60"))

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_PIECES = st.lists(
    st.sampled_from(
        [
            b"data",
            b"data:",
            b"data: ",
            b"event:",
            b"id:",
            b":",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\xef\xbb\xbf",
            b"x",
            b"\0",
            b"{}",
            b" ",
            b"[DONE]",
            b"\xff",
        ]
    ),
    max_size=30,
).map(b"".join)


def _places(data: bytes, cuts: list[int]) -> list[int]:
    return sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})


def _parsed(data: bytes, cuts: list[int]) -> tuple[list[SseEvent], SseEvent | None, bytes]:
    parser = SseParser()
    found = [event for start, end in pairwise(_places(data, cuts)) for event in parser.feed(data[start:end])]
    return found, parser.close(), parser.stray


@settings(max_examples=5 * _FACTOR)
@given(_PIECES, st.lists(st.integers(0, 10**6), max_size=12))
def test_events_are_the_same_however_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    """The parser gives the same events, the same rest and the same stray lines."""
    assert _parsed(data, cuts) == _parsed(data, [])


@settings(max_examples=3 * _FACTOR)
@given(_PIECES, st.integers(1, 40), st.lists(st.integers(0, 10**6), max_size=6))
def test_a_parser_keeps_no_more_than_its_limit(data: bytes, most: int, cuts: list[int]) -> None:
    """No event is larger than the limit allows, and after an overflow nothing comes."""
    parser = SseParser(most)
    for start, end in pairwise(_places(data, cuts)):
        was_over = parser.overflowed
        found = parser.feed(data[start:end])
        assert not (was_over and found)
        assert all(len(event.data) <= most for event in found)


def _decoded(dialect: str, body: bytes, cuts: list[int], carry: bool) -> list[StreamEvent] | None:
    decoder = dialect_named(dialect).decoder(Origin("own", dialect, "m"), "carry" if carry else "fail")
    try:
        events = [event for start, end in pairwise(_places(body, cuts)) for event in decoder.feed(body[start:end])]
        return events + decoder.finish()
    except (AttemptFailed, TooDeep, RecursionError):
        return None


def _check(dialect: str, events: list[StreamEvent] | None) -> None:
    if events is None:
        return
    ends = [event for event in events if isinstance(event, (Stopped, StreamFailed))]
    assert len(ends) == 1
    assert ends[0] is events[-1]
    assembler = Assembler()
    with suppress(AttemptFailed):
        for event in events:
            assembler.add(event)
    assembler.partial()
    with suppress(RequestError):
        call = ModelCall(model="m", history=History([Message.user("hi"), assembler.message()]))
        dialect_named(dialect).encode(call)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=_FACTOR)
@given(st.data(), st.booleans())
def test_values_put_in_the_wrong_place(dialect: str, data: st.DataObject, carry: bool) -> None:
    """Members of events that are of another kind, lost or doubled give events or a typed failure."""
    body = data.draw(st.sampled_from(_STREAMS[dialect])).replace(b"\r\n", b"\n")
    events = body.split(b"\n\n")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(events) - 1))
        head, mark, told = events[place].partition(b"data: ")
        try:
            value = json.loads(told)
        except ValueError:
            continue
        events[place] = head + mark + json.dumps(_changed(data, value)).encode()
    changed = b"\n\n".join(events)
    _check(dialect, _decoded(dialect, changed, [], carry))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=_FACTOR)
@given(st.data(), st.booleans())
def test_values_put_in_the_wrong_place_of_a_body(dialect: str, data: st.DataObject, carry: bool) -> None:
    """The same for answers in one piece."""
    value = _changed(data, json.loads(data.draw(st.sampled_from(_BODIES[dialect]))))
    origin = Origin("own", dialect, "m")
    try:
        events = dialect_named(dialect).decode_whole(json.dumps(value).encode(), origin, "carry" if carry else "fail")
    except (AttemptFailed, TooDeep, RecursionError):
        return
    _check(dialect, events)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=_FACTOR)
@given(_PIECES, _JSON, st.booleans())
def test_nonsense(dialect: str, data: bytes, value: object, carry: bool) -> None:
    """Bytes and JSON that have nothing of an answer give a typed failure, or an end."""
    for body in (data, b"data: " + json.dumps(value).encode() + b"\n\n" + data):
        _check(dialect, _decoded(dialect, body, [], carry))


def _changed(data: st.DataObject, value: object) -> object:
    """Change one value somewhere in a JSON document."""
    if data.draw(st.integers(0, 4)) == 0:
        return data.draw(_JSON)
    if isinstance(value, dict) and value:
        name = data.draw(st.sampled_from(sorted(value)))
        fate = data.draw(st.integers(0, 6))
        if fate == 0:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: _changed(data, value[name])}
    if isinstance(value, list) and value:
        place = data.draw(st.integers(0, len(value) - 1))
        if data.draw(st.integers(0, 6)) == 0:
            return [*value, value[place]]
        return [*value[:place], _changed(data, value[place]), *value[place + 1 :]]
    return data.draw(_JSON)
