"""The dialects by name, each loaded when it is first spoken."""

from __future__ import annotations

from functools import cache

from furcate.dialects._base import Dialect
from furcate.primitives._errors import UnknownNameError

DIALECTS = ("anthropic-messages", "openai-chat", "openai-responses", "google-generatecontent")


@cache
def dialect_named(name: str) -> Dialect:
    """Give the dialect of a name.

    Raises:
        UnknownNameError: there is none of that name; the error lists those there are.
    """
    # Most programs speak one of them, and loading the others takes longer than all else at their start.
    match name:
        case "anthropic-messages":
            from furcate.dialects.anthropic_messages import AnthropicMessages

            return AnthropicMessages()
        case "openai-chat":
            from furcate.dialects.openai_chat import OpenAIChat

            return OpenAIChat()
        case "openai-responses":
            from furcate.dialects.openai_responses import OpenAIResponses

            return OpenAIResponses()
        case "google-generatecontent":
            from furcate.dialects.google_generatecontent import GoogleGenerateContent

            return GoogleGenerateContent()
        case _:
            raise UnknownNameError("dialect", name, DIALECTS)
