"""Pictures of what goes on: pure, and never larger than the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from attrs import evolve, frozen
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from furcate.report._live_model import LiveModel
from furcate.report._live_nodes import ENDED, SENT, Node, State
from furcate.report._live_words import (
    Named,
    age,
    backend_facts,
    cache_share,
    detail,
    hosted,
    token_facts,
    tokens_in,
    tokens_out,
    totals,
    turns,
)

Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of a line, each with its style."""

_HEADINGS = ("state", "for", "turn", "in", "out", "cache", "age")
_RIGHT = (False, True, True, True, True, True, True)
# Wide enough for what most numbers come to, so that the columns stay where they are while the numbers grow.
_LEAST = (10, 5, 4, 6, 5, 5, 6, 0)
# What goes first where the terminal is narrow, by the number of its column.
_GIVEN_UP = (5, 1, 4, 3, 2, 6)
_LEAST_NAME, _LEAST_DETAIL, _LEAST_BOTH = 12, 10, 30
_TREE, _ASCII = ("├─ ", "└─ ", "│  ", "   ", "…"), ("|- ", "`- ", "|  ", "   ", "~")
_DIM = "dim"
_STYLES: dict[str, str] = {
    "generating": "cyan",
    "repairing": "yellow",
    "resuming": "cyan",
    "pausing": "yellow",
    "done": "green",
    "stopped": "green",
    "exhausted": "yellow",
    "failed": "bold red",
    "cancelled": "magenta",
}
# What is shown of many, longest first; a callback is the application's own and may hang as well.
_SLOW_S = 1.0
_SLOW: tuple[State, ...] = (*SENT, "pausing", "callback")


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
class Picture:
    """Show lines on a console, each cut to its width."""

    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            for text, style in line:
                yield Segment(text, _style(style))
            yield Segment.line()


_PARSED: dict[str, Style] = {}


def _style(name: str) -> Style | None:
    if not name:
        return None
    found = _PARSED.get(name)
    if found is None:
        found = _PARSED[name] = Style.parse(name)
    return found


def draw(
    model: LiveModel, now_s: float, room: Room, *, named: Named, head: Sequence[str] = (), last: bool = False
) -> tuple[Line, ...]:
    """Draw what goes on: all of it as a tree where there is room, else counts, what failed, and what takes longest.

    Arguments:
        model: what is known.
        now_s: on the clock by which the model was fed.
        room: how much there is.
        named: how things are called.
        head: lines to be drawn before all else, in which two spaces end what is to stand out.
        last: whether this picture is to stay, so that what was only of interest meanwhile is left out.

    Returns:
        No more lines than there is room for, and none wider.
    """
    if room.height is not None and room.height < 1:
        return ()
    if head:
        said = [_said(text) for text in head[: room.height]]
        left = None if room.height is None else room.height - len(said)
        below = evolve(room, height=left)
        return (*_cut(said, room), *draw(model, now_s, below, named=named, last=last))
    backends = [] if last else [*_backends(model, now_s)]
    free = None if room.height is None else room.height - len(backends)
    more = named.expected is not None and named.expected > sum(model.counts["run"].values())
    if not model.forgotten and not more:
        tree = _tree(model, now_s, room, roots=model.roots.values(), most=free)
        if tree is not None:
            return _cut([*backends, *tree], room)
    above = [*_counts(model, now_s, named, last=last), *backends]
    if room.height is None:
        # What stays at the end of thousands is the account of them, not those that happened to end last.
        rows = _listed(model, model.failed.values(), now_s) if model.forgotten else None
        tree = _table(rows, room) if rows is not None else _tree(model, now_s, room, roots=model.roots.values())
        return _cut([*above, *(tree or ())], room)
    if room.height < 2 * len(above):
        above = above[: max(1, room.height // 2)]
    free = room.height - len(above)
    tree = _tree(model, now_s, room, roots=model.roots.values(), most=free) if not model.forgotten else None
    tree = tree or _living(model, now_s, room, most=free)
    return _cut([*above, *(tree or _table(_chosen(model, now_s, free - 1), room))], room)


def _said(text: str) -> Line:
    head, gap, rest = text.partition("  ")
    return ((head + gap, "bold"), (rest, "")) if gap else ((text, ""),)


def _counts(model: LiveModel, now_s: float, named: Named, *, last: bool) -> Iterator[Line]:
    for name, number, counted in totals(model, named):
        pieces: list[tuple[str, str]] = [(f"{number:,} {name}  ", "bold")]
        for place, (count, state) in enumerate(counted):
            if place:
                pieces.append((" · ", _DIM))
            pieces.append((f"{count:,} {state}", _STYLES.get(state, "")))
        yield tuple(pieces)
    facts = token_facts(model.tokens)
    if model.began_s is not None:
        since = f"after {age(now_s - model.began_s)}"
        yield ((", ".join(filter(None, (facts, since))), "" if last else _DIM),)


def _backends(model: LiveModel, now_s: float) -> Iterator[Line]:
    for view in model.backends.values():
        pieces: list[tuple[str, str]] = [(f"{view.name}  ", "bold")]
        for number, (fact, warns) in enumerate(backend_facts(view, now_s)):
            if number:
                pieces.append((" · ", _DIM))
            pieces.append((fact, "yellow" if warns else ""))
        yield tuple(pieces)


# The tree


def _tree(
    model: LiveModel,
    now_s: float,
    room: Room,
    *,
    roots: Iterable[Node],
    most: int | None = None,
    before: Sequence[_Row] = (),
) -> list[Line] | None:
    """Draw something and all that is remembered under it; None where that takes more lines than there may be.

    Arguments:
        model: what is known.
        now_s: on its clock.
        room: how much there is.
        roots: what to draw.
        most: how many lines there may be; None for as many as it takes.
        before: rows to be drawn before the tree.
    """
    branch, end, through, blank, _ = room.signs
    rows: list[_Row] = [*before]
    below: list[tuple[int, str]] = []
    stems: list[str] = []
    for node, depth, final in model.walk(roots):
        if most is not None and len(rows) + 1 >= most:
            return None
        del stems[max(0, depth - 1) :]
        guide = "".join(stems) + ((end if final else branch) if depth else "")
        said = ", ".join(filter(None, (detail(node, now_s, rows=False), _forgotten(node))))
        rows.append(_row(node, now_s, guide + node.name, keep=cell_len(guide), said=said))
        if depth:
            stems.append(blank if final else through)
        stem = "".join(stems) + (through if node.children else blank)
        below += ((len(rows), stem + text) for text in hosted(node, max(1, room.width - cell_len(stem))))
    lines = _table(rows, room)
    if most is not None:
        below = below[: max(0, most - len(lines))]
    for place, text in reversed(below):
        lines.insert(place + 1, ((text, "cyan"),))
    return lines


def _living(model: LiveModel, now_s: float, room: Room, *, most: int) -> list[Line] | None:
    """Draw the trees that still go on, and what failed elsewhere before; None where that is too much or nothing."""
    living: list[Node] = []
    left = most - 1
    for root in model.roots.values():
        if root.settled:
            continue
        living.append(root)
        left -= 1 + len(root.children)
        if left < 0:
            return None
    if not living:
        return None
    elsewhere = (node for node in reversed(model.failed.values()) if node.root.settled)
    failed = _listed(model, islice(elsewhere, min(left, most // 3)), now_s)
    return _tree(model, now_s, room, roots=living, most=most, before=failed)


def _forgotten(node: Node) -> str:
    return f"{node.forgotten:,} more ended" if node.forgotten else ""


# What is chosen of many


def _chosen(model: LiveModel, now_s: float, most: int) -> list[_Row]:
    """Choose what is shown of many: what failed last, then what takes longest, then what ended last."""
    if most <= 0:
        return []
    parents = list(dict.fromkeys(islice(model.nurseries.values(), most // 4))) if len(model.nurseries) > 1 else []
    most -= len(parents)
    slow = _slowest(model, now_s, most)
    failed = list(islice(reversed(model.failed.values()), min(most, max(most // 3, most - len(slow)))))
    chosen = [*failed, *slow[: most - len(failed)]]
    if not model.forgotten:  # where so many end, rows of them would change faster than anybody reads
        chosen += islice(model.recent(), most - len(chosen))
    return [
        *(_row(node, now_s, node.path, said=_inside(node)) for node in parents),
        *_listed(model, chosen, now_s),
    ]


def _slowest(model: LiveModel, now_s: float, most: int) -> list[Node]:
    found: list[Node] = []
    for state in _SLOW:
        found += islice(model.living.get(state, {}).values(), most)
    found = [node for node in found if now_s - node.since_s >= _SLOW_S]
    found.sort(key=lambda node: node.since_s)
    return found[:most]


def _listed(model: LiveModel, nodes: Iterable[Node], now_s: float) -> list[_Row]:
    # Where everything stands under one thing, its name says nothing.
    short = len(model.roots) == 1
    return [_row(node, now_s, node.path_below if short else node.path, said=detail(node, now_s)) for node in nodes]


def _inside(node: Node) -> str:
    """Count what stands under something whose branches are not all shown."""
    ended = sum(node.states[state] for state in ENDED)
    failed = node.states["failed"]
    going = sum(node.states[state] for state in _SLOW)
    facts = (
        f"{ended:,}/{node.states.total():,} ended",
        f"{failed:,} failed" if failed else "",
        f"{going:,} active" if going else "",
    )
    return ", ".join(filter(None, facts))


# Rows


@frozen
class _Row:
    """Hold a row before it is laid out.

    Attributes:
        name: what stands first, with what the tree is drawn with before it.
        keep: cells at its beginning that stay even where it is shortened.
        cells: the other columns, each with its style.
    """

    name: str
    keep: int
    cells: Line


def _row(node: Node, now_s: float, name: str, *, keep: int = 0, said: str = "") -> _Row:
    seconds = node.seconds(now_s)
    return _Row(
        name,
        keep,
        (
            (node.state, _STYLES.get(node.state, _DIM)),
            ("" if node.ended or node.state == "open" else age(now_s - node.since_s), _DIM),
            (turns(node), ""),
            (tokens_in(node.tokens), ""),
            (tokens_out(node.tokens), ""),
            (cache_share(node.tokens), ""),
            ("" if seconds is None else age(seconds, ended=node.ended), ""),
            (said, _DIM),
        ),
    )


def _table(rows: Sequence[_Row], room: Room) -> list[Line]:
    """Lay rows out: numbers keep their width, details give way first, then names, and on narrow terminals columns."""
    if not rows:
        return []
    widths = [max(least, *(cell_len(row.cells[at][0]) for row in rows)) for at, least in enumerate(_LEAST)]
    columns = list(range(len(_LEAST) - 1))
    for column in _GIVEN_UP:
        if room.width - sum(widths[at] + 1 for at in columns) >= min(_LEAST_BOTH, room.width // 2):
            break
        columns.remove(column)
    left = room.width - sum(widths[at] + 1 for at in columns)
    longest = max(_LEAST_NAME, *(cell_len(row.name) for row in rows))
    said = max(min(widths[-1], left - longest - 1), min(widths[-1], _LEAST_DETAIL))
    name = max(0, min(longest, max(left - said - 1, _LEAST_NAME), left - 1))
    said = max(0, left - name - 1)
    more = room.signs[-1]
    heading = "".join(_sized(_HEADINGS[at], widths[at], right=_RIGHT[at]) + " " for at in columns)
    lines: list[Line] = [((f"{'':{name + 1}}{heading}".rstrip(), _DIM),)]
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


def _cut(lines: Sequence[Line], room: Room) -> tuple[Line, ...]:
    """Cut a picture to the terminal's size."""
    return tuple(_narrowed(line, room) for line in lines[: room.height])


def _narrowed(line: Line, room: Room) -> Line:
    """Cut a line to the terminal's width."""
    left = room.width
    pieces = []
    for text, style in line:
        cells = cell_len(text)
        if cells > left:
            if left > 0:
                pieces.append((_ended(text, left, room.signs[-1]), style))
            break
        pieces.append((text, style))
        left -= cells
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    return tuple(pieces)
