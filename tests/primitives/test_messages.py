"""Roles, parts, and calls that wait for an answer."""

from typing import Any

import attrs
import pytest

from furcate.primitives._content import (
    HostedActivity,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._errors import ToolTurnError, UnansweredToolCallError
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._tool_turns import check_tool_turns

_PARTS: tuple[Part, ...] = (
    Text("t"),
    Refusal("r"),
    Reasoning("r"),
    ToolCall("c", "n"),
    ToolResult("c", "x"),
    HostedActivity("h", "web_search", "started"),
    Media("image/png", b"x"),
)
_TAKEN = {
    "system": {"Text"},
    "developer": {"Text"},
    "user": {"Text", "Media"},
    "assistant": {"Text", "Refusal", "Reasoning", "ToolCall", "HostedActivity", "Media"},
    "tool": {"ToolResult"},
}


@pytest.mark.parametrize("role", _TAKEN)
@pytest.mark.parametrize("part", _PARTS, ids=lambda part: type(part).__name__)
def test_a_role_takes_the_parts_that_fit_it(role: Any, part: Part) -> None:
    """Each role takes its own kinds of parts; the error for any other names role, kinds and what was given."""
    name = type(part).__name__
    if name in _TAKEN[role]:
        assert Message(role, (part,)).parts == (part,)
        return
    with pytest.raises(TypeError, match=f"^a {role} message takes .*, not {name}$"):
        Message(role, (part,))


def test_an_unknown_role_is_refused() -> None:
    """The error lists the roles there are."""
    role: Any = "model"
    with pytest.raises(ValueError, match="role 'model' is none of system, developer, user, assistant, tool"):
        Message(role, "x")


def test_what_is_no_part_is_refused() -> None:
    """Plain data in the place of a part is an error, not a message."""
    parts: Any = [{"type": "text", "text": "x"}]
    with pytest.raises(TypeError, match="a user message takes Text, Media, not dict"):
        Message("user", parts)


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_only_an_assistant_may_say_nothing(role: Any) -> None:
    """A model may answer with nothing at all; everyone else's message has a part."""
    assert Message("assistant", ()).parts == ()
    with pytest.raises(ValueError, match=f"a {role} message without parts says nothing"):
        Message(role, ())


def test_a_message_is_made_in_short_ways() -> None:
    """Text stands for a text part, and each role has a constructor."""
    assert Message("user", "hello") == Message.user("hello") == Message("user", Text("hello"))
    assert Message.user("see", Media("image/png", b"x")).parts == (Text("see"), Media("image/png", b"x"))
    assert Message.system("s", cache=CacheHint(60)) == Message("system", (Text("s"),), CacheHint(60))
    assert Message.assistant("a").role == "assistant"
    assert Message.tool(ToolResult("c", "x")).parts == (ToolResult("c", "x"),)


def test_a_message_copies_the_list_of_its_parts_and_cannot_change() -> None:
    """Neither the caller's list nor an assignment reaches the message."""
    parts: list[Part] = [Text("a")]
    message = Message("user", parts)
    parts.append(Text("b"))
    assert message.parts == (Text("a"),)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        message.role = "system"  # type: ignore[misc]


def test_readers_that_want_text_get_text() -> None:
    """Text parts are joined; reasoning, refusals and activities are kept apart."""
    message = Message.assistant(
        Reasoning("think"),
        "one ",
        HostedActivity("h", "web_search", "completed", summary="searched"),
        ToolCall("c1", "look"),
        "two",
        Refusal("no, "),
        Refusal("sorry"),
        ToolCall("c2", "look"),
    )
    assert message.text == "one two"
    assert message.refusal == "no, sorry"
    assert [call.id for call in message.tool_calls] == ["c1", "c2"]
    assert Message.assistant("x").refusal is None


def unanswered(*messages: Message) -> tuple[str, ...]:
    """Give the calls that the check misses an answer to."""
    try:
        check_tool_turns(messages)
    except UnansweredToolCallError as error:
        return error.call_ids
    return ()


def test_calls_wait_until_a_later_message_answers_them() -> None:
    """Answers take calls away, whatever their order; a call of an id that was answered before waits again."""
    calls = Message.assistant(ToolCall("a", "f"), ToolCall("b", "f"))
    assert unanswered(calls) == ("a", "b")
    assert unanswered(calls, Message.tool(ToolResult("b", "x"))) == ("a",)
    answered = [calls, Message.tool(ToolResult("b", "x"), ToolResult("a", "x", is_error=True))]
    assert unanswered(*answered) == ()
    assert unanswered(*answered, Message.assistant(ToolCall("a", "f"))) == ("a",)


def test_a_history_is_checked_along_its_nodes() -> None:
    """It makes no difference where a conversation is cut, nor whether its beginning was checked before."""
    asked = History([Message.user("How deep?"), Message.assistant(ToolCall("a", "f"), ToolCall("b", "f"))])
    for _ in range(2):
        with pytest.raises(UnansweredToolCallError) as caught:
            check_tool_turns(asked)
        assert caught.value.call_ids == ("a", "b")
    half = asked.extend([Message.tool(ToolResult("b", "x"))])
    with pytest.raises(UnansweredToolCallError) as caught:
        check_tool_turns(half)
    assert caught.value.call_ids == ("a",)
    check_tool_turns(half.extend([Message.tool(ToolResult("a", "x"))]))
    with pytest.raises(UnansweredToolCallError):
        check_tool_turns(half.extend([Message.user("Well?")]))
    with pytest.raises(ToolTurnError):
        check_tool_turns(half.extend([Message.tool(ToolResult("c", "x"))]))


def test_a_result_answers_a_call_that_waits() -> None:
    """A result before its call, or of no call at all, is told by its id; so are two waiting calls of one id."""
    call, result = Message.assistant(ToolCall("a", "f")), Message.tool(ToolResult("a", "x"))
    for wrong in ([result, call], [call, result, result], [Message.assistant(ToolCall("a", "f"), ToolCall("a", "g"))]):
        with pytest.raises(ToolTurnError) as caught:
            check_tool_turns(wrong)
        assert caught.value.call_id == "a"


@pytest.mark.req("S0-17")
@pytest.mark.parametrize("state", ["started", "completed", "failed"])
def test_hosted_activities_neither_ask_nor_answer(state: Any) -> None:
    """Provider-run work with the very id of a call leaves the scan as it is without it, and waits for nothing."""
    activity = HostedActivity("a", "web_search", state)
    call = ToolCall("a", "f")
    assert unanswered(Message.assistant(activity)) == ()
    assert unanswered(Message.assistant(call, activity)) == ("a",)
    assert unanswered(Message.assistant(activity, call)) == ("a",)
    assert unanswered(Message.assistant(call), Message.assistant(activity)) == ("a",)
    assert unanswered(Message.assistant(activity, call), Message.tool(ToolResult("a", "x"))) == ()
