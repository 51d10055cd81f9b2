"""Items worked on in this process, by the engine of whoever opened the job."""

from __future__ import annotations

import logging

# What is raised in which thread is asked, and no thread is started.
import threading  # noqa: TID251
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf

import anyio
import anyio.lowlevel
from attrs import frozen

from furcate.admission import Share
from furcate.batch._call_log import ItemCalls
from furcate.batch._executor import Hearing, ItemEnd, ItemTask, Work
from furcate.batch._kept import Keeper
from furcate.batch._rows import encode
from furcate.batch._target import ItemJob, failure_of
from furcate.groups import Group
from furcate.orchestrator._priming import priming
from furcate.primitives._errors import FurcateError
from furcate.primitives._json import Json
from furcate.primitives._observations import Listener

_log = logging.getLogger("furcate")


@frozen
class InProcess:
    """Work on the items of a job in this process, on the event loop of whoever opened it."""

    @asynccontextmanager
    async def open(self, work: Work, /) -> AsyncIterator[_Here]:
        """Give who works on items."""
        yield _Here(work)


@frozen
class _Here:
    """Work on items with one engine."""

    work: Work

    @property
    def members(self) -> Mapping[str, int]:
        """Nobody but this process."""
        return {}

    async def run(self, task: ItemTask, hearing: Hearing, /) -> ItemEnd:
        """Work on one item."""
        return await work_on(task, self.work, hearing)


async def _is_ours(error: BaseException) -> bool:
    """Tell whether what came out of a target concerns more than its item: Ctrl-C, or that the item is cancelled.

    A target may let out the cancellation of a task of its own, or try to leave the program; that is its failure. Ctrl-C
    is raised in the main thread, and at the workers of a cluster, which work in another, it is the target's own doing.
    """
    if isinstance(error, anyio.get_cancelled_exc_class()):
        if anyio.current_effective_deadline() == -inf:
            return True
        await anyio.lowlevel.checkpoint()
        return False
    return threading.current_thread() is threading.main_thread() and not isinstance(error, (Exception, SystemExit))


def _encoded(value: Json) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError) as error:
        # Whoever reads it does not know whose value it is.
        raise type(error)(f"what the target returned cannot be kept as JSON ($ is the whole of it): {error}") from error


async def work_on(task: ItemTask, work: Work, hearing: Hearing) -> ItemEnd:
    """Work on one item with all its branches, and give its end.

    Arguments:
        task: the item.
        work: what is done with it.
        hearing: told what goes on meanwhile.

    Raises:
        JournalError: an answered call could not be kept, or cannot be read.

    Cancelled, it closes what is running, and the item has no end.
    """
    item = task.item
    calls = None if task.calls is None else ItemCalls(task.calls, hearing.keep, path=task.path)
    keeper = Keeper(work.observations)
    group = Group(item.id)
    observers: list[Listener] = [group, keeper]
    if hearing.on_event is not None:
        observers.append(hearing.on_event)
    engine = work.engine._for_work(Share(), calls, observers)
    job = ItemJob(engine=engine, group=group, item_id=item.id, line=item.line)
    try:
        # Items that begin alike, up to a cache hint, let one of them read that first.
        with priming():
            value = await work.target(item.value, job)
        result = _encoded(value)
    except BaseException as error:
        if await _is_ours(error):
            raise
        failure = failure_of(error)
        if not isinstance(error, FurcateError):
            _log.warning("item %s (line %d) failed: %s", item.id, item.line, failure.message, exc_info=error)
        forget = calls.failed() if calls is not None else ()
        return ItemEnd(error=failure, usage=keeper.usage, observations=tuple(keeper.lines), forget_calls=forget)
    return ItemEnd(result=result, usage=keeper.usage, observations=tuple(keeper.lines))
