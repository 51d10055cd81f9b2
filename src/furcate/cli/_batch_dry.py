"""A batch job rehearsed: every item is read, rendered and encoded, and nothing is sent."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from attrs import define, field

from furcate.admission import Share
from furcate.batch import (
    BadItem,
    Item,
    ItemFailure,
    ItemJob,
    Journal,
    JournalRow,
    Source,
    Target,
    line_of,
    open_journal,
    open_source,
    read_journal,
)
from furcate.batch._database import open_for_reading, transaction
from furcate.batch._export import write_whole
from furcate.batch._feed import AHEAD
from furcate.batch._kept import NO_TOKENS
from furcate.batch._rows import MALFORMED
from furcate.batch._target import failure_of, function_of
from furcate.cli._batch_found import about_job, items_told, refusal, tell_found
from furcate.cli._batch_journal import holder_told
from furcate.cli._batch_progress import kinds_told
from furcate.cli._batch_running import Assignment
from furcate.cli._told import leaves, say
from furcate.dialects import dialect_named
from furcate.groups import Group
from furcate.orchestrator._encoding import encode_ahead
from furcate.orchestrator._engine import Engine
from furcate.orchestrator._execute import Run
from furcate.orchestrator._plan import Plan
from furcate.primitives._errors import JournalError
from furcate.primitives._usage import UNKNOWN
from furcate.transport import native_sha256


class _Reached(BaseException):
    """Ends the rehearsal of an item: its first request stands. Nobody's ``except Exception`` may swallow it."""


class _Rehearsal(Engine):
    """Encode what is asked for, and send nothing."""

    note: Callable[[int], None]

    @classmethod
    def of(cls, engine: Engine, note: Callable[[int], None]) -> _Rehearsal:
        """Make one with the configuration of another engine, which is not opened.

        Arguments:
            engine: the other one.
            note: told the size of each body, in bytes.
        """
        made = cls.__new__(cls)
        made.__dict__.update(engine.__dict__)
        made.note = note
        return made

    def _run_of(self, plan: Plan, *, scope_id: str | None = None, streamed: bool = False) -> Run:
        # A real run has its request's digest in its receipts, and refuses what has none.
        native_sha256(plan.request, plan.parent)
        wire = encode_ahead(plan.call, plan, dialect_named(plan.backend.dialect)).wire
        self.note(sum(map(len, wire.body)))
        raise _Reached


@define
class _Account:
    """Count what a rehearsal finds.

    Attributes:
        begun: items that would be begun.
        sent: items whose first request would be sent.
        silent: items that ask nothing.
        smallest: of the first requests' bodies, in bytes, as are the largest and all together.
        cut: whether a limit leaves items out.
        kinds: how many items fail, by the kind of failure.
    """

    begun: int = 0
    sent: int = 0
    silent: int = 0
    smallest: int = 0
    largest: int = 0
    total: int = 0
    cut: bool = False
    kinds: Counter[str] = field(factory=Counter)

    def take(self, size: int) -> None:
        """Take an item's first request."""
        self.smallest = size if not self.sent else min(self.smallest, size)
        self.largest = max(self.largest, size)
        self.total += size
        self.sent += 1


class _Chunks:
    """Give the items that are to be done, and those that cannot be read, some at a time."""

    def __init__(self, source: Source, journal: Journal) -> None:
        self._items = aiter(source)
        self._journal = journal

    async def next(self) -> list[Item | BadItem] | None:
        """Give the next ones; None after the last."""
        ahead: list[Item | BadItem] = []
        while len(ahead) < AHEAD and (item := await anext(self._items, None)) is not None:
            ahead.append(item)
        pending = {item.id for item in await self._journal.pending(ahead)}
        return [item for item in ahead if isinstance(item, BadItem) or item.id in pending] if ahead else None


async def rehearse(assignment: Assignment, engine: Engine) -> int:
    """Read, render and encode every item that is to be done, write a line for each that fails, and tell the account.

    Arguments:
        assignment: the job; its journal is looked at where there is one, and not made.
        engine: it is not opened.

    Returns:
        How many items fail.

    Raises:
        ItemsError: the items cannot be read, or two of them have one id.
        JournalError: the start would be refused for what the journal holds.
        OSError: a line cannot be written.
    """
    options, limit = assignment.options, assignment.options.limit
    account = _Account()
    target = function_of(assignment.doing)
    async with (
        open_source(assignment.items, options.format, id_field=options.id_field) as source,
        _journal_for_now(assignment, engine, source) as journal,
    ):
        chunks = _Chunks(source, journal)
        with contextlib.redirect_stdout(sys.stderr):
            while (chunk := await chunks.next()) is not None:
                for item in chunk:
                    if isinstance(item, BadItem):
                        failure: ItemFailure | None = ItemFailure(MALFORMED, item.problem)
                    elif limit is not None and account.begun >= limit:
                        account.cut = True
                        continue
                    else:
                        account.begun += 1
                        failure = await _rehearsed(item, target, engine, account=account)
                    if failure is not None:
                        account.kinds[failure.kind] += 1
                        await write_whole(_line(item, failure), 1)
    _tell(account, limit)
    return account.kinds.total()


@asynccontextmanager
async def _journal_for_now(assignment: Assignment, engine: Engine, source: Source) -> AsyncIterator[Journal]:
    """Give a journal that nobody keeps, in which the items are as a start would find them.

    It finds duplicate ids, however many items there are, and what has changed since the job was begun.
    """
    given = assignment
    now = about_job(given.doing, engine, source=source.where, code=given.options.code)
    with tempfile.TemporaryDirectory() as folder:
        async with open_journal(Path(folder) / "rehearsal") as journal:
            await _bring_items(os.fspath(given.journal), journal)
            try:
                found = await journal.enroll(source, about=now, on_changed=given.options.on_changed)
            except JournalError as error:
                if error.reason != "changed":
                    raise
                raise await refusal(error, given.journal, now) from error
            tell_found(found, given.journal, source.where)
            yield journal


async def _bring_items(path: str, journal: Journal) -> None:
    """Bring the items of a job's journal, without what came of them, into a new one; do nothing where there is none."""
    try:
        async with read_journal(path) as job:
            holder = await job.holder()
            if holder is not None:
                say(f"furcate: {path}: {holder_told(holder)} runs this job, so that a start would be refused now")
            await journal._database.run(partial(_copy_items, path=path))
    except JournalError as error:
        if not _can_be_made(error, path):
            raise


def _can_be_made(error: JournalError, path: str) -> bool:
    return error.reason == "missing" and os.path.isdir(os.path.dirname(path) or ".")


def _copy_items(connection: sqlite3.Connection, path: str) -> None:
    with contextlib.closing(open_for_reading(path)) as job:
        rows = job.execute("SELECT * FROM items")
        marks = ", ".join("?" * len(rows.description))
        transaction(connection, lambda: connection.executemany(f"INSERT INTO items VALUES ({marks})", rows))


async def _rehearsed(item: Item, target: Target, engine: Engine, *, account: _Account) -> ItemFailure | None:
    """Take an item as far as its first request, and tell why it does not come there."""
    sizes: list[int] = []
    group = Group(item.id)
    rehearsal = _Rehearsal.of(engine, sizes.append)._for_work(Share(), None, (group,))
    job = ItemJob(engine=rehearsal, group=group, item_id=item.id, line=item.line)
    failure: ItemFailure | None = None
    try:
        await target(item.value, job)
    except (Exception, SystemExit) as error:
        failure = failure_of(error)
    except _Reached:
        pass
    except BaseExceptionGroup as error:
        if not all(isinstance(leaf, _Reached) for leaf in leaves(error)):
            raise
    # Whatever the target made of the end of its first request, it was there.
    if sizes:
        account.take(sizes[0])
        return None
    if failure is None:
        account.silent += 1
    return failure


def _line(item: Item | BadItem, failure: ItemFailure) -> bytes:
    # Of a line that cannot be read nothing is known, and here nothing was asked.
    usage = UNKNOWN if isinstance(item, BadItem) else NO_TOKENS
    return line_of(JournalRow(id=item.id, line=item.line, position=0, state="failed", error=failure, usage=usage))


def _tell(account: _Account, limit: int | None) -> None:
    cut = f" (--limit is {limit:,})" if account.cut else ""
    say(f"dry run: {items_told(account.sent)} would be sent{cut}; nothing was")
    if account.sent:
        mean = round(account.total / account.sent)
        say(
            f"the bodies of their first requests have {account.total:,} bytes: "
            f"from {account.smallest:,} to {account.largest:,}, {mean:,} on average"
        )
    if account.silent:
        say(f"{items_told(account.silent)} would ask nothing")
    if account.kinds:
        say(
            f"{items_told(account.kinds.total())} would fail: {kinds_told(account.kinds)}; a line for each is on stdout"
        )
