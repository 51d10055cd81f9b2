"""HTTP over httpx2: send a request, receive the answer's bytes, close what is left.

No time limit but the one for connecting stands here, and nothing is repeated: both are decided above, where it is
known what was shown to whom.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol

import anyio
import httpx2

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, WireRequest

_CLOSE_S = 2.0
"""How long closing a connection may take before it is given up, in seconds; nothing can interrupt it meanwhile."""

_DRAIN_S = 0.1
"""How long the end of a complete answer is waited for, in seconds, so that its connection can be used again."""


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class HttpTransport:
    """Send requests over pooled connections while its ``async with`` block lasts.

    The same transport may be opened again later, on another event loop: it then starts with fresh connections.
    """

    def __init__(self) -> None:
        self._clients: dict[bool, httpx2.AsyncClient] = {}
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
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await _close(client)

    def call(
        self, wire: WireRequest, address: Address, headers: tuple[tuple[str, str], ...], *, connect_s: float | None
    ) -> HttpCall:
        """Make one call, to be used as ``async with transport.call(...) as call``.

        Arguments:
            wire: what is sent.
            address: where to.
            headers: further headers, the credential among them.
            connect_s: how long connecting may take, in seconds.
        """
        if not self._open:
            raise MisuseError("the transport is not open")
        own = (("connection", "close"),) if not address.keep_alive else ()
        request = httpx2.Request(
            "POST",
            address.base_url.rstrip("/") + wire.path,
            headers=[*wire.headers, *headers, *own],
            content=b"".join(wire.body),
            extensions={"timeout": {"connect": connect_s, "read": None, "write": None, "pool": None}},
        )
        return HttpCall(self._client(direct=address.direct), request)

    def _client(self, *, direct: bool) -> httpx2.AsyncClient:
        if direct not in self._clients:
            # A server on this machine speaks plain HTTP and is not asked for through a proxy; without TLS there is
            # no need for the certificates, whose loading takes longer than anything else here.
            self._clients[direct] = httpx2.AsyncClient(
                trust_env=not direct,
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if direct else True,
                follow_redirects=False,
                # How many run at once is decided by admission, never by a pool that would hide the queue.
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=15.0),
            )
        return self._clients[direct]


class HttpCall:
    """Hold one request and its answer; leaving the block closes whatever is left of both, within seconds."""

    def __init__(self, client: httpx2.AsyncClient, request: httpx2.Request) -> None:
        self._client = client
        self._request = request
        self._response: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._ended = False
        self._reused = True
        request.extensions = {**request.extensions, "trace": self._trace}

    async def __aenter__(self) -> HttpCall:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._response is None:
            return
        if kind is None and not self._ended:
            with anyio.move_on_after(_DRAIN_S, shield=True):
                await self._drain()
        await _close(self._response)
        await self._unwind()

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer.

        Raises:
            AttemptFailed: no connection, or none that brought an answer. ``failure.sent`` tells whether the
                request may have reached the server.
        """
        try:
            response = await self._client.send(self._request, stream=True)
        except httpx2.HTTPError as error:
            raise AttemptFailed(self._unanswered(error)) from error
        except (httpx2.InvalidURL, ValueError) as error:
            raise AttemptFailed(
                Failure(
                    kind="invalid_request", reason="bad_url", message=f"the request cannot be sent: {error}", sent=False
                )
            ) from error
        self._response = response
        self._chunks = response.aiter_bytes()
        return ResponseHead(
            response.status_code, tuple((name.lower(), value) for name, value in response.headers.multi_items())
        )

    async def receive(self) -> bytes:
        """Give the next bytes of the answer's body; empty at its end.

        Raises:
            AttemptFailed: the connection broke, or the body cannot be decompressed.
        """
        if self._chunks is None or self._ended:
            return b""
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
        except httpx2.DecodingError as error:
            raise AttemptFailed(
                Failure(kind="provider", reason="malformed", message="the answer's compression is broken")
            ) from error
        except httpx2.HTTPError as error:
            raise AttemptFailed(
                Failure(
                    kind="unavailable",
                    reason="cut_off",
                    message=f"the connection to {self._host} broke in the middle of the answer",
                    status=self._response.status_code if self._response is not None else None,
                )
            ) from error
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
        if self._chunks is None or self._ended:
            return
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._drain()

    async def _trace(self, name: str, info: object) -> None:
        if name.startswith("connection.connect_tcp"):
            self._reused = False

    @property
    def _host(self) -> str:
        url = self._request.url
        return f"{url.host}:{url.port}" if url.port else url.host

    def _unanswered(self, error: httpx2.HTTPError) -> Failure:
        host = self._host
        if isinstance(error, httpx2.ConnectTimeout):
            return Failure(
                kind="timeout",
                reason="connect_timeout",
                message=f"no connection to {host} within the time limit for connecting",
                retryable=True,
                sent=False,
            )
        if isinstance(error, httpx2.UnsupportedProtocol):
            return Failure(
                kind="invalid_request", reason="bad_url", message=f"the base URL cannot be used: {error}", sent=False
            )
        if isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)):
            certificate = "certificate" in str(error).lower()
            return Failure(
                kind="unavailable",
                reason="certificate" if certificate else "connection_refused",
                message=f"no connection to {host}: {str(error) or type(error).__name__}",
                retryable=not certificate,
                sent=False,
            )
        if self._reused:
            # The server closed an idle connection just as it was used again: it never saw the request.
            return Failure(
                kind="unavailable",
                reason="stale_connection",
                message=f"{host} closed a connection that was used again",
                retryable=True,
                sent=False,
            )
        return Failure(
            kind="unavailable",
            reason="no_answer",
            message=f"{host} closed the connection without an answer; the request may have been worked on",
        )


async def _close(thing: _Closable) -> None:
    with anyio.move_on_after(_CLOSE_S, shield=True):
        await thing.aclose()
