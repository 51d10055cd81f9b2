"""Items worked on by a Dask cluster: the one place where Dask is imported."""

from __future__ import annotations

# Dask's client is asyncio's; it runs on a loop of its own, which the job's loop reaches by a bridge.
import asyncio  # noqa: TID251
import os
import warnings
from contextlib import suppress
from typing import Any
from uuid import uuid4

import cloudpickle
from distributed import Client, KilledWorker, LocalCluster, WorkerPlugin, get_worker, secede

from furcate.batch.cluster._asking import LAST_WORDS_S, Asking
from furcate.batch.cluster._dask_noise import be_silent, hush, is_silent, unhush
from furcate.batch.cluster._setup import Parcel
from furcate.batch.cluster._site import Brought, Reply, Site, reply_of, unwrapped
from furcate.primitives._errors import ExecutorError, WorkerLostError

dumps = cloudpickle.dumps


class DaskClient:
    """Reach the workers of a cluster; all methods run on one asyncio loop.

    Arguments:
        address: the scheduler's; None starts a cluster on this machine.
        workers: of a cluster on this machine, how many; None is one for each core.
        parcel: what each worker needs to know of the job.
    """

    def __init__(self, address: str | None, workers: int | None, parcel: Parcel) -> None:
        self._address = address
        self._workers = workers
        self._parcel = parcel
        self._name = f"furcate-{parcel.job}"
        self._run = uuid4().hex[:8]
        self._asking = Asking()
        self._cluster: Any = None
        self._client: Any = None

    async def connect(self, within_s: float) -> None:
        """Find the scheduler, and give each worker its site, those to come included.

        Raises:
            ExecutorError: there is no scheduler, or a worker has no furcate.
        """
        hush()
        try:
            if self._address is None:
                self._cluster = await LocalCluster(
                    n_workers=self._workers,
                    threads_per_worker=1,
                    dashboard_address=None,
                    # Also without a dashboard the scheduler listens, by default where another job's does already.
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    asynchronous=True,
                )
            with warnings.catch_warnings():
                # That a scheduler has other versions of Dask's own parts is what the cluster's owner may live with.
                warnings.simplefilter("ignore")
                where = self._cluster or self._address
                self._client = await Client(where, asynchronous=True, timeout=within_s, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ExecutorError(f"there is no Dask scheduler at {self._address} ({error})") from error
        plugin = SitePlugin(self._name, self._parcel, ours=self._address is None, silent=is_silent())
        try:
            await self._client.register_plugin(plugin)
        except Exception as error:
            raise ExecutorError(
                f"Dask's workers cannot load furcate ({type(error).__name__}: {error}); install it there"
            ) from error

    async def close(self) -> None:
        """Stop what still runs at the workers, and let go of the cluster."""
        if self._client is not None:
            # Whoever is gone has nothing to be stopped, and who is stuck in an item cannot be.
            stopping = self._asking.ask(self._client.unregister_worker_plugin(self._name))
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(stopping, LAST_WORDS_S)
            await self._asking.settle(LAST_WORDS_S)
            await self._client.close()
        if self._cluster is not None:
            await self._cluster.close()
        unhush()

    async def members(self) -> frozenset[str]:
        """Give the addresses of those workers that run."""
        try:
            found = await self._client.scheduler.identity(n_workers=-1)
        except OSError as error:
            raise ExecutorError(f"the Dask scheduler is gone ({error})") from error
        return frozenset(address for address, it in found["workers"].items() if it.get("status") == "running")

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        """Work on an item, as a task of Dask's own that runs at this worker and nowhere else."""
        key = f"{self._name}-{self._run}-{number}"
        future = self._client.submit(
            _work, self._name, number, packed, key=key, workers=[member], allow_other_workers=False, pure=False
        )
        try:
            # Broken off, Dask would complain of what came of it, and nobody had looked at.
            brought: Brought = unwrapped(await self._asking.ask(future))
        except asyncio.CancelledError:
            if future.cancelled() and not _is_cancelled():
                raise WorkerLostError(f"worker {member} has let go of its items") from None
            raise
        except (KilledWorker, OSError) as error:
            raise WorkerLostError(f"worker {member} is gone ({type(error).__name__})") from error
        finally:
            future.release()
        return brought

    async def ask(self, member: str, method: str, *args: object) -> Any:
        """Call a method of a worker's site, beside all items."""
        try:
            found = await self._asking.ask(self._client.run(_ask, self._name, method, *args, workers=[member]))
            reply = found[member]
        except (OSError, KeyError, ValueError) as error:
            raise WorkerLostError(f"worker {member} does not answer ({type(error).__name__})") from error
        return unwrapped(reply)


class SitePlugin(WorkerPlugin):  # type: ignore[misc]
    """Keep a job's site at a worker, for as long as the job runs.

    Arguments:
        name: of the job; a plugin of the same name is replaced, and its site closed.
        parcel: what the job is.
        ours: whether the worker was started by the driver, in whose terminal it would hear each Ctrl-C, and be heard.
        silent: whether furcate's log is not shown at the driver.
    """

    def __init__(self, name: str, parcel: Parcel, *, ours: bool, silent: bool) -> None:
        self.name = name
        self.parcel = parcel
        self.ours = ours
        self.silent = silent
        self.site: Site | None = None

    def setup(self, worker: object) -> None:
        """Make the site, which is opened once the driver asks for it."""
        if self.ours:
            hush()
            if self.silent:
                be_silent()
            if hasattr(os, "setpgid"):
                os.setpgid(0, 0)
            # What a target prints would stand among the results, which are the driver's own stdout.
            os.dup2(2, 1)
        self.site = Site(self.parcel)

    async def teardown(self, worker: object) -> None:
        """Stop what still runs."""
        if self.site is not None:
            # A worker that ends while one of its items is stuck waits no longer; Dask would log that as an error.
            with suppress(asyncio.CancelledError):
                await asyncio.to_thread(self.site.close)


async def _ask(name: str, method: str, *args: object, dask_worker: Any = None) -> Reply:
    """Call a method of a worker's site, beside all items."""
    return await asyncio.to_thread(_reply, dask_worker, name, method, *args)


def _work(name: str, number: int, packed: bytes) -> Reply:
    # An item waits nearly all the time; how many wait here at once is for the driver to say.
    secede()
    return _reply(get_worker(), name, "work", number, packed)


def _reply(worker: Any, name: str, method: str, *args: object) -> Reply:
    plugin = worker.plugins.get(name)
    if plugin is None or plugin.site is None:
        return None, WorkerLostError("this worker knows nothing of the job any more")
    return reply_of(plugin.site, method, *args)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
