"""What a stub does on the wire, step by step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs


@attrs.frozen
class Head:
    """Send the status line and the headers.

    Attributes:
        status: the HTTP status.
        headers: pairs of name and value; they decide the framing (``content-length`` or
            ``transfer-encoding: chunked``).
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Send:
    """Send bytes of the body; a stream's event is one of these.

    Attributes:
        data: body bytes, before transfer encoding.
    """

    data: bytes


@attrs.frozen
class Wait:
    """Do nothing for a while, in real time.

    Attributes:
        duration_s: seconds.
    """

    duration_s: float


@attrs.frozen
class Hold:
    """Do nothing until the test says so: the deterministic alternative to ``Wait``.

    Attributes:
        wait: an async callable without arguments, such as ``event.wait`` of an ``anyio.Event``.
    """

    wait: Callable[[], Awaitable[object]]


@attrs.frozen
class Silence:
    """Say nothing more, keep the connection open, until the client leaves.

    Attributes:
        comment_every_s: send a keep-alive comment every so many seconds; None sends nothing at all.
    """

    comment_every_s: float | None = None


@attrs.frozen
class Wire:
    """Write bytes to the socket as they are, HTTP or not; the connection closes after the answer's last step.

    An answer has either these or ``Head`` and ``Send``, whose framing is looked after.

    Attributes:
        data: what goes over the wire.
    """

    data: bytes


@attrs.frozen
class Disconnect:
    """Close the connection at once, whatever was promised."""


@attrs.frozen
class Reset:
    """Break the connection as a crash does: the client gets a TCP reset and no orderly end."""


Step = Head | Send | Wire | Wait | Hold | Silence | Disconnect | Reset
