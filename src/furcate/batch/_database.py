"""Journal files as SQLite databases: opened safely, worked on in worker threads, and failing in clear sentences."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A thread whose caller was cancelled natively goes on; the next one must wait for it, which no event loop can.
from threading import Lock  # noqa: TID251
from typing import TypeVar

from anyio import CapacityLimiter, move_on_after, to_thread
from filelock import FileLock, Timeout

from furcate.batch._rows import Unreadable
from furcate.batch._schema import version_of
from furcate.primitives._errors import JournalError, JournalProblem, MisuseError

T = TypeVar("T")

BUSY_S = 5.0
"""How long a statement waits for another connection's lock, in seconds."""
CLOSE_S = 20.0
"""How long leaving waits for what is being written, in seconds; what was not committed by then is not kept."""
_LOCK_S = 0.5
_CACHE_KIB = 16 * 1024


def leave_alone(*_: object) -> None:
    """Do nothing more."""


class Database:
    """Work on one connection in worker threads, one piece of work at a time.

    Arguments:
        path: the file.
        connection: to it.
        lock: the file that keeps other writers away; None for one that only reads.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, *, lock: str | None = None) -> None:
        self.path = path
        places = {"the journal": path} if lock is None else {"the journal": path, f"its lock {lock}": lock}
        self._files = [(what, at := os.path.abspath(place), _file_at(at)) for what, place in places.items()]
        self._connection = connection
        self._guard = Lock()
        self._limiter = CapacityLimiter(1)
        self._closed = False

    def check_there(self) -> None:
        """Check that the files are still where they were.

        What is written to a journal that was deleted is kept for nobody; where its lock was deleted, another process
        may be running the job.

        Raises:
            JournalError: one of them is not.
        """
        for what, place, file in self._files:
            if file is not None and _file_at(place) != file:
                problem = f"{what} was deleted or replaced while the job ran, so that nothing more can be kept safely"
                raise JournalError(f"{problem}; start the job again", "missing", path=self.path)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do a piece of work in a worker thread. Cancelled, it ends before this does, or it never began.

        Raises:
            JournalError: the database cannot be read or written.
            MisuseError: it is closed.
        """
        return await to_thread.run_sync(self._run, work, limiter=self._limiter)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._guard:
            if self._closed:
                raise MisuseError(f"{self.path}: the journal is used outside the block that opened it; use it inside")
            with telling(self.path):
                return work(self._connection)

    async def close(self, last: Callable[[sqlite3.Connection], None], then: Callable[[], None] = leave_alone) -> None:
        """Do a last piece of work, close, and do what comes after, within `CLOSE_S` seconds, whatever is cancelled."""
        with move_on_after(CLOSE_S, shield=True):
            await to_thread.run_sync(self.shut, last, then, limiter=CapacityLimiter(1), abandon_on_cancel=True)

    def shut(self, last: Callable[[sqlite3.Connection], None], then: Callable[[], None] = leave_alone) -> None:
        """Do the same in this thread."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            # Whoever leaves has all that was committed; there is nobody to tell the rest.
            with suppress(sqlite3.Error):
                last(self._connection)
            with suppress(sqlite3.Error):
                self._connection.close()
            then()


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def made_in_thread(make: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Make something in a worker thread; where this is cancelled, it is undone as soon as it is made."""
    guard = Lock()
    made: list[T] = []
    unwanted = False

    def run() -> None:
        one = make()
        with guard:
            made.append(one)
            if unwanted:
                undo(one)

    try:
        await to_thread.run_sync(run)
    except BaseException:
        # A task of asyncio that is cancelled by its own method leaves the thread behind at work.
        with guard:
            unwanted = True
            if made:
                undo(made[0])
        raise
    return made[0]


def place_of(path: object) -> str:
    """Give the path of a journal as text.

    Raises:
        TypeError: it is no text.
        ValueError: it names no file.
    """
    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(place, str):
        raise TypeError(f"the path of the journal is {path!r}; give the path of a file as text")
    if place in ("", ":memory:"):
        raise ValueError(f"the path of the journal is {place!r}, which names no file; give the path of one")
    return place


def open_for_writing(path: str) -> sqlite3.Connection:
    """Open a journal, or a new file, in which each commit is on the disk once it returns.

    Raises:
        JournalError: it cannot be a journal, or cannot be written.
    """
    _check_place(path)
    with telling(path), _opened(_connect(path)) as connection:
        # Whose database this is has to be known before anything is changed in it.
        version_of(connection, path)
        [[mode]] = connection.execute("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise JournalError("the file system has no shared memory; give a path on a local disk", "io", path=path)
        for pragma in (
            "synchronous = FULL",
            "fullfsync = 1",
            "checkpoint_fullfsync = 1",
            "journal_size_limit = 67108864",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return connection


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open a journal beside whoever writes it.

    Raises:
        JournalError: there is none, or it cannot be read.
    """
    _check_place(path)
    if not os.path.exists(path):
        raise JournalError("there is no journal here", "missing", path=path)
    uri = Path(path).absolute().as_uri()
    # Without leave to write, SQLite opens for reading by itself; only a file that nobody writes can be read then.
    alone = not os.access(os.path.dirname(path) or ".", os.W_OK) and not os.path.exists(f"{path}-wal")
    with (
        telling(path),
        _opened(_connect(f"{uri}?{'immutable=1' if alone else 'mode=rw'}", uri=True)) as connection,
    ):
        if version_of(connection, path) == 0:
            raise JournalError("there is no journal here, only an empty database", "missing", path=path)
        connection.execute("PRAGMA query_only = 1")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return connection


def _connect(name: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=uri, isolation_level=None, timeout=BUSY_S, check_same_thread=False)


@contextmanager
def _opened(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Close a connection again if it turns out not to be wanted."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def _check_place(path: str) -> None:
    if os.path.isdir(path):
        raise JournalError("this is a folder; give the path of a file", "folder", path=path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise JournalError("this is no file on a disk, and no journal; give another path", "foreign", path=path)
    folder = os.path.dirname(path) or "."
    with telling(path):
        try:
            there = stat.S_ISDIR(os.stat(folder).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            there = False
    if not there:
        raise JournalError(f"there is no folder {folder}; make it, or give another path", "missing", path=path)


class OneWriter:
    """Keep other processes from writing a journal, for as long as this one lives and no longer.

    The lock is the system's, on a file beside the journal, which stays there; it is free once its process is gone,
    however that went. It is not on the journal itself, so that readers are not in its way.

    Arguments:
        path: the journal; symbolic links are followed, so that one lock serves all of them.

    Attributes:
        place: the file of the lock.
    """

    def __init__(self, path: str) -> None:
        self.place = f"{os.path.realpath(path)}.lock"
        self._path = path
        self._lock = FileLock(self.place, thread_local=False, fallback_to_soft=False, preserve_lock_file=True)

    def acquire(self, wait_s: float = _LOCK_S) -> bool:
        """Take the lock, and tell whether it was free. Somebody may look at it for a moment, hence the wait.

        Raises:
            JournalError: no lock can be had there at all, or it would not be the only one.
        """
        with telling(self._path):
            if os.path.exists(self._path) and (names := os.stat(self._path).st_nlink) > 1:
                problem = f"the file has {names} names (hard links), and no lock holds for all of them; keep one"
                raise JournalError(problem, "busy", path=self._path)
            try:
                self._lock.acquire(timeout=wait_s)
            except Timeout:
                return False
            return True

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release(force=True)


_DAMAGED: tuple[JournalProblem, str] = ("damaged", "the journal is damaged; restore a copy, or begin a new one")
_SAID: dict[str, tuple[JournalProblem, str]] = {
    "SQLITE_FULL": ("full", "the disk is full; what was kept before is safe; make room and start the job again"),
    "SQLITE_READONLY": ("read-only", "this user may not write the journal; give a path that can be written"),
    "SQLITE_CANTOPEN": ("read-only", "the journal cannot be opened; look at the rights of the file and of its folder"),
    "SQLITE_PERM": ("read-only", "this user may not use the journal; look at the rights of the file"),
    "SQLITE_NOTADB": ("foreign", "this is no journal; give another path"),
    "SQLITE_CORRUPT": _DAMAGED,
    # What we ask for is what the form has, so that it is not there; and we write nothing that it forbids.
    "SQLITE_ERROR": _DAMAGED,
    "SQLITE_CONSTRAINT": _DAMAGED,
    "SQLITE_BUSY": ("busy", "another program keeps the journal locked; close it and try again"),
    "SQLITE_LOCKED": ("busy", "another program keeps the journal locked; close it and try again"),
    "SQLITE_IOERR": ("io", "the system failed to read or write the journal; what was kept before is safe"),
}


@contextmanager
def telling(path: str) -> Iterator[None]:
    """Tell what the database or the system says, in a sentence of ours."""
    try:
        yield
    except (sqlite3.Error, OSError, Unreadable, UnicodeDecodeError) as error:
        told = journal_error(error, path)
        if told is None:
            raise
        raise told from error


def journal_error(error: BaseException, path: str) -> JournalError | None:
    """Give the error of ours that tells what went wrong with a journal; None where the fault is in the program."""
    # What the database says may quote what it cannot read.
    if isinstance(error, (Unreadable, UnicodeDecodeError)):
        reason, problem = _DAMAGED
        return JournalError(f"{problem} ({error})", reason, path=path)
    if isinstance(error, sqlite3.Error):
        # A text that is no UTF-8 has no code of the database.
        unnamed = "SQLITE_CORRUPT" if isinstance(error, sqlite3.OperationalError) else ""
        name = getattr(error, "sqlite_errorname", unnamed)
        for start, (reason, problem) in _SAID.items():
            if name.startswith(start):
                if reason == "io" and _no_room(path):
                    reason, problem = _SAID["SQLITE_FULL"]
                detail = f" ({error})" if reason in ("io", "damaged") else ""
                return JournalError(problem + detail, reason, path=path)
        return None
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return JournalError(_SAID["SQLITE_FULL"][1], "full", path=path)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return JournalError(_SAID["SQLITE_READONLY"][1], "read-only", path=path)
        return JournalError(f"the system says: {(error.strerror or str(error)).lower()}", "io", path=path)
    return None


def _no_room(path: str) -> bool:
    """Tell whether the disk is full, which some parts of SQLite report as another failure."""
    with suppress(OSError):
        return shutil.disk_usage(os.path.dirname(path) or ".").free < 2**16
    return False


def transaction(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Do a piece of work in one transaction: all of it is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = work()
        connection.execute("COMMIT")
    finally:
        # A full disk may have rolled it back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return done
