"""A job: many items, a bounded number of them at once, and each one's end kept before it is told."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup
from attrs import evolve

from furcate.batch._database import place_of
from furcate.batch._executor import Executor, Hearing, ItemEnd, ItemTask, Work, Workers
from furcate.batch._feed import AHEAD, Enrolled, Feed
from furcate.batch._in_process import InProcess
from furcate.batch._items import ID_FIELD, BadItem, Item, Items, Source, open_source
from furcate.batch._job_values import DEFAULT_OPTIONS, Ended, ItemOutcome, JobOptions, JobProgress
from furcate.batch._journal import Journal, open_journal
from furcate.batch._rows import MALFORMED, About, Enrollment, ItemFailure
from furcate.batch._target import Target, function_of, target_name
from furcate.orchestrator._config_digests import configuration_digests
from furcate.orchestrator._engine import Engine
from furcate.primitives._checks import check_instance
from furcate.primitives._errors import MisuseError, WorkerLostError
from furcate.primitives._observations import Observation
from furcate.primitives._resources import Prompt
from furcate.primitives._usage import UNKNOWN, Usage

_ENROLLED_AT_ONCE = 500
_TRIES = 3
"""At how many workers an item is tried, should they be lost while they have it."""

OnEvent: TypeAlias = Callable[[str, Observation], None]
"""Is told an item's id, and what was observed of one of its runs."""

_HERE = InProcess()


class Job:
    """Work on the items of a job while its block lasts; made by `open_job`.

    ::

        async with open_job(target, "items.jsonl", engine=engine, journal="job.db") as job:
            async for outcome in job:
                print(outcome.id, outcome.state)

    Outcomes come in the order in which items end. Whoever stops iterating and leaves the block cancels what is running:
    such items are done again at the next start, without asking again for what they had been answered.
    """

    def __init__(
        self,
        workers: Workers,
        source: Source,
        journal: Journal,
        *,
        options: JobOptions,
        progress: JobProgress,
        on_event: OnEvent | None = None,
    ) -> None:
        self._workers = workers
        self._source = source
        self._journal = journal
        self._options = options
        self._progress = progress
        self._on_event = on_event
        self._enrolled = Enrolled()
        self._feed = Feed(source, journal, self._enrolled)
        self._begun = 0
        self._scopes: set[anyio.CancelScope] = set()
        self._error: Exception | None = None
        # Whoever is slow to take outcomes holds up the workers, and not the memory.
        self._told, self._outcomes = anyio.create_memory_object_stream[ItemOutcome](options.concurrency)

    @property
    def journal(self) -> Journal:
        """The job's journal, to be read while the job runs."""
        return self._journal

    @property
    def progress(self) -> JobProgress:
        """How far the job is."""
        return self._progress

    @property
    def workers(self) -> Mapping[str, int]:
        """How many items each worker of a cluster has, by its name; empty where items are worked on in this process."""
        return self._workers.members

    def drain(self) -> None:
        """Begin no more items; those that have begun are worked on to their end."""
        self._end("drained")

    def cancel(self) -> None:
        """Begin no more items, and cancel those that have begun; they are done again at the next start."""
        self._end("cancelled")
        self._cut()

    def _cut(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    def __aiter__(self) -> Job:
        return self

    async def __anext__(self) -> ItemOutcome:
        try:
            return await self._outcomes.receive()
        except anyio.EndOfStream:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None
        except anyio.ClosedResourceError:
            raise MisuseError("the job is iterated outside the block that opened it; iterate inside") from None

    async def run(self) -> JobProgress:
        """Work on all items, and tell how that went; for those who read the outcomes from the journal.

        Raises:
            JournalError: the journal cannot be written any more.
            MisuseError: the block that opened the job has been left.
        """
        async for _ in self:
            pass
        return self._progress

    def _start(self, tasks: TaskGroup, about: About | None) -> None:
        """Begin to work.

        Arguments:
            tasks: where.
            about: what the job is, where its items are not yet in the journal; None where they are.
        """
        if about is None:
            self._enrolled.end()
        else:
            self._spawn(tasks, partial(self._enroll, about))
        self._spawn(tasks, partial(self._hand_out, tasks))

    def _spawn(self, tasks: TaskGroup, do: Callable[[], Awaitable[None]]) -> None:
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        tasks.start_soon(self._do_part, do, scope)

    async def _do_part(self, do: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        """Do a part of the job; once the last part has ended, no more outcomes come."""
        try:
            with scope:
                await do()
        except Exception as error:
            # It is told to whoever iterates, rather than in a group of errors from below the block.
            self._error = self._error or error
            self._cut()
        finally:
            self._scopes.discard(scope)
            if not self._scopes:
                self._told.close()

    async def _hand_out(self, tasks: TaskGroup) -> None:
        """Begin items, each in a task of its own, as many at once as may be."""
        places = anyio.Semaphore(self._options.concurrency)
        while True:
            await places.acquire()
            if self._progress.ended is not None or (item := await self._next()) is None:
                return
            self._spawn(tasks, partial(self._work, item, places))

    async def _work(self, item: Item, places: anyio.Semaphore) -> None:
        try:
            await self._do(item)
        finally:
            places.release()

    async def _tell(self, outcome: ItemOutcome) -> None:
        """Give an outcome to whoever iterates, unless that one has left."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._told.send(outcome)

    async def _enroll(self, about: About) -> None:
        """Bring the items into the journal while the first of them are worked on already."""
        position, most = 0, AHEAD
        items = aiter(self._source)
        more: list[Item | BadItem] = []
        while True:
            while len(more) < most and (item := await anext(items, None)) is not None:
                more.append(item)
            # As for ends: those of items that cannot be read are in the journal with the others.
            with anyio.CancelScope(shield=True):
                await self._journal.enroll_more(more, position=position, about=about, where=self._source.where)
                for item in more:
                    if isinstance(item, BadItem):
                        await self._tell(self._failed(item.id, item.line, ItemFailure(MALFORMED, item.problem)))
            if len(more) < most:
                break
            position, most = position + len(more), _ENROLLED_AT_ONCE
            self._enrolled.reach(position)
            more = []
        self._enrolled.end()

    async def _next(self) -> Item | None:
        limit = self._options.limit
        if limit is not None and self._begun >= limit:
            self._end("limit")
            return None
        self._begun += 1
        item = await self._feed.next()
        if item is None:
            self._end("all")
        return item

    async def _do(self, item: Item) -> None:
        """Have one item worked on, keep its end, and tell it."""
        journal = self._journal
        on_event = None if self._on_event is None else partial(self._on_event, item.id)
        hearing = Hearing(keep=partial(journal.keep_call, item.id), on_event=on_event)
        self._progress = evolve(self._progress, running=self._progress.running + 1)
        try:
            end = await self._run(item, hearing)
            # An end that is reached is kept and told whatever is cancelled: what the journal has, the reader is given.
            with anyio.CancelScope(shield=True):
                outcome = await self._keep(item, end)
        finally:
            self._progress = evolve(self._progress, running=self._progress.running - 1)
        with anyio.CancelScope(shield=True):
            await self._tell(outcome)

    async def _run(self, item: Item, hearing: Hearing) -> ItemEnd:
        """Have an item worked on, and tried again where its worker is lost meanwhile, which may be the item's doing."""
        journal = self._journal
        for tried in range(1, _TRIES + 1):
            calls = await journal.calls(item.id) if self._options.replay else None
            await journal.begin(item.id)
            # The last try tells which of those that were lost together are to blame.
            task = ItemTask(item=item, calls=calls, path=journal.path, suspect=tried == _TRIES)
            try:
                return await self._workers.run(task, hearing)
            except WorkerLostError as error:
                if tried == _TRIES:
                    return ItemEnd(
                        error=ItemFailure(
                            "worker_lost", f"{error}; it is the last of {tried} that were lost with this item"
                        )
                    )
        raise AssertionError("unreachable")

    async def _keep(self, item: Item, end: ItemEnd) -> ItemOutcome:
        journal, usage, seen = self._journal, end.usage, end.observations
        if end.error is not None:
            await journal.fail(item.id, end.error, usage=usage, observations=seen, forget_calls=end.forget_calls)
            return self._failed(item.id, item.line, end.error, usage=usage)
        assert end.result is not None
        await journal.finish(item.id, end.result, usage=usage, observations=seen)
        self._progress = evolve(self._progress, finished=self._progress.finished + 1)
        return ItemOutcome(id=item.id, line=item.line, state="finished", result=json.loads(end.result), usage=usage)

    def _failed(self, item_id: str | None, line: int, error: ItemFailure, *, usage: Usage = UNKNOWN) -> ItemOutcome:
        """Count a failure that is in the journal."""
        self._progress = evolve(self._progress, failed=self._progress.failed + 1)
        most = self._options.max_failures
        if most is not None and self._progress.failed > most:
            self._end("failures")
        return ItemOutcome(id=item_id, line=line, state="failed", error=error, usage=usage)

    def _close(self) -> None:
        self._told.close()
        self._outcomes.close()

    def _end(self, why: Ended) -> None:
        if self._progress.ended in (None, "all") or why == "cancelled":
            self._progress = evolve(self._progress, ended=why)


def _job_name(journal: str) -> str:
    """Name a job by where its journal is: nobody else can run it at the same time."""
    return sha256(f"{socket.gethostname()}\0{os.path.realpath(journal)}".encode()).hexdigest()[:16]


@asynccontextmanager
async def open_job(
    target: Target | Prompt | str,
    items: Items,
    *,
    engine: Engine,
    journal: str | os.PathLike[str],
    options: JobOptions = DEFAULT_OPTIONS,
    on_event: OnEvent | None = None,
    executor: Executor = _HERE,
) -> AsyncIterator[Job]:
    """Open a job and begin to work on its items; done again with the same journal, it goes on where it was.

    Arguments:
        target: an async function ``(item, job)`` that returns a JSON value, or a prompt or the id of one, whose
            variables come from the item.
        items: a file (JSON lines, CSV, or a JSON array), ``-`` for standard input, a stream of bytes, or an iterable or
            async iterable of JSON values, which is copied before the first item is worked on; the number of a value
            stands for its line.
        engine: runs the requests; it is open.
        journal: the file that keeps what is finished; it is made where there is none.
        options: how the job is run.
        on_event: told what is observed of each item's runs, with the item's id; what it raises is logged.
        executor: where items are worked on.

    Raises:
        ItemsError: the items cannot be read, or two of them have one id.
        JournalError: the journal is in use, or no journal, or was written under another setup.
        UnknownNameError: there is no such prompt, or no such profile as the prompt names.
        TypeError: the target is neither a prompt nor the id of one nor an async function of two arguments; one of
            the values given as items is none of JSON's; or the journal's path is no text.
        ValueError: the journal's path names no file.

    Cancelled, it closes what is running; whatever had finished is in the journal.
    """
    check_instance("engine", engine, Engine)
    if not isinstance(options, JobOptions):
        raise TypeError(f"options is {options!r}; give furcate.batch.JobOptions")
    place = place_of(journal)
    name = target_name(target)
    if isinstance(target, str):
        engine.inspect_prompt(target)
    elif isinstance(target, Prompt) and target.profile is not None:
        engine.inspect_profile(target.profile)
    prompt = target if isinstance(target, (str, Prompt)) else None
    digests = configuration_digests(engine._resources, prompt)
    work = Work(
        engine=engine,
        target=function_of(target),
        observations=options.observations,
        events=on_event is not None or engine._is_heard,
        concurrency=options.concurrency,
        job=_job_name(place),
    )
    async with (
        open_source(items, options.format, id_field=options.id_field) as source,
        open_journal(place) as kept,
        executor.open(work) as workers,
    ):
        about = About(
            target=name,
            source=source.where,
            id_field=options.id_field or ID_FIELD,
            digests={**digests, "code": options.code},
        )
        # In a new journal nothing can have changed, so the first items are begun while the others are being enrolled.
        many = None if await kept.has_items() else await source.count_if_distinct()
        if many is None:
            enrollment = await kept.enroll(source, about=about, on_changed=options.on_changed)
        else:
            enrollment = Enrollment(items=many, new=many, pending=many)
        progress = JobProgress(enrollment=enrollment)
        job = Job(workers, source, kept, options=options, progress=progress, on_event=on_event)
        failed: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            job._start(tasks, None if many is None else about)
            try:
                yield job
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                failed = error
            finally:
                tasks.cancel_scope.cancel()
                job._close()
        if failed is not None:
            raise failed
