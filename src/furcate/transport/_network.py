"""The network beneath httpx2: connections whose reading ends at a moment that the reader names.

The library's own limit is the same for every read of an answer. Here each piece has a moment of its own, and waiting
for it opens one cancel scope for each read of the network, not one more for each piece that came with it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextvars import ContextVar
from math import inf

import anyio
import httpcore2
from httpcore2 import SOCKET_OPTION

from furcate.transport._call import Quiet
from furcate.transport._choice import on_asyncio


class Connecting:
    """Note whether a connection was made for a call.

    It is all that connections see of a call: the event loop keeps what they have seen as long as they last.
    """

    __slots__ = ("reused",)

    def __init__(self) -> None:
        self.reused = True


CONNECTING: ContextVar[Connecting] = ContextVar("furcate_connecting")


class Line(httpcore2.AsyncNetworkStream):
    """Be a connection of the library's own, and stop reading from it in time.

    Attributes:
        by_s: the moment on the event loop's clock until which reading waits; whoever sets it sets it back.
    """

    def __init__(self, beneath: httpcore2.AsyncNetworkStream) -> None:
        self._beneath = beneath
        self.by_s = inf

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Give the next bytes, empty at the end.

        Raises:
            Quiet: nothing came until the moment.
            NetworkError: the connection broke.
        """
        if self.by_s == inf:
            return await self._beneath.read(max_bytes, timeout)
        try:
            return await self._beneath.read(max_bytes, max(0.0, self.by_s - anyio.current_time()))
        except httpcore2.ReadTimeout:
            raise Quiet from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of the bytes."""
        await self._beneath.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._beneath.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> Line:
        """Give the connection on with TLS over it."""
        return Line(await self._beneath.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> object:
        """Give what the library asks of its connection."""
        return self._beneath.get_extra_info(info)


class Network(httpcore2.AsyncNetworkBackend):
    """Connect as the library does, on the event loop that runs, and tell the call that it did."""

    def __init__(self) -> None:
        self._beneath = httpcore2.AnyIOBackend() if on_asyncio() else httpcore2.TrioBackend()

    async def connect_tcp(  # type: ignore[override] # the library names what it gives
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> Line:
        """Connect to a host."""
        CONNECTING.get().reused = False
        return Line(await self._beneath.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._beneath.sleep(seconds)
