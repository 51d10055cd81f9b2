"""Dask and Ray as places where the items of a job are worked on."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import anyio
from attrs import field, frozen
from attrs.validators import optional

from furcate.admission import Portion
from furcate.batch._executor import Work
from furcate.batch.cluster._bridge import Bridge, open_bridge
from furcate.batch.cluster._crew import Crew, Terms, open_crew
from furcate.batch.cluster._setup import Dumps, Loop, Parcel, Setup, pack, without_keys
from furcate.batch.cluster._site import Brought, News
from furcate.observers._otel import current_carrier
from furcate.primitives._checks import seconds, whole
from furcate.primitives._errors import ExecutorError
from furcate.transport import on_asyncio

_log = logging.getLogger("furcate")

MOST_BYTES = 32 * 2**20
PATIENCE_S = 60.0


@frozen(kw_only=True)
class _OnCluster:
    """Hold what a job asks of a cluster, of whichever kind."""

    address: str | None = None
    workers: int | None = field(default=None, validator=optional(whole(1)))
    per_worker: int | None = field(default=None, validator=optional(whole(1)))
    most_bytes: int = field(default=MOST_BYTES, validator=whole(1))
    patience_s: float = field(default=PATIENCE_S, validator=seconds)
    on_notice: Callable[[str], object] = _log.warning

    def _terms(self, work: Work) -> Terms:
        return Terms(
            most_bytes=self.most_bytes,
            patience_s=self.patience_s,
            per_worker=self.per_worker or work.concurrency,
            on_notice=self.on_notice,
        )


@frozen(kw_only=True)
class Dask(_OnCluster):
    """Work on the items of a job on a Dask cluster, one engine in each of its worker processes.

    Needs the extra ``dask``. Workers take credentials from their own environment; the configuration comes from here.

    Attributes:
        address: the scheduler's, such as ``tcp://10.0.0.1:8786``; None starts a cluster on this machine for the job.
        workers: of a cluster on this machine, how many processes; None is one for each core.
        per_worker: most items at a worker at once; None leaves it to the concurrency of the job.
        most_bytes: how large an item may be on its way, and what came of it, in bytes.
        patience_s: how long to wait for the scheduler, and for a worker where there is none, in seconds.
        on_notice: told in one sentence each which workers are lost or not used; by default the log is, as a warning.
    """

    @asynccontextmanager
    async def open(self, work: Work, /) -> AsyncIterator[Crew]:
        """Reach the cluster, and give who works on items."""
        with _extra("dask"):
            from furcate.batch.cluster import _dask as dask  # noqa: PLC0415 - loaded only where it is used
        client = partial(dask.DaskClient, self.address, self.workers)
        async with _open(work, client, dumps=dask.dumps, terms=self._terms(work)) as crew:
            yield crew


@frozen(kw_only=True)
class Ray(_OnCluster):
    """Work on the items of a job on a Ray cluster, by actors that have an engine each.

    Needs the extra ``ray``. Workers take credentials from their own environment; the configuration comes from here.

    Attributes:
        address: the cluster's, such as ``ray://10.0.0.1:10001``, or ``auto`` on one of its machines; None starts one on
            this machine for the job.
        workers: how many actors; None is one for each core of the cluster.
        per_worker: most items at an actor at once; None leaves it to the concurrency of the job.
        most_bytes: how large an item may be on its way, and what came of it, in bytes.
        patience_s: how long to wait for the cluster, and for an actor where there is none, in seconds.
        on_notice: told in one sentence each which actors are lost or not used; by default the log is, as a warning.
    """

    @asynccontextmanager
    async def open(self, work: Work, /) -> AsyncIterator[Crew]:
        """Reach the cluster, and give who works on items."""
        with _extra("ray"):
            from furcate.batch.cluster import _ray as ray  # noqa: PLC0415 - loaded only where it is used
        terms = self._terms(work)
        client = partial(ray.RayClient, self.address, self.workers, per_worker=terms.per_worker)
        async with _open(work, client, dumps=ray.dumps, terms=terms) as crew:
            yield crew


class Client(Protocol):
    """Reach the workers of a cluster; all methods run on the asyncio loop of a bridge."""

    async def connect(self, within_s: float) -> None:
        """Find the cluster, and give each worker its site."""
        ...

    async def close(self) -> None:
        """Stop what still runs at the workers, and let go of the cluster."""
        ...

    async def members(self) -> frozenset[str]:
        """Give the names of those workers that are there."""
        ...

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        """Have a worker work on an item."""
        ...

    async def ask(self, member: str, method: str, *args: object) -> Any:
        """Call a method of a worker's `Site`."""
        ...


@asynccontextmanager
async def _open(work: Work, client: Callable[[Parcel], Client], *, dumps: Dumps, terms: Terms) -> AsyncIterator[Crew]:
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
    parcel = pack(setup, job=work.job, loop=_loop(), most_bytes=terms.most_bytes, dumps=dumps)
    made = client(parcel)
    async with open_bridge() as bridge:
        try:
            await bridge.call(made.connect, terms.patience_s)
            _heed_sigterm()
            async with open_crew(_Bridged(bridge, made), work.engine, terms) as crew:
                yield crew
        finally:
            with anyio.CancelScope(shield=True):
                await bridge.call(made.close)


@frozen
class _Bridged:
    """Be the cluster that a crew sees: reach a client on the loop that it runs on."""

    bridge: Bridge
    client: Client

    async def members(self) -> frozenset[str]:
        return await self.bridge.call(self.client.members)

    async def welcome(self, member: str) -> None:
        await self._ask(member, "open")

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        return await self.bridge.call(self.client.work, member, number, packed)

    async def poll(self, member: str, after: int, wait_s: float) -> News:
        news: News = await self._ask(member, "poll", after, wait_s)
        return news

    async def obey(self, member: str, portions: dict[str, Portion]) -> None:
        await self._ask(member, "obey", portions)

    async def cancel(self, member: str, number: int) -> int:
        sequence: int = await self._ask(member, "cancel", number)
        return sequence

    async def _ask(self, member: str, method: str, *args: object) -> Any:
        return await self.bridge.call(self.client.ask, member, method, *args)


@contextmanager
def _extra(extra: str) -> Iterator[None]:
    """Say what to install where an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExecutorError(f"this needs the extra {extra!r}: pip install 'furcate[{extra}]'") from error


def _heed_sigterm() -> None:
    """Have SIGTERM do again what Python was told it does: Ray's own handler ends the process three seconds later."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None:
        # Signals belong to the main thread; whoever opens a job in another one heeds none.
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, handler)


def _loop() -> Loop:
    return "asyncio" if on_asyncio() else "trio"
