"""An exploration on the terminal: a live tree, or a line for each change where nobody can see a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Protocol

import anyio
from attrs import frozen
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from furcate.cli._forest import Forest, InputView, Key, Node
from furcate.cli._told import one_line, say
from furcate.primitives._usage import Usage

_REFRESH_S = 0.125
_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("", "left"),
    ("state", "left"),
    ("turn", "right"),
    ("in", "right"),
    ("out", "right"),
    ("time", "right"),
    ("", "left"),
)
# Wide enough for what most numbers come to, so that the columns stay where they are while the numbers grow.
_LEAST = (12, 10, 4, 5, 5, 7, 0)
_LEAST_NAME, _LEAST_DETAIL = 12, 10
_QUIET = ("waiting", "queued", "callback")
_STYLES = {
    "generating": "cyan",
    "repairing": "yellow",
    "pausing": "yellow",
    "done": "green",
    "stopped": "green",
    "exhausted": "yellow",
    "failed": "bold red",
    "cancelled": "magenta",
}


def tokens_in(usage: Usage | None) -> str:
    """Show how many tokens were read, those of caches included: ``?`` for unknown, ``+`` for at least."""
    if usage is None:
        return ""
    if usage.input_tokens is None:
        return "?"
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
    count = sum(getattr(usage, name) or 0 for name in names)
    return f"{count:,}{'+' if usage.lower_bounds.intersection(names) else ''}"


def tokens_out(usage: Usage | None) -> str:
    """Show how many tokens were generated, likewise."""
    if usage is None:
        return ""
    if usage.output_tokens is None:
        return "?"
    return f"{usage.output_tokens:,}{'+' if 'output_tokens' in usage.lower_bounds else ''}"


def turns(node: Node) -> str:
    """Show which turn of how many a branch is at; nothing for an opening."""
    return "" if node.turns is None else f"{node.turn}/{node.turns}"


@frozen
class _Cut:
    """Say what of a forest is shown, and how much stands above and below it."""

    shown: tuple[InputView, ...]
    ended: int
    waiting: int


def _cut(forest: Forest, lines: int | None) -> _Cut:
    """Choose what fits: ended inputs go first, then those that wait."""
    views = list(forest.inputs)
    ended = waiting = 0
    if lines is None:
        return _Cut(tuple(views), 0, 0)

    def height() -> int:
        return sum(1 + len(view.branches) for view in views) + bool(ended) + bool(waiting) + 1

    for view in forest.inputs:
        if height() <= lines:
            break
        if view.ended:
            views.remove(view)
            ended += 1
    while len(views) > 1 and height() > lines:
        views.pop()
        waiting += 1
    return _Cut(tuple(views), ended, waiting)


def render(forest: Forest, now_s: float, lines: int | None = None) -> RenderableType:
    """Draw a forest.

    Arguments:
        forest: what to draw.
        now_s: the event loop's clock.
        lines: how many lines there are; None draws all of it.
    """
    return _Drawing(forest, now_s, lines)


@frozen
class _Drawing:
    """Draw a forest into whatever width there is: numbers keep theirs, details give way first, then names."""

    forest: Forest
    now_s: float
    lines: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cut = _cut(self.forest, self.lines)
        rows = []
        for view in cut.shown:
            rows.append(_cells(view.opening, "", self.now_s))
            for number, branch in enumerate(view.branches, start=1):
                rows.append(_cells(branch, "└─ " if number == len(view.branches) else "├─ ", self.now_s))
        if cut.ended:
            yield Text(f"{cut.ended} more inputs have ended", style="dim")
        yield _table(rows, options.max_width)
        if cut.waiting:
            yield Text(f"{cut.waiting} more inputs below", style="dim")


def _table(rows: Sequence[Sequence[Text]], width: int) -> Table:
    natural = [max([least, *(row[place].cell_len for row in rows)]) for place, least in enumerate(_LEAST)]
    # One cell stands after each column.
    left = width - sum(natural[1:-1]) - len(natural)
    detail = max(min(natural[-1], left - natural[0]), min(natural[-1], _LEAST_DETAIL))
    name = max(min(natural[0], left - detail), min(natural[0], _LEAST_NAME))
    detail = max(0, min(detail, left - name))
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
    for (heading, justify), cells in zip(_COLUMNS, (name, *natural[1:-1], detail), strict=True):
        table.add_column(heading, justify=justify, no_wrap=True, width=cells, overflow="ellipsis")
    for row in rows:
        table.add_row(_shortened(row[0], name), *row[1:])
    return table


def _shortened(name: Text, cells: int) -> Text:
    """Take out a name's middle where it is too wide: what tells names apart stands at their ends, as in paths."""
    if name.cell_len <= cells:
        return name
    plain = name.plain
    head, tail = (cells - 1) // 3, ""
    for char in reversed(plain):
        if cell_len(char + tail) > cells - 1 - head:
            break
        tail = char + tail
    beginning = set_cell_size(plain, head) if head > 0 else ""
    return Text(f"{beginning}…{tail}")


def _cells(node: Node, guide: str, now_s: float) -> tuple[Text, ...]:
    seconds = node.seconds(now_s)
    return (
        Text(guide + one_line(node.name)),
        Text(node.state, style=_STYLES.get(node.state, "dim")),
        Text(turns(node)),
        Text(tokens_in(node.usage)),
        Text(tokens_out(node.usage)),
        Text("" if seconds is None else f"{seconds:.1f} s"),
        Text(one_line(node.detail), style="dim"),
    )


def change_line(forest: Forest, key: Key, now_s: float) -> str:
    """Describe where a node stands in one plain line."""
    node = forest.at(key)
    opening = forest.inputs[key.input].opening
    where = f"{opening.name}: opening" if key.branch is None else f"{opening.name} / {node.name}"
    facts: list[str] = [node.state]
    if node.turns is not None:
        facts.append(f"turn {turns(node)}")
    if node.ended:
        facts.append(f"tokens in {tokens_in(node.usage) or '-'}, out {tokens_out(node.usage) or '-'}")
        seconds = node.seconds(now_s)
        facts.append("not begun" if seconds is None else f"{seconds:.1f} s")
    if node.detail:
        facts.append(node.detail)
    return one_line(f"{where}: {', '.join(facts)}")


class Screen(Protocol):
    """Show an exploration to people."""

    def changed(self, forest: Forest, key: Key, now_s: float) -> None:
        """Take the forest after a change at one place."""

    def opened(self) -> AbstractContextManager[object]:
        """Give the block during which it shows."""

    def aside(self) -> AbstractContextManager[object]:
        """Give a block in which others may write to the terminal."""

    async def refresh(self) -> None:
        """Keep what is shown fresh, until cancelled."""


class PlainScreen:
    """Write a line for each change that is worth one."""

    def __init__(self) -> None:
        self._last: dict[Key, str] = {}

    def changed(self, forest: Forest, key: Key, now_s: float) -> None:
        """Write where the node stands, unless that was written last or is only an instant's matter."""
        node = forest.at(key)
        if node.state in _QUIET:
            return
        line = change_line(forest, key, now_s)
        if self._last.get(key) != line:
            self._last[key] = line
            say(line)

    def opened(self) -> AbstractContextManager[object]:
        """Give a block of no effect."""
        return nullcontext()

    def aside(self) -> AbstractContextManager[object]:
        """Give a block of no effect."""
        return nullcontext()

    async def refresh(self) -> None:
        """Wait for cancellation: lines do not age."""
        await anyio.sleep_forever()


class TreeScreen:
    """Keep a tree up to date at the bottom of a terminal; the last one stays.

    Nothing here runs in a thread: the tree is drawn by `refresh` and around what others write.
    """

    def __init__(self, console: Console, forest: Forest) -> None:
        self._console = console
        self._forest = forest
        self._whole = False
        self._live: Live | None = None

    def _draw(self) -> RenderableType:
        lines = None if self._whole else self._console.height - 1
        return render(self._forest, anyio.current_time(), lines)

    def changed(self, forest: Forest, key: Key, now_s: float) -> None:
        """Keep the forest for the next time it is drawn."""
        self._forest = forest

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Show the tree; the whole of it stays on the terminal at the end."""
        self._start()
        try:
            yield
        finally:
            self._whole = True
            self._stop(stays=True)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the tree away for a moment."""
        self._stop(stays=False)
        try:
            yield
        finally:
            self._start()

    async def refresh(self) -> None:
        """Draw the tree several times a second, until cancelled."""
        while True:
            await anyio.sleep(_REFRESH_S)
            if self._live is not None:
                with suppress(OSError, ValueError):  # a terminal that is gone is no reason to stop
                    self._live.refresh()

    def _start(self) -> None:
        # A display that starts again would take what was written meanwhile for its own last picture.
        self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._draw)
        with suppress(OSError, ValueError):
            self._live.start(refresh=True)

    def _stop(self, *, stays: bool) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.transient = not stays
            with suppress(OSError, ValueError):
                live.stop()


def screen_for(console: Console, forest: Forest) -> Screen:
    """Choose what the console can show: a live tree on a terminal, plain lines elsewhere."""
    if console.is_terminal and not console.is_dumb_terminal and console.is_interactive:
        return TreeScreen(console, forest)
    return PlainScreen()
