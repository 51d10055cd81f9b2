"""A provider that looks at what comes back: it refuses what the real one refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from furcate.testing._answer import Answer, error
from furcate.testing._completion import Completion
from furcate.testing._render import GENERAL, said
from furcate.testing._rules import Refused, Rules
from furcate.testing._strict_chat import ChatRules
from furcate.testing._strict_google import GoogleRules
from furcate.testing._strict_messages import MessagesRules
from furcate.testing._strict_responses import ResponsesRules

if TYPE_CHECKING:
    from furcate.testing._request import StubDialect, StubRequest


class Watch:
    """Remember the answers that a script gave, and judge later requests by them."""

    def __init__(self) -> None:
        self._rules: Mapping[StubDialect, Rules] = {
            "openai-chat": ChatRules(),
            "openai-responses": ResponsesRules(),
            "anthropic-messages": MessagesRules(),
            "google-generatecontent": GoogleRules(),
        }

    def refusal(self, request: StubRequest) -> Answer | None:
        """Give the answer to a request that the real provider refuses; None for one that it takes."""
        if request.dialect is None:
            return None
        try:
            self._rules[request.dialect].check(request)
        except Refused as refused:
            kind = GENERAL if request.dialect == "google-generatecontent" else "invalid_request_error"
            return error(400, refused.message, code=refused.code, kind=kind)
        return None

    def remember(self, answer: Answer, request: StubRequest) -> None:
        """Take note of what an answer says; only a completion that is whole says anything that may come back."""
        content = answer.content
        if isinstance(content, Completion) and content.error is None and request.dialect is not None:
            self._rules[request.dialect].remember(said(content, request), request)
