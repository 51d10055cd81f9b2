"""Whether a conversation's tool calls and their results fit each other, as every provider wants them."""

from __future__ import annotations

from collections.abc import Iterable

from furcate.primitives._content import ToolCall, ToolResult
from furcate.primitives._errors import ToolTurnError, UnansweredToolCallError
from furcate.primitives._fold import fold
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import Message

_WAITING: MemoKey[list[tuple[str, ...]]] = MemoKey("calls that wait for a result")


def check_tool_turns(messages: Iterable[Message]) -> None:
    """Check that every tool call is answered once, right after the message that makes it.

    Ids need to differ only among the calls that wait at the same time: some servers count from nought in each turn.
    Provider-run work is no tool call, whatever its id. Of a history, what was checked once is not looked at again.

    Raises:
        UnansweredToolCallError: calls are without a result where the conversation goes on or ends.
        ToolTurnError: a result answers no call that waits, or two waiting calls have one id.
    """
    if isinstance(messages, History):
        waiting = fold(messages, _WAITING, (), step=lambda before, node: _after(before, node.added))
    else:
        waiting = _after((), messages)
    if waiting:
        raise UnansweredToolCallError(waiting)


def _after(before: tuple[str, ...], messages: Iterable[Message]) -> tuple[str, ...]:
    """Give the ids of the calls that wait after further messages."""
    waiting = dict.fromkeys(before)
    for message in messages:
        if message.role != "tool" and waiting:
            raise UnansweredToolCallError(tuple(waiting))
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in waiting:
                    raise ToolTurnError(part.id, "is the id of two calls of one message")
                waiting[part.id] = None
            elif isinstance(part, ToolResult):
                if part.call_id not in waiting:
                    raise ToolTurnError(part.call_id, "is answered, but no call of that id waits for a result here")
                del waiting[part.call_id]
    return tuple(waiting)
