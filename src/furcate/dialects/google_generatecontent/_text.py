"""The text of a ``google-generatecontent`` answer, and where in it a stretch of bytes is.

Segments count bytes of the UTF-8 of the visible text, its parts joined; a part index above 0 makes them count inside
that part. Where a segment repeats its words they decide, and words that are not there leave the citation without a
range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from attrs import define, field

from furcate.dialects.google_generatecontent._wire import Segment


@define
class _Run:
    part: int
    start: int  # in code points of the visible text
    length: int = 0


@define
class _Ruler:
    """The visible text so far, with the byte at which each of its characters begins."""

    text: str
    marks: list[int] | None  # None where every character is one byte
    size: int

    def at(self, byte: int) -> int | None:
        if not 0 <= byte <= self.size:
            return None
        if self.marks is None:
            return byte
        place = bisect_left(self.marks, byte)
        return place if self.marks[place] == byte else None

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        first, last = self.at(start), self.at(end)
        return None if first is None or last is None or first >= last else (first, last)

    def reads(self, span: tuple[int, int], words: str | None) -> bool:
        # Lengths first: a slice for each of many segments that cannot fit would cost the length of the text.
        return words is None or (len(words) == span[1] - span[0] and self.text.startswith(words, span[0]))


@define
class TextBook:
    """Follow the visible text of one answer, run by run; a run is one text part of the message."""

    _pieces: list[str] = field(factory=list)
    _runs: list[_Run] = field(factory=list)
    _wire: list[tuple[int, int] | None] = field(factory=list)  # bytes of each part as it came; None where no text
    _said: list[tuple[int, int] | None] = field(factory=list)  # the same, of parts with text alone
    _length: int = 0
    _bytes: int = 0
    _ruler: _Ruler | None = None

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return self._bytes

    @property
    def last(self) -> int | None:
        """The index of the newest run's part, or None where there is no text."""
        return self._runs[-1].part if self._runs else None

    def begin(self, part: int) -> None:
        """Begin a run."""
        self._runs.append(_Run(part, self._length))

    def add(self, text: str) -> None:
        """Add text to the newest run."""
        size = len(text) if text.isascii() else len(text.encode())
        self._wire.append((self._bytes, self._bytes + size))
        self._said.append(self._wire[-1])
        self._pieces.append(text)
        self._runs[-1].length += len(text)
        self._length += len(text)
        self._bytes += size
        self._ruler = None

    def skip(self) -> None:
        """Take note of a part that is no visible text."""
        self._wire.append(None)

    def place(self, segment: Segment) -> tuple[int, tuple[int, int] | None] | None:
        """Find a segment: the part it begins in, and its range there or None; None where it is nowhere."""
        ruler = self._measured()
        for start, end in self._candidates(segment):
            span = ruler.span(start, end)
            if span is not None and ruler.reads(span, segment.text):
                return self._inside(*span)
        return None

    def _measured(self) -> _Ruler:
        if self._ruler is None:
            text = "".join(self._pieces)
            widths = (1 if c < "\x80" else 2 if c < "\u0800" else 3 if c < "\U00010000" else 4 for c in text)
            marks = None if text.isascii() else list(accumulate(widths, initial=0))
            self._ruler = _Ruler(text, marks, self._bytes)
            self._pieces = [text]
        return self._ruler

    def _candidates(self, segment: Segment) -> Iterator[tuple[int, int]]:
        start, end, number = segment.start_index, segment.end_index, segment.part_index
        if number <= 0:
            yield start, end
            return
        told = segment.text is not None
        for parts in (self._wire, self._said):
            if number < len(parts):
                part = parts[number]
                if part is not None and end <= part[1] - part[0]:
                    yield part[0] + start, part[0] + end
                    if not told:
                        return
        if told:
            yield start, end

    def _inside(self, first: int, last: int) -> tuple[int, tuple[int, int] | None] | None:
        # The text was found by its characters, so there is a run that holds the first of them.
        run = self._runs[bisect_right(self._runs, first, key=lambda one: one.start) - 1]
        if last > run.start + run.length:
            return run.part, None
        return run.part, (first - run.start, last - run.start)
