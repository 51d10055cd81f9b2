"""What carries a call over aiohttp: the connection that it was given, and whether that was used before."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace


class _Socket(Protocol):
    def abort(self) -> None: ...


class Carrier:
    """Note what carries a call, and whether it was used before.

    It is all that connections see of a call: the event loop keeps what they have seen as long as they last.
    """

    __slots__ = ("keep_alive", "reused", "socket")

    def __init__(self, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.socket: _Socket | None = None
        self.reused = True


CARRIER: ContextVar[Carrier] = ContextVar("furcate_carrier")


class Connector(aiohttp.TCPConnector):
    """Tell each call what carries it."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        carrier = CARRIER.get()
        carrier.socket = connection.transport
        if not carrier.keep_alive and connection.protocol is not None:
            connection.protocol.force_close()
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        protocol = await super()._create_connection(req, traces, timeout)
        CARRIER.get().reused = False
        return protocol
