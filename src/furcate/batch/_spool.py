"""Items that can be read only once: copied to a file, of which each reader has a view of its own."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# Two passes over spooled items share one file, and each of its reads is a move and a read.
from threading import Lock  # noqa: TID251
from typing import BinaryIO, Protocol, TypeAlias, runtime_checkable

from anyio import to_thread, wait_readable

from furcate.primitives._errors import ItemsError, MisuseError

_COPY_BYTES = 2**20


@runtime_checkable
class Readable(Protocol):
    """A stream of bytes, such as ``sys.stdin.buffer``."""

    def read(self, size: int, /) -> bytes:
        """Give up to so many bytes; none at the end."""


Place: TypeAlias = str | os.PathLike[str] | Readable


def read_once(place: object) -> bool:
    """Tell whether a place can be read only once."""
    if not isinstance(place, (str, os.PathLike)) or os.fspath(place) == "-":
        return True
    try:
        mode = os.stat(place).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def name_of(place: Place) -> str:
    """Name a place as messages do."""
    if isinstance(place, (str, os.PathLike)):
        return "standard input" if os.fspath(place) == "-" else os.fspath(place)
    name = getattr(place, "name", None)
    return "standard input" if name == "<stdin>" else name if isinstance(name, str) else "the stream of items"


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Tell what the system says of reading."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            problem = "there is no room to copy it to a temporary file; make room, or give a file"
            raise ItemsError(problem, where=where) from error
        said = (error.strerror or str(error)).lower()
        raise ItemsError(f"cannot be read: {said}", where=where) from error


async def copy(place: Place, spool: BinaryIO) -> None:
    """Copy what can be read only once; what the system says of it passes as it is."""
    if not isinstance(place, (str, os.PathLike)):
        await _copy_stream(place, spool)
    elif os.fspath(place) != "-":
        # A named pipe is opened without waiting for its writer, for whom the event loop waits instead.
        file = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            await _copy_file(file, spool)
        finally:
            os.close(file)
    elif sys.stdin is None:
        raise ItemsError("cannot be read: it is closed", where=name_of(place))
    else:
        try:
            number = sys.stdin.fileno()
        except OSError:
            # What stands for standard input in a test is no file.
            await _copy_stream(sys.stdin.buffer, spool)
        else:
            await _copy_file(number, spool)
    await to_thread.run_sync(spool.flush)


async def _copy_file(file: int, spool: BinaryIO) -> None:
    """Copy what a file descriptor gives; a thread that waited for a terminal would outlive its cancellation."""
    while True:
        with suppress(OSError, NotImplementedError):
            # A file on a disk can always be read, and says so by an error.
            await wait_readable(file)
        try:
            block = await to_thread.run_sync(os.read, file, _COPY_BYTES)
        except BlockingIOError:
            continue
        if not block:
            return
        await to_thread.run_sync(spool.write, block)


async def _copy_stream(stream: Readable, spool: BinaryIO) -> None:
    while True:
        block = await to_thread.run_sync(stream.read, _COPY_BYTES, abandon_on_cancel=True)
        if not isinstance(block, bytes):
            raise MisuseError("the stream of items gives text; open it for bytes, as sys.stdin.buffer is")
        if not block:
            return
        await to_thread.run_sync(spool.write, block)


def opener_of_spool(spool: BinaryIO) -> Callable[[], BinaryIO]:
    """Give what opens a copy from its beginning, as often as it is called."""
    lock = Lock()
    return lambda: io.BufferedReader(_View(spool, lock), 2**18)


class _View(io.RawIOBase):
    """Read a file from a place of one's own."""

    def __init__(self, file: BinaryIO, lock: Lock) -> None:
        super().__init__()
        self._file = file
        self._lock = lock
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset if whence == io.SEEK_SET else self._at + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        with self._lock:
            self._file.seek(self._at)
            block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)
