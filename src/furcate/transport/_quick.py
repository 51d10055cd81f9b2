"""HTTP over aiohttp: on asyncio, the same calls as over httpx2 for a small part of their cost.

As there, no time limit but the one for connecting stands here, and nothing is repeated. What aiohttp raises is dropped
once it is understood: it and the frames beneath hold the headers.
"""

from __future__ import annotations

# The timer of a call is of asyncio's own: a cancel scope for each piece of an answer costs more than reading it.
import asyncio  # noqa: TID251
import ssl
from contextlib import suppress
from functools import lru_cache
from math import inf
from types import TracebackType

import aiohttp
import anyio
import anyio.lowlevel
from aiohttp.abc import AbstractStreamWriter
from attrs import field, frozen

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, SecretHeaders, WireRequest
from furcate.transport._call import CLOSE_S, DRAIN_S, KEEP_ALIVE_S, Quiet
from furcate.transport._environment import Environment
from furcate.transport._head import head_of
from furcate.transport._place import Place, place_of
from furcate.transport._quick_carrier import CARRIER, Carrier, Connector
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

_MOST_HEAD_BYTES = 100 * 1024
_MOST_FIELD_BYTES = 32 * 1024
"""The longest field of a head; aiohttp counts the fields, at most 128, and not what they come to."""

_LARGE_BODY_BYTES = 1024 * 1024
_SLICE_BYTES = 64 * 1024


class QuickTransport:
    """Send requests over pooled connections of aiohttp while its ``async with`` block lasts, on asyncio alone."""

    def __init__(self) -> None:
        self._open = False
        self._forget()

    def _forget(self) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._routes: dict[tuple[str, bool], _Route] = {}
        self._environment = Environment(lambda: _NO_SOCKS)

    async def __aenter__(self) -> QuickTransport:
        if self._open:
            raise MisuseError("this transport is open already")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        sessions = tuple(self._sessions.values())
        self._forget()
        with anyio.move_on_after(CLOSE_S, shield=True):
            for session in sessions:
                await session.close()
            # The sockets of calls that were left early are closed on the event loop's next turn.
            await anyio.lowlevel.checkpoint()

    def warm_up(self) -> None:
        """Load the certificate authorities; what is wrong with them is told by the first call that needs them."""
        with suppress(AttemptFailed):
            self._environment.trusted()

    def call(
        self,
        wire: WireRequest,
        address: Address,
        headers: SecretHeaders,
        *,
        connect_s: float | None,
        retry_stale: bool = True,
    ) -> QuickCall:
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
        place = (address.base_url, address.direct)
        route = self._routes.get(place)
        if route is None:
            route = self._routes[place] = self._route_to(address)
        return QuickCall(
            route,
            wire,
            headers,
            timeout=_connecting_within(connect_s),
            keep_alive=address.keep_alive,
            retry_stale=retry_stale,
        )

    def _route_to(self, address: Address) -> _Route:
        place = place_of(address.base_url)
        if address.direct:
            # For plain HTTP on this machine; such a context trusts nobody, so https would fail and not go unverified.
            return _Route(place, self._session(direct=True), None, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        proxy, trusted = self._environment.way_to(place)
        return _Route(place, self._session(direct=False), proxy, trusted or True)

    def _session(self, *, direct: bool) -> aiohttp.ClientSession:
        if direct not in self._sessions:
            # How many run at once is decided by admission, never by a pool that would hide the queue. The cache of
            # names is off since its lookups outlive whoever is cancelled while it waits for one.
            connector = Connector(
                limit=0,
                keepalive_timeout=KEEP_ALIVE_S,
                resolver=aiohttp.ThreadedResolver(),
                use_dns_cache=False,
            )
            self._sessions[direct] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                max_field_size=_MOST_FIELD_BYTES,
            )
        return self._sessions[direct]


@frozen
class _Route:
    """Hold how an address is reached.

    Attributes:
        place: where it leads.
        session: the pool of connections.
        proxy: the proxy's URL, which may hold a password.
        trust: the TLS context; True where none is needed.
    """

    place: Place
    session: aiohttp.ClientSession
    proxy: str | None = field(repr=False)
    trust: ssl.SSLContext | bool


class QuickCall:
    """Hold one request and its answer; leaving the block closes whatever is left of both, within seconds."""

    def __init__(
        self,
        route: _Route,
        wire: WireRequest,
        headers: SecretHeaders,
        *,
        timeout: aiohttp.ClientTimeout,
        keep_alive: bool,
        retry_stale: bool,
    ) -> None:
        self._route = route
        self._wire = wire
        self._headers = headers
        self._timeout = timeout
        self._retry_stale = retry_stale
        self._carrier = Carrier(keep_alive=keep_alive)
        self._response: aiohttp.ClientResponse | None = None
        self._ended = False
        self._failure: Failure | None = None
        self._by_s = inf
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> QuickCall:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        response = self._response
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if response is not None:
            if kind is None and not self._ended and not response.closed:
                with anyio.move_on_after(DRAIN_S, shield=True):
                    await self._drain()
            if response.closed:
                # The connection went back to the pool, or broke, when the answer's end arrived.
                return
            response.close()
        if self._carrier.socket is not None:
            # Closing would wait until all that is left of a request has been sent.
            self._carrier.socket.abort()

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer.

        Raises:
            AttemptFailed: no connection, or none that brought an answer. ``failure.sent`` tells whether the
                request may have reached the server.
        """
        token = CARRIER.set(self._carrier)
        try:
            self._response = await self._send()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._failure = self._unanswered(error)
        finally:
            CARRIER.reset(token)
        if self._response is None:
            raise self._failed()
        fields = self._response.raw_headers
        if sum(len(name) + len(value) for name, value in fields) > _MOST_HEAD_BYTES:
            self._failure = no_http(self._route.place.named)
            raise self._failed()
        return head_of(self._response.status, fields)

    async def _send(self) -> aiohttp.ClientResponse:
        route, wire = self._route, self._wire
        body = b"".join(wire.body)
        return await route.session.post(
            route.place.url + wire.path,
            data=body if len(body) <= _LARGE_BODY_BYTES else _LargeBody(body),
            headers=[*wire.headers, *self._headers.pairs, *(() if self._carrier.keep_alive else _NOT_AGAIN)],
            allow_redirects=False,
            proxy=route.proxy,
            ssl=route.trust,
            timeout=self._timeout,
        )

    @property
    def at_end(self) -> bool:
        """Whether the body is known to have ended."""
        return self._ended or (self._response is not None and self._response.content.at_eof())

    async def receive(self, by_s: float = inf) -> bytes:
        """Give the next bytes of the answer's body, as many as have arrived; empty at its end.

        Arguments:
            by_s: the moment on the event loop's clock until which it waits for them.

        Raises:
            Quiet: nothing came until then.
            AttemptFailed: the connection broke, or the body cannot be decompressed.
        """
        if self._failure is not None:
            raise self._failed()
        if self._response is None or self._ended:
            return b""
        content, data = self._response.content, b""
        self._by_s = by_s
        if by_s < inf and not _has_come(content) and (self._timer is None or by_s < self._timer.when()):
            self._set_timer()
        try:
            data = await content.readany()
        except Quiet:
            self._ended = True  # so that leaving does not wait for the rest
            raise
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            self._failure = self._broken(error)
            # What had arrived before counts, though aiohttp would tell of the end first.
            data = b"".join(content._buffer)
        if self._failure is not None and not data:
            raise self._failed()
        self._ended = not data
        self._by_s = inf
        return data

    def _set_timer(self) -> None:
        """Look at the moment that is waited for, when it has come: one timer does for many pieces that come in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._by_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._by_s == inf or self._response is None or _has_come(self._response.content):
            return  # nobody waits now
        if self._by_s > asyncio.get_running_loop().time():
            self._set_timer()
        else:
            self._response.content.set_exception(Quiet())

    async def _drain(self) -> None:
        with suppress(AttemptFailed):
            while await self.receive():
                pass

    def _failed(self) -> AttemptFailed:
        assert self._failure is not None, "whoever asks has noted why"
        self._ended = True
        return AttemptFailed(self._failure)

    def _broken(self, error: Exception) -> Failure:
        if isinstance(error.__cause__, aiohttp.http_exceptions.ContentEncodingError):
            return BROKEN_COMPRESSION
        return cut_off(self._route.place.named, self._response.status if self._response is not None else None)

    def _unanswered(self, error: Exception) -> Failure:
        host = self._route.place.named
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return connect_timeout(host)
        if isinstance(error, aiohttp.ClientConnectorError):
            return unconnected(error.os_error, host, str(error.strerror or error.os_error)[:200])
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return proxy_refused(host, f"{error.status} {error.message}"[:200])
        if isinstance(error, aiohttp.ClientResponseError):
            return no_http(host)
        if isinstance(error, aiohttp.InvalidURL):
            return bad_base_url(error)
        if isinstance(error, ValueError):
            return bad_url(error)
        if self._carrier.socket is None:
            return unconnected(error, host, bounded(error))
        return closed_without_answer(host, stale=self._carrier.reused and self._retry_stale)


class _LargeBody(aiohttp.Payload):
    """Hand on a large body slice by slice, as the connection takes it."""

    _autoclose = True

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give the body as text."""
        return str(self._value, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body."""
        view = memoryview(self._value)
        for start in range(0, len(view), _SLICE_BYTES):
            await writer.write(view[start : start + _SLICE_BYTES])


_NOT_AGAIN = (("connection", "close"),)

_NO_SOCKS = 'name an HTTP proxy, or choose transport = "httpx2" and install the package socksio'


@lru_cache(maxsize=64)
def _connecting_within(connect_s: float | None) -> aiohttp.ClientTimeout:
    # aiohttp rounds times above the threshold up to whole seconds.
    return aiohttp.ClientTimeout(total=None, connect=connect_s, ceil_threshold=float("inf"))


def _has_come(content: aiohttp.StreamReader) -> bool:
    return bool(content._buffer) or content.is_eof()
