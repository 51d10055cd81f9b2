"""Sentences of the documentation that somebody relies on, and what they are about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from furcate.dialects import DIALECTS
from furcate.dialects._assemble import MAX_CALL_LENGTH, MAX_CALLS_LENGTH
from furcate.primitives._content import HostedActivity
from furcate.primitives._message import Message
from furcate.report import tool_counts

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _said(page: str) -> str:
    """Give a page's text with every run of white space as one space."""
    return re.sub(r"\s+", " ", (DOCS / page).read_text(encoding="utf-8"))


@pytest.mark.req("S1-11")
def test_a_declaration_is_the_owners_claim() -> None:
    """The page on configurations says that nobody checks a declared tool for the owner, who has to try it once."""
    text = _said("configuration.md")
    assert "The declaration is your claim that the route serves the tool." in text
    assert "a route that accepts the request and ignores the tool is not noticed, so try it once" in text


@pytest.mark.req("S0-51")
def test_counting_searches_is_an_approximation() -> None:
    """Searches are counted by their ids, and the page says what that number is not."""
    searches = [
        HostedActivity("a", "web_search", "started"),
        HostedActivity("a", "web_search", "completed"),
        HostedActivity("b", "web_search", "started"),
        HostedActivity("b", "web_search", "failed"),
        HostedActivity("c", "web_search", "completed"),
    ]
    assert tool_counts([Message.user("Hi"), Message.assistant(*searches)]) == {"web_search": 3}
    text = _said("configuration.md")
    assert "by the ids of its activities, each counted once" in text
    assert "That only approximates the number of billed requests" in text
    assert "whether a provider bills a search that failed is unknown" in text


def test_the_limits_of_calls_are_told() -> None:
    """The numbers on the page are those that are enforced."""
    text = _said("configuration.md")
    assert f"{MAX_CALL_LENGTH:,} characters in one call and four times as many in one answer" in text
    assert MAX_CALLS_LENGTH == 4 * MAX_CALL_LENGTH


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_a_page(dialect: str) -> None:
    """Each dialect has a page that says what it sends, what it understands, and what goes back."""
    text = _said(f"dialects/{dialect}.md")
    for heading in ("## What is sent", "## What is understood", "## What goes back", "## Where this is from"):
        assert heading in text
