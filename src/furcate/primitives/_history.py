"""The messages of a conversation, shared between all that continue it.

A history points at its parent and holds only what it added. Ten thousand branches of one long conversation hold the
long part once, and what is computed about it (its digest, its encoded form) is computed once.

Whoever holds very many conversations pays for each object that is not theirs, and the garbage collector walks them all
at every full collection. So a node is one object that it need not walk, and keeps a plain text as its role and its
text, from which the message is made again when somebody reads it: 2.6 kB for a branch of five turns of 240 characters
instead of 5.2, and one object to walk instead of 52.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from furcate.primitives._describe import exact
from furcate.primitives._json import canonical
from furcate.primitives._message import Message, plain_text, text_message

_Memo = TypeVar("_Memo")


class MemoKey(Generic[_Memo]):
    """Identify something that is computed once for each node of a history."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name


_Kept: TypeAlias = "tuple[History | None, *tuple[str | Message, ...]]"
"""The parent or None, then the messages: each as it is or, where it is nothing but a plain text, as role and text."""


class _Known(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Hold what a node finds out about itself, which nobody gives it."""

    _length: int = 0
    _digest: bytes | None = None
    _memos: dict[object, object] | None = None


class History(_Known, frozen=True, gc=False, eq=False):
    """Hold a conversation's messages; immutable, and sharing its beginning with its relatives.

    Made of the messages that it adds and the history that it continues, if any: ``History(messages, parent)``.

    Raises:
        TypeError: something else than a message is among them.
    """

    # The collector passes a node by. That is right as long as nothing in it leads back to it: messages are frozen,
    # parents are older, and memos hold no node (see `memo`).
    _kept: Iterable[Message] | _Kept = ()
    _after: History | None = None

    def __post_init__(self) -> None:
        parent = self._after
        kept: list[str | Message] = []
        length = parent._length if parent is not None else 0
        for message in self._kept:
            if not isinstance(message, Message):
                raise TypeError(f"a history is made of messages; found a {type(message).__name__} among them")
            text = plain_text(message)
            kept += (message,) if text is None else (message.role, text)
            length += 1
        force_setattr(self, "_length", length)
        # A tuple holds the parent, since the interpreter lets go of tuples step by step, however long their chain is;
        # of structs it does so one within the other, until the stack ends.
        force_setattr(self, "_kept", (parent, *kept))
        force_setattr(self, "_after", None)

    def extend(self, messages: Iterable[Message]) -> History:
        """Give a history with further messages; this one stays as it is."""
        added = tuple(messages)
        return History(added, self) if added else self

    def answered(self, message: Message) -> History:
        """Give a history in which an answer and what this node adds are one node: a turn."""
        return History((*self.added, message), self.parent)

    @property
    def added(self) -> tuple[Message, ...]:
        """The messages that this node adds to its parent's; those that are plain texts are made afresh."""
        _, *kept = cast("_Kept", self._kept)
        pieces = iter(kept)
        return tuple([text_message(one, cast("str", next(pieces))) if isinstance(one, str) else one for one in pieces])

    @property
    def parent(self) -> History | None:
        """The history that this one continues."""
        return self._kept[0]  # type: ignore[index]  # a tuple, once it is made

    def nodes(self) -> tuple[History, ...]:
        """Give the nodes from the oldest to this one."""
        found = []
        node: History | None = self
        while node is not None:
            found.append(node)
            node = node.parent
        return tuple(reversed(found))

    def __iter__(self) -> Iterator[Message]:
        for node in self.nodes():
            yield from node.added

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

    def __reduce__(self) -> tuple[type[History], tuple[tuple[Message, ...], History | None]]:
        return History, (self.added, self.parent)

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("messages", self._length)]

    @property
    def last(self) -> Message | None:
        """The newest message."""
        node: History | None = self
        while node is not None:
            parent, *pieces = cast("_Kept", node._kept)
            if pieces:
                newest = pieces[-1]
                return newest if isinstance(newest, Message) else text_message(cast("str", pieces[-2]), newest)
            node = parent
        return None

    @property
    def digest(self) -> bytes:
        """SHA-256 chained message by message (32 bytes): equal content gives equal digests, however it was cut."""
        # Back to the newest node that knows its digest, and no further: a long past is not walked for each question.
        pending: list[History] = []
        node: History | None = self
        while node is not None and node._digest is None:
            pending.append(node)
            node = node.parent
        value = node._digest if node is not None and node._digest is not None else bytes(32)
        for node in reversed(pending):
            for message in node.added:
                value = hashlib.sha256(value + canonical(exact(message))).digest()
            force_setattr(node, "_digest", value)
        return value

    def memo(self, key: MemoKey[_Memo], compute: Callable[[History], _Memo]) -> _Memo:
        """Give what `compute` makes of this node, computed at most once for a key.

        `compute` must be pure: it sees the node, and two calls at once may both compute. What it gives may not hold
        the node or one that continues it: the collector would never find that they hold each other.
        """
        memos = self._memos
        if memos is None:
            memos = {}
            force_setattr(self, "_memos", memos)
        if key not in memos:
            memos[key] = compute(self)
        found: _Memo = memos[key]  # type: ignore[assignment]  # the key carries the type
        return found
