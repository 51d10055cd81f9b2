"""Messages made from stream events."""

from __future__ import annotations

import json

import pytest

from furcate.dialects import Assembler
from furcate.primitives._content import (
    ActivityState,
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
)
from furcate.primitives._describe import exact
from furcate.primitives._message import Message
from furcate.primitives._stream import (
    AttemptRestarted,
    Citation,
    HostedTransition,
    MediaArrived,
    Noticed,
    PartEnded,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import Failure

_STATE = ReasoningState(Origin("p", "d", "m"), "sealed", b"\x00\xff")
_CITED = Attribution(Source("https://c.example"), range=(0, 2))


def _assembled(*events: StreamEvent) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _parts(message: Message | None) -> tuple[Part, ...]:
    assert message is not None
    return message.parts


@pytest.mark.req("S0-12")
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_change_of_state_leaves_what_was_told_before(state: ActivityState) -> None:
    """The later transition is a part of its own under the same id; the earlier one is written in the same bytes."""

    def written(message: Message | None) -> list[bytes]:
        assert message is not None
        return [json.dumps(part, sort_keys=True).encode() for part in exact(message)["parts"]]

    payload = ProviderPayload("p", "native", "1", b'{"query": "tides"}')
    begun = HostedActivity("x", "web_search", "started", input={"query": "tides"}, payload=payload, scope="r")
    assembler = _assembled(ResponseStarted("r", "m"), HostedTransition(begun))
    before = written(assembler.partial())
    assembler.add(TextDelta(1, "It is "))
    assembler.add(HostedTransition(HostedActivity("x", "web_search", state, summary="tides", scope="r")))
    assembler.add(Stopped("end_turn"))
    after = written(assembler.message())
    assert len(before) == 1
    assert after[0] == before[0]
    changed = [part for part in _parts(assembler.message()) if isinstance(part, HostedActivity)]
    assert changed[0] == begun
    assert [(part.id, part.state) for part in changed] == [("x", "started"), ("x", state)]


def test_parts_stand_in_order_of_appearance() -> None:
    """Each part stands where its first event came, whatever its index is."""
    activity = HostedActivity("h", "web_search", "started")
    picture = Media("image/png", b"p")
    assembler = _assembled(
        ReasoningDelta(5, "th"),
        TextDelta(2, "a"),
        HostedTransition(activity),
        ToolCallDelta(9, "c1", "f", '{"x"'),
        TextDelta(2, "b"),
        MediaArrived(3, picture),
        ReasoningDelta(5, "ink"),
        ReasoningSealed(5, _STATE),
        ToolCallDelta(9, "ignored", "ignored", ": 1}"),
        RefusalDelta(1, "no"),
        Stopped("tool_use"),
    )
    assert assembler.message() == Message.assistant(
        Reasoning("think", _STATE), Text("ab"), activity, ToolCall("c1", "f", '{"x": 1}'), picture, Refusal("no")
    )


def test_what_came_to_nothing_is_left_out() -> None:
    """Empty text, empty reasoning and empty refusals make no parts; empty text with citations does."""
    assembler = _assembled(
        TextDelta(0, ""), ReasoningDelta(1, ""), RefusalDelta(2, ""), Citation(3, _CITED), Stopped("end_turn")
    )
    assert assembler.message() == Message.assistant(Text("", (Attribution(_CITED.source),)))
    assert _assembled(TextDelta(0, ""), Stopped("end_turn")).message().parts == ()


def test_facts_beside_the_message() -> None:
    """Usage, ending, ids and failure are kept; a later usage replaces the earlier one."""
    failure = Failure(kind="provider", reason="r", message="m")
    assembler = _assembled(
        ResponseStarted("r1", None),
        ResponseStarted(None, "m1"),
        UsageReported(Usage(input_tokens=4, output_tokens=9)),
        UsageReported(Usage(input_tokens=4)),
        Noticed("something"),
        Stopped("end_turn"),
        StreamFailed(failure),
    )
    assert (assembler.response_id, assembler.model) == ("r1", "m1")
    assert (assembler.usage, assembler.stop) == (Usage(input_tokens=4), Stopped("end_turn"))
    assert assembler.failure is failure
    assert Assembler().usage is UNKNOWN


@pytest.mark.req("S0-43")
def test_citations_belong_to_their_part() -> None:
    """Citations stay with the text of their index, in the order in which they came."""
    first, second = Attribution(Source("u1")), Attribution(Source("u2"))
    assembler = _assembled(
        Citation(1, first), TextDelta(0, "a"), TextDelta(1, "b"), Citation(1, second), Stopped("end_turn")
    )
    assert assembler.message() == Message.assistant(Text("b", (first, second)), Text("a"))


def test_no_range_beyond_the_text() -> None:
    """A range that the text does not reach is dropped, and its citation kept."""
    assembler = _assembled(TextDelta(0, "a"), Citation(0, _CITED), Stopped("end_turn"))
    assert assembler.message() == Message.assistant(Text("a", (Attribution(_CITED.source),)))


@pytest.mark.req("S0-44", "S0-45", "S0-46", "S0-48")
def test_partial_message() -> None:
    """Of a broken answer, open text is marked and keeps its citations; open calls and reasoning state are gone."""
    assembler = _assembled(
        ReasoningDelta(0, "hm"),
        ReasoningSealed(0, _STATE),
        TextDelta(1, "whole"),
        PartEnded(1),
        ToolCallDelta(2, "c1", "f", "{}"),
        PartEnded(2),
        ToolCallDelta(3, "c2", "f", "{"),
        TextDelta(4, "open"),
        Citation(4, _CITED),
    )
    assert _parts(assembler.partial()) == (
        Reasoning("hm"),
        Text("whole"),
        ToolCall("c1", "f", "{}"),
        Text("open", (_CITED,), attribution_complete=False),
    )


def test_partial_of_nothing() -> None:
    """Where nothing came there is no partial message, also where only a citation without text did."""
    assert Assembler().partial() is None
    assert _assembled(Citation(0, _CITED), ToolCallDelta(1, "c", "f", "{")).partial() is None


def test_partial_of_a_whole_answer() -> None:
    """Once the answer has stopped, the partial message is the message."""
    assembler = _assembled(TextDelta(0, "a"), ToolCallDelta(1, "c", "f", "{}"), Stopped("tool_use"))
    assert assembler.partial() == assembler.message()


def test_a_restart_supersedes() -> None:
    """After a restart nothing of the attempt before is left."""
    assembler = _assembled(
        ResponseStarted("r", "m"),
        TextDelta(0, "old"),
        UsageReported(Usage(input_tokens=1)),
        Stopped("end_turn"),
        AttemptRestarted(2, "repair"),
        TextDelta(0, "new"),
    )
    assert _parts(assembler.partial()) == (Text("new", attribution_complete=False),)
    assert (assembler.stop, assembler.usage, assembler.response_id) == (None, UNKNOWN, None)


def test_custom_calls() -> None:
    """A call of a custom tool keeps its free-form input."""
    assembler = _assembled(ToolCallDelta(0, "c", "sh", "ls", custom=True), Stopped("tool_use"))
    assert assembler.message() == Message.assistant(ToolCall("c", "sh", "ls", "custom"))
