"""The driver's side of a job on a cluster: who works, on what, with how much of each backend's capacity."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from attrs import frozen

from furcate.admission import Portion
from furcate.batch._executor import Hearing, ItemEnd, ItemTask
from furcate.batch._rows import ItemFailure, KeptCall
from furcate.batch.cluster._capacity import Capacity
from furcate.batch.cluster._roster import Member, Roster
from furcate.batch.cluster._site import Brought, News, Told
from furcate.batch.cluster._unended import Unended
from furcate.orchestrator._engine import Engine
from furcate.orchestrator._telling import Listeners
from furcate.primitives._errors import ExecutorError, FurcateError, TooLargeError, WorkerLostError
from furcate.primitives._observations import ContentObservation

_log = logging.getLogger("furcate")

_LOOK_S = 0.25
_NOBODY_S = 5.0
"""After how long without a worker that is told, in seconds."""
_CERTAIN_S = 1.0
_POLL_S = 2.0
_STOP_S = 5.0
"""How long a cancelled item may take to stop, in seconds."""
_LEAST_WAIT_S = 0.001


class Cluster(Protocol):
    """What an engine of many machines has to offer to a job."""

    async def members(self) -> frozenset[str]:
        """Give the names of the workers that are there now; a name is never used for another worker later."""
        ...

    async def welcome(self, member: str) -> None:
        """Have a worker open its site.

        Raises:
            ExecutorError: it cannot do the job.
            WorkerLostError: it is gone.
        """
        ...

    async def work(self, member: str, number: int, packed: bytes) -> Brought:
        """Have a worker work on an item; raises `WorkerLostError` where it is gone."""
        ...

    async def poll(self, member: str, after: int, wait_s: float) -> News:
        """Ask a worker for news; raises `WorkerLostError` where it is gone."""
        ...

    async def obey(self, member: str, portions: dict[str, Portion]) -> None:
        """Tell a worker its portions; raises `WorkerLostError` where it is gone."""
        ...

    async def cancel(self, member: str, number: int) -> int:
        """Have a worker stop an item, and give the number of the last thing that it told before it had.

        Raises:
            WorkerLostError: it is gone.
        """
        ...


@frozen(kw_only=True)
class Terms:
    """Say how a crew works.

    Attributes:
        most_bytes: how large an item may be on its way, in bytes, and what came of it.
        patience_s: how long a job may be without any worker, in seconds.
        per_worker: most items at a worker at once.
        on_notice: told in one sentence each which workers are lost or not used.
    """

    most_bytes: int
    patience_s: float
    per_worker: int
    on_notice: Callable[[str], object] = _log.warning


class Crew:
    """Hand items to the workers of a cluster, and hear from them; made by `open_crew`.

    Arguments:
        cluster: the workers.
        engine: whose backends are used; it hears what happens at the workers.
        terms: how it works.
    """

    def __init__(self, cluster: Cluster, engine: Engine, terms: Terms) -> None:
        self._cluster = cluster
        self._listeners = engine._listeners.afar()
        self._terms = terms
        self._capacity = Capacity(engine._resources.backends.values())
        self._roster = Roster(terms.per_worker)
        self._hearings: dict[int, tuple[Hearing, Listeners]] = {}
        self._unended: dict[int, Unended] = {}
        self._numbers = count(1)
        self._shared = anyio.Event()

    @property
    def members(self) -> dict[str, int]:
        """How many items each worker has."""
        return self._roster.ready

    async def run(self, task: ItemTask, hearing: Hearing, /) -> ItemEnd:
        """Have one item worked on by the worker that has least to do.

        Raises:
            WorkerLostError: the worker is gone.
            ExecutorError: there is no worker any more.
        """
        packed = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        if len(packed) > self._terms.most_bytes:
            return _too_large(
                TooLargeError("the item, with the answers that it has already,", len(packed), self._terms.most_bytes)
            )
        async with self._roster.place(alone=task.suspect) as member:
            return await self._run_at(member, packed, hearing)

    async def _run_at(self, member: Member, packed: bytes, hearing: Hearing) -> ItemEnd:
        number = next(self._numbers)
        listeners = self._listeners.with_ranks((), () if hearing.on_event is None else (hearing.on_event,))
        self._hearings[number] = hearing, listeners
        self._unended[number] = Unended()
        try:
            brought = await self._work(member, number, packed)
            # What was told before the end has to be in the journal before the end is.
            while member.seen < brought.sequence and not member.gone.is_set():
                await member.further.wait()
            return brought.end
        except anyio.get_cancelled_exc_class():
            await self._stop(member, number)
            raise
        finally:
            # Nothing is left to be told where the item has come to its end.
            for event in self._unended.pop(number).ends(anyio.current_time()):
                listeners.tell(event)
            del self._hearings[number]

    async def _work(self, member: Member, number: int, packed: bytes) -> Brought:
        """Wait for an item's end, or for the worker's."""
        brought: list[Brought] = []
        failed: list[FurcateError] = []
        async with anyio.create_task_group() as both:

            async def work() -> None:
                try:
                    brought.append(await self._cluster.work(member.name, number, packed))
                except FurcateError as error:
                    failed.append(error)
                both.cancel_scope.cancel()

            both.start_soon(work)
            await member.gone.wait()
            both.cancel_scope.cancel()
        if brought:
            return brought[0]
        error = failed[0] if failed else WorkerLostError(f"worker {member.name} is gone")
        if isinstance(error, TooLargeError):
            return Brought(_too_large(error), 0)
        raise error

    async def _stop(self, member: Member, number: int) -> None:
        """Stop an item that is cancelled here, and hear how its runs have ended."""
        with anyio.move_on_after(_STOP_S, shield=True):
            try:
                sequence = await self._cluster.cancel(member.name, number)
                while member.seen < sequence:
                    # Whoever attends to the worker may be cancelled by now, too.
                    async with member.asking:
                        if member.seen < sequence:
                            await self._hear(member, await self._cluster.poll(member.name, member.seen, _LOOK_S))
            except ExecutorError:
                _log.debug("worker %s is gone; there is nothing to stop", member.name)

    async def look_after(self, tasks: TaskGroup) -> None:
        """Follow who comes and goes, until cancelled.

        Arguments:
            tasks: where each worker is served.
        """
        alone_since_s, said = anyio.current_time(), False
        while True:
            try:
                names = await self._cluster.members()
            except ExecutorError as error:
                self._roster.fail(error)
                return
            for name in self._roster.names - names:
                member = self._roster.get(name)
                assert member is not None
                member.dead.set()
                self._lose(member, f"worker {name} is gone")
                self._roster.forget(member)
            for name in names - self._roster.names:
                tasks.start_soon(self._serve, self._roster.come(name))
            now_s = anyio.current_time()
            if self._roster.ready:
                alone_since_s, said = now_s, False
            elif not said and now_s - alone_since_s > _NOBODY_S:
                said = True
                self._notice(f"there is no worker; one is waited for, {self._terms.patience_s:.0f} s at the most")
            elif now_s - alone_since_s > self._terms.patience_s:
                waited = f"{self._terms.patience_s:.0f} s"
                self._roster.fail(
                    ExecutorError(f"there has been no worker for {waited}; start one, or look at the cluster's log")
                )
                return
            await anyio.sleep(_LOOK_S)

    async def _serve(self, member: Member) -> None:
        """Do with a worker what is to be done until it is gone."""
        async with anyio.create_task_group() as both:
            both.start_soon(self._attend, member, both)
            await member.gone.wait()
            both.cancel_scope.cancel()

    async def _attend(self, member: Member, tasks: TaskGroup) -> None:
        try:
            await self._cluster.welcome(member.name)
        except WorkerLostError:
            self._roster.forget(member)
            return
        except ExecutorError as error:
            if self._roster.ready:
                # One that comes later and does not fit is not worth losing the others for.
                self._notice(f"worker {member.name} is not used: {error}")
            else:
                self._roster.fail(ExecutorError(f"worker {member.name} cannot do the job: {error}"))
            self._roster.refuse(member)
            return
        self._capacity.join(member.name)
        self._roster.begin(member)
        self._share_again()
        tasks.start_soon(self._post, member)
        try:
            while not member.gone.is_set():
                async with member.asking:
                    news = await self._cluster.poll(member.name, member.seen, _POLL_S)
                    self._capacity.report(member.name, news.needs, now_s=anyio.current_time())
                    self._share_again()
                    await self._hear(member, news)
        except WorkerLostError as error:
            self._lose(member, str(error))
            with anyio.CancelScope(shield=True):
                # Whether it is dead, and not only out of reach, may be known in a moment.
                with anyio.move_on_after(_CERTAIN_S):
                    await member.dead.wait()
        finally:
            self._roster.forget(member)
            self._capacity.leave(member.name, dead=member.dead.is_set(), now_s=anyio.current_time())
            self._share_again()

    def _lose(self, member: Member, how: str) -> None:
        """Let a worker's items go to others; it is told once, whoever finds out."""
        if member.state == "ready":
            self._notice(f"{how}; its items are given to others" if member.items else how)
        self._roster.part(member)

    def _notice(self, text: str) -> None:
        try:
            self._terms.on_notice(text)
        except Exception:
            _log.exception("on_notice failed on: %s", text)

    async def _hear(self, member: Member, news: News) -> None:
        """Keep and tell what has happened, and let go of it."""
        told = [one for one in news.told if one.sequence > member.seen]
        if not told:
            return
        # What is here has been paid for, and is told once: cancelled, it is still kept.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as writing:
                for one in told:
                    self._pass_on(one, writing)
        member.arrived(told[-1].sequence)

    def _pass_on(self, one: Told, writing: TaskGroup) -> None:
        if one.task not in self._hearings:
            return
        hearing, listeners = self._hearings[one.task]
        if isinstance(one.what, KeptCall):
            writing.start_soon(self._keep, hearing, one.what)
            return
        if isinstance(one.what, ContentObservation):
            listeners.tell_content(one.what)
            return
        self._unended[one.task].take(one.what, anyio.current_time())
        listeners.tell(one.what)

    async def _keep(self, hearing: Hearing, call: KeptCall) -> None:
        try:
            await hearing.keep(call)
        except FurcateError as error:
            # Such as a full disk: the job ends by it, once it wants to go on.
            self._roster.fail(error)

    async def _post(self, member: Member) -> None:
        """Send a worker its portions, in the order in which they were decided; an older one is not worth sending."""
        while True:
            await member.posted.wait()
            member.posted = anyio.Event()
            portions, member.outbox = member.outbox, {}
            try:
                await self._cluster.obey(member.name, portions)
            except WorkerLostError:
                return

    def _share_again(self) -> None:
        self._shared.set()

    async def share_out(self) -> None:
        """Decide again who may do how much, whenever that may have changed, until cancelled."""
        while True:
            now_s = anyio.current_time()
            for name, portions in self._capacity.portions(now_s=now_s).items():
                member = self._roster.get(name)
                if member is not None:
                    member.outbox.update(portions)
                    member.posted.set()
            wait_s = self._capacity.next_up(now_s) - now_s
            with anyio.move_on_after(None if wait_s == math.inf else max(_LEAST_WAIT_S, wait_s)):
                await self._shared.wait()
            self._shared = anyio.Event()


@asynccontextmanager
async def open_crew(cluster: Cluster, engine: Engine, terms: Terms) -> AsyncIterator[Crew]:
    """Make a crew of a cluster's workers; leaving lets go of them."""
    crew = Crew(cluster, engine, terms)
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crew.look_after, tasks)
        tasks.start_soon(crew.share_out)
        try:
            yield crew
        except Exception as error:
            failed = error
        finally:
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


def _too_large(error: TooLargeError) -> ItemEnd:
    return ItemEnd(error=ItemFailure("too_large", str(error)))
