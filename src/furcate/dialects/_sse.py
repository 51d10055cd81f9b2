"""Server-sent events from bytes, as the WHATWG describes them, with what servers make of it.

Two things differ from a browser. An event that the end of the body leaves without its blank line is given out by
`SseParser.close` and not thrown away, since some servers end that way. Lines that are no field are kept, because
a server may answer with plain JSON or HTML where a stream was asked for, and somebody has to tell the user.
"""

from __future__ import annotations

import re

import msgspec

MAX_EVENT_BYTES = 16 * 2**20

_WHOLE_EVENT = re.compile(rb"(?:event: ?(.*)\n)?data: ?(.*)\n\n")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """Hold one server-sent event; a struct, since there is one for each piece of an answer.

    Attributes:
        data: the data lines, joined with line feeds.
        event: the event's name; empty where it has none.
        id: the last event id that the stream has named so far.
    """

    data: bytes
    event: str = ""
    id: str = ""


class SseParser:
    """Find the events in a stream of bytes, wherever it was cut.

    Attributes:
        overflowed: whether an event or a line exceeded the limit; nothing is given out from there on.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.overflowed = False
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []  # the unfinished line; joined once, or long lines would cost their square
        self._pending = 0
        self._after_cr = False
        self._at_start = True
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._id = ""
        self._stray: list[bytes] = []
        self._stray_size = 0

    @property
    def stray(self) -> bytes:
        """The lines that were no field of an event."""
        return b"\n".join(self._stray)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes and give the events that they complete."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if self.overflowed or not data:
            return []
        found: list[SseEvent] = []
        if self._at_start or b"\r" in data or len(data) > self._limit:
            self._feed_lines(data, found)
            return found
        # Nearly every event is one line of data, perhaps after one with its name, and is read as a whole; what is
        # anything else is read line by line, up to the end of that event.
        start = 0
        while start < len(data) and not self.overflowed:
            event = None if self._pieces or self._data or self._event else _WHOLE_EVENT.match(data, start)
            if event is not None:
                name, value = event.groups()
                found.append(SseEvent(value, name.decode("utf-8", "replace") if name else "", self._id))
                start = event.end()
            else:
                end = data.find(b"\n\n", start) + 2
                end = end if end > 1 else len(data)
                self._feed_lines(data[start:end], found)
                start = end
        return found

    def _feed_lines(self, data: bytes, found: list[SseEvent]) -> None:
        """Take bytes line by line, wherever they are cut, and add the events that they complete."""
        lines = _LINE_END.split(data) if b"\r" in data else data.split(b"\n")
        self._after_cr = data.endswith(b"\r")
        last = lines.pop()
        for line in lines:
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces.clear()
                self._pending = 0
            event = self._take(line)
            if self.overflowed:
                return
            if event is not None:
                found.append(event)
        if last:
            self._pieces.append(last)
            self._pending += len(last)
            self.overflowed = self._pending + self._data_size + self._stray_size > self._limit

    def close(self) -> SseEvent | None:
        """Take the end of the body; give the event that it left unfinished, if there is one."""
        if self.overflowed:
            return None
        if self._pieces:
            line = b"".join(self._pieces)
            self._pieces.clear()
            self._take(line)
        return self._dispatch()

    def _take(self, line: bytes) -> SseEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if line.startswith(b"data:"):
            self._add(line[6:] if line.startswith(b"data: ") else line[5:])
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(b"")
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name not in (b"", b"retry"):  # an empty name is a comment; reconnecting is not for us
            self._stray.append(line)
            self._stray_size += len(line) + 1
            self.overflowed = self._stray_size > self._limit
        return None

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_size += len(value) + 1
        self.overflowed = self._data_size > self._limit

    def _dispatch(self) -> SseEvent | None:
        name, self._event = self._event, ""
        if not self._data:
            return None
        event = SseEvent(b"\n".join(self._data), name, self._id)
        self._data = []
        self._data_size = 0
        return event
