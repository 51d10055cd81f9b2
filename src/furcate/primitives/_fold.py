"""What a history comes to from its beginning on, found out once for each of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from furcate.primitives._history import History, MemoKey

_Value = TypeVar("_Value")


def fold(
    history: History, key: MemoKey[list[_Value]], start: _Value, *, step: Callable[[_Value, History], _Value]
) -> _Value:
    """Give what `step` makes of `start` and each node in turn, from the oldest on.

    It goes back to the newest node that knows its value, and no further: a long past is not walked for each question.

    Arguments:
        history: the newest node.
        key: under which each node keeps its value, as the one item of a list.
        start: what comes before the oldest node.
        step: pure; gives the value after a node from that before it. What it raises is raised each time.
    """
    pending: list[tuple[History, list[_Value]]] = []
    node: History | None = history
    while node is not None:
        known = node.memo(key, _nothing)
        if known:
            start = known[0]
            break
        pending.append((node, known))
        node = node.parent
    for node, known in reversed(pending):
        start = step(start, node)
        known.append(start)
    return start


def _nothing(_node: History) -> list[_Value]:
    return []
