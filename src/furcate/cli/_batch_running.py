"""A batch job under way: what goes on is shown, results are written as they come, and signals end it step by step."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from attrs import field, frozen

from furcate.batch import (
    Executor,
    InProcess,
    Job,
    JobOptions,
    JobProgress,
    Order,
    open_job,
)
from furcate.batch._items import Items
from furcate.batch._rows import MALFORMED
from furcate.cli._batch_found import about_job, items_told, refusal, tell_found
from furcate.cli._batch_progress import Progress, kinds_told
from furcate.cli._batch_results import Results, outcome_line
from furcate.cli._batch_target import Doing, backends_of
from furcate.cli._loop import Interruption
from furcate.cli._setup import Setup, make_ready
from furcate.cli._told import FAILED, INTERRUPTED, WELL, complain, say
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import JournalError, RequestError
from furcate.primitives._resources import Prompt
from furcate.report import LiveView
from furcate.report._live_model import LiveModel

_REMEMBERED = 20
_REMEMBERED_FAILED = 5


@frozen(kw_only=True)
class Assignment:
    """Hold everything a job was decided to be, checked.

    Attributes:
        setup: the configuration.
        doing: what is done with each item.
        items: where they come from, `-` for standard input.
        journal: the file that keeps what is finished.
        options: how the job is run.
        results: where results go; None is stdout.
        order: in which order they go there.
        fail_fast: whether the first failure ends the job.
        failed_status: the exit status where items have failed.
        executor: where items are worked on; None is this process.
    """

    setup: Setup
    doing: Doing = field(repr=False)
    items: str
    journal: Path
    options: JobOptions
    results: Path | None = None
    order: Order = "ends"
    fail_fast: bool = False
    failed_status: int = FAILED
    executor: Executor | None = None


class Running:
    """Run a job once.

    Arguments:
        assignment: what it is.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._given = assignment
        self._view = LiveView(roots="calls", above=self._above)
        # What failed is told by kinds, and a few are enough to see why: the rows are for what is running.
        self._view.model = LiveModel(kept=_REMEMBERED, kept_failed=_REMEMBERED_FAILED)
        options = assignment.options
        self._progress = Progress(limit=options.limit, concurrency=options.concurrency, view=self._view)
        shared = assignment.results is None and os.isatty(1)
        self._results = Results(assignment.results, self._view.aside if shared else contextlib.nullcontext)
        self._signals = 0
        self._job: Job | None = None

    @property
    def view(self) -> LiveView:
        """What shows it: an observer for the engine."""
        return self._view

    def _above(self, now_s: float, last: bool) -> tuple[str, ...]:
        if self._job is not None:
            self._progress.now(self._job.progress, self._job.workers)
        return tuple(self._progress.lines(now_s, last))

    async def run(self, engine: Engine, interruption: Interruption) -> int:
        """Work on the items to their end, or to where a signal ends that, and give the exit status.

        Arguments:
            engine: not open; `view` is one of its observers.
            interruption: the first signal lets what has begun be finished, the second cancels it.
        """
        with interruption.scope():
            await make_ready(self._given.setup, backends_of(self._given.doing, engine))
            # What a function prints must not end up among the results.
            with self._results, contextlib.redirect_stdout(sys.stderr):
                async with engine, self._opened(engine) as job:
                    await self._work(engine, job, interruption)
                    return await self._conclude(job, await self._unmet(job))
        complain(
            "interrupted before any item was begun" if self._job is None else "interrupted; the same command goes on"
        )
        return INTERRUPTED

    @asynccontextmanager
    async def _opened(self, engine: Engine) -> AsyncIterator[Job]:
        given = self._given
        items: Items = given.items
        try:
            async with open_job(
                given.doing,
                items,
                engine=engine,
                journal=given.journal,
                options=given.options,
                on_event=self._progress.on_event,
                executor=given.executor or InProcess(),
            ) as job:
                yield job
        except JournalError as error:
            if error.reason != "changed":
                raise
            now = about_job(given.doing, engine, source=given.items, code=given.options.code)
            raise await refusal(error, given.journal, now) from error

    async def _work(self, engine: Engine, job: Job, interruption: Interruption) -> None:
        enrollment = job.progress.enrollment
        malformed = items_told(enrollment.malformed)
        if self._given.fail_fast and enrollment.malformed:
            job.cancel()
            raise RequestError(
                f"{malformed} cannot be read, and --fail-fast ends the job at the first failure; "
                f"'furcate batch failures {self._given.journal}' tells which"
            )
        source = "standard input" if self._given.items == "-" else self._given.items
        tell_found(enrollment, self._given.journal, source)
        if enrollment.malformed:
            say(f"furcate: {malformed} cannot be read; the results have the lines and what is wrong")
        # The first items have begun by now, so a signal lets them be finished.
        self._job = job
        interruption.instead = self._give_way
        try:
            status = await job.journal.status()
            self._progress.begin(job.progress, status.failures)
            async with self._view, anyio.create_task_group() as writing:
                self._view.show_capacity(engine.statistics())
                writing.start_soon(self._results.keep_writing)
                try:
                    await self._follow(job)
                finally:
                    # What has ended is told, also where the journal takes no more.
                    with anyio.CancelScope(shield=True):
                        await self._results.flush()
                writing.cancel_scope.cancel()
        finally:
            interruption.instead = None

    async def _follow(self, job: Job) -> None:
        """Take outcomes as they come; those of earlier starts come first."""
        live = self._given.order == "ends"
        before = job.progress.enrollment
        if live:
            async with job.journal.rows("ends") as rows:
                # The workers have begun: what ended since has an outcome of its own.
                await self._results.put_rows(rows, most=before.finished + before.failed)
            self._heed_problem(job)
        async for outcome in job:
            self._progress.ended(outcome)
            if live:
                await self._results.put(outcome_line(outcome))
            self._heed_problem(job)
            if self._given.fail_fast and outcome.state == "failed":
                job.cancel()
        if not live:
            async with job.journal.rows("items") as rows:
                await self._results.put_rows(rows)

    def _heed_problem(self, job: Job) -> None:
        if self._results.problem is not None and job.progress.ended in (None, "all"):
            job.drain()

    def _give_way(self) -> bool:
        """Do what a signal asks for: first let what has begun be finished, then cancel it."""
        assert self._job is not None
        self._signals += 1
        running = self._job.progress.running
        with self._view.aside():
            if self._signals == 1:
                self._job.drain()
                rest = "none is running"
                if running:
                    one = running == 1
                    ones, them = ("running one is", "it") if one else (f"{running:,} running ones are", "them")
                    rest = f"the {ones} finished; once more cancels {them}, a third time leaves at once"
                complain(f"interrupted: no more items are begun, and {rest}")
            else:
                self._job.cancel()
                complain(
                    f"interrupted again: {items_told(running)} cancelled, to be done again at the next start; "
                    "once more leaves at once"
                )
        return True

    async def _unmet(self, job: Job) -> int:
        """Count the answers that do not meet their prompt's contract; each is a result with its text and its faults."""
        prompt = self._given.doing
        if not isinstance(prompt, Prompt) or prompt.contract is None:
            return 0
        found = 0
        async with job.journal.rows(states=("finished",)) as rows:
            async for row in rows:
                value = row.value
                found += isinstance(value, dict) and value.get("validation") == "failed"
        return found

    async def _conclude(self, job: Job, unmet: int) -> int:
        """Tell the account of it all, and give the exit status."""
        given, progress, journal = self._given, job.progress, self._given.journal
        failed = self._progress.kinds
        finished = progress.enrollment.finished + progress.finished
        said = [f"{finished:,} of {progress.enrollment.items:,} items finished"]
        said += [f"{failed.total():,} failed ({kinds_told(failed)})"] if failed else []
        say(f"{', '.join(said)}; results in {self._results.name}, journal {journal}")
        if failed:
            again = f"'furcate batch retry {journal}' has them tried again"
            if failed.total() == failed[MALFORMED]:
                again = "mend the lines, and the same command does them"
            say(f"'furcate batch failures {journal}' lists them; {again}")
        if unmet:
            say(
                f"{unmet:,} {'answer does not meet its' if unmet == 1 else 'answers do not meet their'} contract; see "
                "validation and faults in the results"
            )
        if progress.left:
            say(f"{items_told(progress.left)} left{_because(progress, given)}; the same command goes on")
        if self._results.problem is not None:
            reason = self._results.problem.strerror or self._results.problem
            complain(
                f"results cannot be written to {self._results.name} any more ({reason}), so no more items were begun; "
                f"the journal has them all: 'furcate batch results {journal}'"
            )
            return FAILED
        if self._signals and progress.left:
            return INTERRUPTED
        if progress.ended in ("cancelled", "failures"):
            return given.failed_status or FAILED
        return given.failed_status if failed or unmet else WELL


def _because(progress: JobProgress, given: Assignment) -> str:
    match progress.ended:
        case "limit":
            return f", since --limit is {given.options.limit:,}"
        case "failures":
            return f", since more than {given.options.max_failures:,} failed"
        case "cancelled" if given.fail_fast:
            return ", since one failed and --fail-fast is set"
        case _:
            return ""
