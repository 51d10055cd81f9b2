"""What the environment says of proxies and certificate authorities; no HTTP library is left to read it itself."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies

from attrs import frozen

from furcate.transport._place import Place
from furcate.transport._unanswered import bad_certificates, bad_proxy, socks_proxy

if sys.platform in ("win32", "darwin"):
    from truststore import SSLContext as _SystemContext
else:
    _SystemContext = None

# Where systems keep the authorities they trust, for a Python that was built elsewhere and looks in none of them.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def trusting_context() -> ssl.SSLContext:
    """Make a TLS context that verifies, and trusts whom the usual variables or else the system name.

    Raises:
        AttemptFailed: what a variable names cannot be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        return _system_context()
    try:
        return ssl.create_default_context(cafile=file or None, capath=None if file else folder)
    except (OSError, ssl.SSLError) as error:
        raise bad_certificates(error) from error


def _system_context() -> ssl.SSLContext:
    if _SystemContext is not None:
        return _SystemContext(ssl.PROTOCOL_TLS_CLIENT)
    usual = ssl.get_default_verify_paths()
    if usual.cafile is None and usual.capath is None:
        return ssl.create_default_context(cafile=next(filter(os.path.isfile, _AUTHORITIES), None))
    return ssl.create_default_context()


class Environment:
    """Know the way to each place, and whom to trust there; each variable is read when it first matters.

    Arguments:
        no_socks: tells what to do where a proxy is a SOCKS proxy; None where those can be used.
    """

    def __init__(self, no_socks: Callable[[], str | None]) -> None:
        self._no_socks = no_socks
        self._proxies: Proxies | None = None
        self._trusted: ssl.SSLContext | None = None

    def way_to(self, place: Place) -> tuple[str | None, ssl.SSLContext | None]:
        """Give the URL of the proxy and the TLS context for a place, None for what is not needed.

        Raises:
            AttemptFailed: the environment's proxies or certificates cannot be used.
        """
        if self._proxies is None:
            self._proxies = proxies_of_environment(self._no_socks())
        proxy = self._proxies.url_for(place.scheme, place.host, place.port)
        secure = place.scheme == "https" or (proxy or "").startswith("https:")
        return proxy, self.trusted() if secure else None

    def trusted(self) -> ssl.SSLContext:
        """Give the TLS context that trusts whom the environment names.

        Raises:
            AttemptFailed: what a variable names cannot be read.
        """
        if self._trusted is None:
            # Reading the authorities takes longer than all else here, so it is done once.
            self._trusted = trusting_context()
        return self._trusted


@frozen
class Proxies:
    """Hold through which proxies to go, and where to without.

    Attributes:
        urls: the proxies' URLs by the scheme they are for; one may hold a password.
        exempt: hosts, networks and domains that are asked directly.
    """

    urls: tuple[tuple[str, str], ...] = ()
    exempt: tuple[str, ...] = ()

    def url_for(self, scheme: str, host: str, port: int) -> str | None:
        """Give the proxy for an address, or None where there is none.

        Arguments:
            scheme: ``http`` or ``https``.
            host: a name in lower case, or an IP address without brackets.
            port: the port.
        """
        urls = dict(self.urls)
        url = urls.get(scheme) or urls.get("all")
        return None if url is None or any(_covers(entry, host, port) for entry in self.exempt) else url


def proxies_of_environment(no_socks: str | None) -> Proxies:
    """Read the proxies from the usual variables, and on some systems from their settings.

    Arguments:
        no_socks: what to do where one is a SOCKS proxy; None where those can be used.

    Raises:
        AttemptFailed: one of them cannot be used.
    """
    found = getproxies()
    exempt = tuple(entry for part in found.get("no", "").split(",") if (entry := part.strip().lower()))
    if "*" in exempt:
        return Proxies()
    urls = tuple(
        (scheme, _proxy_url(found[scheme], no_socks)) for scheme in ("http", "https", "all") if found.get(scheme)
    )
    return Proxies(urls, exempt)


def _proxy_url(given: str, no_socks: str | None) -> str:
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https", "socks5", "socks5h") and parts.hostname and parts.port != 0
    except ValueError:
        # Without its cause, which repeats the address: it may hold a password.
        raise bad_proxy() from None
    if no_socks is not None and parts.scheme.startswith("socks"):
        raise socks_proxy(no_socks)
    if not known:
        raise bad_proxy()
    return url


def _covers(entry: str, host: str, port: int) -> bool:
    """Tell whether an entry of NO_PROXY covers a host: a network, a name with all below it, or only what is below."""
    network = _network(entry)
    if network is not None:
        try:
            return ip_address(host) in network
        except ValueError:
            return False
    try:
        parts = urlsplit(f"//{entry}")
        name, only_port = parts.hostname or "", parts.port
    except ValueError:
        # Curl passes over what it cannot read as well.
        return False
    if not name or (only_port is not None and only_port != port):
        return False
    if name.startswith(("*.", ".")):
        return host.endswith(name.removeprefix("*"))
    return host == name or host.endswith(f".{name}")


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(entry.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return None
