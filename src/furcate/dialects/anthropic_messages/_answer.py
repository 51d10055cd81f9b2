"""One answer of ``anthropic-messages``, event by event; a whole answer goes through the same blocks."""

from __future__ import annotations

from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, clean, error_in, malformed, read_plain, stream_failure
from furcate.dialects._open_work import OpenWork
from furcate.dialects.anthropic_messages._account import CUTTING, PAUSES, UsageBook, read_ending, read_refusal
from furcate.dialects.anthropic_messages._parts import BlockBook
from furcate.dialects.anthropic_messages._wire import ENDINGS, EVENTS, HEADS, MEMBERS, NULL, Ending, Event, Whole, given
from furcate.primitives._content import Origin
from furcate.primitives._stream import (
    Noticed,
    Paused,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    UsageReported,
)
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

_NO_WORK = OpenWork()
_MISSHAPEN = (*UNREADABLE, ValueError, KeyError)


class MessagesAnswer:
    """Turn the events of one answer into stream events.

    Attributes:
        done: whether the answer has ended, well or badly.
        taken: how many events were taken.
    """

    def __init__(
        self, origin: Origin, unknown_content: UnknownContent = "fail", open_work: OpenWork = _NO_WORK
    ) -> None:
        self.done = False
        self.taken = 0
        self._out: list[StreamEvent] = []
        self._blocks = BlockBook(origin, unknown_content, open_work)
        self._usage = UsageBook()
        self._begun = False
        self._stop: str | None = None
        self._sequence: str | None = None
        self._details = NULL
        self._container = NULL
        self._noticed: set[str] = set()

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take an event; `name` is the name of its server-sent event."""
        self._out = []
        if self.done:
            return self._out
        self.taken += 1
        try:
            data.decode()  # what is kept raw is not looked at again before it is written
            event = EVENTS.decode(data)
        except (*UNREADABLE, UnicodeDecodeError):
            self._unreadable(data, name)
            return self._out
        kind = event.type or name
        if name == "error" or kind == "error" or (event.type is None and given(event.error)):
            self._fail(stream_failure(read_plain(data)))
        elif event.type and name not in ("", "message", event.type):
            self._fail(malformed(f"event {self.taken} of the stream is named otherwise than its type"))
        else:
            self._guarded(event, kind, data)
        return self._out

    def take_whole(self, whole: Whole) -> list[StreamEvent]:
        """Take an answer that came in one piece."""
        self._out = []
        self._begin(whole.id, whole.model, whole.usage)
        for index, raw in enumerate(whole.content or ()):
            try:
                self._blocks.start(index, raw)
                self._blocks.end(index)
            except AttemptFailed as error:
                self._fail(error.failure)
            except _MISSHAPEN:
                self._fail(malformed(f"block {index} of the answer has an unknown shape"))
            if self.done:
                return self._out
        self._stop, self._sequence, self._details = whole.stop_reason, whole.stop_sequence, whole.stop_details
        self._container = whole.container
        self._conclude()
        return self._out

    def end(self, *, marked: bool = False) -> list[StreamEvent]:
        """Take the end of the body, of which a proxy's mark says no more.

        An answer that has told its stop reason and ended its blocks is whole.
        """
        self._out = []
        if self.done:
            return self._out
        if self._stop is not None and not self._blocks:
            self._conclude()
        else:
            how = "before its end" if self.taken else "without one event"
            message = f"the answer broke off: its stream ended {how}"
            self._fail(Failure(kind="provider", reason="cut_off", message=message))
        return self._out

    def stop_short(self, failure: Failure) -> list[StreamEvent]:
        """End the answer with a failure that shows outside of its events."""
        self._out = []
        self._fail(failure)
        return self._out

    def _unreadable(self, data: bytes, name: str) -> None:
        error = error_in(read_plain(data), name)
        if name == "error" and not error:
            error = data.decode("utf-8", "replace")
        if error:
            self._fail(stream_failure(error))
        else:
            size = len(data)
            self._fail(malformed(f"event {self.taken} of the stream is no JSON of this dialect ({size} bytes)"))

    def _guarded(self, event: Event, kind: str, data: bytes) -> None:
        try:
            self._read(event, kind, data)
            self._out.extend(self._blocks.drain())
        except AttemptFailed as error:
            self._fail(error.failure)
        except _MISSHAPEN:
            self._fail(malformed(f"event {self.taken} of the stream ({clean(kind, 60)}) has an unknown shape"))

    def _read(self, event: Event, kind: str, data: bytes) -> None:
        if kind == "content_block_delta":
            self._blocks.add(self._place(event), event.delta)
        elif kind == "content_block_start":
            self._blocks.start(self._place(event), event.content_block)
        elif kind == "content_block_stop":
            self._blocks.end(self._place(event))
        elif kind == "message_start":
            self._read_head(event)
        elif kind == "message_delta":
            self._read_ending(event)
        elif kind == "message_stop":
            self._conclude()
        elif kind != "ping":
            self._read_other(event, kind, data)

    def _place(self, event: Event) -> int:
        if event.index is None or event.index < 0:
            raise ValueError("an event of a block without its index")
        if self._stop is not None:
            raise ValueError("a block after the end")
        return event.index

    def _read_other(self, event: Event, kind: str, data: bytes) -> None:
        plain = read_plain(data)
        error = plain if kind.endswith("_error") or given(event.error) else None
        if error is None and event.type is None:
            error = error_in(plain)
        if error:
            self._fail(stream_failure(error))
        elif given(event.delta) or given(event.content_block):
            self._blocks.unknown(kind or "event without a type", MEMBERS.decode(data), self.taken)
        else:
            self._notice(f"event.{clean(kind, 60)}" if kind else "event")

    def _read_head(self, event: Event) -> None:
        if self._begun:
            raise ValueError("a second beginning")
        head = HEADS.decode(event.message)
        if head.content:
            self._notice("message_start.content")
        self._container = head.container
        self._begin(head.id, head.model, head.usage)

    def _begin(self, response_id: str | None, model: str | None, usage: Raw) -> None:
        self._begun = True
        self._blocks.hosted.scope = response_id or ""
        self._out.append(ResponseStarted(response_id or None, model or None))
        self._account(usage)

    def _read_ending(self, event: Event) -> None:
        ending = ENDINGS.decode(event.delta) if given(event.delta) else Ending()
        self._account(event.usage)
        if ending.stop_reason is not None:
            if self._stop not in (None, ending.stop_reason):
                raise ValueError("two stop reasons")
            self._stop, self._sequence = ending.stop_reason, ending.stop_sequence
        self._details = ending.stop_details if given(ending.stop_details) else self._details
        self._container = ending.container if given(ending.container) else self._container

    def _account(self, raw: Raw) -> None:
        if not given(raw):
            return
        usage, readable = self._usage.take(raw)
        if usage is not None:
            self._out.append(UsageReported(usage))
        elif not readable:
            self._notice("usage.unreadable")

    def _conclude(self) -> None:
        try:
            self._blocks.close(cut=self._stop in CUTTING)
        except AttemptFailed as error:
            self._fail(error.failure)
            return
        self._out.extend(self._blocks.drain())
        self.done = True
        for name, count in self._usage.counters.items():
            if count:
                self._notice(f"usage.{clean(name, 60)}={count}")
        reason, detail = read_ending(self._stop, self._sequence, calls=self._blocks.calls > 0)
        paused = self._stop in PAUSES
        if given(self._container):
            self._hold_container(going_on=paused or reason == "tool_use")
        if paused:
            self._out.append(Paused())
            reason, detail = "end_turn", self._stop
        elif reason == "refusal":
            detail = read_refusal(self._details)
        self._out.append(Stopped(reason, detail))

    def _hold_container(self, *, going_on: bool) -> None:
        hosted = self._blocks.hosted
        needed = going_on and (hosted.pending or self._blocks.indirect)
        told = hosted.contain(self._container) if needed else None
        if told is not None:
            self._out.append(told)
        else:
            self._notice("container")

    def _notice(self, kind: str) -> None:
        if kind not in self._noticed and len(self._noticed) < 100:
            self._noticed.add(kind)
            self._out.append(Noticed(kind))

    def _fail(self, failure: Failure) -> None:
        if not self.done:
            self.done = True
            self._out.extend(self._blocks.drain())
            self._out.append(StreamFailed(failure))
