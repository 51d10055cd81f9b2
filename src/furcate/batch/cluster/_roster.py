"""The workers that a job has, and which of them gets the next item."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from math import inf
from typing import Literal

import anyio
from attrs import define, field

from furcate.admission import Portion
from furcate.primitives._errors import FurcateError

SOON_S = 5.0
"""How long items are kept for workers that are getting ready, once one of them is, in seconds."""


@define(eq=False)
class Member:
    """Hold what a worker has to do, and what it was told.

    Attributes:
        name: its own, which no other ever has.
        state: ``coming`` until it has opened its site, ``unfit`` where it cannot do the job.
        items: how many it has, those that are kept for it included.
        alone: it is kept for one item that is to have nothing beside it.
        seen: number of the last thing that it told and that has been kept.
        dead: it is known to have ended.
        gone: nothing more comes of it.
        further: set, and made anew, whenever `seen` rises.
        outbox: portions that it has to be told.
        posted: there are such.
        asking: held by whoever asks for news and takes them.
    """

    name: str
    state: Literal["coming", "ready", "unfit", "gone"] = "coming"
    items: int = 0
    alone: bool = False
    seen: int = 0
    dead: anyio.Event = field(factory=anyio.Event)
    gone: anyio.Event = field(factory=anyio.Event)
    further: anyio.Event = field(factory=anyio.Event)
    outbox: dict[str, Portion] = field(factory=dict)
    posted: anyio.Event = field(factory=anyio.Event)
    asking: anyio.Lock = field(factory=anyio.Lock)

    def arrived(self, sequence: int) -> None:
        """Note that what it told up to here has been kept."""
        self.seen = max(self.seen, sequence)
        self.further.set()
        self.further = anyio.Event()


class Roster:
    """Know who is there, and choose among them.

    Arguments:
        per_worker: most items at a worker at once.
    """

    def __init__(self, per_worker: int) -> None:
        self._per_worker = per_worker
        self._members: dict[str, Member] = {}
        self._room = anyio.Event()
        self._alone = anyio.Lock()
        self._soon_until_s = -inf
        self._problem: FurcateError | None = None

    @property
    def names(self) -> frozenset[str]:
        """All who are there, whether ready or not."""
        return frozenset(self._members)

    @property
    def ready(self) -> dict[str, int]:
        """How many items each of those has who work."""
        return {one.name: one.items for one in self._members.values() if one.state == "ready"}

    def get(self, name: str) -> Member | None:
        """Give who is called so; None where nobody is."""
        return self._members.get(name)

    def come(self, name: str) -> Member:
        """Take in somebody new, who is not ready yet."""
        self._members[name] = member = Member(name)
        return member

    def begin(self, member: Member) -> None:
        """Let somebody have items."""
        if not self.ready:
            self._soon_until_s = anyio.current_time() + SOON_S
        member.state = "ready"
        self.rouse()

    def refuse(self, member: Member) -> None:
        """Let somebody stay without items."""
        member.state = "unfit"
        self.rouse()

    def part(self, member: Member) -> None:
        """Note that nothing more comes of somebody."""
        member.state = "gone"
        member.gone.set()
        member.further.set()
        self.rouse()

    def forget(self, member: Member) -> None:
        """Let go of somebody; should it still be there, it comes as if it were another one."""
        self.part(member)
        if self._members.get(member.name) is member:
            del self._members[member.name]

    def fail(self, error: FurcateError) -> None:
        """Have nobody chosen any more, for this reason."""
        self._problem = self._problem or error
        self.rouse()

    def rouse(self) -> None:
        """Have those who wait look again whether there is room."""
        self._room.set()
        self._room = anyio.Event()

    @asynccontextmanager
    async def place(self, *, alone: bool) -> AsyncIterator[Member]:
        """Give a worker to an item, which has its place there as long as the block lasts.

        Arguments:
            alone: whether the item is to have nothing beside it. Only one at a time has a worker to itself, so that
                the others go on.

        Raises:
            FurcateError: the job cannot go on.
        """
        async with self._alone if alone else nullcontext():
            member = await (self._choose_empty() if alone else self.choose())
            member.items += 1
            try:
                yield member
            finally:
                member.items -= 1
                if alone:
                    member.alone = False
                self.rouse()

    async def _choose_empty(self) -> Member:
        """Keep the worker with the fewest items for one alone, and give it once it has none."""
        while True:
            member = await self.choose()
            member.alone = True
            try:
                while member.items and member.state == "ready":
                    await self._room.wait()
            except BaseException:
                member.alone = False
                self.rouse()
                raise
            if member.state == "ready":
                return member

    async def choose(self) -> Member:
        """Give the worker with the fewest items; wait where all have as many as they may, or there is none.

        The first one that is ready does not get all items there are: some are kept for those that will be soon.

        Raises:
            FurcateError: the job cannot go on.
        """
        while True:
            if self._problem is not None:
                raise self._problem
            now_s = anyio.current_time()
            states = ("ready", "coming") if now_s < self._soon_until_s else ("ready",)
            free = [
                one
                for one in self._members.values()
                if one.state in states and one.items < self._per_worker and not one.alone
            ]
            if not free:
                await self._room.wait()
                continue
            member = min(free, key=lambda one: (one.items, one.state == "coming"))
            if member.state == "ready":
                return member
            member.items += 1
            try:
                with anyio.move_on_after(self._soon_until_s - now_s):
                    await self._room.wait()
            finally:
                member.items -= 1
