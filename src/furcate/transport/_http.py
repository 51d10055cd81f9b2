"""HTTP over httpcore2, the part of httpx2 that speaks it: send a request, receive its answer, close what is left.

No time limit but the one for connecting stands here, and nothing is repeated: both are decided above, where it is
known what was shown to whom.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from math import inf
from types import TracebackType
from urllib.parse import unquote, urlsplit

import anyio
import httpcore2
from attrs import frozen

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, SecretHeaders, WireRequest
from furcate.transport._call import CLOSE_S, DRAIN_S, KEEP_ALIVE_S
from furcate.transport._connections import Connections
from furcate.transport._environment import Environment
from furcate.transport._head import head_of
from furcate.transport._network import CONNECTING, Connecting, Line, Network
from furcate.transport._place import Place, encoded_path, place_of
from furcate.transport._unanswered import (
    bad_url,
    bounded,
    closed_without_answer,
    connect_timeout,
    cut_off,
    no_http,
    proxy_refused,
    unconnected,
)
from furcate.transport._unpack import ACCEPTED, Plain, Unpacking, unpacking


class HttpTransport:
    """Send requests over pooled connections while its ``async with`` block lasts.

    The same transport may be opened again later, on another event loop: it then starts with fresh connections.
    """

    def __init__(self) -> None:
        self._open = False
        self._forget()

    def _forget(self) -> None:
        self._routes: dict[tuple[str, bool], _Route] = {}
        self._connections: dict[tuple[str, str, int, bool], Connections] = {}
        self._environment = Environment(_no_socks)

    async def __aenter__(self) -> HttpTransport:
        if self._open:
            raise MisuseError("this transport is open already")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        closing = tuple(self._connections.values())
        self._forget()
        for connections in closing:
            await connections.aclose()

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
        route = self._routes.get((address.base_url, address.direct))
        if route is None:
            route = self._routes[address.base_url, address.direct] = self._route_to(address)
        place, body = route.place, b"".join(wire.body)
        own = () if address.keep_alive else (("connection", "close"),)
        try:
            request = httpcore2.Request(
                b"POST",
                httpcore2.URL(
                    scheme=place.scheme, host=place.host, port=place.given, target=place.path + encoded_path(wire.path)
                ),
                headers=_fields((*wire.headers, *headers.pairs, *own), place, length=len(body)),
                content=body,
                extensions={"timeout": {"connect": connect_s}},
            )
        except UnicodeError as error:
            # Without its cause: the frames beneath hold the headers.
            raise AttemptFailed(bad_url(error)) from None
        return HttpCall(route.connections, request, host=place.named, retry_stale=retry_stale)

    def _route_to(self, address: Address) -> _Route:
        place = place_of(address.base_url)
        if not address.direct:
            proxy, trusted = self._environment.way_to(place)
        else:
            # For plain HTTP on this machine; such a context trusts nobody, so https would fail and not go unverified.
            proxy, trusted = None, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        key = (place.scheme, place.host, place.port, address.direct)
        if key not in self._connections:
            # Not used as a pool: it knows how to make a connection, past a proxy or through it.
            maker = httpcore2.AsyncConnectionPool(
                ssl_context=trusted,
                proxy=_proxy(proxy, trusted) if proxy is not None else None,
                keepalive_expiry=KEEP_ALIVE_S,
                network_backend=Network(),
            )
            origin = httpcore2.Origin(place.scheme.encode("ascii"), place.host.encode("ascii"), place.port)
            self._connections[key] = Connections(partial(maker.create_connection, origin))
        return _Route(place, self._connections[key])


@frozen
class _Route:
    """Hold how an address is reached: where it leads, and over whose connections."""

    place: Place
    connections: Connections


class HttpCall:
    """Hold one request and its answer; leaving the block closes whatever is left of both, within seconds."""

    def __init__(self, connections: Connections, request: httpcore2.Request, *, host: str, retry_stale: bool) -> None:
        self._connections = connections
        self._connection: httpcore2.AsyncConnectionInterface | None = None
        self._request = request
        self._host = host
        self._retry_stale = retry_stale
        self._response: httpcore2.Response | None = None
        self._line: Line | None = None
        self._pieces: AsyncGenerator[bytes, None] | None = None
        self._unpacking: Unpacking = Plain()
        self._ended = False
        self._connecting = Connecting()

    async def __aenter__(self) -> HttpCall:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is None:
            return
        if self._response is not None and self._pieces is not None:
            if kind is None and not self._ended:
                with anyio.move_on_after(DRAIN_S, shield=True):
                    await self._drain()
            with anyio.move_on_after(CLOSE_S, shield=True):
                # The generator first: the garbage collector, which would end it otherwise, cannot do so on trio.
                await self._pieces.aclose()
                await self._response.aclose()
        await self._connections.give_back(self._connection)

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer.

        Raises:
            AttemptFailed: no connection, or none that brought an answer. ``failure.sent`` tells whether the
                request may have reached the server.
        """
        self._connection = await self._connections.take()
        token = CONNECTING.set(self._connecting)
        try:
            response = await self._connection.handle_async_request(self._request)
        except _ERRORS as error:
            raise AttemptFailed(self._unanswered(error)) from error
        except ValueError as error:
            raise AttemptFailed(bad_url(error)) from error
        finally:
            CONNECTING.reset(token)
        assert isinstance(response.stream, AsyncIterable), "the stream of a call that may wait"
        pieces = aiter(response.stream)
        assert isinstance(pieces, AsyncGenerator), "which has to be closed"
        self._response, self._line, self._pieces = response, response.extensions["network_stream"], pieces
        head = head_of(response.status, response.headers)
        self._unpacking = unpacking(head)
        return head

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
        if self._response is None or self._line is None or self._pieces is None or self._ended:
            return b""
        self._line.by_s = by_s
        try:
            async for piece in self._pieces:
                if data := self._unpacking.feed(piece):
                    return data
        except _ERRORS as error:
            raise AttemptFailed(cut_off(self._host, self._response.status)) from error
        finally:
            # The connection outlives the call.
            self._line.by_s = inf
        self._ended = True
        self._unpacking.finish()
        return b""

    async def _drain(self) -> None:
        with suppress(AttemptFailed):
            while await self.receive():
                pass

    def _unanswered(self, error: Exception) -> Failure:
        host = self._host
        if isinstance(error, httpcore2.ConnectTimeout):
            return connect_timeout(host)
        if isinstance(error, httpcore2.ProxyError):
            return proxy_refused(host, bounded(error))
        if isinstance(error, httpcore2.ConnectError):
            return unconnected(error, host, bounded(error))
        if isinstance(error, httpcore2.LocalProtocolError):
            # Not in its own words, which repeat the header: it may be a secret one.
            return bad_url(ValueError("the address or a header holds characters that HTTP does not carry"))
        if isinstance(error, httpcore2.RemoteProtocolError) and str(error) != _CLOSED:
            return no_http(host)
        return closed_without_answer(host, stale=self._connecting.reused and self._retry_stale)


_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
)

_CLOSED = "Server disconnected without sending a response."
"""What the HTTP library says of an end without a head; other violations of the protocol are those of an answer."""


def _fields(given: tuple[tuple[str, str], ...], place: Place, *, length: int) -> list[tuple[str, str]]:
    """Give the fields of a request's head: what is given, and what every request needs."""
    names = {name.lower() for name, _ in given}
    usual = (("host", place.named), ("accept", "*/*"), ("accept-encoding", ACCEPTED), ("user-agent", "furcate"))
    return [*(pair for pair in usual if pair[0] not in names), *given, ("content-length", str(length))]


def _no_socks() -> str | None:
    return None if find_spec("socksio") else "name an HTTP proxy, or install the package socksio"


def _proxy(url: str, trusted: ssl.SSLContext | None) -> httpcore2.Proxy:
    parts = urlsplit(url)
    auth = None
    if parts.username is not None:
        auth = (unquote(parts.username).encode(), unquote(parts.password or "").encode())
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return httpcore2.Proxy(
        httpcore2.URL(scheme=parts.scheme, host=parts.hostname or "", port=port, target="/"),
        auth=auth,
        ssl_context=trusted if parts.scheme == "https" else None,
    )
