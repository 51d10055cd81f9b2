"""What is going on in an exploration, as one frozen value: a pure fold over what was heard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import attrs
from attrs import frozen

from furcate.primitives._observations import (
    AttemptsPaused,
    AttemptStarted,
    CoordinatorFinished,
    Observation,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._usage import Usage

_Item = TypeVar("_Item")

State: TypeAlias = Literal[
    "waiting",
    "queued",
    "generating",
    "repairing",
    "pausing",
    "callback",
    "done",
    "stopped",
    "exhausted",
    "failed",
    "cancelled",
]
ENDED = frozenset({"done", "stopped", "exhausted", "failed", "cancelled"})


@frozen(kw_only=True)
class Node:
    """Hold what is known of an opening or a branch.

    Attributes:
        name: what people call it.
        state: what it does.
        turns: its budget; None for an opening.
        turn: how many turns it has begun.
        usage: the sum over its ended runs; None before the first.
        began_s: when it left the state of waiting, on the event loop's clock.
        ended_s: when it ended.
        detail: what else is to be said, such as an error.
    """

    name: str
    state: State = "waiting"
    turns: int | None = None
    turn: int = 0
    usage: Usage | None = None
    began_s: float | None = None
    ended_s: float | None = None
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self.state in ENDED

    def seconds(self, now_s: float) -> float | None:
        """Give how long it has taken so far; None before it began."""
        if self.began_s is None:
            return None
        return (now_s if self.ended_s is None else self.ended_s) - self.began_s


@frozen
class InputView:
    """Hold an input's opening and its branches."""

    opening: Node
    branches: tuple[Node, ...]

    @property
    def ended(self) -> bool:
        """Whether all of it has ended."""
        return self.opening.ended and all(branch.ended for branch in self.branches)


@frozen
class Forest:
    """Hold all inputs of an exploration, in their order."""

    inputs: tuple[InputView, ...]

    def at(self, key: Key) -> Node:
        """Give the node at a place."""
        view = self.inputs[key.input]
        return view.opening if key.branch is None else view.branches[key.branch]

    def nodes(self) -> tuple[Node, ...]:
        """Give all branches, input by input."""
        return tuple(branch for view in self.inputs for branch in view.branches)


@frozen
class Key:
    """Name a place in a forest by numbers: an input, and one of its branches or (None) its opening."""

    input: int
    branch: int | None = None


@frozen
class Begun:
    """Tell that an opening or a branch was given its place."""


@frozen
class Ended:
    """Tell how an opening or a branch ended, where more is known than observations tell."""

    state: State
    detail: str = ""


Heard: TypeAlias = Observation | Begun | Ended


def plant(inputs: Sequence[str], branches: Sequence[tuple[str, int]]) -> Forest:
    """Make the forest before anything happened.

    Arguments:
        inputs: how the inputs are called.
        branches: name and budget of each branch.
    """
    waiting = tuple(Node(name=name, turns=turns) for name, turns in branches)
    return Forest(tuple(InputView(Node(name=name), waiting) for name in inputs))


def fold(forest: Forest, key: Key, heard: Heard, *, at_s: float) -> Forest:
    """Give the forest after something was heard about one place.

    Arguments:
        forest: what was known.
        key: whom it is about.
        heard: what was heard.
        at_s: when, on the event loop's clock.
    """
    before = forest.at(key)
    after = _node(before, heard, at_s)
    if after is before:
        return forest
    view = forest.inputs[key.input]
    if key.branch is None:
        view = attrs.evolve(view, opening=after)
    else:
        view = attrs.evolve(view, branches=_replaced(view.branches, key.branch, after))
    return Forest(_replaced(forest.inputs, key.input, view))


def _replaced(items: tuple[_Item, ...], place: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _node(node: Node, heard: Heard, at_s: float) -> Node:
    match heard:
        case Begun():
            return attrs.evolve(node, state="callback" if node.turns is not None else "queued", began_s=at_s)
        case Ended():
            ended_s = at_s if node.ended_s is None else node.ended_s
            return attrs.evolve(node, state=heard.state, detail=heard.detail, ended_s=ended_s)
        case RunStarted():
            turn = node.turn + 1 if node.turns is not None else node.turn
            return attrs.evolve(node, state="queued", turn=turn, detail="")
        case AttemptStarted():
            number = f"attempt {heard.number}" if heard.number > 1 else ""
            return attrs.evolve(node, state="repairing" if heard.purpose == "repair" else "generating", detail=number)
        case AttemptsPaused():
            return attrs.evolve(node, state="pausing", detail=f"{heard.wait_s:.1f} s, {heard.failure_kind}")
        case RunFinished():
            return _after_run(node, heard, at_s)
        case TurnDelivered() if node.began_s is not None:
            return attrs.evolve(node, state="callback", detail="")
        case CoordinatorFinished():
            return _after_branch(node, heard, at_s)
        case _:
            return node


def _after_run(node: Node, heard: RunFinished, at_s: float) -> Node:
    usage = heard.usage if node.usage is None else Usage.total((node.usage, heard.usage))
    if node.turns is not None:
        return attrs.evolve(node, usage=usage)
    states: dict[str, State] = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}
    detail = "validation failed" if heard.validation == "failed" else heard.failure_kind or heard.failure_reason or ""
    return attrs.evolve(node, usage=usage, state=states[heard.status], detail=detail, ended_s=at_s)


def _after_branch(node: Node, heard: CoordinatorFinished, at_s: float) -> Node:
    state: State = heard.outcome or ("cancelled" if heard.status == "cancelled" else "failed")
    return attrs.evolve(node, state=state, detail=heard.error_type or "", ended_s=at_s)
