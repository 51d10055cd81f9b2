"""What an openai-chat server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.testing._framing import JsonObject
from furcate.testing._rules import Refused, dicts, member, text

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class ChatRules:
    """Refuse empty assistant messages, calls without a result, and results without a call."""

    def remember(self, said: JsonObject, request: StubRequest) -> None:
        """Take note of nothing: this dialect carries no state that could come back changed."""

    def check(self, request: StubRequest) -> None:
        """Look at a request, and raise ``Refused`` where it breaks a rule."""
        messages = dicts(member(request.body, "messages"))
        if not messages:
            raise Refused("Invalid 'messages': empty array. Expected an array with minimum length 1.", "empty_array")
        waiting: list[str] = []
        for place, message in enumerate(messages):
            role = text(message, "role")
            if role not in _ROLES:
                raise Refused(f"Invalid value for messages[{place}].role: {role!r}.", "invalid_value")
            if role == "tool":
                self._take_result(message, place, waiting)
                continue
            _check_answered(waiting)
            if role == "assistant":
                waiting = self._take_answer(message, place)
        _check_answered(waiting)

    def _take_result(self, message: JsonObject, place: int, waiting: list[str]) -> None:
        its_id = text(message, "tool_call_id")
        if its_id not in waiting:
            raise Refused(
                f"Invalid parameter: messages[{place}] with role 'tool' must be a response to a preceding message with "
                f"'tool_calls'; none of its calls waits for {its_id!r}."
            )
        waiting.remove(its_id)

    def _take_answer(self, message: JsonObject, place: int) -> list[str]:
        calls = dicts(message.get("tool_calls"))
        if not calls and not message.get("content") and not message.get("refusal"):
            raise Refused(
                f"Invalid value for messages[{place}].content: an assistant message must say or call something."
            )
        ids = [text(call, "id") for call in calls]
        if len(set(ids)) < len(ids) or "" in ids:
            raise Refused(f"Invalid value for messages[{place}].tool_calls: each call needs an id of its own.")
        return ids


def _check_answered(waiting: list[str]) -> None:
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. These have no response: {', '.join(waiting)}"
        )
