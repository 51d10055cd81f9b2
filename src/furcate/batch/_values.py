"""Items that a program gives as values: copied to a file as JSON lines, since items are read twice."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import BinaryIO

from anyio import lowlevel, to_thread

from furcate.batch._rows import encode
from furcate.primitives._json import Json

_BLOCK_BYTES = 2**20
_PAUSE_ITEMS = 256


async def copy_values(values: Iterable[Json] | AsyncIterable[Json], to: BinaryIO) -> None:
    """Copy values as JSON lines, with few of them in memory.

    Arguments:
        values: read once, in the task that asks for it.
        to: written in worker threads.

    Raises:
        TypeError: a value is none of JSON's; the message has its number.
        ValueError: it holds a number that is not finite, likewise.
    """
    spool = _Spool(to)
    if isinstance(values, AsyncIterable):
        async for value in values:
            await spool.put(value)
    else:
        for value in values:
            await spool.put(value)
    await spool.flush()


class _Spool:
    def __init__(self, to: BinaryIO) -> None:
        self._to = to
        self._block = bytearray()
        self._count = 0

    async def put(self, value: Json) -> None:
        self._count += 1
        try:
            self._block += encode(value) + b"\n"
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {self._count} is no JSON value: {error}") from error
        if len(self._block) >= _BLOCK_BYTES:
            await to_thread.run_sync(self._to.write, bytes(self._block))
            self._block.clear()
        elif self._count % _PAUSE_ITEMS == 0:
            await lowlevel.checkpoint()

    async def flush(self) -> None:
        await to_thread.run_sync(self._to.write, bytes(self._block))
        await to_thread.run_sync(self._to.flush)
