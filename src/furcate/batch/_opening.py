"""Open a journal for the one process that runs its job, and leave it: what is made, noted, and undone."""

from __future__ import annotations

import datetime
import json
import os
import socket
import sqlite3
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from attrs import frozen

from furcate.batch._database import Database, OneWriter, open_for_reading, open_for_writing, telling
from furcate.batch._reading import about_in, holder_in
from furcate.batch._rows import About, Holder
from furcate.batch._schema import bring_up_to_date
from furcate.primitives._errors import JournalError


@frozen(kw_only=True)
class Opened:
    """Hold a journal that this process alone may write.

    Attributes:
        database: it.
        lock: what keeps others away.
        stored: what its job was when its items were last enrolled; None where none were.
        made: whether there was none before.
    """

    database: Database
    lock: OneWriter
    stored: About | None
    made: bool

    async def close(self, *, unmake: bool) -> None:
        """Leave it; with `unmake`, a journal that was made when it was opened is deleted."""
        await self.database.close(_forget_holder, partial(self._then, unmake))

    def shut(self) -> None:
        """Leave it in this thread, since nobody wants it any more."""
        self.database.shut(_forget_holder, partial(self._then, True))

    def _then(self, unmake: bool) -> None:
        _leave(self.database.path, self.lock, unmake=unmake and self.made)


def open_once(path: str, *, create: bool) -> Opened:
    """Take the lock of a journal, open the file, and bring it up to date; runs in a worker thread.

    Raises:
        JournalError: as `open_journal` tells.
    """
    _refuse_others(path, create=create)
    lock = OneWriter(path)
    if not lock.acquire():
        raise _busy(path)
    made = not os.path.exists(path)
    try:
        connection = open_for_writing(path)
        try:
            with telling(path):
                bring_up_to_date(connection, path)
                stored = _register(connection)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        _leave(path, lock, unmake=made)
        raise
    return Opened(database=Database(path, connection, lock=lock.place), lock=lock, stored=stored, made=made)


def _leave(path: str, lock: OneWriter, *, unmake: bool) -> None:
    """Give the lock back; with `unmake`, nothing stays behind."""
    if unmake:
        place = os.path.realpath(path)
        for name in (place, f"{place}-wal", f"{place}-shm", lock.place):
            with suppress(OSError):
                os.unlink(name)
    lock.release()


def _refuse_others(path: str, *, create: bool) -> None:
    """Refuse what is no journal, before a lock is put beside it."""
    try:
        open_for_reading(path).close()
    except JournalError as error:
        # What is missing can be made, and what has no tables yet is as good as missing.
        if error.reason != "missing" or not create or not os.path.isdir(os.path.dirname(path) or "."):
            raise


def _busy(path: str) -> JournalError:
    """Say which process runs the job."""
    holder = Holder()
    with suppress(JournalError), telling(path):
        connection = open_for_reading(path)
        holder = holder_in(connection)
        connection.close()
    if holder.pid == os.getpid() and holder.host == socket.gethostname():
        problem = "this process has the journal open already; close it first"
    else:
        who = "another process" if holder.pid is None else f"another process (pid {holder.pid} on {holder.host})"
        problem = f"{who} is running this job; wait until it ends, or stop it"
    return JournalError(problem, "busy", path=path, pid=holder.pid)


def _register(connection: sqlite3.Connection) -> About | None:
    """Note who runs the job, and give what it was."""
    try:
        release = version("furcate")
    except PackageNotFoundError:
        release = "unknown"
    known = {"furcate": json.dumps(release), "created_at": json.dumps(datetime.datetime.now(datetime.UTC).timestamp())}
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", tuple(known.items()))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('holder', ?)", (_holder(),))
    connection.execute("COMMIT")
    return about_in(connection)


def _holder() -> str:
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname()})


def _forget_holder(connection: sqlite3.Connection) -> None:
    """Note that this process runs the job no more."""
    connection.execute("DELETE FROM meta WHERE name = 'holder' AND value = ?", (_holder(),))
