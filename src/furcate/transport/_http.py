"""HTTP over httpx2: send a request, receive the answer's bytes, close what is left.

No time limit but the one for connecting stands here, and nothing is repeated: both are decided above, where it is
known what was shown to whom.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import Protocol

import anyio
import httpx2

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, SecretHeaders, WireRequest
from furcate.transport._call import CLOSE_S, DRAIN_S, Quiet
from furcate.transport._head import head_of
from furcate.transport._pools import Pool, Pools
from furcate.transport._unanswered import (
    BROKEN_COMPRESSION,
    bad_base_url,
    bad_url,
    bounded,
    closed_without_answer,
    connect_timeout,
    cut_off,
    no_http,
    proxy_refused,
    unconnected,
)


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class HttpTransport:
    """Send requests over pooled connections while its ``async with`` block lasts.

    The same transport may be opened again later, on another event loop: it then starts with fresh connections.
    """

    def __init__(self) -> None:
        self._pools = Pools()
        self._open = False

    async def __aenter__(self) -> HttpTransport:
        if self._open:
            raise MisuseError("this transport is open already")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        pools, self._pools = self._pools, Pools()
        for client in pools.clients:
            await _close(client)

    def warm_up(self) -> None:
        """Load now what the first call to a remote server would load; it blocks for some hundredths of a second.

        What cannot be used in the environment is told by that call, and not here.
        """
        with suppress(AttemptFailed):
            self._pools.least(direct=False)

    def call(
        self,
        wire: WireRequest,
        address: Address,
        headers: SecretHeaders,
        *,
        connect_s: float | None,
        retry_stale: bool = True,
    ) -> HttpCall:
        """Make one call, to be used as ``async with transport.call(...) as call``.

        Arguments:
            wire: what is sent.
            address: where to.
            headers: further headers, the credential among them.
            connect_s: how long connecting may take, in seconds.
            retry_stale: whether a connection that was used again and closed without an answer counts as one that
                never carried the request.

        Raises:
            AttemptFailed: the address makes no URL, or the environment's proxies or certificates cannot be used.
        """
        if not self._open:
            raise MisuseError("the transport is not open")
        own = (("connection", "close"),) if not address.keep_alive else ()
        try:
            request = httpx2.Request(
                "POST",
                address.base_url.rstrip("/") + wire.path,
                headers=[*wire.headers, *headers.pairs, *own],
                content=b"".join(wire.body),
                extensions={"timeout": {"connect": connect_s, "read": None, "write": None, "pool": None}},
            )
        except (httpx2.InvalidURL, ValueError) as error:
            # Without its cause: the frames beneath hold the headers.
            raise AttemptFailed(bad_url(error)) from None
        return HttpCall(self._pools.least(direct=address.direct), request, retry_stale=retry_stale)


class HttpCall:
    """Hold one request and its answer; leaving the block closes whatever is left of both, within seconds."""

    def __init__(self, pool: Pool, request: httpx2.Request, *, retry_stale: bool) -> None:
        self._pool = pool
        self._request = request
        self._retry_stale = retry_stale
        self._response: httpx2.Response | None = None
        self._source: _Source | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._ended = False
        # Not a method of the call: the two would hold each other, and the body, until the garbage is collected.
        self._connecting = _Connecting()
        request.extensions = {**request.extensions, "trace": self._connecting.heard}

    async def __aenter__(self) -> HttpCall:
        self._pool.calls += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.calls -= 1
        if self._response is None:
            return
        if kind is None and not self._ended:
            with anyio.move_on_after(DRAIN_S, shield=True):
                await self._drain()
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._response.aclose()
            await self._unwind()

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer.

        Raises:
            AttemptFailed: no connection, or none that brought an answer. ``failure.sent`` tells whether the
                request may have reached the server.
        """
        try:
            response = await self._pool.client.send(self._request, stream=True)
        except httpx2.HTTPError as error:
            raise AttemptFailed(self._unanswered(error)) from error
        except (httpx2.InvalidURL, ValueError) as error:
            raise AttemptFailed(bad_url(error)) from error
        # What one answer sets goes along with no other request, and is not kept.
        self._pool.client.cookies.clear()
        self._response = response
        self._source = response.stream = _Source(response.stream)
        self._chunks = response.aiter_bytes()
        return head_of(response.status_code, response.headers.multi_items())

    @property
    def at_end(self) -> bool:
        """Whether the body is known to have ended."""
        return self._ended

    async def receive(self, by_s: float = inf) -> bytes:
        """Give the next bytes of the answer's body; empty at its end.

        Arguments:
            by_s: the moment on the event loop's clock until which it waits for them.

        Raises:
            Quiet: nothing came until then.
            AttemptFailed: the connection broke, or the body cannot be decompressed.
        """
        if self._chunks is None or self._ended:
            return b""
        with anyio.CancelScope(deadline=by_s):
            return await self._next()
        raise Quiet

    async def _next(self) -> bytes:
        assert self._chunks is not None
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
        except httpx2.DecodingError as error:
            raise AttemptFailed(BROKEN_COMPRESSION) from error
        except httpx2.HTTPError as error:
            status = self._response.status_code if self._response is not None else None
            raise AttemptFailed(cut_off(self._host, status)) from error
        self._ended = True
        return b""

    async def _drain(self) -> None:
        try:
            while await self.receive():
                pass
        except AttemptFailed:
            self._ended = True

    async def _unwind(self) -> None:
        """Run the stacked generators of httpx2 to their end, which is near on a closed connection.

        Dropping them would leave the innermost ones to the garbage collector, which on trio cannot close them.
        """
        if self._chunks is not None and not self._ended:
            await self._drain()
        if self._source is not None:
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                async for _ in self._source:
                    pass

    @property
    def _host(self) -> str:
        url = self._request.url
        return f"{url.host}:{url.port}" if url.port else url.host

    def _unanswered(self, error: httpx2.HTTPError) -> Failure:
        host = self._host
        if isinstance(error, httpx2.ConnectTimeout):
            return connect_timeout(host)
        if isinstance(error, httpx2.UnsupportedProtocol):
            return bad_base_url(error)
        if isinstance(error, httpx2.ProxyError):
            return proxy_refused(host, bounded(error))
        if isinstance(error, httpx2.ConnectError):
            return unconnected(error, host, bounded(error))
        if isinstance(error, httpx2.RemoteProtocolError) and str(error) != _CLOSED:
            return no_http(host)
        return closed_without_answer(host, stale=self._connecting.reused and self._retry_stale)


class _Connecting:
    """Hear of a request whether a connection was made for it."""

    __slots__ = ("reused",)

    def __init__(self) -> None:
        self.reused = True

    async def heard(self, name: str, _info: object) -> None:
        """Take note of what the HTTP library does."""
        if ".connect_tcp." in name:
            self.reused = False


class _Source(httpx2.AsyncByteStream):
    """Give the bytes of a body as they came, and stay there when unpacking them has failed."""

    def __init__(self, stream: object) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream), "an asynchronous client gives asynchronous streams"
        self._stream = stream
        self._chunks = aiter(stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return anext(self._chunks)

    async def aclose(self) -> None:
        """Close the connection, or give it back."""
        await self._stream.aclose()


_CLOSED = "Server disconnected without sending a response."
"""What the HTTP library says of an end without a head; other violations of the protocol are those of an answer."""


async def _close(thing: _Closable) -> None:
    with anyio.move_on_after(CLOSE_S, shield=True):
        await thing.aclose()
