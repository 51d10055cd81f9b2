"""Where a base URL leads, read once for every transport."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, urlsplit

from attrs import frozen

from furcate.primitives._wire import AttemptFailed
from furcate.transport._unanswered import bad_base_url


@frozen
class Place:
    """Hold the parts of a base URL.

    Attributes:
        url: the URL, without a slash at the end.
        scheme: ``http`` or ``https``.
        host: the host in lower case and in the form that DNS knows, without brackets.
        port: the port, the scheme's own where none is given.
        given: the port as it stands in the URL; a proxy is told no other.
        named: what to call it in a failure's sentence, and in a request's head.
        path: what stands behind host and port, encoded for the wire.
    """

    url: str
    scheme: str
    host: str
    port: int
    given: int | None
    named: str
    path: str


def place_of(base_url: str) -> Place:
    """Read a base URL.

    Raises:
        AttemptFailed: no request can go to such an address.
    """
    try:
        parts = urlsplit(base_url)
        host, port = _ascii(parts.hostname or ""), parts.port
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("it is no http:// or https:// address")
    except ValueError as error:
        raise AttemptFailed(bad_base_url(error)) from None
    shown = f"[{host}]" if ":" in host else host
    return Place(
        url=base_url.rstrip("/"),
        scheme=parts.scheme,
        host=host,
        port=port or (443 if parts.scheme == "https" else 80),
        given=port,
        named=f"{shown}:{port}" if port else shown,
        path=encoded_path(parts.path.rstrip("/")),
    )


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna  # noqa: PLC0415 - its tables take longer to load than all else here, and few hosts need them

    return idna.encode(host).decode("ascii")


@lru_cache(maxsize=256)
def encoded_path(path: str) -> str:
    """Encode what no path carries as it is; what is encoded already stays."""
    return quote(path, safe="/%:@!$&'()*+,;=?~-._")
