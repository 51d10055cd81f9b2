"""The seam: what every transport offers, whatever HTTP library is beneath."""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Protocol

from furcate.primitives._wire import Address, ResponseHead, SecretHeaders, WireRequest

CLOSE_S = 0.8
"""How long closing a connection may take before it is given up, in seconds; nothing can interrupt it meanwhile."""

DRAIN_S = 0.1
"""How long the end of a complete answer is waited for, in seconds, so that its connection can be used again."""

KEEP_ALIVE_S = 15.0
"""How long an idle connection is kept, in seconds."""


class Quiet(Exception):
    """Raised when nothing more of an answer has come in time."""


class Call(Protocol):
    """What an attempt reads its answer from."""

    @property
    def at_end(self) -> bool:
        """Whether the answer's body is known to have ended, so that nothing is left to receive."""

    async def __aenter__(self) -> Call:
        """Begin to hold the call."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close whatever is left of it, within a second."""

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer.

        Raises:
            AttemptFailed: no connection, or none that brought an answer. ``failure.sent`` tells whether the
                request may have reached the server.
        """

    async def receive(self, by_s: float = inf) -> bytes:
        """Give the next bytes of the answer's body, as many as have arrived; empty at its end.

        Arguments:
            by_s: the moment on the event loop's clock until which it waits for them.

        Raises:
            Quiet: nothing came until then; the call is of no more use.
            AttemptFailed: the connection broke, or the body cannot be decompressed.
        """


class Transport(Protocol):
    """Send requests over pooled connections while its ``async with`` block lasts.

    The same transport may be opened again later, on another event loop: it then starts with fresh connections.
    """

    async def __aenter__(self) -> Transport:
        """Open it on the event loop that runs."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections, within seconds."""

    def warm_up(self) -> None:
        """Load now what the first call to a remote server would load; it blocks for some hundredths of a second.

        What cannot be used in the environment is told by that call, and not here.
        """

    def call(
        self,
        wire: WireRequest,
        address: Address,
        headers: SecretHeaders,
        *,
        connect_s: float | None,
        retry_stale: bool = True,
    ) -> Call:
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
