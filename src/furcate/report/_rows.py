"""How a row of provider-run work is spelled: one line that holds what its provider told, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rich.cells import cell_len, set_cell_size

from furcate.primitives._json import Frozen
from furcate.report._activities import Row, RowState
from furcate.report._clean import clean_line

MARKERS: Mapping[RowState, str] = {"running": "[~]", "completed": "[+]", "failed": "[!]"}

_BETWEEN = " · "
_ELLIPSIS = "…"
# Names of servers' own tools are theirs to choose; a longer one would be a text of its own.
_LONGEST_NAME = 128
# Fewer letters of a query than these tell nobody anything.
_LEAST_DETAIL = 4


def row_text(row: Row, width: int | None = None) -> str:
    """Spell a row: ``[~] web_search · running``, ``[+] web_search · QUERY``, ``[!] web_search · failed``.

    Arguments:
        row: what to spell.
        width: how many cells of a terminal there are; None for as many as it takes. Marker and name are always
            whole, what comes after them is shortened or left out.
    """
    head = f"{MARKERS[row.state]} {_name(row)}"
    said = clean_line(_completed(row)) if row.state == "completed" else row.state
    if not said:
        return head
    room = cell_len(said) if width is None else width - cell_len(head) - cell_len(_BETWEEN)
    if cell_len(said) <= room:
        return f"{head}{_BETWEEN}{said}"
    # The marker tells running from failed by itself, so those words are left out rather than cut.
    if row.state != "completed" or room < _LEAST_DETAIL:
        return head
    return f"{head}{_BETWEEN}{set_cell_size(said, room - 1).rstrip()}{_ELLIPSIS}"


def row_role(row: Row) -> Literal["hosted", "failure"]:
    """Give the role whose colour a row wears: one of its own, or that of all failures."""
    return "failure" if row.state == "failed" else "hosted"


def _name(row: Row) -> str:
    name = clean_line(row.name) or "unnamed"
    return name if cell_len(name) <= _LONGEST_NAME else set_cell_size(name, _LONGEST_NAME - 1).rstrip() + _ELLIPSIS


def _completed(row: Row) -> str:
    """Say what finished work did, from what it was asked; else by the summary that its dialect made."""
    told = row.input
    url = _text(told.get("url"))
    match told.get("type"):
        case "search":
            return "; ".join(_queries(told.get("queries", told.get("query")))) or row.latest.summary
        case "open_page":
            return f"opened {url}".rstrip()
        case "find_in_page":
            return " in ".join(text for text in (_text(told.get("pattern")), url) if text)
        case _:
            return row.latest.summary


def _queries(value: Frozen) -> tuple[str, ...]:
    listed = value if isinstance(value, tuple) else (value,)
    return tuple(text for one in listed if (text := _text(one)))


def _text(value: Frozen) -> str:
    return clean_line(value) if isinstance(value, str) else ""
