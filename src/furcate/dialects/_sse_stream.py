"""A streamed answer of any dialect: server-sent events on the outside, the dialect's own answer within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from furcate.dialects._failures import error_in, read_plain, stream_failure
from furcate.dialects._sse import SseEvent, SseParser
from furcate.primitives._stream import StreamEvent
from furcate.primitives._wire import Failure

_DONE = b"[DONE]"
_TOO_LARGE = Failure(
    kind="provider",
    reason="event_too_large",
    message="the server sent an event of more than 16 MiB, which is no part of an answer",
)


class StreamedAnswer(Protocol):
    """Decode the events of one answer, whatever frames them.

    Attributes:
        done: whether the answer has ended, well or badly.
        taken: how many events were taken.
    """

    done: bool
    taken: int

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take the data of an event, and its name where it has one."""

    def end(self, *, marked: bool) -> list[StreamEvent]:
        """Take the end, which the server marked or which is that of the body."""

    def stop_short(self, failure: Failure) -> list[StreamEvent]:
        """End the answer by a failure."""


class SseStream:
    """Decode one streamed answer; it is a `StreamDecoder`.

    Arguments:
        answer: the dialect's answer.
        whole: decodes a body that is no stream but an answer in one piece, as some servers send unasked; raises
            AttemptFailed where it is none.
    """

    def __init__(self, answer: StreamedAnswer, whole: Callable[[bytes], list[StreamEvent]]) -> None:
        self._sse = SseParser()
        self._answer = answer
        self._whole = whole

    @property
    def done(self) -> bool:
        """Whether the answer has ended, well or badly, so that nothing more needs to be read."""
        return self._answer.done

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and give the events that they complete."""
        events: list[StreamEvent] = []
        answer = self._answer
        if answer.done:
            return events
        for event in self._sse.feed(data):
            events += self._take(event)
            if answer.done:
                return events
        if self._sse.overflowed:
            events.extend(self._answer.stop_short(_TOO_LARGE))
        return events

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body and give what is left; a cut-off answer ends with a ``StreamFailed``.

        Raises:
            AttemptFailed: the body was no stream at all, nor a whole answer in the place of one.
        """
        events: list[StreamEvent] = []
        last = self._sse.close()
        # Half an event means that the connection broke, and not that the server wrote nonsense.
        if last is not None and (last.data.strip() == _DONE or read_plain(last.data) is not None):
            events.extend(self._take(last))
        stray = self._sse.stray.strip()
        if stray and not self.done:
            events.extend(self._take_stray(stray))
        return events + self._answer.end(marked=False)

    def _take(self, event: SseEvent) -> list[StreamEvent]:
        data = event.data.strip()
        if data == _DONE:
            return self._answer.end(marked=True)
        return self._answer.take(data, event.event) if data else []

    def _take_stray(self, stray: bytes) -> list[StreamEvent]:
        if not self._answer.taken:
            events = self._whole(stray)
            self._answer.done = True
            return events
        # Some servers break off with a bare error object between or behind the events.
        error = error_in(read_plain(stray.removeprefix(b"error:")), "error")
        return self._answer.stop_short(stream_failure(error)) if error else []


def decode_body(
    body: bytes, begin: Callable[[], StreamedAnswer], whole: Callable[[bytes], list[StreamEvent]]
) -> list[StreamEvent]:
    """Decode an answer that was asked for in one piece, also where the server streams it all the same."""
    if body.lstrip().startswith((b"data:", b"event:", b":")):
        stream = SseStream(begin(), whole)
        return stream.feed(body) + stream.finish()
    return whole(body)
