"""HTTP over httpx2: send a request, receive the answer's bytes, close what is left.

No time limit but the one for connecting stands here, and nothing is repeated: both are decided above, where it is
known what was shown to whom.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from types import TracebackType
from typing import Protocol

import anyio
import httpx2

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, SecretHeaders, WireRequest
from furcate.transport._pools import Pool, Pools

_CLOSE_S = 0.8
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
            raise AttemptFailed(_bad_url(error)) from None
        return HttpCall(self._pools.least(direct=address.direct), request, retry_stale=retry_stale)


class HttpCall:
    """Hold one request and its answer; leaving the block closes whatever is left of both, within seconds."""

    def __init__(self, pool: Pool, request: httpx2.Request, *, retry_stale: bool) -> None:
        self._pool = pool
        self._request = request
        self._retry_stale = retry_stale
        self._response: httpx2.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._ended = False
        self._reused = True
        request.extensions = {**request.extensions, "trace": self._trace}

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
            with anyio.move_on_after(_DRAIN_S, shield=True):
                await self._drain()
        with anyio.move_on_after(_CLOSE_S, shield=True):
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
            raise AttemptFailed(_bad_url(error)) from error
        # What one answer sets goes along with no other request, and is not kept.
        self._pool.client.cookies.clear()
        self._response = response
        self._chunks = response.aiter_bytes()
        headers = [(name.lower(), value) for name, value in response.headers.multi_items()]
        if "date" not in response.headers:
            # Whoever receives an answer without a date is to note when that was (RFC 9110, section 6.6.1); a wait that
            # is given as a date means nothing without.
            headers.append(("date", format_datetime(datetime.now(UTC), usegmt=True)))
        return ResponseHead(response.status_code, tuple(headers))

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
        if self._chunks is not None and not self._ended:
            await self._drain()

    async def _trace(self, name: str, info: object) -> None:
        if ".connect_tcp." in name:
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
        if isinstance(error, httpx2.ProxyError):
            busy = str(error)[:1] == "5"
            return Failure(
                kind="unavailable",
                reason="proxy_refused",
                message=f"the proxy in the environment opened no way to {host}: {_bounded(error)}",
                retryable=busy,
                sent=False,
            )
        if isinstance(error, httpx2.ConnectError):
            return _unconnected(error, host)
        if isinstance(error, httpx2.RemoteProtocolError) and str(error) != _CLOSED:
            return Failure(
                kind="provider", reason="malformed", message=f"{host} answered with something that is no HTTP"
            )
        if self._reused and self._retry_stale:
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


_CLOSED = "Server disconnected without sending a response."
"""What the HTTP library says of an end without a head; other violations of the protocol are those of an answer."""


def _unconnected(error: httpx2.ConnectError, host: str) -> Failure:
    """Say why there is no connection: nobody listens, or no trust."""
    refused = _tls_error(error)
    if isinstance(refused, ssl.SSLCertVerificationError):
        why = refused.verify_message or "it cannot be verified"
        return Failure(
            kind="unavailable",
            reason="certificate",
            message=f"the certificate of {host} is not trusted ({why}); "
            "if it is your own authority's, name its file in SSL_CERT_FILE",
            sent=False,
        )
    if refused is not None and not isinstance(refused, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        why = (refused.reason or "the handshake failed").lower().replace("_", " ")
        return Failure(
            kind="unavailable",
            reason="tls",
            message=f"no TLS connection to {host} ({why}); "
            "check that the base_url says https for a server that speaks it",
            sent=False,
        )
    said = "it broke off the TLS handshake" if refused is not None else _bounded(error)
    return Failure(
        kind="unavailable",
        reason="connection_refused",
        message=f"no connection to {host}: {said}",
        retryable=True,
        sent=False,
    )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Find what TLS itself says; each event loop wraps it in errors of its own."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _bounded(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _bad_url(error: Exception) -> Failure:
    return Failure(
        kind="invalid_request", reason="bad_url", message=f"the request cannot be sent: {_bounded(error)}", sent=False
    )


async def _close(thing: _Closable) -> None:
    with anyio.move_on_after(_CLOSE_S, shield=True):
        await thing.aclose()
