"""Where the items of a job are worked on: what is handed out, what comes back, and who carries it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from attrs import field, frozen

from furcate.batch._items import Item
from furcate.batch._rows import ItemFailure, KeptCall
from furcate.batch._target import Target
from furcate.orchestrator._engine import Engine
from furcate.primitives._observations import Observation
from furcate.primitives._usage import UNKNOWN, Usage


@frozen(kw_only=True)
class Work:
    """Say what is done with each item of a job.

    Attributes:
        engine: runs the requests; it is open.
        target: what is done.
        observations: whether what is observed of each item's runs comes back with its end.
        events: whether anybody listens while items are worked on.
        concurrency: how many items are worked on at once.
        job: a name that each start of the job has, and no other job.
    """

    engine: Engine = field(repr=False)
    target: Target
    observations: bool = True
    events: bool = True
    concurrency: int = 1
    job: str = ""


@frozen(kw_only=True)
class ItemTask:
    """Hold what is handed out: one item, with what an earlier start of it has brought.

    Attributes:
        item: what is to be worked on.
        calls: its calls that were answered before, in their order; None where none are kept or given back.
        path: the journal, as messages name it.
        suspect: workers were lost with it before, so that nothing else should be lost with it.
    """

    item: Item
    calls: tuple[KeptCall, ...] | None = None
    path: str = ""
    suspect: bool = False


@frozen(kw_only=True)
class ItemEnd:
    """Hold what comes back of one item.

    Attributes:
        result: JSON on one line; None where it failed.
        error: why it failed; None where it did not.
        usage: the tokens of all its calls.
        observations: what was observed of its runs, each as JSON on one line.
        forget_calls: run id and number of those calls that are to be made anew when it is tried again.
    """

    result: bytes | None = field(default=None, repr=False)
    error: ItemFailure | None = None
    usage: Usage = UNKNOWN
    observations: tuple[bytes, ...] = field(default=(), repr=False)
    forget_calls: tuple[tuple[str, int], ...] = ()


@frozen(kw_only=True)
class Hearing:
    """Take what is told of an item while it is worked on.

    Attributes:
        keep: writes an answered call into the journal; durable once it returns.
        on_event: told what is observed of its runs; None where nobody wants it.
    """

    keep: Callable[[KeptCall], Coroutine[Any, Any, None]]
    on_event: Callable[[Observation], None] | None = None


class Workers(Protocol):
    """Work on items while the block of their executor lasts."""

    @property
    def members(self) -> Mapping[str, int]:
        """How many items each worker has at this moment, by the worker's name; empty where there are no such."""
        ...

    async def run(self, task: ItemTask, hearing: Hearing, /) -> ItemEnd:
        """Have one item worked on, and give its end; a failure of the item is an end like any other.

        Raises:
            WorkerLostError: whoever worked on it is gone; it may be tried again.
            JournalError: an answered call could not be kept.

        Cancelled, whoever works on it stops and closes its connections.
        """
        ...


class Executor(Protocol):
    """Say where the items of a job are worked on, such as in this process or on a cluster."""

    def open(self, work: Work, /) -> AbstractAsyncContextManager[Workers]:
        """Make ready to work; leaving stops whatever still runs."""
        ...
