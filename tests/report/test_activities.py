"""Rows of provider-run work, folded from its transitions, live and from what is stored."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from furcate.primitives._content import HostedActivity, ProviderPayload, Text, ToolCall
from furcate.primitives._message import Message
from furcate.report import Activities, entries, reopened, row_text, tool_counts, unfinished

SEARCH = {"type": "search", "queries": ["tide tables"]}


def started(its_id: str = "ws_1", **more) -> HostedActivity:
    return HostedActivity(its_id, "web_search", "started", **more)


def ended(its_id: str = "ws_1", state: str = "completed", **more) -> HostedActivity:
    return HostedActivity(its_id, "web_search", state, **{"input": SEARCH, **more})


def live(transitions: Iterable[HostedActivity]) -> Activities:
    view = Activities()
    for transition in transitions:
        view = view.after(transition)
    return view


def shown(view: Activities) -> list[tuple[str, str, int]]:
    return [(row.first.id, row.state, row.revision) for row in view.rows]


@pytest.mark.req("S1-47", "S1-48", "S1-49")
def test_row_keeps_the_place_where_its_work_began() -> None:
    """A row runs at revision 0 and ends at revision 1 in the same place, in whichever order the ends come."""
    view = live([started("a"), started("b")])
    assert shown(view) == [("a", "running", 0), ("b", "running", 0)]
    view = view.after(ended("b", "failed")).after(ended("a"))
    assert shown(view) == [("a", "completed", 1), ("b", "failed", 1)]


@pytest.mark.req("S0-13")
@pytest.mark.parametrize("state", ["completed", "failed"])
def test_latest_transition_tells_the_state(state: str) -> None:
    """Where work stands is what the last transition in the stream says; the first one is still there as it was."""
    first, last = started(), ended(state=state)
    (row,) = live([first, last]).rows
    assert row.state == state
    assert row.first is first
    assert row.latest is last


@pytest.mark.req("S0-14")
def test_unfinished_work_is_found() -> None:
    """Exactly the ids of what was started and never ended are given, from transitions and from messages alike."""
    transitions = [started("a"), started("b"), ended("b"), started("c"), ended("d"), ended("c", "failed")]
    assert unfinished(transitions) == ("a",)
    messages = [Message.user("Search."), Message.assistant(*transitions, "Found."), Message.assistant(started("e"))]
    assert unfinished(messages) == ("a", "e")
    assert unfinished([]) == ()


@pytest.mark.req("S1-50")
def test_live_view_gives_up_what_never_ended() -> None:
    """When its answer is over, running work is shown as failed, and the record still says that it was started."""
    view = live([started("a"), started("b"), ended("a")]).step_ended()
    assert shown(view) == [("a", "completed", 1), ("b", "failed", 1)]
    assert view.rows[1].latest.state == "started"
    assert not view.rows[1].finished


def test_reopened_view_gives_up_what_never_ended() -> None:
    """A stored answer shows such work as failed too, and nothing is written into it."""
    message = Message.assistant(started("a"), "Nothing found.")
    assert shown(reopened([message])) == [("a", "failed", 0)]
    assert message == Message.assistant(started("a"), "Nothing found.")
    assert unfinished([message]) == ("a",)


@pytest.mark.req("S1-51")
def test_reopened_rows_stand_where_the_live_ones_stood() -> None:
    """Opened again, rows are finished at revision 0, in the places and the order of the live ones."""
    transitions = [started("a"), started("b"), ended("b"), ended("a"), ended("c", "failed")]
    before = live(transitions).step_ended()
    again = reopened([Message.user("Search."), Message.assistant("Well.", *transitions)])
    assert shown(again) == [("a", "completed", 0), ("b", "completed", 0), ("c", "failed", 0)]
    assert [(row.key, row.state) for row in again.rows] == [(row.key, row.state) for row in before.rows]


@pytest.mark.req("S1-52")
@pytest.mark.parametrize("again", [ended(state="failed"), ended(), started()])
def test_what_cannot_follow_is_noticed(again: HostedActivity) -> None:
    """A second end and a second start change nothing but leave a notice."""
    view = live([started(), ended()])
    after = view.after(again)
    assert after.rows == view.rows
    (notice,) = after.notices
    assert "web_search ws_1 was" in notice


def test_started_twice_is_noticed_while_it_runs() -> None:
    """A second start of running work does not restart it."""
    view = live([started(), started()])
    assert shown(view) == [("ws_1", "running", 0)]
    assert len(view.notices) == 1


def test_an_end_needs_no_start() -> None:
    """Work that is told of when it is over has a row that never ran."""
    assert shown(live([ended("a"), ended("b", "failed")])) == [("a", "completed", 0), ("b", "failed", 0)]


def test_output_index_places_what_was_told_late() -> None:
    """An end that comes alone stands where its provider's output index puts it, within its own answer."""
    late = live([started("a", position=1), started("c", position=5), ended("b", position=3)])
    assert [row.first.id for row in late.rows] == ["a", "b", "c"]
    apart = live([started("a", position=1)]).step_ended().after(ended("b", position=0))
    assert [row.first.id for row in apart.rows] == ["a", "b"]


def test_work_after_a_pause_stands_behind_what_came_before_it() -> None:
    """An answer that goes on after a pause counts its output anew, which puts no work ahead of earlier work."""
    view = live([started("a", position=3), ended("a", position=4), started("b", position=1), ended("b", position=2)])
    assert [row.first.id for row in view.rows] == ["a", "b"]
    told = Message.assistant("One.", started("a", position=3), ended("a", position=4), "Two.", started("b", position=1))
    assert [getattr(entry, "text", None) or entry.first.id for entry in entries(told)] == ["One.", "a", "Two.", "b"]


def test_ids_mean_something_within_their_answer_only() -> None:
    """The same id of another answer is other work, whether the answer is named or only its turn tells it apart."""
    named = live([ended(scope="resp_1"), started(scope="resp_2")])
    assert shown(named) == [("ws_1", "completed", 0), ("ws_1", "running", 0)]
    turns = reopened([Message.assistant(started(), ended()), Message.assistant(started(), ended(state="failed"))])
    assert [row.state for row in turns.rows] == ["completed", "failed"]
    assert turns.notices == ()
    alone = reopened([Message.assistant(ended()), Message.assistant(ended())])
    assert len(alone.rows) == 2


def test_work_may_end_in_a_later_answer() -> None:
    """A search that had to wait for the application's tools ends in the next answer, in the row where it began."""
    view = live([started()]).step_ended()
    assert shown(view) == [("ws_1", "failed", 1)]
    view = view.after(ended())
    assert shown(view) == [("ws_1", "completed", 2)]
    assert view.rows[0].finished
    assert unfinished([Message.assistant(started()), Message.assistant(ended())]) == ()


@pytest.mark.req("S1-54")
def test_rows_count_among_the_tools() -> None:
    """Provider-run work counts once each, beside the calls that the application answers."""
    message = Message.assistant(started("a"), ended("a"), started("b"), ToolCall("c", "clock"), "Done.")
    assert tool_counts([Message.user("Go."), message]) == {"web_search": 2, "clock": 1}


def test_entries_stand_in_order() -> None:
    """Between the texts stands one row for each work, at its start, and what was told late at its output index."""
    message = Message.assistant(
        "One.",
        started("a", position=1),
        Text("Two."),
        started("c", position=6),
        ended("c", position=6),
        "Three.",
        ended("b", position=4),
        ended("a", position=1),
    )
    told = [getattr(entry, "text", None) or entry.first.id for entry in entries(message)]
    assert told == ["One.", "a", "Two.", "b", "c", "Three."]


def test_facts_hold_no_payload() -> None:
    """A row's facts are what was asked and how it ended; the provider's own value is not among them."""
    payload = ProviderPayload("lab", "item", "1", b"sealed")
    (row,) = live([started(payload=payload), ended(payload=payload, summary="tide tables")]).rows
    facts = row.described()
    assert facts == {
        "id": "ws_1",
        "scope": "",
        "name": "web_search",
        "state": "completed",
        "finished": True,
        "input": {"type": "search", "queries": ["tide tables"]},
        "summary": "tide tables",
    }
    assert "sealed" not in repr(row) + row_text(row)
