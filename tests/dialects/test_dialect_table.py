"""Dialects by name."""

from __future__ import annotations

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._errors import UnknownNameError


def test_known_name() -> None:
    """A dialect answers to its name."""
    chat = dialect_named("openai-chat")
    assert (chat.name, chat.default_base_url) == ("openai-chat", "https://api.openai.com/v1")
    assert chat.auth_headers("k") == (("authorization", "Bearer k"),)


def test_unknown_name() -> None:
    """An unknown name is refused with the names there are."""
    with pytest.raises(
        UnknownNameError, match=r"no dialect named 'smoke'; there are: anthropic-messages, .*, openai-responses"
    ):
        dialect_named("smoke")
