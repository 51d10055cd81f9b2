"""HTTP/1.1 as a server speaks it, over one connection."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio
import attrs
import h11
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSStream

from furcate.testing._framing import COMMENT
from furcate.testing._steps import Disconnect, Head, Hold, Reset, Send, Silence, Step, Wait, Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import ByteStream

_LEFT = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

# Linger for no time at all: what is unsent is thrown away, and closing sends a reset.
_NO_LINGER = struct.pack("ii", 1, 0)


class ClientLeft(Exception):
    """Raised when the client closed the connection while it was being written to."""


@attrs.frozen(kw_only=True)
class Incoming:
    """Hold one request as HTTP sees it.

    Attributes:
        method: the method.
        target: path and query.
        headers: names (lower case) and values in their order.
        body: the body without its transfer encoding.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Connection:
    """Read requests from one socket and perform steps in reply.

    Arguments:
        stream: the accepted socket.
        keep_alive: whether the connection may carry another request.
    """

    def __init__(self, stream: ByteStream, *, keep_alive: bool) -> None:
        self._stream = stream
        self._keep_alive = keep_alive
        self._http = h11.Connection(h11.SERVER)

    async def read(self) -> Incoming | None:
        """Read the next request; None where the client left or talks no HTTP.

        Cancellation leaves the connection usable for nothing but ``close``.
        """
        try:
            head: h11.Request | None = None
            body = b""
            while True:
                event = await self._next_event()
                if isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage) and head is not None:
                    return _incoming(head, body)
                else:
                    return None
        except (*_LEFT, ClientLeft, h11.RemoteProtocolError):
            return None

    async def watched(self, work: Callable[[], Awaitable[None]], *, on_leave: Callable[[], None]) -> None:
        """Do the work, and break it off as soon as the client closes its side.

        Arguments:
            work: what to do meanwhile; raises no exception but cancellation.
            on_leave: told, before the work is cancelled, that the client left.
        """
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                try:
                    while True:
                        # A client may send its next request early; h11 keeps it for the next reading.
                        self._http.receive_data(await self._stream.receive())
                except _LEFT:
                    on_leave()
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await work()
            tasks.cancel_scope.cancel()

    async def perform(self, steps: Sequence[Step], *, before_end: Callable[[], None]) -> None:
        """Carry out the steps of one answer.

        Arguments:
            steps: in their order; the answer is complete after the last, unless it breaks the connection.
            before_end: called right before the last byte goes out or the connection is closed. Not after:
                by then the client may have come back with another request.

        Raises:
            ClientLeft: there is nobody to write to.
            h11.LocalProtocolError: the steps make no HTTP answer.
        """
        for place, step in enumerate(steps):
            if isinstance(step, Disconnect | Reset):
                before_end()
                if isinstance(step, Reset):
                    self._break()
                await self.close()
                return
            await self._one(step, is_last=place == len(steps) - 1, before_end=before_end)
        if self._http.our_state is h11.SEND_BODY:
            # The last step was no sending one.
            await self._finish(b"", before_end)

    async def _one(self, step: Step, *, is_last: bool, before_end: Callable[[], None]) -> None:
        match step:
            case Head() | Send():
                data = self._encode(step)
                # The last bytes and the end of the message leave in one go: a client that stops reading at
                # the last event has not left early.
                if is_last:
                    await self._finish(data, before_end)
                else:
                    await self._write(data)
            case Wire(data):
                if is_last:
                    before_end()
                await self._write(data)
            case Wait(duration_s):
                await anyio.sleep(duration_s)
            case Hold(wait):
                await wait()
            case Silence(every_s):
                while True:
                    await anyio.sleep(math.inf if every_s is None else every_s)
                    await self._write(self._encode(Send(COMMENT)))

    def _encode(self, step: Head | Send) -> bytes:
        if isinstance(step, Send):
            return self._http.send(h11.Data(data=step.data)) or b""
        headers = step.headers if self._keep_alive else (*step.headers, ("connection", "close"))
        return self._http.send(h11.Response(status_code=step.status, headers=list(headers))) or b""

    async def _finish(self, data: bytes, before_end: Callable[[], None]) -> None:
        data += self._http.send(h11.EndOfMessage()) or b""
        before_end()
        await self._write(data)

    def next_cycle(self) -> bool:
        """Prepare for another request; False where this connection takes none."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def _write(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except _LEFT as gone:
            raise ClientLeft from gone

    def _break(self) -> None:
        plain = self._stream.transport_stream if isinstance(self._stream, TLSStream) else self._stream
        # Where the client left first, the socket may be closed already, and there is nobody to be told.
        with suppress(OSError):
            plain.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        # On asyncio, anyio says an orderly goodbye before it closes, and offers no way around it.
        transport = getattr(plain, "_transport", None)
        if transport is not None:
            transport.abort()

    async def close(self) -> None:
        """Close the socket; it does not wait for the client, so it is shielded from cancellation."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._write(self._http.send(go_on) or b"")
            self._http.receive_data(await self._stream.receive())
        # h11's sentinels are classes, which a comparison does not narrow.
        return cast("h11.Event | type[h11.PAUSED]", event)


def _incoming(head: h11.Request, body: bytes) -> Incoming:
    return Incoming(
        method=head.method.decode("ascii"),
        target=head.target.decode("ascii"),
        headers=tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers),
        body=body,
    )
