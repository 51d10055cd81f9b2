"""Connections that are used again: clients of a few each, made of what the environment says."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import httpx2
from attrs import define

from furcate.transport._call import KEEP_ALIVE_S
from furcate.transport._unanswered import bad_certificates, bad_proxy, socks_proxy

_MOST_CALLS = 8
"""How many calls share a pool. For each request the library looks at every connection of its pool, twice; one pool of
a hundred spends a third of all time on that."""


@define(eq=False)
class Pool:
    """Hold a client and count the calls that use it now."""

    client: httpx2.AsyncClient
    calls: int = 0


class Pools:
    """Give each call the first pool that has room for it; the last ones, needed by a rush only, fall idle again."""

    def __init__(self) -> None:
        self._direct: list[Pool] = []
        self._others: list[Pool] = []
        self._context: ssl.SSLContext | None = None

    @property
    def clients(self) -> Iterator[httpx2.AsyncClient]:
        """All clients, to be closed."""
        return (pool.client for pool in (*self._direct, *self._others))

    def least(self, *, direct: bool) -> Pool:
        """Give a pool with room for one more call.

        Arguments:
            direct: whether it goes to a server on this machine, past all proxies.

        Raises:
            AttemptFailed: the environment's proxies or certificates cannot be used.
        """
        pools = self._direct if direct else self._others
        for pool in pools:
            if pool.calls < _MOST_CALLS:
                return pool
        pools.append(Pool(_direct_client() if direct else self._client_of_environment()))
        return pools[-1]

    def _client_of_environment(self) -> httpx2.AsyncClient:
        """Make a client that takes proxies and certificate authorities from the usual variables, and verifies always.

        Raises:
            AttemptFailed: one of those variables cannot be used.
        """
        try:
            # Reading the authorities takes longer than all else here, so it is done once.
            self._context = self._context or httpx2.create_ssl_context()
            return httpx2.AsyncClient(trust_env=True, verify=self._context, follow_redirects=False, limits=_LIMITS)
        except (OSError, ssl.SSLError) as error:
            raise bad_certificates(error) from error
        except ImportError as error:
            raise socks_proxy("name an HTTP proxy, or install the package socksio") from error
        except (httpx2.InvalidURL, ValueError) as error:
            raise bad_proxy() from error


# How many run at once is decided by admission, never by a pool that would hide the queue; idle connections are few,
# since there are never more of them than there were calls at once.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S)


def _direct_client() -> httpx2.AsyncClient:
    """Make a client for plain HTTP to a server on this machine, past all proxies.

    Its TLS context trusts no certificate at all. So nothing has to be loaded, which takes longer than all else here,
    and an address with https would fail and not go unverified.
    """
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.AsyncClient(trust_env=False, verify=nobody, follow_redirects=False, limits=_LIMITS)
