"""Which item of a job is the next to be worked on."""

from __future__ import annotations

from collections import deque
from math import inf

import anyio

from furcate.batch._items import BadItem, Item, Source
from furcate.batch._journal import Journal

AHEAD = 64
"""How many items are looked up at a time."""


class Enrolled:
    """Tell up to where an input is in the journal."""

    def __init__(self) -> None:
        self._count = 0.0
        self._further = anyio.Event()

    def reach(self, count: float) -> None:
        """Tell that so many items are."""
        self._count = count
        self._further.set()
        self._further = anyio.Event()

    def end(self) -> None:
        """Tell that all of them are."""
        self.reach(inf)

    async def wait(self, count: int) -> None:
        """Wait until so many are, or all of them."""
        while self._count < count:
            await self._further.wait()


class Feed:
    """Give the items that are to be done, in the order of the input, with a few looked up ahead."""

    def __init__(self, source: Source, journal: Journal, enrolled: Enrolled) -> None:
        self._items = aiter(source)
        self._enrolled = enrolled
        self._taken = 0
        self._journal = journal
        self._ready: deque[Item] = deque()
        self._ended = False

    async def next(self) -> Item | None:
        """Give the next item that is to be done, to one who asks at a time; None after the last."""
        while not self._ready and not self._ended:
            ahead: list[Item | BadItem] = []
            while len(ahead) < AHEAD and (item := await anext(self._items, None)) is not None:
                ahead.append(item)
            self._ended = len(ahead) < AHEAD
            self._taken += len(ahead)
            await self._enrolled.wait(self._taken)
            self._ready.extend(await self._journal.pending(ahead))
        return self._ready.popleft() if self._ready else None
