"""Whether a conversation's tool calls and their results fit each other, as every provider wants them."""

from __future__ import annotations

from collections.abc import Iterable

from furcate.primitives._content import ToolCall, ToolResult
from furcate.primitives._errors import ToolTurnError, UnansweredToolCallError
from furcate.primitives._message import Message


def check_tool_turns(messages: Iterable[Message]) -> None:
    """Check that every tool call is answered once, right after the message that makes it.

    Ids need to differ only among the calls that wait at the same time: some servers count from nought in each turn.
    Provider-run work is no tool call, whatever its id.

    Raises:
        UnansweredToolCallError: calls are without a result where the conversation goes on or ends.
        ToolTurnError: a result answers no call that waits, or two waiting calls have one id.
    """
    waiting: dict[str, None] = {}
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
    if waiting:
        raise UnansweredToolCallError(tuple(waiting))
