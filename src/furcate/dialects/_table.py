"""The dialects by name."""

from __future__ import annotations

from collections.abc import Mapping

from furcate.dialects._base import Dialect
from furcate.dialects.anthropic_messages import AnthropicMessages
from furcate.dialects.google_generatecontent import GoogleGenerateContent
from furcate.dialects.openai_chat import OpenAIChat
from furcate.dialects.openai_responses import OpenAIResponses
from furcate.primitives._errors import UnknownNameError

_SPOKEN: tuple[Dialect, ...] = (
    AnthropicMessages(),
    OpenAIChat(),
    OpenAIResponses(),
    GoogleGenerateContent(),
)

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _SPOKEN}


def dialect_named(name: str) -> Dialect:
    """Give the dialect of a name.

    Raises:
        UnknownNameError: there is none of that name; the error lists those there are.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnknownNameError("dialect", name, tuple(DIALECTS)) from None
