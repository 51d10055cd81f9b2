"""How rows are spelled."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from furcate.primitives._content import HostedActivity
from furcate.report import Activities, Row, row_role, row_text


def row(state: str, told: dict | None = None, *, name: str = "web_search", summary: str = "") -> Row:
    activity = HostedActivity("x", name, state, input=told or {}, summary=summary)
    return Activities().after(activity).rows[0]


@pytest.mark.req("S1-55")
def test_running_rows() -> None:
    """A running row says so, whatever is being asked."""
    assert row_text(row("started")) == "[~] web_search · running"
    assert row_text(row("started", {"type": "search", "queries": ["tides"]})) == "[~] web_search · running"


@pytest.mark.req("S1-56")
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"type": "search", "queries": ["tide tables"]}, " · tide tables"),
        ({"type": "search", "queries": ["tides", "moon"]}, " · tides; moon"),
        ({"type": "search", "queries": []}, ""),
        ({"type": "search", "queries": ["", " "]}, ""),
        ({"type": "open_page", "url": "https://a.example/b"}, " · opened https://a.example/b"),
        ({"type": "open_page", "url": ""}, " · opened"),
        ({"type": "open_page", "url": None}, " · opened"),
        (
            {"type": "find_in_page", "pattern": "high water", "url": "https://a.example"},
            " · high water in https://a.example",
        ),
        ({"type": "find_in_page", "pattern": "high water", "url": ""}, " · high water"),
        ({}, ""),
    ],
)
def test_completed_rows(told: dict, said: str) -> None:
    """A completed row tells the query, the page that was opened, or what was looked for in it; else the name alone."""
    assert row_text(row("completed", told)) == f"[+] web_search{said}"


def test_work_of_other_kinds_tells_its_summary() -> None:
    """Where the input has no form that rows know, the summary stands in the row."""
    assert row_text(row("completed", {"code": "1 + 1"}, name="code_execution")) == "[+] code_execution"
    assert row_text(row("completed", name="mcp_call", summary="lookup on shelf")) == "[+] mcp_call · lookup on shelf"


@pytest.mark.req("S1-57")
def test_failed_rows() -> None:
    """A failed row says that alone, be it told by the provider or given up here."""
    assert row_text(row("failed", {"type": "search", "queries": ["tides"]})) == "[!] web_search · failed"
    view = Activities().after(HostedActivity("x", "web_search", "started")).step_ended()
    assert row_text(view.rows[0]) == "[!] web_search · failed"


@pytest.mark.req("S1-58")
def test_roles() -> None:
    """Running and completed rows have a role of their own, failed ones that of failures."""
    assert [row_role(row(state)) for state in ("started", "completed", "failed")] == ["hosted", "hosted", "failure"]


@pytest.mark.req("S1-59")
def test_rows_claim_what_was_told_and_no_more() -> None:
    """Every word of a row but its state and its joints comes from the facts that it gives as data."""
    looked = row("completed", {"type": "find_in_page", "pattern": "high water", "url": "https://a.example/b"})
    facts = looked.described()
    assert row_text(looked) == f"[+] {facts['name']} · {facts['input']['pattern']} in {facts['input']['url']}"
    assert row_text(row("completed")) == f"[+] {row('completed').described()['name']}"


@pytest.mark.req("S1-60")
@pytest.mark.parametrize("state", ["started", "completed", "failed"])
@pytest.mark.parametrize(
    ("width", "said"),
    [
        (16, {"started": "", "completed": "", "failed": ""}),
        (40, {"started": " · running", "completed": " · tide tables of the Nor…", "failed": " · failed"}),
        (100, {"started": " · running", "completed": " · tide tables of the North Sea", "failed": " · failed"}),
    ],
)
def test_three_widths(width: int, said: dict[str, str], state: str) -> None:
    """Marker and name are whole at every width, and the line fits."""
    marker = {"started": "[~]", "completed": "[+]", "failed": "[!]"}[state]
    text = row_text(row(state, {"type": "search", "queries": ["tide tables of the North Sea"]}), width)
    assert text == f"{marker} web_search{said[state]}"
    assert cell_len(text) <= width


def test_wide_letters_are_measured_in_cells() -> None:
    """A query in wide letters is shortened to the cells that there are."""
    text = row_text(row("completed", {"type": "search", "queries": ["潮汐表" * 9]}), 30)
    assert cell_len(text) <= 30
    assert text.endswith("…")


def test_rows_are_one_harmless_line() -> None:
    """Neither a name nor a query can move a cursor, begin a line or turn the reading direction."""
    query = "tides\x1b[2J\r\n[+] web_search · \u202eforged\x1b]0;title\x07 \x1b[31mred"
    assert row_text(row("completed", {"type": "search", "queries": [query]}, name="web\x1b[1m\nsearch")) == (
        "[+] web search · tides [+] web_search · forged red"
    )
    assert row_text(row("started", name="")) == "[~] unnamed · running"
    assert len(row_text(row("started", name="n" * 5000))) < 150
