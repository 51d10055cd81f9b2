"""The dialects by name."""

from __future__ import annotations

from collections.abc import Mapping

from furcate.dialects._base import Dialect
from furcate.dialects.openai_chat import OpenAIChat
from furcate.primitives._errors import UnknownNameError

_CHAT: Dialect = OpenAIChat()

DIALECTS: Mapping[str, Dialect] = {_CHAT.name: _CHAT}


def dialect_named(name: str) -> Dialect:
    """Give the dialect of a name.

    Raises:
        UnknownNameError: there is none of that name; the error lists those there are.
    """
    try:
        return DIALECTS[name]
    except KeyError:
        raise UnknownNameError("dialect", name, tuple(DIALECTS)) from None
