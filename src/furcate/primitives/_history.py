"""The messages of a conversation, shared between all that continue it.

A history points at its parent and holds only what it added. Ten thousand branches of one long conversation hold the
long part once, and what is computed about it (its digest, its encoded form) is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from furcate.primitives._describe import exact
from furcate.primitives._json import canonical
from furcate.primitives._message import Message

_Memo = TypeVar("_Memo")


class MemoKey(Generic[_Memo]):
    """Identify something that is computed once for each node of a history."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name


class History:
    """Hold a conversation's messages; immutable, and sharing its beginning with its relatives."""

    __slots__ = ("__weakref__", "_added", "_digest", "_length", "_memos", "_parent")

    def __init__(self, messages: Iterable[Message] = (), parent: History | None = None) -> None:
        self._added = tuple(messages)
        self._parent = parent
        self._length: int = len(self._added) + (len(parent) if parent is not None else 0)
        self._digest: bytes | None = None
        self._memos: dict[object, object] | None = None

    def extend(self, messages: Iterable[Message]) -> History:
        """Give a history with further messages; this one stays as it is."""
        added = tuple(messages)
        return History(added, self) if added else self

    @property
    def added(self) -> tuple[Message, ...]:
        """The messages that this node adds to its parent's."""
        return self._added

    @property
    def parent(self) -> History | None:
        """The history that this one continues."""
        return self._parent

    def nodes(self) -> tuple[History, ...]:
        """Give the nodes from the oldest to this one."""
        found = []
        node: History | None = self
        while node is not None:
            found.append(node)
            node = node._parent
        return tuple(reversed(found))

    def __iter__(self) -> Iterator[Message]:
        for node in self.nodes():
            yield from node._added

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and len(self) == len(other) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<History of {self._length} messages>"

    def __copy__(self) -> History:
        return self

    def __deepcopy__(self, memo: object) -> History:
        return self

    @property
    def last(self) -> Message | None:
        """The newest message."""
        node: History | None = self
        while node is not None and not node._added:
            node = node._parent
        return node._added[-1] if node is not None else None

    @property
    def digest(self) -> bytes:
        """SHA-256 chained message by message (32 bytes): equal content gives equal digests, however it was cut."""
        # Back to the newest node that knows its digest, and no further: a long past is not walked for each question.
        pending: list[History] = []
        node: History | None = self
        while node is not None and node._digest is None:
            pending.append(node)
            node = node._parent
        value = node._digest if node is not None and node._digest is not None else bytes(32)
        for node in reversed(pending):
            for message in node._added:
                value = hashlib.sha256(value + canonical(exact(message))).digest()
            node._digest = value
        return value

    def memo(self, key: MemoKey[_Memo], compute: Callable[[History], _Memo]) -> _Memo:
        """Give what `compute` makes of this node, computed at most once for a key.

        `compute` must be pure: it sees the node, and two calls at once may both compute.
        """
        if self._memos is None:
            self._memos = {}
        if key not in self._memos:
            self._memos[key] = compute(self)
        found: _Memo = self._memos[key]  # type: ignore[assignment]  # the key carries the type
        return found
