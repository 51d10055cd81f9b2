"""Items worked on by actors of a Ray cluster: the one place where Ray is imported."""

from __future__ import annotations

# Ray's references are awaited on asyncio; they are on a loop of their own, which the job's loop reaches by a bridge.
import asyncio  # noqa: TID251
import logging
import os
import pickle
from contextlib import suppress
from typing import Any
from uuid import uuid4

# Ray would count uses, and say so.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# It tells the death of a worker at length, on stdout, whatever its logging level; furcate has a sentence for that.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^A worker died or was killed while executing a task")

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayError

from furcate.batch.cluster._asking import LAST_WORDS_S, Asking
from furcate.batch.cluster._setup import Parcel
from furcate.batch.cluster._site import Brought, Reply, Site, reply_of, unwrapped
from furcate.primitives._errors import ExecutorError, WorkerLostError

dumps = cloudpickle.dumps

_CONTROL_CALLS = 4

_START_S = 30.0
"""How long whoever leaves waits for a cluster that is just starting, to stop it, in seconds."""


class RayClient:
    """Reach the actors that work on a job; all methods run on one asyncio loop.

    Arguments:
        address: the cluster's, such as ``ray://host:10001`` or ``auto``; None starts one on this machine.
        workers: how many actors; None is one for each core of the cluster.
        parcel: what each of them needs to know of the job.
        per_worker: most items at an actor at once.
    """

    def __init__(self, address: str | None, workers: int | None, parcel: Parcel, *, per_worker: int) -> None:
        self._address = address
        self._workers = workers
        self._parcel = parcel
        self._per_worker = per_worker
        self._asking = Asking()
        self._starting: asyncio.Future[None] | None = None
        self._wanted = 0
        self._actors: dict[str, Any] = {}

    async def connect(self, within_s: float) -> None:
        """Find the cluster, and start the actors.

        Raises:
            ExecutorError: there is no cluster.
        """
        try:
            if not ray.is_initialized():
                self._starting = asyncio.ensure_future(asyncio.to_thread(self._start))
                await asyncio.shield(self._starting)
            cores = int((await asyncio.to_thread(ray.cluster_resources)).get("CPU", 1))
        except (OSError, RuntimeError, ValueError, RayError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise ExecutorError(f"there is no Ray cluster to work on {where} ({error})") from error
        self._wanted = self._workers or max(1, cores)

    def _start(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            ray.init(num_cpus=self._workers, include_dashboard=False, **quiet)
        else:
            ray.init(address=self._address, **quiet)

    async def close(self) -> None:
        """Stop what still runs at the actors, and let go of the cluster."""
        await asyncio.gather(*map(self._part, tuple(self._actors)))
        await self._asking.settle(LAST_WORDS_S)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        if self._starting is not None:
            # Whoever is interrupted while a cluster starts would leave its processes behind.
            with suppress(Exception):
                await asyncio.wait_for(asyncio.shield(self._starting), _START_S)
            await asyncio.to_thread(ray.shutdown)

    async def members(self) -> frozenset[str]:
        """Give the actors; one that has died is followed by another."""
        while len(self._actors) < self._wanted:
            self._actors[f"actor-{uuid4().hex[:8]}"] = self._make()
        return frozenset(self._actors)

    async def _part(self, member: str) -> None:
        # Who is stuck in an item cannot be stopped, and is killed.
        with suppress(ExecutorError, TimeoutError):
            await asyncio.wait_for(self.ask(member, "close"), LAST_WORDS_S)

    def _make(self) -> Any:
        remote = ray.remote(num_cpus=1, max_restarts=0, max_concurrency=self._per_worker + _CONTROL_CALLS)(SiteActor)
        return remote.remote(pickle.dumps(self._parcel))

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        """Work on an item."""
        brought: Brought = await self.ask(member, "work", number, packed)
        return brought

    async def ask(self, member: str, method: str, *args: object) -> Any:
        """Call a method of an actor's site."""
        actor = self._actors.get(member)
        if actor is None:
            raise WorkerLostError(f"{member} is gone")
        try:
            reply = await self._asking.ask(_answer(actor.ask.remote(method, *args)))
        except RayActorError as error:
            self._actors.pop(member, None)
            raise WorkerLostError(f"{member} is gone ({type(error).__name__})") from error
        except RayError as error:
            raise ExecutorError(f"{member} cannot work ({type(error).__name__}: {error})") from error
        return unwrapped(reply)


async def _answer(reference: Any) -> Any:
    return await reference


class SiteActor:
    """Keep a job's site in a process of Ray's.

    Arguments:
        packed: what the job is, pickled.
    """

    def __init__(self, packed: bytes) -> None:
        self._site = Site(pickle.loads(packed))

    def ask(self, method: str, *args: object) -> Reply:
        """Call a method of the site."""
        return reply_of(self._site, method, *args)
