"""What is foreign to a provider: refused in an open tool exchange, left out and counted everywhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import furcate
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import ForeignReasoningState
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.transport import partition_reasoning
from furcate.transport._partition import open_work

HERE = Origin("here", "openai-responses", "m")
THERE = Origin("there", "openai-responses", "m")
ASK = Message.user("How deep is the harbour?")
CALL = ToolCall("c1", "measure", "{}")
ANSWERED = Message.tool(ToolResult("c1", "9 m"))


def thought(origin: Origin, text: str = "hm", data: bytes = b"\xff\x00") -> Reasoning:
    return Reasoning(text, ReasoningState(origin, "sealed", data))


def said(*parts: furcate.Part) -> Message:
    return Message("assistant", parts)


@pytest.mark.req("S2-24", "S2-26")
def test_own_state_passes_unchanged_and_in_place() -> None:
    """A history without anything foreign is sent as the very object it is, and nothing is counted."""
    history = History([ASK, said(thought(HERE), Text("9 m"), thought(HERE, "", b"2"))]).extend([ASK])
    parted = partition_reasoning(history, HERE)
    assert parted.history is history
    assert (parted.reasoning_dropped, parted.payloads_dropped) == (0, 0)


@pytest.mark.req("S2-23", "S2-25")
def test_foreign_state_of_earlier_turns_is_left_out_and_counted() -> None:
    """Each foreign state goes, its shown text and everything around it stay as they were, in their order."""
    own = thought(HERE, "mine")
    history = History([ASK, said(thought(THERE), Text("a"), own, thought(THERE, ""), CALL), ANSWERED, said(), ASK])
    parted = partition_reasoning(history, HERE)
    assert parted.reasoning_dropped == 2
    assert list(parted.history) == [
        ASK,
        said(Reasoning("hm"), Text("a"), own, Reasoning(""), CALL),
        ANSWERED,
        said(),
        ASK,
    ]
    # Whoever holds the conversation still has all of it.
    assert list(history)[1].parts[0] == thought(THERE)


@pytest.mark.req("S2-22")
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_foreign_state_in_an_open_tool_exchange_is_refused(cut: int) -> None:
    """Its answers are waited for where the calls came from, however the history was put together."""
    messages = [ASK, said(thought(THERE), CALL), ANSWERED]
    history = History(messages[:cut]).extend(messages[cut:])
    with pytest.raises(ForeignReasoningState, match="of there, which 'here' cannot read") as caught:
        partition_reasoning(history, HERE)
    assert (caught.value.provider, caught.value.foreign) == ("here", ("there",))
    assert partition_reasoning(history, THERE).history is history


@pytest.mark.req("S2-22", "S2-23")
def test_refusing_wins_over_counting() -> None:
    """A tool exchange that cannot be sent is refused even where state before it could have been left out."""
    history = History([ASK, said(thought(THERE), Text("a")), ASK, said(thought(THERE), CALL), ANSWERED])
    with pytest.raises(ForeignReasoningState):
        partition_reasoning(history, HERE)


@pytest.mark.req("S2-23")
def test_what_came_before_an_open_tool_exchange_is_counted() -> None:
    """Of an exchange of one's own, only earlier foreign state is left out."""
    past, flight = said(thought(THERE), Text("a")), said(thought(HERE), CALL)
    for history in (History([ASK, past, ASK, flight, ANSWERED]), History([ASK, past]).extend([ASK, flight, ANSWERED])):
        parted = partition_reasoning(history, HERE)
        assert parted.reasoning_dropped == 1
        assert list(parted.history) == [ASK, said(Reasoning("hm"), Text("a")), ASK, flight, ANSWERED]


def test_a_tool_message_without_a_call_opens_nothing() -> None:
    """What makes an open exchange is a call in it; without one there is nothing to refuse."""
    history = History([ASK, said(thought(THERE), Text("a")), ANSWERED])
    assert partition_reasoning(history, HERE).reasoning_dropped == 1


def test_another_model_of_the_realm_may_end_a_tool_exchange() -> None:
    """State of another model is stale in earlier turns, but within an open exchange its provider can read it."""
    other = Origin("here", "openai-responses", "larger")
    flight = History([ASK, said(thought(other), CALL), ANSWERED])
    assert partition_reasoning(flight, HERE).history is flight
    past = flight.extend([said(Text("9 m")), ASK])
    assert partition_reasoning(past, HERE).reasoning_dropped == 1
    with pytest.raises(ForeignReasoningState):
        partition_reasoning(flight, Origin("here", "anthropic-messages", "m"))


def test_foreign_payloads_are_left_out_wherever_they_stand() -> None:
    """Payloads of hosted work, citations, texts and calls go, also in an open exchange; what they were about stays."""
    foreign, own = (ProviderPayload(name, "openai-responses.f", "1", b"\xfe") for name in ("there", "here"))
    source = Source("https://example.org")
    kept = (HostedActivity("h", "web_search", "completed", payload=own), ToolCall("c0", "x", payload=own))
    cited = Text("a", [Attribution(source, replay=foreign), Attribution(source, replay=own)], payload=foreign)
    call = ToolCall("c1", "measure", "{}", payload=foreign)
    searched = HostedActivity("g", "web_search", "completed", payload=foreign)
    history = History([ASK, said(*kept, searched, cited, call), ANSWERED])
    parted = partition_reasoning(history, HERE)
    assert (parted.reasoning_dropped, parted.payloads_dropped) == (0, 4)
    left = Text("a", [Attribution(source), Attribution(source, replay=own)])
    assert list(parted.history)[1] == said(*kept, HostedActivity("g", "web_search", "completed"), left, CALL)


def test_a_clean_beginning_stays_shared() -> None:
    """Branches of one long conversation go on sharing what needed no change."""
    beginning = History([ASK, said(Text("9 m"))])
    parted = partition_reasoning(beginning.extend([ASK, said(thought(THERE))]).extend([ASK]), HERE)
    assert any(node is beginning for node in parted.history.nodes())


def test_what_is_clean_for_one_is_looked_at_again_for_another() -> None:
    """A history of one origin's own state stays foreign to all others, in whatever order they ask."""
    beginning = History([ASK, said(thought(HERE), Text("9 m"))])
    history = beginning.extend([ASK])
    for _ in range(2):
        assert partition_reasoning(history, HERE).history is history
        assert partition_reasoning(history, THERE).reasoning_dropped == 1
    longer = history.extend([said(thought(THERE)), ASK])
    assert partition_reasoning(longer, HERE).reasoning_dropped == 1
    assert partition_reasoning(beginning.extend([ASK, said(Text("a")), ASK]), HERE).reasoning_dropped == 0


PARTS: st.SearchStrategy[furcate.Part] = st.sampled_from(
    [Text("t"), thought(HERE), thought(THERE), thought(HERE, data=b"x"), CALL]
)
MESSAGES = st.one_of(st.just(ASK), st.lists(PARTS, max_size=3).map(lambda parts: said(*parts)), st.just(ANSWERED))


@pytest.mark.req("S2-23", "S2-24", "S2-25")
@given(st.lists(MESSAGES, max_size=6), st.sets(st.integers(0, 6)))
def test_any_conversation_loses_its_foreign_state_and_nothing_else(messages: list[Message], cuts: set[int]) -> None:
    """Ended by the user, any history gives the same messages less the foreign state, however it was cut."""
    messages = [*messages, ASK]
    history = History()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(messages)], strict=True):
        history = history.extend(messages[start:end])
    parted = partition_reasoning(history, HERE)
    cleaned = [
        [Reasoning(part.text) if isinstance(part, Reasoning) and part == thought(THERE) else part for part in one.parts]
        for one in messages
    ]
    assert [list(one.parts) for one in parted.history] == cleaned
    assert parted.reasoning_dropped == sum(part == thought(THERE) for one in messages for part in one.parts)


def test_work_of_another_provider_does_not_end_here() -> None:
    """What another provider began is not handed to an answer, even where ids are alike; what has no payload is."""
    starts = (
        HostedActivity("1", "web_search", "started", payload=ProviderPayload(HERE.provider, "f", "1", b"{}")),
        HostedActivity("2", "web_search", "started", payload=ProviderPayload("rival", "f", "1", b"{}")),
        HostedActivity("3", "web_search", "started"),
    )
    history = History([Message.user("Go"), Message("assistant", starts)])
    assert [one.id for one in open_work(history, HERE)] == ["1", "3"]


@pytest.mark.req("S2-21")
def test_nobody_else_compares_origins() -> None:
    """Origins and providers of opaque values are compared in one file only."""
    package = Path(furcate.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else ()
            if any(isinstance(side, ast.Attribute) and side.attr in ("origin", "provider") for side in sides):
                found.add(path.relative_to(package).as_posix())
    assert found <= {"transport/_partition.py"}
