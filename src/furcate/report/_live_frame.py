"""Pictures of what goes on: pure, and never larger than the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from attrs import evolve, frozen
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from furcate.report._live_model import LiveModel
from furcate.report._live_nodes import ENDED, SENT, Node, State
from furcate.report._live_table import DIM, Layout, Line, Room, Row, cut, table
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
_ACTIVE: tuple[State, ...] = (*SENT, "pausing", "callback")
_IDLE: tuple[State, ...] = ("queued", "waiting")
_BETWEEN, _INDENT = " · ", "  "
# What is shown stays while it goes on, unless something else has been in its state for so much longer.
_STAYS_S = 5.0


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
    model: LiveModel,
    now_s: float,
    room: Room,
    *,
    named: Named,
    head: Sequence[str] = (),
    last: bool = False,
    layout: Layout | None = None,
) -> tuple[Line, ...]:
    """Draw what goes on: all of it as a tree where there is room, else counts, what failed, and what takes longest.

    Arguments:
        model: what is known.
        now_s: on the clock by which the model was fed.
        room: how much there is.
        named: how things are called.
        head: lines to be drawn before all else, in which two spaces end what is to stand out.
        last: whether this picture is to stay, so that what was only of interest meanwhile is left out.
        layout: that of the picture before, which changes to that of this one; None where there was none.

    Returns:
        No more lines than there is room for, and none wider.
    """
    if room.height is not None and room.height < 1:
        return ()
    layout = layout if layout is not None else Layout()
    if head:
        said = [*islice((line for text in head for line in _said(text, room.width)), room.height)]
        left = None if room.height is None else room.height - len(said)
        below = evolve(room, height=left)
        return (*cut(said, room), *draw(model, now_s, below, named=named, last=last, layout=layout))
    backends = [] if last else [*_backends(model, now_s)]
    free = None if room.height is None else room.height - len(backends)
    more = named.expected is not None and named.expected > sum(model.counts["run"].values())
    if not model.forgotten and not more:
        tree = _tree(model, now_s, room, roots=model.roots.values(), most=free, layout=layout)
        if tree is not None:
            return cut([*backends, *tree], room)
    above = [*_counts(model, now_s, named, last=last), *backends]
    if room.height is None:
        # What stays at the end of thousands is the account of them, not those that happened to end last.
        rows = _listed(model, model.failed.values(), now_s) if model.forgotten else None
        everything = model.roots.values()
        tree = (
            table(rows, room, layout)
            if rows is not None
            else _tree(model, now_s, room, roots=everything, layout=layout)
        )
        return cut([*above, *(tree or ())], room)
    if room.height < 2 * len(above):
        above = above[: max(1, room.height // 2)]
    free = room.height - len(above)
    everything = model.roots.values()
    tree = None
    if not model.forgotten:
        tree = _tree(model, now_s, room, roots=everything, most=free, layout=layout)
    tree = tree or _living(model, now_s, room, most=free, layout=layout)
    return cut([*above, *(tree or table(_chosen(model, now_s, free - 1, layout=layout), room, layout))], room)


def _said(text: str, width: int) -> Iterator[Line]:
    """Give a line of facts, broken between them where it is too wide."""
    head, gap, rest = text.partition("  ")
    if not gap:
        yield ((text, ""),)
        return
    bold, line = head + gap, ""
    for fact in rest.split(_BETWEEN):
        further = line + _BETWEEN + fact if line else fact
        if cell_len(bold) + cell_len(further) > width and (line or bold.strip()):
            yield ((bold, "bold"), (line, ""))
            bold, further = _INDENT, fact
        line = further
    yield ((bold, "bold"), (line, ""))


def _counts(model: LiveModel, now_s: float, named: Named, *, last: bool) -> Iterator[Line]:
    for name, number, counted in totals(model, named):
        pieces: list[tuple[str, str]] = [(f"{number:,} {name}  ", "bold")]
        for place, (count, state) in enumerate(counted):
            if place:
                pieces.append((" · ", DIM))
            pieces.append((f"{count:,} {state}", _STYLES.get(state, "")))
        yield tuple(pieces)
    facts = token_facts(model.tokens)
    if model.began_s is not None:
        since = f"after {age(now_s - model.began_s)}"
        yield ((", ".join(filter(None, (facts, since))), "" if last else DIM),)


def _backends(model: LiveModel, now_s: float) -> Iterator[Line]:
    for view in model.backends.values():
        pieces: list[tuple[str, str]] = [(f"{view.name}  ", "bold")]
        for number, (fact, warns) in enumerate(backend_facts(view, now_s)):
            if number:
                pieces.append((" · ", DIM))
            pieces.append((fact, "yellow" if warns else ""))
        yield tuple(pieces)


# The tree


def _tree(
    model: LiveModel,
    now_s: float,
    room: Room,
    *,
    roots: Iterable[Node],
    layout: Layout,
    most: int | None = None,
    before: Sequence[Row] = (),
    after: Sequence[Row] = (),
) -> list[Line] | None:
    """Draw something and all that is remembered under it; None where that takes more lines than there may be.

    Arguments:
        model: what is known.
        now_s: on its clock.
        room: how much there is.
        roots: what to draw.
        layout: that of the picture before.
        most: how many lines there may be; None for as many as it takes.
        before: rows to be drawn before the tree.
        after: rows to be drawn after it, as far as there is room.
    """
    branch, end, through, blank, _ = room.signs
    rows: list[Row] = [*before]
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
    if most is not None:
        below = below[: max(0, most - len(rows) - 1)]
        after = after[: max(0, most - len(rows) - 1 - len(below))]
    lines = table([*rows, *after], room, layout)
    for place, text in reversed(below):
        lines.insert(place + 1, ((text, "cyan"),))
    return lines


def _living(model: LiveModel, now_s: float, room: Room, *, most: int, layout: Layout) -> list[Line] | None:
    """Draw the trees that still go on, what failed elsewhere before and what ended there after them.

    Returns:
        None where that is too much, or where nothing goes on.
    """
    living: list[Node] = []
    left = most - 1
    # Once folded, trees come back only where some room is left, lest pictures of two kinds take turns.
    spare = left // 4 if layout.folded else 0
    for root in model.roots.values():
        if root.settled:
            continue
        living.append(root)
        left -= 1 + len(root.children)
        if left < spare:
            layout.folded = True
            return None
    if not living:
        return None
    layout.folded = False
    elsewhere = (node for node in reversed(model.failed.values()) if node.root.settled)
    failed = _listed(model, islice(elsewhere, min(left, most // 3)), now_s)
    ended: list[Row] = []
    if not model.forgotten:
        ended = _listed(
            model, islice((node for node in model.recent() if node.root.settled), left - len(failed)), now_s
        )
    return _tree(model, now_s, room, roots=living, most=most, before=failed, after=ended, layout=layout)


def _forgotten(node: Node) -> str:
    return f"{node.forgotten:,} more ended" if node.forgotten else ""


# What is chosen of many


def _chosen(model: LiveModel, now_s: float, most: int, *, layout: Layout) -> list[Row]:
    """Choose what is shown of many: how far openings are, what failed last, what takes longest, then what waits.

    Where those leave room, what else has ended is shown too.
    """
    if most <= 0:
        return []
    parents = list(dict.fromkeys(islice(model.nurseries.values(), 4 * most)))
    if len(parents) < 2:
        parents = []
    failed = [*islice(reversed(model.failed.values()), most)]
    failed, failed_too = failed[: most // 3], failed[most // 3 :]
    room_for_parents = (most - len(failed)) // 2
    parents, parents_too = _preferred(parents, "parents", layout)[:room_for_parents], parents[room_for_parents:]
    left = most - len(failed) - len(parents)
    taken = {node.id for node in (*parents, *failed)}
    active = [node for node in _longest(model, most, layout=layout) if node.id not in taken][:left]
    taken.update(node.id for node in active)
    rest: dict[str, Node] = {}
    idle = (node for state in _IDLE for node in islice(model.living.get(state, {}).values(), most))
    # Where so many end, rows of them would change faster than anybody reads.
    recent = model.recent() if not model.forgotten else ()
    for node in chain(idle, failed_too, parents_too, recent):
        if len(rest) >= left - len(active):
            break
        if node.id not in taken:
            rest[node.id] = node
    waiting = [node for node in rest.values() if not node.ended]
    ended = [node for node in rest.values() if node.ended]
    return [
        *(_row(node, now_s, node.path, said=_inside(node)) for node in layout.placed("parents", parents)),
        *_listed(model, failed, now_s),
        *_listed(model, layout.placed("active", active), now_s),
        *_listed(model, layout.placed("waiting", waiting), now_s),
        *_listed(model, ended, now_s),
    ]


def _preferred(nodes: Sequence[Node], kind: str, layout: Layout) -> list[Node]:
    """Give what was shown before what was not."""
    before = layout.places.get(kind, ())
    return sorted(nodes, key=lambda node: node.id not in before)


def _longest(model: LiveModel, most: int, *, layout: Layout) -> list[Node]:
    """Give what is under way, what has been in its state for longest first."""
    found: dict[str, Node] = {}
    for state in _ACTIVE:
        found |= islice(model.living.get(state, {}).items(), most)
    # Between two turns it queues for a moment; its row stays meanwhile.
    before = dict.fromkeys(layout.places.get("active", ()))
    for state in (*_ACTIVE, "queued"):
        living = model.living.get(state, {})
        found |= ((ident, living[ident]) for ident in before if ident in living)
    return sorted(found.values(), key=lambda node: node.since_s - (_STAYS_S if node.id in before else 0.0))[:most]


def _listed(model: LiveModel, nodes: Iterable[Node], now_s: float) -> list[Row]:
    # Where everything stands under one thing, its name says nothing.
    short = len(model.roots) == 1
    return [_row(node, now_s, node.path_below if short else node.path, said=detail(node, now_s)) for node in nodes]


def _inside(node: Node) -> str:
    """Count what stands under something whose branches are not all shown."""
    ended = sum(node.states[state] for state in ENDED)
    failed = node.states["failed"]
    going = sum(node.states[state] for state in _ACTIVE)
    facts = (
        f"{ended:,}/{node.states.total():,} ended",
        f"{failed:,} failed" if failed else "",
        f"{going:,} active" if going else "",
    )
    return ", ".join(filter(None, facts))


# Rows


def _row(node: Node, now_s: float, name: str, *, keep: int = 0, said: str = "") -> Row:
    seconds = node.seconds(now_s)
    return Row(
        name,
        keep,
        (
            (node.state, _STYLES.get(node.state, DIM)),
            ("" if node.ended or node.state == "open" else age(now_s - node.since_s), DIM),
            (turns(node), ""),
            (tokens_in(node.tokens), ""),
            (tokens_out(node.tokens), ""),
            (cache_share(node.tokens), ""),
            ("" if seconds is None else age(seconds, ended=node.ended), ""),
            (said, DIM),
        ),
    )
