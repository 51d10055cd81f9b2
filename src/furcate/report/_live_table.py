"""Rows of a live view, laid out in columns that keep their places from picture to picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import define, field, frozen
from rich.cells import cell_len, set_cell_size

from furcate.report._live_nodes import Node

Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of a line, each with its style."""

DIM = "dim"
_HEADINGS = ("state", "for", "turn", "in", "out", "cache", "age")
_RIGHT = (False, True, True, True, True, True, True)
# Wide enough for what most numbers come to, so that the columns stay where they are while the numbers grow.
_LEAST = (10, 5, 4, 6, 5, 5, 6)
# What goes first where the terminal is narrow, by the number of its column.
_GIVEN_UP = (5, 1, 4, 3, 2, 6)
_LEAST_NAME, _LEAST_DETAIL, _LEAST_BOTH, _MOST_BOTH = 12, 10, 30, 38
_TREE, _ASCII = ("├─ ", "└─ ", "│  ", "   ", "…"), ("|- ", "`- ", "|  ", "   ", "~")
_JOINER = "\N{ZERO WIDTH JOINER}"


@frozen(kw_only=True)
class Room:
    """Say how much may be drawn, and with what.

    Attributes:
        width: cells in a line.
        height: lines; None for as many as it takes.
        ascii: whether to do without other characters in what is ours.
    """

    width: int
    height: int | None
    ascii: bool = False

    @property
    def signs(self) -> tuple[str, str, str, str, str]:
        """What a tree is drawn with, and what stands for text that was cut off."""
        return _ASCII if self.ascii else _TREE


@frozen
class Row:
    """Hold a row before it is laid out.

    Attributes:
        name: what stands first, with what the tree is drawn with before it.
        keep: cells at its beginning that stay even where it is shortened.
        cells: the other columns, each with its style.
    """

    name: str
    keep: int
    cells: Line


@define(eq=False)
class Layout:
    """Remember how the last picture was laid out, so that the next one looks alike.

    Attributes:
        name: cells of the widest name so far.
        said: cells of the longest detail so far.
        widths: cells of the columns between them; like those two they only grow.
        folded: whether not all that goes on did fit.
        places: ids of the rows of each kind, in their order.
    """

    name: int = _LEAST_NAME
    said: int = 0
    widths: list[int] = field(factory=lambda: list(_LEAST))
    folded: bool = False
    places: dict[str, list[str]] = field(factory=dict)

    def placed(self, kind: str, nodes: Sequence[Node]) -> list[Node]:
        """Give those in an order in which whatever was there before keeps its place; others fill the gaps."""
        coming = {node.id: node for node in nodes}
        stay = [coming.pop(ident, None) for ident in self.places.get(kind, ())[: len(nodes)]]
        stay += [None] * (len(nodes) - len(stay))
        new = iter(coming.values())
        found = [node if node is not None else next(new) for node in stay]
        self.places[kind] = [node.id for node in found]
        return found

    def grow(self, rows: Sequence[Row]) -> None:
        """Take what rows need."""
        self.name = max(self.name, *(cell_len(row.name) for row in rows))
        self.said = max(self.said, *(cell_len(row.cells[-1][0]) for row in rows))
        for at, width in enumerate(self.widths):
            self.widths[at] = max(width, *(cell_len(row.cells[at][0]) for row in rows))


def table(rows: Sequence[Row], room: Room, layout: Layout) -> list[Line]:
    """Lay rows out: numbers keep their width, names and details share the rest, narrow terminals have fewer columns."""
    if not rows:
        return []
    layout.grow(rows)
    widths = layout.widths
    both = min(max(layout.name + 1 + layout.said, _LEAST_BOTH), _MOST_BOTH, 3 * room.width // 5)
    columns = list(range(len(widths)))
    for column in _GIVEN_UP:
        if room.width - sum(widths[at] + 1 for at in columns) >= both:
            break
        columns.remove(column)
    left = room.width - sum(widths[at] + 1 for at in columns)
    # Long names leave half of the room to details: both tell what something is, neither pushes the other out.
    said = max(min(layout.said, left - layout.name - 1), min(layout.said, max(_LEAST_DETAIL, (left + 1) // 2)))
    name = max(0, min(layout.name, max(left - said - 1, _LEAST_NAME), left - 1))
    said = max(0, left - name - 1)
    more = room.signs[-1]
    heading = "".join(_sized(_HEADINGS[at], widths[at], right=_RIGHT[at]) + " " for at in columns)
    lines: list[Line] = [((f"{'':{name + 1}}{heading}".rstrip(), DIM),)]
    for row in rows:
        shown = set_cell_size(_shortened(row.name, name, keep=row.keep, more=more), name)
        pieces = [(f"{shown} ", "")]
        for at in columns:
            text, style = row.cells[at]
            pieces.append((_sized(text, widths[at], right=_RIGHT[at]) + " ", style))
        text, style = row.cells[-1]
        pieces.append((text if cell_len(text) <= said else _ended(text, said, more), style))
        lines.append(tuple(pieces))
    return lines


def _sized(text: str, cells: int, *, right: bool) -> str:
    return text.rjust(cells) if right else text.ljust(cells)


def _ended(text: str, cells: int, more: str) -> str:
    return set_cell_size(text, cells - 1) + more if cells > 0 else ""


def _shortened(name: str, cells: int, *, keep: int, more: str) -> str:
    """Take out a name's middle where it is too wide: what tells names apart stands at their ends, as in paths."""
    if cell_len(name) <= cells:
        return name
    if cells <= 1:
        return more[:cells]
    head = min(cells - 2, max(keep, (cells - 1) // 3)) if cells > 2 else 0
    tail = ""
    for char in reversed(name):
        if cell_len(char + tail) > cells - 1 - head:
            break
        tail = char + tail
    return f"{set_cell_size(name, head)}{more}{tail}"


def cut(lines: Sequence[Line], room: Room) -> tuple[Line, ...]:
    """Cut a picture to the terminal's size."""
    return tuple(_narrowed(line, room) for line in lines[: room.height])


def _narrowed(line: Line, room: Room) -> Line:
    """Cut a line to the terminal's width."""
    left = room.width
    pieces = []
    for text, style in line:
        cells = _most_cells(text)
        if cells > left:
            shorter = (_ended(text, cells, room.signs[-1]) for cells in range(left, 0, -1))
            pieces.append((next((text for text in shorter if _most_cells(text) <= left), ""), style))
            break
        pieces.append((text, style))
        left -= cells
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    return tuple(pieces)


def _most_cells(text: str) -> int:
    """Measure text as terminals do that show joined emoji one after the other: no line may wrap there either."""
    return sum(map(cell_len, text.split(_JOINER))) if _JOINER in text else cell_len(text)
