"""Which provider-run work of a conversation is open."""

from __future__ import annotations

import pytest

from furcate.primitives._content import ActivityState, HostedActivity, ToolCall, ToolResult
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._open_work import open_activities


def work(its_id: str, state: ActivityState = "started", *, scope: str = "", summary: str = "") -> HostedActivity:
    return HostedActivity(its_id, "web_search", state, scope=scope, summary=summary)


ASKED = Message.user("Well?")


@pytest.mark.req("S0-13", "S0-14")
def test_work_without_an_end_is_open() -> None:
    """What was started and neither completed nor failed is open, in the order of the starts."""
    said = Message.assistant(work("a"), work("b"), work("c"), work("d"), work("b", "completed"), work("c", "failed"))
    assert open_activities(History([ASKED, said])) == (work("a"), work("d"))


def test_an_end_may_stand_in_a_later_answer() -> None:
    """An answer that asks for tools may leave work open, and the next one end it."""
    first = Message.assistant(work("a"), work("b"), ToolCall("c1", "look"))
    answered = Message.tool(ToolResult("c1", "seen"))
    history = History([ASKED, first]).extend([answered])
    assert open_activities(history) == (work("a"), work("b"))
    second = Message.assistant(work("b", "completed"), ToolCall("c2", "look"))
    assert open_activities(history.extend([second, Message.tool(ToolResult("c2", "seen"))])) == (work("a"),)


def test_what_was_open_before_the_user_spoke_again_is_given_up() -> None:
    """Only the answers since the user's last message count."""
    history = History([ASKED, Message.assistant(work("a")), ASKED])
    assert open_activities(history) == ()
    assert open_activities(history.extend([Message.assistant(work("b"))])) == (work("b"),)
    assert open_activities(History()) == ()


def test_ids_are_unique_within_their_scope() -> None:
    """The same id in another response is other work."""
    said = Message.assistant(work("a", scope="r1"), work("a", "completed", scope="r2"))
    assert open_activities(History([said])) == (work("a", scope="r1"),)


def test_the_first_start_counts() -> None:
    """What is fixed when work starts is fixed by its first start."""
    said = Message.assistant(work("a", summary="first"), work("b"), work("a", summary="again"))
    assert open_activities(History([said])) == (work("a", summary="first"), work("b"))
