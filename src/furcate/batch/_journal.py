"""The journal of a job: what is finished is on the disk before it counts as finished."""

from __future__ import annotations

import datetime
import os
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from attrs import frozen

from furcate.batch._database import Database, made_in_thread, place_of
from furcate.batch._enroll import RESET, OnChanged, enroll, enroll_more
from furcate.batch._items import BadItem, Item
from furcate.batch._opening import Opened, open_once
from furcate.batch._reading import JournalReader
from furcate.batch._rows import MALFORMED, About, Enrollment, ItemFailure, KeptCall
from furcate.batch._writer import Writer
from furcate.primitives._errors import JournalError, MisuseError
from furcate.primitives._usage import UNKNOWN, USAGE_FIELDS, Usage

_END = f"""
UPDATE items SET state = :state, ended = (SELECT coalesce(max(ended), 0) + 1 FROM items), failure = :failure,
    setup = :setup, ended_at = :now, lower_bounds = :lower_bounds,
    {", ".join(f"{name} = :{name}" for name in USAGE_FIELDS)}
WHERE number = :number
"""


_OBSERVE = """
INSERT INTO observations SELECT :number, coalesce(max(sequence), 0) + 1, :data FROM observations WHERE number = :number
"""


@frozen
class _End:
    """Hold how an item ended."""

    result: bytes | None
    error: ItemFailure | None
    usage: Usage
    observations: tuple[bytes, ...]


class Journal(JournalReader):
    """Keep the items of one job, what came of them, and what was paid for meanwhile; made by `open_journal`.

    Each method that writes returns once what it wrote is on the disk. Writes that come while others are being committed
    share the next commit. A write that is cancelled is kept as a whole or not at all.

    Attributes:
        path: the journal.
        stored: what the job was when its items were last enrolled; None in a new journal.
        about: what it is now.
    """

    def __init__(self, path: str, database: Database, stored: About | None) -> None:
        super().__init__(path, database)
        self.stored = stored
        self.about = stored or About()
        self._writer = Writer(database)

    async def enroll(
        self, items: AsyncIterable[Item | BadItem], *, about: About | None = None, on_changed: OnChanged = "refuse"
    ) -> Enrollment:
        """Read an input to its end, and bring the journal in line with it: all at once, or not at all.

        Items are known by their ids, wherever they stand. New ones are to be done. What cannot be read has failed. What
        the input no longer has stays in the journal, and is done no more. Items that have not been finished and have
        changed are to be done anew, whether they had failed or not.

        Arguments:
            items: such as a `Source`; it is read once.
            about: what the job is now; None is what it was.
            on_changed: what to do where finished items have changed, or were finished under another setup: ``refuse``
                the input, ``redo`` them, or ``keep`` their results, which is not asked again. An input of which the
                journal knows nothing, or by another id field, is refused likewise.

        Raises:
            ItemsError: two items have the same id, or the input cannot be read.
            JournalError: finished items have changed, or are not those of the input, and `on_changed` is ``refuse``; or
                the disk is full.
        """
        now = about or self.about
        enrollment = await enroll(self._database, items, about=now, on_changed=on_changed, now=_now())
        self.about = self.stored = now
        return enrollment

    async def has_items(self) -> bool:
        """Tell whether any item was enrolled so far."""
        [found] = await self._database.run(lambda one: one.execute("SELECT EXISTS (SELECT 1 FROM items)").fetchone())
        return bool(found)

    async def enroll_more(
        self, items: Sequence[Item | BadItem], *, position: int, about: About, where: str = "the items"
    ) -> None:
        """Enroll further items of an input, all of these at once; for a journal that had no items when it was begun.

        Should the process end before the whole input is enrolled, the next start enrolls it by `enroll`.

        Arguments:
            items: in their order.
            position: the place of the first one in the input, from 0 on.
            about: what the job is.
            where: the input, as messages name it.

        Raises:
            ItemsError: an item has the id of another one.
            JournalError: the journal cannot be written.
        """
        self.about = about
        await enroll_more(self._database, items, about=about, position=position, where=where, now=_now())
        self.stored = about

    async def pending(self, items: Sequence[Item | BadItem]) -> tuple[Item, ...]:
        """Give those of some items that are to be done, in their order.

        Raises:
            JournalError: one of them is not in the journal, or not as it was enrolled.
        """
        return await self._database.run(partial(_pending, items=items, path=self.path))

    async def begin(self, item_id: str) -> None:
        """Count a try of a pending item.

        Raises:
            JournalError: it is not in the journal, or the journal cannot be written.
            MisuseError: it is not pending.
        """
        await self._writer.write(partial(_begin, name=item_id, path=self.path, now=_now()))

    async def finish(
        self,
        item_id: str,
        result: bytes,
        *,
        usage: Usage = UNKNOWN,
        observations: Sequence[bytes] = (),
        keep_calls: bool = False,
    ) -> None:
        """Finish a pending item.

        Arguments:
            item_id: which.
            result: JSON on one line, as `encode` makes it.
            usage: the tokens of all its calls.
            observations: what was observed of it, as JSON, to be kept in the same step.
            keep_calls: whether the answers of its calls stay in the journal, which nobody needs any more.

        Raises:
            JournalError: it is not in the journal, or the journal cannot be written.
            MisuseError: it is not pending, or the result is not on one line.
        """
        if b"\n" in result or b"\r" in result:
            raise MisuseError("the result is not on one line; encode it by furcate.batch.encode")
        end = _End(result, None, usage, tuple(observations))
        await self._writer.write(partial(self._end, name=item_id, end=end, forget=None if not keep_calls else ()))

    async def fail(
        self,
        item_id: str,
        error: ItemFailure,
        *,
        usage: Usage = UNKNOWN,
        observations: Sequence[bytes] = (),
        forget_calls: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Let a pending item fail; until it is finished, the answers of its calls are kept.

        Arguments:
            item_id: which.
            error: why.
            usage: the tokens of all its calls.
            observations: what was observed of it, as JSON, to be kept in the same step.
            forget_calls: run id and number of those calls that are to be made anew when it is tried again.

        Raises:
            JournalError: it is not in the journal, or the journal cannot be written.
            MisuseError: it is not pending.
        """
        end = _End(None, error, usage, tuple(observations))
        await self._writer.write(partial(self._end, name=item_id, end=end, forget=tuple(forget_calls)))

    async def retry(self, kinds: Iterable[str] | None = None) -> int:
        """Let failed items of the input be done again, and give how many; those that cannot be read stay failed.

        Arguments:
            kinds: the kinds of failure; None is all.

        Raises:
            JournalError: the journal cannot be written.
        """
        counted: list[int] = []
        chosen = None if kinds is None else tuple(kinds)
        await self._writer.write(lambda connection: counted.append(_retry(connection, chosen)))
        return counted[-1]

    async def observe(self, item_id: str, data: bytes) -> None:
        """Keep one more observation about an item, as JSON.

        Raises:
            JournalError: the item is not in the journal, or the journal cannot be written.
        """
        await self._writer.write(partial(_observe, name=item_id, data=data, path=self.path))

    async def observations(self, item_id: str) -> tuple[bytes, ...]:
        """Give the observations about an item, in their order."""
        query = "SELECT data FROM observations JOIN items USING (number) WHERE id = ? ORDER BY sequence"
        found = await self._database.run(lambda connection: connection.execute(query, (item_id,)).fetchall())
        return tuple(data for [data] in found)

    async def keep_call(self, item_id: str, call: KeptCall) -> None:
        """Keep the answer of one of an item's calls; one of the same run and number is replaced.

        Raises:
            JournalError: the item is not in the journal, or the journal cannot be written.
        """
        await self._writer.write(partial(_keep_call, name=item_id, call=call, path=self.path))

    async def calls(self, item_id: str) -> tuple[KeptCall, ...]:
        """Give the kept calls of an item, in the order in which they were answered."""
        query = "SELECT run_id, attempt, key, data FROM calls JOIN items USING (number) WHERE id = ? ORDER BY sequence"
        found = await self._database.run(lambda connection: connection.execute(query, (item_id,)).fetchall())
        return tuple(KeptCall(run_id=run, number=number, key=key, data=data) for run, number, key, data in found)

    async def drop_calls(self, item_id: str) -> None:
        """Forget the kept calls of an item, so that its next try asks afresh.

        Raises:
            JournalError: the item is not in the journal, or the journal cannot be written.
        """
        await self._writer.write(partial(_drop_calls, name=item_id, path=self.path))

    def _end(
        self,
        connection: sqlite3.Connection,
        name: str,
        *,
        end: _End,
        forget: tuple[tuple[str, int], ...] | None,
    ) -> None:
        """Write the end of an item; `forget` names the calls that are not kept, None all of them."""
        error, usage = end.error, end.usage
        number = _to_do(connection, name, self.path)
        connection.execute(
            _END,
            {
                "number": number,
                "state": "finished" if error is None else "failed",
                "failure": None if error is None else error.kind,
                "setup": self.about.setup,
                "now": _now(),
                "lower_bounds": " ".join(sorted(usage.lower_bounds)),
                **{field: getattr(usage, field) for field in USAGE_FIELDS},
            },
        )
        connection.execute(
            "INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?)",
            (number, end.result, None if error is None else error.to_json()),
        )
        for data in end.observations:
            connection.execute(_OBSERVE, {"number": number, "data": data})
        if forget is None:
            connection.execute("DELETE FROM calls WHERE number = ?", (number,))
            return
        places = [(number, *place) for place in forget]
        connection.executemany("DELETE FROM calls WHERE number = ? AND run_id = ? AND attempt = ?", places)


def _now() -> float:
    return datetime.datetime.now(datetime.UTC).timestamp()


def _number_of(connection: sqlite3.Connection, name: str, path: str) -> tuple[int, str]:
    for number, state in connection.execute("SELECT number, state FROM items WHERE id = ?", (name,)):
        return number, state
    raise JournalError(f"it has no item {name!r}; enroll the items before they are worked on", "unknown", path=path)


def _to_do(connection: sqlite3.Connection, name: str, path: str) -> int:
    number, state = _number_of(connection, name, path)
    if state != "pending":
        raise MisuseError(f"{path}: item {name!r} has {state} already; let it be retried before it ends again")
    return number


def _pending(connection: sqlite3.Connection, items: Sequence[Item | BadItem], path: str) -> tuple[Item, ...]:
    found = []
    for item in items:
        if isinstance(item, BadItem):
            continue
        for state, digest in connection.execute("SELECT state, digest FROM items WHERE id = ?", (item.id,)):
            if state == "pending" and digest == item.digest:
                found.append(item)
            elif state == "pending":
                problem = f"item {item.id!r} (line {item.line}) changed while the job was running; start the job again"
                raise JournalError(problem, "changed", path=path)
            break
        else:
            _number_of(connection, item.id, path)
    return tuple(found)


def _begin(connection: sqlite3.Connection, name: str, path: str, *, now: float) -> None:
    number = _to_do(connection, name, path)
    connection.execute("UPDATE items SET tries = tries + 1, started_at = ? WHERE number = ?", (now, number))


def _observe(connection: sqlite3.Connection, name: str, data: bytes, *, path: str) -> None:
    number, _ = _number_of(connection, name, path)
    connection.execute(_OBSERVE, {"number": number, "data": data})


def _keep_call(connection: sqlite3.Connection, name: str, call: KeptCall, *, path: str) -> None:
    number, _ = _number_of(connection, name, path)
    place = (number, call.run_id, call.number)
    connection.execute("DELETE FROM calls WHERE number = ? AND run_id = ? AND attempt = ?", place)
    connection.execute(
        "INSERT INTO calls SELECT ?, coalesce(max(sequence), 0) + 1, ?, ?, ?, ? FROM calls WHERE number = ?",
        (*place, call.key, call.data, number),
    )


def _drop_calls(connection: sqlite3.Connection, name: str, path: str) -> None:
    number, _ = _number_of(connection, name, path)
    connection.execute("DELETE FROM calls WHERE number = ?", (number,))


def _retry(connection: sqlite3.Connection, kinds: tuple[str, ...] | None) -> int:
    chosen = "state = 'failed' AND failure <> ? AND position IS NOT NULL"
    values: tuple[str, ...] = (MALFORMED,)
    if kinds is not None:
        chosen += f" AND failure IN ({', '.join('?' * len(kinds))})"
        values += kinds
    connection.execute(f"DELETE FROM outcomes WHERE number IN (SELECT number FROM items WHERE {chosen})", values)
    # How often it was tried is what the next failure is judged by.
    keeping = RESET.replace("tries = 0, ", "")
    return connection.execute(f"{keeping} WHERE {chosen}", values).rowcount


@asynccontextmanager
async def open_journal(path: str | os.PathLike[str], *, create: bool = True) -> AsyncIterator[Journal]:
    """Open a journal to run its job, and keep other processes from doing the same meanwhile; others may read it.

    Beside the journal stands a file with the suffix ``.lock``, and while it is open two more of SQLite's. Leaving
    waits for what is being committed, for 20 seconds at most, whatever is cancelled. A new journal in which nothing was
    enrolled when the block ends by an error is deleted again.

    Arguments:
        path: the file; where there is none, a new journal is made.
        create: whether to make a new journal.

    Raises:
        JournalError: another process runs the job; the file is no journal, damaged, or of a later release; it cannot be
            written; it is not there and is not to be made; it has several names.
        TypeError: the path is no text.
        ValueError: the path names no file.
    """
    place = place_of(path)
    opened = await made_in_thread(partial(open_once, place, create=create), Opened.shut)
    journal = Journal(place, opened.database, opened.stored)
    refused = True
    try:
        yield journal
        refused = False
    finally:
        await opened.close(unmake=refused and journal.stored is None)
