"""Tests of the one table of provider-run tools."""

from __future__ import annotations

import pytest

from furcate.dialects._server_tools import CAPABILITIES, Spelling, spelled, spelling
from furcate.primitives._json import FrozenMap, thaw_object

DIALECTS = ("openai-responses", "openai-chat", "anthropic-messages", "google-generatecontent")


def _tool(found: Spelling | None) -> object:
    assert found is not None
    assert found.tool is not None
    return thaw_object(found.tool)


@pytest.mark.req("S1-14")
def test_responses_lists_the_search_as_a_tool() -> None:
    """Responses asks for the search with an entry of its type."""
    assert _tool(spelling("openai-responses", "web_search")) == {"type": "web_search"}


@pytest.mark.req("S1-15")
def test_messages_lists_the_search_as_a_tool() -> None:
    """Messages asks for the search with a dated type and a name."""
    expected = {"type": "web_search_20250305", "name": "web_search"}
    assert _tool(spelling("anthropic-messages", "web_search")) == expected


@pytest.mark.req("S1-16")
def test_chat_sets_a_member_for_the_search() -> None:
    """Chat Completions asks for the search with a top-level member and no tool entry."""
    found = spelling("openai-chat", "web_search")
    assert found == Spelling(member=("web_search_options", FrozenMap()))


@pytest.mark.req("S1-17")
def test_google_lists_the_search_as_a_tool() -> None:
    """GenerateContent asks for the search with an entry of its name."""
    assert _tool(spelling("google-generatecontent", "web_search")) == {"google_search": {}}


@pytest.mark.req("S1-17")
def test_a_name_without_a_spelling_is_never_silent() -> None:
    """An encoder that is handed a capability it cannot spell breaks off and names both."""
    with pytest.raises(AssertionError, match=r"'web_fetch'.*openai-chat"):
        spelled("openai-chat", ("web_search", "web_fetch"))


@pytest.mark.req("S1-18")
def test_spellings_keep_the_declared_order() -> None:
    """Spellings come in the order in which the capabilities were declared."""
    found = spelled("google-generatecontent", ("code_execution", "web_search"))
    assert [_tool(one) for one in found] == [{"code_execution": {}}, {"google_search": {}}]


@pytest.mark.req("S1-01", "S1-06")
def test_the_table_has_cells_and_gaps() -> None:
    """Every capability is spelled by some dialect, and a gap reads as None."""
    cells = {name: tuple(d for d in DIALECTS if spelling(d, name) is not None) for name in CAPABILITIES}
    assert cells == {
        "web_search": DIALECTS,
        "code_execution": ("openai-responses", "anthropic-messages", "google-generatecontent"),
        "web_fetch": ("anthropic-messages", "google-generatecontent"),
    }
    assert spelling("openai-responses", "telepathy") is None
    assert spelling("telepathy", "web_search") is None


def test_a_spelling_is_either_a_tool_or_a_member() -> None:
    """No cell is both, and none is neither."""
    for name in CAPABILITIES:
        for dialect in DIALECTS:
            found = spelling(dialect, name)
            assert found is None or (found.tool is None) != (found.member is None)


def test_only_messages_needs_a_beta_header() -> None:
    """The beta value belongs to the one dialect that has such a header."""
    betas = {d: [s.beta for n in CAPABILITIES if (s := spelling(d, n)) is not None] for d in DIALECTS}
    assert all(beta is None for d, found in betas.items() for beta in found if d != "anthropic-messages")
    assert betas["anthropic-messages"] == [None, "code-execution-2025-08-25", "web-fetch-2025-09-10"]
