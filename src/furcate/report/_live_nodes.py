"""What a live view knows of one thing that goes on: a run, a branch, a nursery, a backend."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from attrs import define, field

from furcate.primitives._printable import printable
from furcate.primitives._usage import Usage
from furcate.report._activities import Activities
from furcate.report._clean import clean_line

Kind: TypeAlias = Literal["run", "branch", "nursery"]
State: TypeAlias = Literal[
    "waiting",
    "queued",
    "generating",
    "repairing",
    "resuming",
    "pausing",
    "callback",
    "open",
    "done",
    "stopped",
    "exhausted",
    "failed",
    "cancelled",
]

ENDED: frozenset[State] = frozenset({"done", "stopped", "exhausted", "failed", "cancelled"})
"""The states that nothing follows."""

SENT: tuple[State, ...] = ("generating", "repairing", "resuming")
"""The states in which a request is out."""

ORDER: tuple[State, ...] = (
    "failed",
    "cancelled",
    "done",
    "stopped",
    "exhausted",
    *SENT,
    "pausing",
    "callback",
    "queued",
    "waiting",
)
"""The states in the order in which they are counted for people."""

_LONGEST_TEXT = 400


def shown(text: str) -> str:
    """Make one printable line of a text, whoever wrote it, and no long one."""
    line = printable(clean_line(text[: 4 * _LONGEST_TEXT]))
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


@define(eq=False)
class Tokens:
    """Add up what is shown of usages: a cheaper sum than that of the account, which keeps every count apart.

    Attributes:
        read: input tokens, those of caches included; None before anybody reported any.
        cached: how many of them were read from a cache; None before anybody reported any.
        made: output tokens; None likewise.
        read_short: whether `read` may be too small, since some answer did not report or broke off.
        made_short: whether `made` may be.
    """

    read: int | None = None
    cached: int | None = None
    made: int | None = None
    read_short: bool = False
    made_short: bool = False

    def add(self, usage: Usage) -> None:
        """Take the usage of another run."""
        plain, cached, written, made = (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.output_tokens,
        )
        if plain is None:
            self.read_short = True
        else:
            self.read = (self.read or 0) + plain + (cached or 0) + (written or 0)
            if cached is not None:
                self.cached = (self.cached or 0) + cached
        if made is None:
            self.made_short = True
        else:
            self.made = (self.made or 0) + made
        if usage.lower_bounds:
            self.read_short = self.read_short or not usage.lower_bounds.isdisjoint(_READ)
            self.made_short = self.made_short or "output_tokens" in usage.lower_bounds

    @property
    def cache_share(self) -> float | None:
        """The part of the input that came from a cache, from 0 to 1; None where that is not known."""
        return self.cached / self.read if self.cached is not None and self.read else None


_READ = ("input_tokens", "cache_read_tokens", "cache_write_tokens")


@define(eq=False)
class Node:
    """Hold what is known of a run, a branch or a nursery.

    Attributes:
        id: the run's id, or the scope's.
        name: what people call it, safe to show.
        parent: what it stands under, if anything.
        state: what it does.
        began_s: when it was first heard of, on the clock of whoever feeds the view.
        since_s: when it came into its state.
        ended_s: when it ended.
        named: whether its name was given to it, and is not only made of its id.
        turns: a branch's budget; None for all else.
        turn: how many turns it has begun.
        tokens: the sum over its ended runs; None before the first.
        attempt: the number of the attempt that is out.
        begun: whether its application let it begin before it ended.
        again_s: when it tries again, from a pause to the attempt after it.
        problem: what went wrong with its latest run.
        note: what its application says of it; shown in place of the problem.
        run_id: the run that it is at, or was at last.
        activities: the work that its provider runs in the attempt that is out.
        children: what stands under it and is still remembered.
        open: how much of what stands under it has not ended.
        states: how many branches under it are in which state, those forgotten included.
        forgotten: how many of them are not remembered one by one any more.
    """

    id: str
    kind: Kind
    name: str
    parent: Node | None
    state: State
    began_s: float
    since_s: float
    ended_s: float | None = None
    named: bool = True
    turns: int | None = None
    turn: int = 0
    tokens: Tokens | None = None
    attempt: int = 0
    begun: bool = True
    again_s: float | None = None
    problem: str = ""
    note: str = ""
    run_id: str | None = None
    activities: Activities | None = None
    children: dict[str, Node] = field(factory=dict)
    open: int = 0
    states: Counter[State] = field(factory=Counter)
    forgotten: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of itself; what stands under it may go on."""
        return self.state in ENDED

    @property
    def settled(self) -> bool:
        """Whether nothing more comes of it nor of what stands under it."""
        return self.ended and not self.open

    @property
    def root(self) -> Node:
        """What it stands under, at the very top; itself where it stands under nothing."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def path(self) -> str:
        """Its name after those of what it stands under."""
        return self.name if self.parent is None else f"{self.parent.path} / {self.name}"

    @property
    def path_below(self) -> str:
        """Its path without the name of what stands under nothing."""
        if self.parent is None or self.parent.parent is None:
            return self.name
        return f"{self.parent.path_below} / {self.name}"

    def seconds(self, now_s: float) -> float | None:
        """Give how long it has taken so far; None while it waits for its place, and where it never had one."""
        if self.state == "waiting" or not self.begun:
            return None
        return max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.began_s)


@define(eq=False)
class BackendView:
    """Hold what is known of a backend.

    Attributes:
        in_flight: how many runs hold a place.
        capacity: how many places there are; None where nobody said.
        limit: how many of them are in use; None where nobody said.
        paused_until_s: when somebody is admitted again; in the past where nothing holds it up.
        paused_by: what its server said that with.
    """

    name: str
    in_flight: int = 0
    capacity: int | None = None
    limit: int | None = None
    paused_until_s: float = 0.0
    paused_by: str = ""
