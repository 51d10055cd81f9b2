"""Damaged answers of ``anthropic-messages``: a result or a typed failure, and never anything else."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Origin
from furcate.primitives._errors import RequestError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import Stopped, StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, ModelCall

_MESSAGES = dialect_named("anthropic-messages")
_ORIGIN = Origin("own", "anthropic-messages", "m")
_DATA = Path(__file__).parent.parent / "data" / "anthropic-messages"
_STREAMS = [path.read_bytes() for path in sorted(_DATA.glob("*/response.sse"))]
_BODIES = [path.read_bytes() for path in sorted(_DATA.glob("*/response.json"))]

_BYTES = st.sampled_from([b"", b'"', b"{", b"}", b"[", b"\\", b"\n", b"\n\n", b"\xff", b"null", b"0", b"data:", b"e"])


def _decoded(body: bytes, cuts: list[int], carry: bool) -> list[StreamEvent] | AttemptFailed:
    decoder = _MESSAGES.decoder(_ORIGIN, "carry" if carry else "fail")
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    try:
        events: list[StreamEvent] = []
        for start, end in pairwise(places):
            events += decoder.feed(body[start:end])
        return events + decoder.finish()
    except AttemptFailed as error:
        return error


def _check(events: list[StreamEvent] | AttemptFailed) -> None:
    if isinstance(events, AttemptFailed):
        return
    ends = [event for event in events if isinstance(event, (Stopped, StreamFailed))]
    assert len(ends) == 1
    assert ends[0] is events[-1]
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    assembler.partial()
    with suppress(RequestError):
        _MESSAGES.encode(ModelCall(model="m", history=History([Message.user("hi"), assembler.message()])))


@settings(max_examples=150)
@given(st.sampled_from(_STREAMS), st.lists(st.integers(0, 10**6), max_size=8))
def test_any_cut_gives_the_same_events(body: bytes, cuts: list[int]) -> None:
    """However the bytes of a stream are cut, its events are the same."""
    assert _decoded(body, cuts, False) == _decoded(body, [], False)


@settings(max_examples=150)
@given(st.sampled_from(_STREAMS), st.integers(0, 10**6), st.booleans())
def test_truncated_streams(body: bytes, place: int, carry: bool) -> None:
    """A stream cut short ends with exactly one ending or one failure."""
    _check(_decoded(body[: place % len(body)], [], carry))


@settings(max_examples=300)
@given(
    st.sampled_from(_STREAMS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), _BYTES), min_size=1, max_size=6),
    st.booleans(),
)
def test_damaged_streams(body: bytes, damage: list[tuple[int, int, bytes]], carry: bool) -> None:
    """Bytes that are lost or changed give a result or a typed failure, and what is kept can be sent or is refused."""
    for place, length, other in damage:
        at = place % len(body)
        body = body[:at] + other + body[at + length :]
    _check(_decoded(body, [], carry))


@settings(max_examples=200)
@given(st.data(), st.sampled_from(_STREAMS), st.booleans())
def test_reordered_streams(data: st.DataObject, body: bytes, carry: bool) -> None:
    """Events that come twice, not at all, or in another order give a result or a typed failure."""
    events = body.replace(b"\r\n", b"\n").split(b"\n\n")
    places = data.draw(st.lists(st.integers(0, len(events) - 1), max_size=2 * len(events)))
    _check(_decoded(b"\n\n".join(events[place] for place in places) + b"\n\n", [], carry))


@settings(max_examples=200)
@given(st.sampled_from(_BODIES), st.integers(0, 10**6), st.integers(0, 20), _BYTES, st.booleans())
def test_damaged_bodies(body: bytes, place: int, length: int, other: bytes, carry: bool) -> None:
    """A whole answer that was damaged gives a result or a typed failure."""
    at = place % len(body)
    body = body[:at] + other + body[at + length :]
    try:
        events = _MESSAGES.decode_whole(body, _ORIGIN, "carry" if carry else "fail")
    except AttemptFailed:
        return
    _check(events)
