"""An answer as people read it: its text, the rows of provider-run work in their places, its sources."""

from __future__ import annotations

from typing import assert_never

from furcate.primitives._content import HostedActivity, Media, Reasoning, Refusal, Text, ToolCall, ToolResult
from furcate.primitives._message import Message
from furcate.report._activities import Row, reopened
from furcate.report._clean import clean
from furcate.report._rows import row_text
from furcate.report._sources import cited_in, sources_text

_PLAIN = "\x1b[0m"


def written(message: Message, width: int | None = None) -> str:
    """Write a message for a terminal: texts and refusals, rows where the work began, and the sources of cited text.

    Arguments:
        message: what was said; it stays as it is.
        width: how many cells the terminal has for a row; None for as many as it takes.

    Returns:
        Lines without the end of the last one; empty where the message shows nothing.
    """
    blocks: list[str] = [""]
    for entry in entries(message):
        if isinstance(entry, Row):
            blocks += (row_text(entry, width), "")
        else:
            blocks[-1] += clean(entry.text)
    said = "\n".join(_plain_at_end(text) for block in blocks if (text := block.strip("\n")))
    sources = sources_text(cited_in(message)).rstrip("\n")
    return "\n\n".join(part for part in (said, sources) if part)


def entries(message: Message) -> tuple[Text | Refusal | Row, ...]:
    """Give what is shown of a message, in order: texts, refusals, and each piece of provider-run work once."""
    rows = _rows_by_part(message)
    placed: list[Text | Refusal | Row] = []
    for number, part in enumerate(message.parts):
        match part:
            case Text() | Refusal():
                placed.append(part)
            case HostedActivity():
                placed.extend(rows.get(number, ()))
            case Reasoning() | ToolCall() | ToolResult() | Media():
                pass  # thought, calls to the application and files are for others to show
            case _:
                assert_never(part)
    return tuple(placed)


def _rows_by_part(message: Message) -> dict[int, list[Row]]:
    """Give the rows that stand at each part; one that was told late stands with the row that it comes before."""
    began = {id(part): number for number, part in reversed(list(enumerate(message.parts)))}
    placed: dict[int, list[Row]] = {}
    at = len(message.parts)
    for row in reversed(reopened((message,)).rows):
        at = min(at, began[id(row.first)])
        placed.setdefault(at, []).insert(0, row)
    return placed


def _plain_at_end(text: str) -> str:
    return text + _PLAIN if "\x1b" in text else text
