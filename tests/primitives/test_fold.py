"""What a history comes to is found out once for each of its nodes."""

from __future__ import annotations

import pytest

from furcate.primitives._fold import fold
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import Message


def test_a_shared_past_is_walked_once() -> None:
    """Branches of one beginning look at their own nodes alone, the oldest first."""
    key: MemoKey[list[int]] = MemoKey("sizes")
    seen: list[History] = []

    def size(before: int, node: History) -> int:
        seen.append(node)
        return before + len(node.added)

    trunk = History([Message.user("a"), Message.assistant("b")])
    long = trunk.extend([Message.user("c")])
    assert fold(long, key, 0, step=size) == 3
    assert seen == [trunk, long]
    branches = [long.extend([Message.assistant(text)]) for text in "de"]
    assert [fold(branch, key, 0, step=size) for branch in branches] == [4, 4]
    assert seen[2:] == branches
    assert fold(long, key, 0, step=size) == 3
    assert len(seen) == 4


def test_what_a_step_raises_is_raised_each_time() -> None:
    """Nothing is kept of a node that was refused, nor of those after it."""
    key: MemoKey[list[int]] = MemoKey("refused")

    def step(before: int, node: History) -> int:
        if node.added[0].role == "assistant":
            raise LookupError
        return before + 1

    history = History([Message.user("a")]).extend([Message.assistant("b")]).extend([Message.user("c")])
    for _ in range(2):
        with pytest.raises(LookupError):
            fold(history, key, 0, step=step)
