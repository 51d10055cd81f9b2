"""Read a journal, also while its job runs: how far it is, and its rows as a stream."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeAlias

from furcate.batch._database import (
    Database,
    OneWriter,
    leave_alone,
    made_in_thread,
    open_for_reading,
    open_for_writing,
    place_of,
    telling,
)
from furcate.batch._rows import About, Holder, ItemFailure, ItemState, JournalRow, Status, as_written
from furcate.batch._schema import STEPS, bring_up_to_date, version_of
from furcate.primitives._errors import JournalError
from furcate.primitives._usage import USAGE_FIELDS, FieldTotal, Usage

Order: TypeAlias = Literal["items", "ends"]
"""Rows in the order of the input, or in the order in which they ended."""

ENDED: tuple[ItemState, ...] = ("finished", "failed")
_PAGE_ROWS = 256
_PAGE_BYTES = 2**20

_ROWS = f"""
SELECT id, line, position, state, tries, ended, result, error, setup, started_at, ended_at, lower_bounds,
    {", ".join(USAGE_FIELDS)}
FROM items LEFT JOIN outcomes USING (number)
"""
_ORDERED = {
    "items": "position IS NOT NULL ORDER BY position",
    "gone": "position IS NULL ORDER BY items.number",
    "ends": "ended IS NOT NULL AND position IS NOT NULL ORDER BY ended",
    "all ends": "ended IS NOT NULL ORDER BY ended",
}
# Names of counts are no parts of each other's, so looking for them in the list of names is right.
_TOTALS = ", ".join(
    f"sum({name}), count({name}), sum({name} IS NOT NULL AND instr(lower_bounds, '{name}') > 0)"
    for name in USAGE_FIELDS
)


class JournalReader:
    """Read a journal; made by `read_journal`.

    Attributes:
        path: the journal.
    """

    def __init__(self, path: str, database: Database) -> None:
        self.path = path
        self._database = database

    async def status(self) -> Status:
        """Tell how far the job is, at one moment.

        Raises:
            JournalError: the journal cannot be read.
        """
        return await self._database.run(status_of)

    async def holder(self) -> Holder | None:
        """Name the process that runs the job now; None where none does, or where that cannot be found out."""
        return await self._database.run(partial(_holder, path=self.path))

    def rows(
        self, order: Order = "items", *, states: Iterable[ItemState] = ENDED, gone: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[JournalRow]]:
        """Open a stream of rows as they are at this moment, whatever is written meanwhile; few are in memory at a time.

        Arguments:
            order: ``items`` for the order of the input, ``ends`` for the order in which they ended, which leaves out
                those that have not.
            states: the states whose rows are wanted.
            gone: whether to give items that the input no longer has; in the order of the input they come last.

        Raises:
            JournalError: the journal cannot be read.
        """
        return _rows_of(self.path, order, states=states, gone=gone)


@asynccontextmanager
async def _rows_of(
    path: str, order: Order, *, states: Iterable[ItemState], gone: bool
) -> AsyncIterator[AsyncIterator[JournalRow]]:
    """Open a stream of a journal's rows, as `JournalReader.rows` tells."""
    # A connection of its own keeps what the stream sees apart from what is written meanwhile.
    database = Database(path, await made_in_thread(partial(open_for_reading, path), sqlite3.Connection.close))
    wanted: str = "all ends" if order == "ends" and gone else order
    queries = [wanted, "gone"] if order == "items" and gone else [wanted]
    try:
        await database.run(_fix)
        yield _Rows(database, queries, frozenset(states))
    finally:
        await database.close(leave_alone)


def _fix(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    # What a transaction sees is fixed by its first look.
    connection.execute("SELECT value FROM meta LIMIT 1").fetchone()


class _Rows:
    """Give rows page by page."""

    def __init__(self, database: Database, queries: list[str], states: frozenset[ItemState]) -> None:
        self._database = database
        self._states = states
        self._queries = iter(queries)
        self._cursor: sqlite3.Cursor | None = None
        self._page: Iterator[JournalRow] = iter(())

    def __aiter__(self) -> _Rows:
        return self

    async def __anext__(self) -> JournalRow:
        row = next(self._page, None)
        if row is not None:
            return row
        page = await self._database.run(self._read)
        if not page:
            raise StopAsyncIteration
        self._page = iter(page)
        return next(self._page)

    def _read(self, connection: sqlite3.Connection) -> list[JournalRow]:
        page: list[JournalRow] = []
        size = 0
        while len(page) < _PAGE_ROWS and size < _PAGE_BYTES:
            if self._cursor is None:
                query = next(self._queries, None)
                if query is None:
                    break
                marks = ", ".join("?" * len(self._states))
                text = f"{_ROWS} WHERE state IN ({marks}) AND {_ORDERED[query]}"
                self._cursor = connection.execute(text, tuple(self._states))
            found = self._cursor.fetchone()
            if found is None:
                self._cursor = None
                continue
            with as_written(f"the row of item {found[0]!r}"):
                row = _row(*found)
            page.append(row)
            size += len(row.result or b"")
        return page


def _row(*columns: object) -> JournalRow:
    name, line, position, state, tries, order, result, error, setup, started_at, ended_at, bounds, *counts = columns
    usage = Usage(**dict(zip(USAGE_FIELDS, counts, strict=True)), lower_bounds=frozenset(str(bounds).split()))  # type: ignore[arg-type]
    if result is not None:
        # Whoever writes results writes these bytes.
        json.loads(result)  # type: ignore[arg-type]
    return JournalRow(
        id=name,  # type: ignore[arg-type]
        line=line,  # type: ignore[arg-type]
        position=position,  # type: ignore[arg-type]
        state=state,  # type: ignore[arg-type]
        tries=tries,  # type: ignore[arg-type]
        order=order,  # type: ignore[arg-type]
        result=result,  # type: ignore[arg-type]
        error=ItemFailure.from_json(error) if isinstance(error, bytes) else None,
        usage=usage,
        setup=setup,  # type: ignore[arg-type]
        started_at=started_at,  # type: ignore[arg-type]
        ended_at=ended_at,  # type: ignore[arg-type]
    )


def status_of(connection: sqlite3.Connection) -> Status:
    """Read how far a job is, all of it at one moment."""
    connection.execute("BEGIN")
    try:
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        about = about_in(connection)
        counts = connection.execute("SELECT state, position IS NULL, count(*) FROM items GROUP BY 1, 2").fetchall()
        failures = connection.execute(
            "SELECT failure, count(*) FROM items WHERE failure IS NOT NULL AND position IS NOT NULL"
            " GROUP BY failure ORDER BY 2 DESC, 1"
        ).fetchall()
        [totals] = connection.execute(
            f"SELECT count(*), {_TOTALS} FROM items WHERE ended IS NOT NULL AND setup IS NOT NULL"
        )
        [[started_at, ended_at]] = connection.execute("SELECT min(started_at), max(ended_at) FROM items")
    finally:
        connection.execute("ROLLBACK")
    with as_written("when the job began, and by which release"):
        release, created_at = str(json.loads(meta["furcate"])), float(json.loads(meta["created_at"]))
    here = {state: count for state, gone, count in counts if not gone}
    gone = {state: count for state, gone, count in counts if gone}
    return Status(
        about=about or About(),
        furcate=release,
        created_at=created_at,
        pending=here.get("pending", 0),
        finished=here.get("finished", 0),
        failed=here.get("failed", 0),
        gone=sum(gone.values()),
        gone_finished=gone.get("finished", 0),
        failures=tuple(failures),
        usage=MappingProxyType(_usage(*totals)),
        started_at=started_at,
        ended_at=ended_at,
    )


def _usage(ended: int, *totals: int | None) -> dict[str, FieldTotal]:
    found = {}
    for place, name in enumerate(USAGE_FIELDS):
        known, count, at_least = totals[3 * place : 3 * place + 3]
        count, at_least = count or 0, at_least or 0
        known = known if ended else 0
        found[name] = FieldTotal(
            known=known, exact=count - at_least, at_least=at_least, unknown=ended - count, running=0
        )
    return found


def _holder(connection: sqlite3.Connection, path: str) -> Holder | None:
    lock = OneWriter(path)
    try:
        if lock.acquire(0):
            lock.release()
            return None
    except JournalError:
        return None
    return holder_in(connection)


def about_in(connection: sqlite3.Connection) -> About | None:
    """Read what the job was when its items were last enrolled; None where none were."""
    for [value] in connection.execute("SELECT value FROM meta WHERE name = 'about'"):
        return About.from_json(value)
    return None


def holder_in(connection: sqlite3.Connection) -> Holder:
    """Read which process said last that it runs the job."""
    for [value] in connection.execute("SELECT value FROM meta WHERE name = 'holder'"):
        with as_written("who runs the job"):
            return Holder(**json.loads(value))
    return Holder()


@asynccontextmanager
async def read_journal(path: str | os.PathLike[str]) -> AsyncIterator[JournalReader]:
    """Open a journal to look at, also while its job runs.

    Raises:
        JournalError: there is no journal, or it cannot be read.
        TypeError: the path is no text.
        ValueError: the path names no file.
    """
    place = place_of(path)
    database = Database(place, await made_in_thread(partial(_open, place), sqlite3.Connection.close))
    try:
        yield JournalReader(place, database)
    finally:
        await database.close(leave_alone)


def _open(path: str) -> sqlite3.Connection:
    connection = open_for_reading(path)
    with telling(path):
        if version_of(connection, path) == len(STEPS):
            return connection
        connection.close()
    # What an earlier release wrote is brought up to date once, unless that release is still writing it.
    lock = OneWriter(path)
    if not lock.acquire():
        raise JournalError("an earlier release of furcate is running this job; wait until it ends", "busy", path=path)
    try:
        connection = open_for_writing(path)
        with telling(path):
            bring_up_to_date(connection, path)
            connection.close()
    finally:
        lock.release()
    return open_for_reading(path)
