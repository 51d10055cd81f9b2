"""A batch job rehearsed: every item is read, rendered and encoded, and nothing is sent."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from attrs import define

from furcate.admission import Share
from furcate.batch import BadItem, Item, ItemFailure, ItemJob, JournalRow, line_of, open_journal, open_source
from furcate.batch._export import write_whole
from furcate.batch._rows import MALFORMED
from furcate.batch._target import Target, failure_of, function_of
from furcate.cli._batch_running import Assignment
from furcate.cli._told import leaves, say
from furcate.dialects import dialect_named
from furcate.groups import Group
from furcate.orchestrator._encoding import encode_ahead
from furcate.orchestrator._engine import Engine
from furcate.orchestrator._execute import Run
from furcate.orchestrator._plan import Plan


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
        wire = encode_ahead(plan.call, plan, dialect_named(plan.backend.dialect)).wire
        self.note(sum(map(len, wire.body)))
        raise _Reached


@define
class _Account:
    """Count what a rehearsal finds.

    Attributes:
        sent: items whose first request would be sent.
        silent: items that ask nothing.
        sizes: of the first requests' bodies, in bytes: the smallest, the largest, and all together.
    """

    sent: int = 0
    silent: int = 0
    smallest: int = 0
    largest: int = 0
    total: int = 0

    def take(self, size: int) -> None:
        """Take an item's first request."""
        self.smallest = size if not self.sent else min(self.smallest, size)
        self.largest = max(self.largest, size)
        self.total += size
        self.sent += 1


async def rehearse(assignment: Assignment, engine: Engine) -> int:
    """Read, render and encode every item, write a line for each that fails, and tell the account.

    Arguments:
        assignment: the job; its journal is neither made nor looked at.
        engine: it is not opened.

    Returns:
        How many items fail.

    Raises:
        ItemsError: the items cannot be read, or two of them have one id.
        OSError: a line cannot be written.
    """
    options = assignment.options
    account = _Account()
    kinds: dict[str, int] = {}
    target = function_of(assignment.doing)
    async with open_source(assignment.items, options.format, id_field=options.id_field) as source:
        with tempfile.TemporaryDirectory() as folder:
            # A journal that nobody keeps finds duplicate ids, however many items there are.
            async with open_journal(Path(folder) / "rehearsal") as journal:
                await journal.enroll(source)
        with contextlib.redirect_stdout(sys.stderr):
            async for item in source:
                failure = await _rehearsed(item, target, engine, account=account)
                if failure is not None:
                    kinds[failure.kind] = kinds.get(failure.kind, 0) + 1
                    await write_whole(_line(item, failure), 1)
                if options.limit is not None and account.sent >= options.limit:
                    break
    _tell(account, kinds, assignment)
    return sum(kinds.values())


async def _rehearsed(item: Item | BadItem, target: Target, engine: Engine, *, account: _Account) -> ItemFailure | None:
    """Take an item as far as its first request, and tell why it does not come there."""
    if isinstance(item, BadItem):
        return ItemFailure(MALFORMED, item.problem)
    sizes: list[int] = []
    group = Group(item.id)
    rehearsal = _Rehearsal.of(engine, sizes.append)._for_work(Share(), None, (group,))
    job = ItemJob(engine=rehearsal, group=group, item_id=item.id, line=item.line)
    failure: ItemFailure | None = None
    try:
        await target(item.value, job)
    except Exception as error:
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
    return line_of(JournalRow(id=item.id, line=item.line, position=0, state="failed", error=failure))


def _tell(account: _Account, kinds: dict[str, int], assignment: Assignment) -> None:
    limit = assignment.options.limit
    cut = f" (--limit is {limit:,})" if limit is not None and account.sent >= limit else ""
    say(f"dry run: {_items(account.sent)} would be sent{cut}; nothing was")
    if account.sent:
        mean = round(account.total / account.sent)
        say(
            f"the bodies of their first requests have {account.total:,} bytes: "
            f"from {account.smallest:,} to {account.largest:,}, {mean:,} on average"
        )
    if account.silent:
        say(f"{_items(account.silent)} would ask nothing")
    if kinds:
        told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        say(f"{_items(sum(kinds.values()))} would fail: {told}; a line for each is on stdout")


def _items(count: int) -> str:
    return f"{count:,} {'item' if count == 1 else 'items'}"
