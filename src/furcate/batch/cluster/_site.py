"""A worker's side of a job: one engine in a thread with an event loop of its own, used for all items that come here."""

from __future__ import annotations

import logging
import pickle

# What an engine of a cluster calls comes from threads of its own, and the event loop is ours.
import threading  # noqa: TID251
import time  # noqa: TID251
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import field, frozen

from furcate.admission import Gate, Need, Portion
from furcate.batch._executor import Hearing, ItemEnd, ItemTask, Work
from furcate.batch._in_process import work_on
from furcate.batch._rows import KeptCall
from furcate.batch.cluster._setup import Parcel, Setup
from furcate.observers._otel import OTelObserver
from furcate.observers._otel_setup import observe_by
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import ExecutorError, FurcateError, TooLargeError, WorkerLostError
from furcate.primitives._observations import ContentObservation, Listener, Observation

_log = logging.getLogger("furcate")

Reply: TypeAlias = tuple[object, FurcateError | None]
"""What a method of a site gave, or raised: a cluster would put what is raised in an envelope, and log it as a fault."""

SILENCE_S = 10.0
"""After how long without a word of the driver its items are stopped, in seconds."""
_GATHER_S = 0.02
_LOOK_S = 1.0
_STOP_S = 2.0
"""How long whoever cancels an item waits for it to stop, in seconds."""


@frozen
class Told:
    """Carry one thing that happened to an item before its end.

    Attributes:
        sequence: rises from one to the next at one site.
        task: which try of which item.
        what: an answered call, or an observation, of content where that is asked for.
    """

    sequence: int
    task: int
    what: KeptCall | Observation | ContentObservation = field(repr=False)


@frozen
class News:
    """Carry what a site has to say.

    Attributes:
        told: what happened, in order.
        needs: how it stands at each backend that others use too.
        running: how many items are worked on.
    """

    told: tuple[Told, ...]
    needs: Mapping[str, Need]
    running: int


@frozen
class Brought:
    """Carry the end of an item.

    Attributes:
        end: the end.
        sequence: number of the last thing that was told of this site before it.
    """

    end: ItemEnd
    sequence: int


class Site:
    """Work on items of one job in this process.

    All methods may be called from any thread, and block it.

    Arguments:
        parcel: what the job is.
    """

    def __init__(self, parcel: Parcel) -> None:
        self._parcel = parcel
        self._opening = threading.Lock()
        # Never held while the event loop is waited for, whose own tasks want it.
        self._guard = threading.Condition()
        self._open: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._work: Work | None = None
        self._setup: Setup | None = None
        self._telemetry: OTelObserver | None = None
        self._tasks: dict[int, Future[ItemEnd]] = {}
        self._unwanted: set[int] = set()
        self._running: set[int] = set()
        self._told: deque[Told] = deque()
        self._sequence = 0
        self._stirred = False
        self._heard_s = time.monotonic()

    def open(self) -> None:
        """Check that this process can do the job, and open its engine; opened again, it begins anew without items.

        Raises:
            ExecutorError: it cannot.
        """
        with self._opening:
            self._heard_s = time.monotonic()
            if self._portal is not None:
                # The driver had lost sight of this site, and has given its items to others.
                self._cancel_all()
                self._portal.call(self._join)
                return
            self._parcel.check()
            try:
                setup = self._parcel.open()
            except Exception as error:
                problem = f"the target cannot be loaded on this worker ({type(error).__name__}: {error})"
                raise ExecutorError(problem) from error
            with ExitStack() as opened:
                self._enter(opened, setup)
                self._open = opened.pop_all()

    def _enter(self, opened: ExitStack, setup: Setup) -> None:
        observers: list[Listener] = []
        if setup.otel is not None:
            self._telemetry = opened.enter_context(observe_by(setup.otel))
            observers.append(self._telemetry)
        engine = Engine(
            backends=setup.backends,
            profiles=setup.profiles,
            prompts=setup.prompts,
            observers=observers,
            transport=setup.transport,
        )
        portal = opened.enter_context(start_blocking_portal(self._parcel.loop))
        opened.enter_context(portal.wrap_async_context_manager(engine))
        self._work = Work(engine=engine, target=setup.target, observations=setup.observations)
        self._setup = setup
        portal.call(self._join)
        opened.callback(self._cancel_all)
        opened.callback(portal.start_task_soon(self._watch).cancel)
        self._portal = portal

    def close(self) -> None:
        """Stop all items, and close their connections."""
        with self._opening:
            self._portal = None
            self._stir()
            opened, self._open = self._open, None
            if opened is not None:
                opened.close()

    def work(self, number: int, packed: bytes) -> Brought:
        """Work on one item, and give its end.

        Arguments:
            number: by which it is cancelled, and what is told of it known.
            packed: the task, pickled.

        Raises:
            WorkerLostError: the site is closed, or the item was stopped.
            TooLargeError: what came of it is too large to be sent.
        """
        task = pickle.loads(packed)
        portal = self._portal
        try:
            if portal is None:
                raise WorkerLostError("this worker has been told to stop")
            future = portal.start_task_soon(partial(self._work_on, number, task))
        except RuntimeError as error:
            raise WorkerLostError("this worker has been told to stop") from error
        with self._guard:
            self._tasks[number] = future
            unwanted = number in self._unwanted or self._portal is not portal
        if unwanted:
            future.cancel()
        try:
            end = future.result()
        except CancelledError:
            raise WorkerLostError("the item was stopped on its worker") from None
        finally:
            with self._guard:
                self._tasks.pop(number, None)
        size = len(end.result or b"") + sum(map(len, end.observations))
        if size > self._parcel.most_bytes:
            raise TooLargeError("what came of the item", size, self._parcel.most_bytes)
        with self._guard:
            return Brought(end, self._sequence)

    def cancel(self, number: int) -> int:
        """Stop an item, wait a moment until it has, and give the number of the last thing that was told till then.

        One that is not here is none to stop.
        """
        with self._guard:
            future = self._tasks.get(number)
            if future is None:
                # It may be on its way here.
                self._unwanted.add(number)
        if future is not None:
            # It counts as cancelled from here on; its connections are closed, and its runs ended, a little later.
            future.cancel()
        with self._guard:
            self._guard.wait_for(lambda: number not in self._running, _STOP_S)
            return self._sequence

    def obey(self, portions: Mapping[str, Portion]) -> None:
        """Keep to portions of backends from now on."""
        portal = self._portal
        if portal is not None:
            portal.call(self._obey, portions)

    def poll(self, after: int, wait_s: float) -> News:
        """Give what has happened, as soon as something has, and at the latest after a while.

        Arguments:
            after: number of the last thing that arrived; it and those before are forgotten.
            wait_s: how long to wait, in seconds.
        """
        until_s = time.monotonic() + wait_s
        with self._guard:
            self._heard_s = time.monotonic()
            while self._told and self._told[0].sequence <= after:
                self._told.popleft()
            while not self._told and not self._stirred and self._portal is not None:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not self._guard.wait(left_s):
                    break
        # What happens at the same time travels together.
        time.sleep(_GATHER_S)
        portal = self._portal
        with self._guard:
            self._stirred = False
            self._heard_s = time.monotonic()
        needs = {} if portal is None else portal.call(self._needs)
        with self._guard:
            return News(tuple(self._told), needs, len(self._tasks))

    async def _work_on(self, number: int, task: ItemTask) -> ItemEnd:
        assert self._work is not None
        assert self._setup is not None
        # From here the way home is long; whoever answers does not wait for it.
        tell = partial(self._tell, number)
        on_event = _Ear(tell, tell if self._setup.content else None) if self._setup.events else None
        hearing = Hearing(keep=partial(self._keep, number), on_event=on_event)
        span = nullcontext() if self._telemetry is None else self._telemetry.item(task.item.id, self._setup.carrier)
        with span, self._counted(number):
            return await work_on(task, self._work, hearing)

    @contextmanager
    def _counted(self, number: int) -> Iterator[None]:
        with self._guard:
            self._running.add(number)
        try:
            yield
        finally:
            with self._guard:
                self._running.discard(number)
                self._guard.notify_all()

    async def _keep(self, number: int, call: KeptCall) -> None:
        self._tell(number, call)

    def _tell(self, number: int, what: KeptCall | Observation | ContentObservation) -> None:
        with self._guard:
            self._sequence += 1
            self._told.append(Told(self._sequence, number, what))
            self._guard.notify_all()

    def _stir(self) -> None:
        with self._guard:
            self._stirred = True
            self._guard.notify_all()

    async def _join(self) -> None:
        for gate in self._gates().values():
            gate.obey(Portion.nothing())
            gate.watch(self._stir)

    async def _obey(self, portions: Mapping[str, Portion]) -> None:
        gates = self._gates()
        for name, portion in portions.items():
            gates[name].obey(portion)
        self._stir()

    async def _needs(self) -> dict[str, Need]:
        return {name: gate.need() for name, gate in self._gates().items()}

    def _gates(self) -> Mapping[str, Gate]:
        assert self._work is not None
        return self._work.engine._gates()

    async def _watch(self) -> None:
        """Stop everything while the driver is gone, which may come back and be gone again."""
        noted = False
        while True:
            await anyio.sleep(_LOOK_S)
            with self._guard:
                silent_s = time.monotonic() - self._heard_s
            if silent_s <= SILENCE_S:
                noted = False
                continue
            if not noted:
                noted = True
                _log.warning("no word of the job's driver for %.0f s; its items are stopped here", silent_s)
            self._cancel_all()

    def _cancel_all(self) -> None:
        with self._guard:
            tasks = tuple(self._tasks.values())
        for future in tasks:
            future.cancel()


@frozen
class _Ear:
    """Hear of an item's runs; `on_content` makes it one of those that are told what is said."""

    tell: Callable[[Observation], None]
    on_content: Callable[[ContentObservation], None] | None

    def __call__(self, event: Observation, /) -> None:
        self.tell(event)


def reply_of(site: Site, method: str, *args: object) -> Reply:
    """Call a method of a site, whose error comes back beside what it gives."""
    try:
        return getattr(site, method)(*args), None
    except FurcateError as error:
        return None, error


def unwrapped(reply: Reply) -> Any:
    """Give what a method gave, or raise what it raised."""
    value, error = reply
    if error is not None:
        raise error
    return value
