"""Connections that are used again.

The library's own pool looks at every connection twice for each request, which for a hundred of them takes a third of
all time. Here whoever calls takes the connection that was used last, so that those needed by a rush alone fall idle.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from httpcore2 import AsyncConnectionInterface

from furcate.transport._call import CLOSE_S


class Connections:
    """Hold the connections to one place, each with one call at a time.

    How many there are is decided by admission, never by a limit here that would hide the queue.

    Arguments:
        make: makes a connection, which connects with its first request.
    """

    def __init__(self, make: Callable[[], AsyncConnectionInterface]) -> None:
        self._make = make
        self._idle: list[AsyncConnectionInterface] = []
        self._in_use: set[AsyncConnectionInterface] = set()

    async def take(self) -> AsyncConnectionInterface:
        """Give a connection that nobody uses, the last one that became free."""
        while self._idle and self._idle[-1].has_expired():
            await _close(self._idle.pop())
        connection = self._idle.pop() if self._idle else self._make()
        self._in_use.add(connection)
        return connection

    async def give_back(self, connection: AsyncConnectionInterface) -> None:
        """Keep a connection for the next call, or close it where it is of no more use; within a second."""
        if connection not in self._in_use:
            return  # all were closed meanwhile
        self._in_use.remove(connection)
        if connection.is_closed() or not connection.is_idle():
            await _close(connection)
            return
        oldest = self._idle.pop(0) if self._idle and self._idle[0].has_expired() else None
        self._idle.append(connection)
        if oldest is not None:
            await _close(oldest)

    async def aclose(self) -> None:
        """Close all of them, each within a second."""
        closing, self._idle, self._in_use = [*self._idle, *self._in_use], [], set()
        for connection in closing:
            await _close(connection)


async def _close(connection: AsyncConnectionInterface) -> None:
    with anyio.move_on_after(CLOSE_S, shield=True):
        await connection.aclose()
