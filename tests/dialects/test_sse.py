"""Server-sent events, however the bytes are cut and whatever ends a line."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from furcate.dialects._sse import SseEvent, SseParser

_TEXTS = st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
_EVENTS = st.builds(
    SseEvent,
    data=st.lists(_TEXTS, min_size=1, max_size=3).map(lambda lines: "\n".join(lines).encode()),
    event=_TEXTS.filter(lambda text: not text.startswith(" ")),
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def _parse(body: bytes, *cuts: int, limit: int | None = None) -> list[SseEvent]:
    parser = SseParser() if limit is None else SseParser(limit)
    found = []
    places = [0, *sorted(cuts), len(body)]
    for start, end in itertools.pairwise(places):
        found += parser.feed(body[start:end])
    last = parser.close()
    return found if last is None else [*found, last]


def _written(event: SseEvent, end: bytes) -> bytes:
    lines = [b"event: " + event.event.encode()] if event.event else []
    lines += [b"data: " + line for line in event.data.split(b"\n")]
    return end.join([b": a comment", *lines, b"", b""])


_BLOCKS = st.sampled_from(
    [
        b"data: {}\n\n",
        b"data:{}\n\n",
        b"event: a\ndata: {}\n\n",
        b"event:a\ndata: x\n\n",
        b"id: 7\ndata: {}\n\n",
        b"data: a\ndata: b\n\n",
        b"data: {}\nevent: late\n\n",
        b"event: alone\n\n",
        b": ping\n\n",
        b"data\n\n",
        b"data: \r\n\r\n",
        b"\n",
        b"{}\n",
    ]
)


@given(st.lists(_BLOCKS, max_size=8), st.data())
def test_events_read_as_a_whole_are_those_of_their_lines(blocks: list[bytes], data: st.DataObject) -> None:
    """However many bytes come at once, the events are those that come byte by byte."""
    body = b"".join(blocks)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=3))
    assert _parse(body, *cuts) == _parse(body, *range(len(body)))


@given(st.lists(st.tuples(_EVENTS, _ENDS), max_size=5), st.data())
def test_round_trip(written: list[tuple[SseEvent, bytes]], data: st.DataObject) -> None:
    """What is written as events is read back, with any line end and cut anywhere."""
    body = b"".join(_written(event, end) for event, end in written)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert _parse(body, *cuts) == [event for event, _ in written]


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"x", b"data: ").replace(b"n", b"\n")), st.data())
def test_any_bytes_any_cut(body: bytes, data: st.DataObject) -> None:
    """Bytes of any kind give the same events however they are cut."""
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert _parse(body, *cuts) == _parse(body)


def test_byte_order_mark_counts_once() -> None:
    """A byte order mark is passed over at the start and nowhere else."""
    mark = b"\xef\xbb\xbf"
    assert _parse(mark + b"data: " + mark + b"a\n\n", 1, 2, 3) == [SseEvent(mark + b"a")]


def test_fields() -> None:
    """Names and ids are read, one space after the colon is dropped, retry and comments are passed over."""
    body = b"id: 5\nretry: 100\n:note\nevent:add\ndata:  two\ndata\ndata:three\n\ndata: next\n\n"
    assert _parse(body) == [SseEvent(b" two\n\nthree", "add", "5"), SseEvent(b"next", "", "5")]


def test_an_event_without_data_is_none() -> None:
    """A name without data gives no event, and does not rub off on the next one."""
    assert _parse(b"event: ping\n\ndata: a\n\n") == [SseEvent(b"a")]


def test_only_three_line_ends() -> None:
    """Characters that Python takes for line ends stay inside the data."""
    text = "a\u2028b\u0085c\x0bd\x0ce\x1cf".encode()
    assert _parse(b"data: " + text + b"\n\n") == [SseEvent(text)]


def test_last_event_without_blank_line() -> None:
    """The end of the body ends the last event too."""
    assert _parse(b"data: a\n\ndata: b") == [SseEvent(b"a"), SseEvent(b"b")]


def test_size_is_bounded() -> None:
    """An event over the limit stops the parser, also when it comes in small pieces; what came before is given out."""
    body = b"data: ok\n\ndata: " + b"x" * 100 + b"\n\ndata: late\n\n"
    for cuts in ((), range(1, len(body))):
        parser = SseParser(50)
        found = []
        places = [0, *cuts, len(body)]
        for start, end in itertools.pairwise(places):
            found += parser.feed(body[start:end])
        assert (found, parser.overflowed, parser.close()) == ([SseEvent(b"ok")], True, None)


def test_many_short_lines_are_bounded_too() -> None:
    """Data lines add up to the size of their event."""
    parser = SseParser(50)
    assert parser.feed(b"data: 12345678\n" * 10) == []
    assert parser.overflowed


def test_stray_lines_are_kept() -> None:
    """Lines that are no field are there to be looked at."""
    parser = SseParser()
    parser.feed(b'{\n "error": 1\n}\n\ndata: a\n\n')
    assert parser.stray == b'{\n "error": 1\n}'
