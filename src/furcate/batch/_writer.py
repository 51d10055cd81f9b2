"""Many writers of one database: those that come while others are being committed share the next commit."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from anyio import Lock

from furcate.batch._database import Database, journal_error

Write: TypeAlias = Callable[[sqlite3.Connection], None]
"""Something to be written, in a transaction that is open."""


class _Ticket:
    """Hold one write until it is committed or has failed."""

    __slots__ = ("done", "error", "withdrawn", "work")

    def __init__(self, work: Write) -> None:
        self.work = work
        self.done = False
        self.withdrawn = False
        self.error: BaseException | None = None


class Writer:
    """Commit what many tasks write, as much at a time as has come meanwhile.

    Arguments:
        database: where to.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: deque[_Ticket] = deque()
        self._turn = Lock()

    async def write(self, work: Write) -> None:
        """Have something written, and return once it is committed. Cancelled, it is written as a whole or not at all.

        Raises:
            JournalError: the database cannot be written.
            Exception: whatever `work` raised; nothing of it is written then.
        """
        ticket = _Ticket(work)
        self._queue.append(ticket)
        try:
            # Whoever has the turn commits for all who wait for it.
            async with self._turn:
                while not ticket.done:
                    await self._database.run(self._commit)
        finally:
            ticket.withdrawn = True
        if ticket.error is not None:
            raise ticket.error

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit all that waits; runs in a worker thread."""
        batch: list[_Ticket] = []
        while self._queue:
            ticket = self._queue.popleft()
            if not ticket.withdrawn:
                batch.append(ticket)
        if not batch:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            for ticket in batch:
                self._try(connection, ticket)
            self._database.check_there()
            connection.execute("COMMIT")
        except BaseException as error:
            # Each caller is told by an error of its own, since each adds its own traceback.
            for ticket in batch:
                ticket.error = journal_error(error, self._database.path) or error
        finally:
            # A full disk may have rolled it back already.
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            for ticket in batch:
                ticket.done = True

    def _try(self, connection: sqlite3.Connection, ticket: _Ticket) -> None:
        """Write one of a batch; what is wrong with it alone does not touch the others."""
        connection.execute("SAVEPOINT one")
        try:
            ticket.work(connection)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and journal_error(error, self._database.path) is not None:
                raise
            connection.execute("ROLLBACK TO one")
            ticket.error = error
        connection.execute("RELEASE one")
