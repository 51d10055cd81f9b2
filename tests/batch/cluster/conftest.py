"""A cluster inside this process: its members are sites with threads of their own, and what travels is pickled."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import CapacityLimiter, to_thread
from attrs import asdict, define, field, frozen

import furcate
from furcate.admission import Portion
from furcate.batch import Work
from furcate.batch.cluster import _capacity, _crew
from furcate.batch.cluster._crew import Crew, Terms, open_crew
from furcate.batch.cluster._executors import _loop
from furcate.batch.cluster._setup import Parcel, Setup, pack, without_keys
from furcate.batch.cluster._site import Brought, News, Site
from furcate.observers._otel import current_carrier
from furcate.primitives._errors import ExecutorError, FurcateError, WorkerLostError
from furcate.testing import StubProvider


@frozen(kw_only=True)
class OpenParcel(Parcel):
    """A parcel whose setup needs no pickling, so that targets may be functions of a test."""

    setup: Setup

    def open(self) -> Setup:
        """Give the setup."""
        return self.setup


@define(eq=False)
class Member:
    """One member: its site, and whether it can be reached."""

    site: Site
    unfit: str | None = None
    lost: anyio.Event = field(factory=anyio.Event)


class Place:
    """Work on items at sites in this process; an executor, and the cluster that its crew sees.

    Arguments:
        names: the members that are there from the beginning.
        terms: how the crew works.
    """

    def __init__(
        self,
        *names: str,
        most_bytes: int = 2**25,
        patience_s: float = 30.0,
        per_worker: int = 1000,
        on_notice: Callable[[str], object] = _crew._log.warning,
    ):
        self.names = list(names)
        self.terms = Terms(most_bytes=most_bytes, patience_s=patience_s, per_worker=per_worker, on_notice=on_notice)
        self.unfit: dict[str, str] = {}
        self.begun: list[str] = []
        self.packed: list[bytes] = []
        self.there: dict[str, Member] = {}
        self.crew: Crew | None = None
        self._parcel: Parcel | None = None
        self._sites: list[Site] = []

    @asynccontextmanager
    async def open(self, work: Work, /) -> AsyncIterator[Crew]:
        """Be the executor of a job."""
        self._parcel = parcel_of(work, most_bytes=self.terms.most_bytes)
        try:
            async with open_crew(self, work.engine, self.terms) as self.crew:
                yield self.crew
        finally:
            with anyio.CancelScope(shield=True):
                for site in self._sites:
                    await in_thread(site.close)

    async def members(self) -> frozenset[str]:
        """Give those that are there."""
        for name in self.names:
            if name not in self.there:
                assert self._parcel is not None
                self.there[name] = Member(Site(self._parcel), self.unfit.get(name))
                self._sites.append(self.there[name].site)
        found = frozenset(self.names)
        await anyio.lowlevel.checkpoint()
        return found

    async def kill(self, name: str) -> None:
        """End a member as the system does: nothing more comes from it, its connections close, and all can see it."""
        self.there[name].lost.set()
        await in_thread(self.there[name].site.close)
        # A system closes the connections of a process that it kills before anybody can see that it is gone.
        self.names.remove(name)

    def cut(self, name: str) -> None:
        """Let nobody reach a member any more, which goes on as before."""
        self.there[name].lost.set()

    async def welcome(self, member: str) -> None:
        """Open a site, or refuse to."""
        unfit = self.there[member].unfit
        if unfit is not None:
            raise ExecutorError(unfit)
        await self._ask(member, "open")

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        """Work on an item."""
        self.begun.append(member)
        self.packed.append(packed)
        brought: Brought = await self._ask(member, "work", number, packed)
        return brought

    async def poll(self, member: str, after: int, wait_s: float) -> News:
        """Ask for news."""
        news: News = await self._ask(member, "poll", after, wait_s)
        return news

    async def obey(self, member: str, portions: dict[str, Portion]) -> None:
        """Tell portions."""
        await self._ask(member, "obey", portions)

    async def cancel(self, member: str, number: int) -> Any:
        """Stop an item."""
        return await self._ask(member, "cancel", number)

    async def _ask(self, name: str, method: str, *args: object) -> Any:
        member = self.there[name]
        found: list[Any] = []
        failed: list[FurcateError] = []
        given = pickle.loads(pickle.dumps(args))
        async with anyio.create_task_group() as both:

            async def ask() -> None:
                try:
                    found.append(await in_thread(getattr(member.site, method), *given))
                except FurcateError as error:
                    failed.append(error)
                both.cancel_scope.cancel()

            both.start_soon(ask)
            await member.lost.wait()
            both.cancel_scope.cancel()
        if member.lost.is_set():
            raise WorkerLostError(f"worker {name} is gone")
        if failed:
            raise pickle.loads(pickle.dumps(failed[0]))
        return pickle.loads(pickle.dumps(found[0]))


async def in_thread(function: Callable[..., Any], *args: object) -> Any:
    """Call what blocks; cancelled, it goes on without anybody."""
    return await to_thread.run_sync(partial(function, *args), abandon_on_cancel=True, limiter=CapacityLimiter(math.inf))


def parcel_of(work: Work, *, most_bytes: int = 2**25) -> OpenParcel:
    """Make what a site needs to know of a job."""
    resources = work.engine._resources
    setup = Setup(
        backends=without_keys(work.engine),
        profiles=tuple(resources.profiles.values()),
        prompts=tuple(resources.prompts.values()),
        transport=resources.transport,
        otel=resources.otel,
        target=work.target,
        observations=work.observations,
        events=work.events,
        content=work.engine._listeners.afar().read_content,
        carrier=current_carrier(),
    )
    parcel = pack(setup, job=work.job, loop=_loop(), most_bytes=most_bytes, dumps=lambda _: b"")
    return OpenParcel(**asdict(parcel, recurse=False), setup=setup)


def engine_on(stub: StubProvider, *, capacity: int = 4, observers: Any = (), **backend: Any) -> furcate.Engine:
    """Make an engine on a stub, with the profile ``p`` and the prompt ``say``."""
    retry = furcate.RetryPolicy(attempts=2, first_backoff_s=0.001, max_backoff_s=0.002)
    return furcate.Engine(
        backends=[furcate.Backend("b", base_url=stub.base_url, capacity=capacity, retry=retry, **backend)],
        profiles=[furcate.Profile("p", "b", "m")],
        prompts=[furcate.Prompt("say", [furcate.MessageTemplate("user", "Say {{ word }}.")], profile="p")],
        observers=observers,
    )


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """Make clusters in this process, which lose sight of a member and look for others sooner than real ones."""
    monkeypatch.setattr(_capacity, "GRACE_S", 0.2)
    monkeypatch.setattr(_crew, "_LOOK_S", 0.02)
    monkeypatch.setattr(_crew, "_CERTAIN_S", 0.1)
    return Place


@pytest.fixture
def engine_for() -> Callable[..., furcate.Engine]:
    """Make engines."""
    return engine_on


@pytest.fixture
def parcel_for() -> Callable[..., OpenParcel]:
    """Make parcels."""
    return parcel_of


@pytest.fixture
def thread() -> Callable[..., Any]:
    """Call what blocks in a thread."""
    return in_thread


@pytest.fixture
def numbered(tmp_path: Path) -> Callable[[int], Path]:
    """Write items ``i0``, ``i1`` and so on, with the words ``w0``, ``w1``."""

    def write(count: int) -> Path:
        path = tmp_path / "items.jsonl"
        rows = ({"id": f"i{number}", "word": f"w{number}"} for number in range(count))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write
