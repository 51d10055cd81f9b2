"""One answer of ``openai-responses``, event by event; a whole answer is its last event.

Items are told apart by their place in the output: their ids were seen to change from one event to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Raw

from furcate.dialects._failures import UNREADABLE, error_in, malformed, read_plain, stream_failure
from furcate.dialects._open_work import OpenWork
from furcate.dialects.openai_responses._account import hosted_counts, read_ending, read_usage
from furcate.dialects.openai_responses._events import CONTENT, PROGRESS
from furcate.dialects.openai_responses._hosted import NOT_FINAL
from furcate.dialects.openai_responses._items import CallItem, HostedItem, Item, ReasoningItem, UnknownItem, open_item
from furcate.dialects.openai_responses._message import MessageItem
from furcate.dialects.openai_responses._sheet import UNKNOWN_PIECE_FORMAT, Sheet
from furcate.dialects.openai_responses._wire import (
    NULL,
    Event,
    Members,
    clean_kind,
    compact,
    given,
    read_event,
    read_list,
    read_members,
    readable,
    text_of,
    told,
    told_arguments,
)
from furcate.primitives._content import Origin
from furcate.primitives._stream import ResponseStarted, Stopped, StreamEvent, StreamFailed, UsageReported
from furcate.primitives._wire import AttemptFailed, Failure, UnknownContent

_Kind = TypeVar("_Kind", MessageItem, ReasoningItem, CallItem)

# What an item without an announcement is taken for, by what is told of it.
_IMPLIED: Mapping[type[Item], bytes] = {
    MessageItem: b'{"type":"message"}',
    ReasoningItem: b'{"type":"reasoning"}',
    CallItem: b'{"type":"function_call"}',
}


class ResponsesAnswer:
    """Turn the events of one answer into stream events.

    Attributes:
        done: whether the answer has ended, well or badly.
        taken: how many events were taken.
    """

    def __init__(self, origin: Origin, unknown_content: UnknownContent, open_work: OpenWork) -> None:
        self.done = False
        self.taken = 0
        self._sheet = Sheet(origin, unknown_content, open_work)
        self._items: dict[int, Item] = {}
        self._kinds: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._started = False

    def take(self, data: bytes, name: str = "") -> list[StreamEvent]:
        """Take an event; `name` is the name of its server-sent event."""
        if self.done:
            return []
        self.taken += 1
        try:
            self._take(data, name)
        except AttemptFailed as error:
            self._fail(error.failure)
        except UNREADABLE:
            self._unreadable(data, name)
        return self._given_out()

    def take_response(self, data: bytes, response: Members) -> list[StreamEvent]:
        """Take a whole answer that was read from `data`."""
        try:
            status = text_of(response, "status")
            if status in ("queued", "in_progress"):
                raise AttemptFailed(
                    Failure(
                        kind="provider",
                        reason="unfinished",
                        message=f"the server answered with a response that is still {status}; "
                        "background mode is not spoken here",
                    )
                )
            self._conclude(response, status or "completed")
        except AttemptFailed as error:
            self._fail(error.failure)
        except UNREADABLE:
            self._unreadable(data, "response")
        return self._given_out()

    def end(self, *, marked: bool = False) -> list[StreamEvent]:
        """Take the end of the stream; its last event tells all, so that a mark behind it says nothing more."""
        if not self.done:
            how = "without its last event" if self.taken else "without one event"
            message = f"the answer broke off: its stream ended {how}"
            self._fail(Failure(kind="provider", reason="cut_off", message=message))
        return self._given_out()

    def stop_short(self, failure: Failure) -> list[StreamEvent]:
        """End the answer with a failure that shows outside of its events."""
        self._fail(failure)
        return self._given_out()

    def _given_out(self) -> list[StreamEvent]:
        events, self._sheet.events = self._sheet.events, []
        return events

    def _fail(self, failure: Failure) -> None:
        if self.done:
            return
        self.done = True
        for item in self._items.values():
            if isinstance(item, MessageItem) and not item.done:
                item.flush()
        self._sheet.emit(StreamFailed(failure))

    def _unreadable(self, data: bytes, name: str) -> None:
        error = error_in(read_plain(data), name)
        if name == "error" and not error:
            error = data.decode("utf-8", "replace")
        if error:
            self._fail(stream_failure(error))
        else:
            what = f"event {self.taken} of the stream is" if self.taken else "the server's answer is"
            self._fail(malformed(f"{what} no JSON of openai-responses ({len(data)} bytes)"))

    def _take(self, data: bytes, name: str) -> None:
        data = readable(data)
        event = read_event(data)
        kind = event.type or name
        if name == "error" or kind == "error":
            self._fail(stream_failure(error_in(read_plain(data), "error")))
        elif name not in ("", "message", kind):
            raise AttemptFailed(
                malformed(f"an event of the stream is called {clean_kind(name)} and says it is {clean_kind(kind)}")
            )
        elif kind in _HANDLERS:
            _HANDLERS[kind](self, event)
        elif kind not in PROGRESS:
            self._take_unknown(kind, event, data)

    def _take_unknown(self, kind: str, event: Event, data: bytes) -> None:
        members = read_members(data)
        if not event.type and (error := error_in(read_plain(data))):
            self._fail(stream_failure(error))
            return
        item = self._items.get(event.output_index) if event.output_index is not None else None
        # Whatever comes of provider-run work on the way is in its item at the end.
        known = isinstance(item, HostedItem | UnknownItem)
        kind = clean_kind(kind)
        bears = kind.endswith(".delta") or any(key in CONTENT and given(members[key]) for key in members)
        if known or not bears:
            self._sheet.notice(f"event.{kind}")
        else:
            its_id, position = f"event_{self.taken}", event.output_index
            self._sheet.carry(kind, compact(members), id=its_id, position=position, form=UNKNOWN_PIECE_FORMAT)

    def begin(self, event: Event) -> None:
        """Take the announcement of the response."""
        self._start(read_members(event.response))

    def complete(self, event: Event) -> None:
        """Take the response as it ended."""
        response = read_members(event.response)
        status = (event.type or "").rpartition(".")[2] or text_of(response, "status")
        self._conclude(response, status)

    def add_item(self, event: Event) -> None:
        """Take the announcement of an item."""
        members = read_members(event.item)
        position = event.output_index if event.output_index is not None else len(self._items)
        if position not in self._items:
            self._open(position, members)
        elif self._kinds[position] != text_of(members, "type"):
            raise AttemptFailed(malformed(f"the answer announces two items at place {position} of its output"))
        else:
            self._sheet.notice("duplicate.output_item.added")

    def end_item(self, event: Event) -> None:
        """Take the end of an item."""
        members = read_members(event.item)
        position = event.output_index
        if position is None:
            position = self._ids.get(text_of(members, "id"), len(self._items))
        self._settle(position, members)

    def say(self, event: Event) -> None:
        """Take a piece of text."""
        self._open_for(event, MessageItem).say(event.content_index or 0, told(event.delta))

    def said(self, event: Event) -> None:
        """Take all of a text."""
        self._find(event, MessageItem).said(event.content_index or 0, told(event.text))

    def decline(self, event: Event) -> None:
        """Take a piece of a refusal."""
        self._open_for(event, MessageItem).decline(event.content_index or 0, told(event.delta))

    def declined(self, event: Event) -> None:
        """Take all of a refusal."""
        self._find(event, MessageItem).declined(event.content_index or 0, told(event.refusal))

    def annotate(self, event: Event) -> None:
        """Take an annotation."""
        item = self._find(event, MessageItem)
        item.annotate(event.content_index or 0, event.annotation_index, event.annotation)

    def end_part(self, event: Event) -> None:
        """Take a content part as a whole."""
        item = self._at(event)
        if isinstance(item, MessageItem):
            item.confirm_part(event.content_index or 0, event.part)
        elif isinstance(item, ReasoningItem):
            item.thought("content", event.content_index or 0, told(read_members(event.part).get("text")))

    def summarise(self, event: Event) -> None:
        """Take a piece of a reasoning summary."""
        self._open_for(event, ReasoningItem).think("summary", event.summary_index or 0, told(event.delta))

    def summarised(self, event: Event) -> None:
        """Take all of a part of a reasoning summary."""
        self._find(event, ReasoningItem).thought("summary", event.summary_index or 0, told(event.text))

    def think(self, event: Event) -> None:
        """Take a piece of raw thought."""
        self._open_for(event, ReasoningItem).think("content", event.content_index or 0, told(event.delta))

    def thought(self, event: Event) -> None:
        """Take all of a raw thought."""
        self._find(event, ReasoningItem).thought("content", event.content_index or 0, told(event.text))

    def write(self, event: Event) -> None:
        """Take a piece of a call's arguments."""
        self._open_for(event, CallItem).write(told(event.delta))

    def written(self, event: Event) -> None:
        """Take all of a call's arguments."""
        raw = event.arguments if given(event.arguments) else event.input
        self._find(event, CallItem).written(told_arguments(raw))

    def _start(self, response: Members) -> None:
        its_id, model = text_of(response, "id"), text_of(response, "model")
        if not self._started and (its_id or model):
            self._started = True
            self._sheet.scope = its_id
            self._sheet.emit(ResponseStarted(its_id or None, model or None))

    def _open(self, position: int, members: Members) -> Item:
        for other in self._items.values():
            if isinstance(other, ReasoningItem):
                other.place()
        item = self._items[position] = open_item(self._sheet, members, position)
        self._kinds[position] = text_of(members, "type")
        its_id = text_of(members, "id")
        if its_id:
            self._ids.setdefault(its_id, position)
        return item

    def _at(self, event: Event) -> Item | None:
        place = event.output_index
        if place is None and event.item_id:
            place = self._ids.get(event.item_id)
        return self._items.get(place) if place is not None else None

    def _find(self, event: Event, kind: type[_Kind]) -> _Kind:
        item = self._at(event)
        if item is None and event.output_index is not None:
            item = self._open(event.output_index, read_members(_IMPLIED[kind]))
        if not isinstance(item, kind):
            raise AttemptFailed(
                malformed(f"event {self.taken} of the stream ({clean_kind(event.type)}) belongs to no item of its kind")
            )
        return item

    def _open_for(self, event: Event, kind: type[_Kind]) -> _Kind:
        item = self._find(event, kind)
        if item.done:
            raise AttemptFailed(
                malformed(f"event {self.taken} of the stream ({clean_kind(event.type)}) belongs to an item that ended")
            )
        return item

    def _settle(self, position: int, members: Members) -> None:
        item = self._items.get(position)
        kind = text_of(members, "type")
        if item is None:
            item = self._open(position, members)
        elif self._kinds[position] != kind:
            raise AttemptFailed(malformed(f"the answer tells place {position} of its output twice, and differently"))
        if item.done:
            item.confirm(members)
            self._sheet.notice("duplicate.output_item.done")
        else:
            item.finish(members)

    def _conclude(self, response: Members, status: str) -> None:
        self._start(response)
        usage, readable = read_usage(response.get("usage", NULL))
        if usage is not None:
            self._sheet.emit(UsageReported(usage))
        elif not readable:
            self._sheet.notice("usage.unreadable")
        for counted in hosted_counts(response):
            self._sheet.notice(counted)
        if status not in ("completed", "incomplete"):
            self._fail(_broken(response, status))
            return
        for place, raw in enumerate(read_list(response.get("output"))):
            self._repeat(place, raw, whole=status == "completed")
        self._close()
        details = read_plain(response["incomplete_details"]) if "incomplete_details" in response else None
        why = details.get("reason") if isinstance(details, dict) else None
        reason, detail = read_ending(
            None if status == "completed" else str(why or ""),
            calls=any(isinstance(item, CallItem) for item in self._items.values()),
            refused=any(isinstance(item, MessageItem) and item.refused for item in self._items.values()),
        )
        self.done = True
        self._sheet.emit(Stopped(reason, detail or self._waiting()))

    def _repeat(self, place: int, raw: Raw, *, whole: bool) -> None:
        """Take an item of the response as it ended: a repetition, or the only telling of it."""
        members = read_members(raw)
        kind, its_id = text_of(members, "type"), text_of(members, "id")
        # Servers leave items out of this list, so that the others move up, and give them other ids.
        place = self._ids.get(its_id, place)
        item = self._items.get(place)
        if item is not None and item.done and self._kinds[place] == kind:
            item.confirm(members)
        elif not whole and text_of(members, "status") in NOT_FINAL and kind not in ("message", "function_call"):
            if item is None:  # it was begun, and what cut the answer short kept it from its end
                self._open(place, members)
        else:
            self._settle(place, members)

    def _close(self) -> None:
        for item in self._items.values():
            if item.done:
                continue
            if isinstance(item, CallItem):
                item.close()
            elif isinstance(item, MessageItem | ReasoningItem):
                item.finish({})

    def _waiting(self) -> str | None:
        for item in self._items.values():
            if isinstance(item, HostedItem) and item.waits:
                return f"waits for the client: {item.type}"
        return None


def _broken(response: Members, status: str) -> Failure:
    error = read_plain(response["error"]) if "error" in response else None
    if error is None and status != "failed":
        message = f"the provider ended its answer as {clean_kind(status)}"
        return Failure(kind="provider", reason="provider_error", message=message)
    return stream_failure(error)


_HANDLERS: Mapping[str, Callable[[ResponsesAnswer, Event], None]] = {
    "response.created": ResponsesAnswer.begin,
    "response.queued": ResponsesAnswer.begin,
    "response.in_progress": ResponsesAnswer.begin,
    "response.completed": ResponsesAnswer.complete,
    "response.incomplete": ResponsesAnswer.complete,
    "response.failed": ResponsesAnswer.complete,
    "response.cancelled": ResponsesAnswer.complete,
    "response.output_item.added": ResponsesAnswer.add_item,
    "response.output_item.done": ResponsesAnswer.end_item,
    "response.content_part.done": ResponsesAnswer.end_part,
    "response.output_text.delta": ResponsesAnswer.say,
    "response.output_text.done": ResponsesAnswer.said,
    "response.output_text.annotation.added": ResponsesAnswer.annotate,
    "response.refusal.delta": ResponsesAnswer.decline,
    "response.refusal.done": ResponsesAnswer.declined,
    "response.reasoning_summary_text.delta": ResponsesAnswer.summarise,
    "response.reasoning_summary_text.done": ResponsesAnswer.summarised,
    "response.reasoning_text.delta": ResponsesAnswer.think,
    "response.reasoning_text.done": ResponsesAnswer.thought,
    "response.function_call_arguments.delta": ResponsesAnswer.write,
    "response.function_call_arguments.done": ResponsesAnswer.written,
    "response.custom_tool_call_input.delta": ResponsesAnswer.write,
    "response.custom_tool_call_input.done": ResponsesAnswer.written,
}
