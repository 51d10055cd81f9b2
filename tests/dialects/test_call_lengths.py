"""How much the calls of one answer may ask with: the application's and the provider's by the same measure."""

from __future__ import annotations

import json

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.dialects._assemble import MAX_CALL_LENGTH, MAX_CALLS_LENGTH
from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._stream import (
    AttemptRestarted,
    HostedTransition,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
)
from furcate.primitives._wire import AttemptFailed


def _asks(length: int, number: int = 0) -> list[StreamEvent]:
    """Give calls that ask with so many characters, one for the application and one of the provider's own."""
    # The names of the members count as well.
    asked = {"type": "search", "queries": ["q" * (length - len("typequeriessearch"))]}
    return [
        ToolCallDelta(number, f"c{number}", "f", "q" * length),
        HostedTransition(HostedActivity(f"s{number}", "web_search", "completed", input=asked)),
    ]


@pytest.mark.req("S1-34")
@pytest.mark.parametrize("kind", [0, 1], ids=["application", "provider"])
def test_one_call_has_a_limit(kind: int) -> None:
    """A call that asks with one character more than it may is a failure, and nothing of it is taken."""
    assembler = Assembler(max_call_length=30)
    assembler.add(TextDelta(9, "Well."))
    assembler.add(_asks(30)[kind])
    before = assembler.message()
    with pytest.raises(AttemptFailed, match="a call of more than 30 characters") as caught:
        assembler.add(_asks(31, 1)[kind])
    assert (caught.value.failure.kind, caught.value.failure.reason) == ("provider", "too_large")
    assert assembler.message() == before


@pytest.mark.req("S1-34")
def test_all_calls_share_a_limit() -> None:
    """What the provider's own calls ask with counts together with the arguments of the application's."""
    assembler = Assembler(max_call_length=30, max_calls_length=110)
    for event in (*_asks(30, 1), _asks(30, 2)[1]):
        assembler.add(event)
    for event in _asks(30, 3):
        with pytest.raises(AttemptFailed, match="all calls together of more than 110 characters"):
            assembler.add(event)
    assert len(assembler.message().parts) == 3
    assembler.add(_asks(20, 4)[1])


def test_pieces_add_up_and_repetitions_do_not() -> None:
    """Arguments grow piece by piece; a transition that tells its input again asks with nothing more."""
    assembler = Assembler(max_call_length=30, max_calls_length=70)
    for _ in range(3):
        assembler.add(ToolCallDelta(0, arguments="q" * 10))
        assembler.add(_asks(30, 1)[1])
    with pytest.raises(AttemptFailed, match="a call of more than 30 characters"):
        assembler.add(ToolCallDelta(0, arguments="q"))
    assembler.add(AttemptRestarted(2, "retry"))
    assembler.add(ToolCallDelta(0, arguments="q" * 30))


@pytest.mark.req("S1-34")
@pytest.mark.parametrize(
    ("dialect", "begins", "tells"),
    [
        (
            "openai-responses",
            {"type": "response.output_item.added", "output_index": 0, "item": {"id": "w", "type": "web_search_call"}},
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {"id": "w", "type": "web_search_call", "action": {"type": "search", "query": "LONG"}},
            },
        ),
        (
            "anthropic-messages",
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "server_tool_use", "id": "w", "name": "web_search", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": "LONG"},
            },
        ),
    ],
)
def test_no_decoder_gathers_more_than_that(dialect: str, begins: object, tells: object) -> None:
    """A query that is longer than a call may be breaks the answer before it is a transition."""
    decoder = dialect_named(dialect).decoder(Origin("p", dialect, "m"))
    start = {"type": "message_start", "message": {"id": "m", "content": []}}
    opening = [start, begins] if dialect == "anthropic-messages" else [begins]
    events = decoder.feed(b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in opening))
    long = json.dumps(tells).encode().replace(b"LONG", b"q" * (MAX_CALL_LENGTH + 1))
    events += decoder.feed(b"data: " + long + b"\n\n")
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].failure.reason == "event_too_large"
    assert all(not event.activity.input for event in events if isinstance(event, HostedTransition))
    assert MAX_CALLS_LENGTH == 4 * MAX_CALL_LENGTH
