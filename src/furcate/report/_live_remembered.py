"""What a live view remembers: all that goes on, and of what has ended counts and a bounded number of rows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from furcate.report._live_nodes import Kind, Node, State, shown

KEPT = 200
KEPT_FAILED = 50
_FRESH = 20


class Remembered:
    """Remember what goes on, and little of what has ended.

    Arguments:
        kept: most things that are remembered one by one after their end.
        kept_failed: most that failed, beside those.

    Attributes:
        roots: what stands under nothing, in order.
        forgotten: how much is not remembered one by one any more.
        counts: how many runs that are no branch's, and how many branches, are in which state.
        living: what has not ended, by state; what came into the state first is first.
        failed: what failed and is remembered, in order.
        fresh: what ended latest without failing, in order; whoever tells of it takes it out.
        fresh_failed: likewise what failed.
        ended: how many runs that are no branch's, and how many branches, have ended.
    """

    def __init__(self, *, kept: int, kept_failed: int) -> None:
        self._kept, self._kept_failed = kept, kept_failed
        self._nodes: dict[str, Node] = {}
        self._owners: dict[str, Node] = {}
        self._finished: dict[str, Node] = {}
        self._now_s = 0.0
        self.roots: dict[str, Node] = {}
        self.forgotten = 0
        self.counts: dict[Kind, Counter[State]] = {"run": Counter(), "branch": Counter(), "nursery": Counter()}
        self.living: dict[State, dict[str, Node]] = {}
        self.failed: dict[str, Node] = {}
        self.fresh: deque[Node] = deque(maxlen=_FRESH)
        self.fresh_failed: deque[Node] = deque(maxlen=_FRESH)
        self.ended = 0

    def __len__(self) -> int:
        """Count what is remembered one by one."""
        return len(self._nodes)

    def walk(self, roots: Iterable[Node]) -> Iterator[tuple[Node, int, bool]]:
        """Give something and all that is remembered under it, with its depth and whether it is the last of its kind.

        Arguments:
            roots: what to begin with, each given before what stands under it.
        """

        def under(nodes: Iterable[Node], depth: int) -> Iterator[tuple[Node, int, bool]]:
            ahead = iter(nodes)
            node = next(ahead, None)
            while node is not None:
                following = next(ahead, None)
                yield node, depth, following is None
                yield from under(node.children.values(), depth + 1)
                node = following

        return under(roots, 0)

    def recent(self) -> Iterator[Node]:
        """Give what ended without failing and is remembered, the latest first."""
        return reversed(self._finished.values())

    def _grow(self, ident: str, kind: Kind, name: str | None, *, parent: Node | None, state: State) -> Node:
        # The last characters of an id, since those that are made in order of time begin alike.
        called = shown(name or f"{kind} {ident[-8:]}")
        node = Node(ident, kind, called, parent, state, self._now_s, self._now_s, named=bool(name))
        self._nodes[ident] = node
        if parent is None:
            self.roots[ident] = node
        else:
            self._reopen(parent)
            parent.children[ident] = node
            parent.open += 1
        self._count(node, state, 1)
        self.living.setdefault(state, {})[ident] = node
        return node

    def _own(self, run_id: str, node: Node) -> None:
        """Note whose run that is; only its latest is looked up, by what continues from it."""
        if node.run_id is not None:
            self._owners.pop(node.run_id, None)
        node.run_id = run_id
        self._owners[run_id] = node

    def _enter(self, node: Node, state: State) -> None:
        if state == node.state:
            return
        self.living[node.state].pop(node.id, None)
        self._count(node, node.state, -1)
        node.state, node.since_s = state, self._now_s
        self._count(node, state, 1)
        self.living.setdefault(state, {})[node.id] = node

    def _count(self, node: Node, state: State, by: int) -> None:
        self.counts[node.kind][state] += by
        if node.parent is not None and node.kind == "branch":
            node.parent.states[state] += by

    def _end(self, node: Node, state: State) -> None:
        node.begun = node.state != "waiting" or node.turn > 0
        self._enter(node, state)
        del self.living[state][node.id]
        node.ended_s = self._now_s
        if node.kind != "nursery":
            self.ended += 1
            (self.fresh_failed if state == "failed" else self.fresh).append(node)
        self._settle(node)

    def _settle(self, node: Node) -> None:
        """Put something among what has ended, once nothing under it goes on any more; what is too old is forgotten."""
        if not node.settled:
            return
        if node.state == "failed":
            self.failed[node.id] = node
        else:
            self._finished[node.id] = node
        if node.parent is not None:
            node.parent.open -= 1
            self._settle(node.parent)
        for kept, most in ((self._finished, self._kept), (self.failed, self._kept_failed)):
            while len(kept) > most:
                self._forget(next(iter(kept.values())))

    def _reopen(self, node: Node) -> None:
        """Take something out of what has ended, since more comes under it."""
        if node.settled:
            self._finished.pop(node.id, None)
            self.failed.pop(node.id, None)
            if node.parent is not None:
                self._reopen(node.parent)
                node.parent.open += 1

    def _forget(self, node: Node) -> None:
        for child in tuple(node.children.values()):
            self._forget(child)
        self.forgotten += 1
        self._finished.pop(node.id, None)
        self.failed.pop(node.id, None)
        self._nodes.pop(node.id, None)
        if node.run_id is not None:
            self._owners.pop(node.run_id, None)
        if node.parent is None:
            self.roots.pop(node.id, None)
        else:
            node.parent.children.pop(node.id, None)
            node.parent.forgotten += 1
