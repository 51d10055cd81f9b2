"""Why a call brought no answer, or no whole one: the failures of every transport, each in one sentence."""

from __future__ import annotations

import os
import ssl

from furcate.primitives._wire import AttemptFailed, Failure


def bounded(error: Exception) -> str:
    """Give what an error says, bounded."""
    return str(error)[:200] or type(error).__name__


def bad_url(error: Exception) -> Failure:
    """Say that the address or a header cannot be sent."""
    return Failure(
        kind="invalid_request", reason="bad_url", message=f"the request cannot be sent: {bounded(error)}", sent=False
    )


def bad_base_url(error: Exception) -> Failure:
    """Say that no request can go to such an address."""
    return Failure(
        kind="invalid_request", reason="bad_url", message=f"the base URL cannot be used: {bounded(error)}", sent=False
    )


def connect_timeout(host: str) -> Failure:
    """Say that connecting took too long."""
    return Failure(
        kind="timeout",
        reason="connect_timeout",
        message=f"no connection to {host} within the time limit for connecting",
        retryable=True,
        sent=False,
    )


def proxy_refused(host: str, said: str) -> Failure:
    """Say that a proxy opened no way.

    Arguments:
        host: where to.
        said: the proxy's status and its words, such as ``502 Bad Gateway``.
    """
    return Failure(
        kind="unavailable",
        reason="proxy_refused",
        message=f"the proxy in the environment opened no way to {host}: {said}",
        retryable=said.startswith("5"),
        sent=False,
    )


def unconnected(error: Exception, host: str, said: str) -> Failure:
    """Say why there is no connection: nobody listens, or no trust.

    Arguments:
        error: what the HTTP library raised; what TLS says is looked for in its causes.
        host: where to.
        said: why nobody was reached, where it is not TLS that says it.
    """
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
    why = "it broke off the TLS handshake" if refused is not None else said
    return Failure(
        kind="unavailable",
        reason="connection_refused",
        message=f"no connection to {host}: {why}",
        retryable=True,
        sent=False,
    )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Find what TLS itself says; each event loop wraps it in errors of its own."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def no_http(host: str) -> Failure:
    """Say that the answer has no head that HTTP knows."""
    return Failure(kind="provider", reason="malformed", message=f"{host} answered with something that is no HTTP")


def closed_without_answer(host: str, *, stale: bool) -> Failure:
    """Say that the connection ended before an answer began.

    Arguments:
        host: where to.
        stale: whether the connection was used before and such an end counts as one of an idle connection, which the
            server closed just as it was used again: it never saw the request.
    """
    if stale:
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


def cut_off(host: str, status: int | None) -> Failure:
    """Say that the connection ended within the answer."""
    return Failure(
        kind="unavailable",
        reason="cut_off",
        message=f"the connection to {host} broke in the middle of the answer",
        status=status,
    )


BROKEN_COMPRESSION = Failure(kind="provider", reason="malformed", message="the answer's compression is broken")


def bad_certificates(error: Exception) -> AttemptFailed:
    """Say that the environment names certificates which cannot be read."""
    variable = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
    return _bad_environment(
        f"the certificates that {variable} names cannot be read ({error}); name a file in PEM form, or unset it"
    )


def socks_proxy(remedy: str) -> AttemptFailed:
    """Say that the environment names a proxy of a kind which cannot be used."""
    return _bad_environment(f"a proxy variable names a SOCKS proxy; {remedy}")


def bad_proxy() -> AttemptFailed:
    """Say that the environment names no proxy; not in a library's words, since its address may hold a password."""
    return _bad_environment(
        "a proxy variable (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) holds no http:// or https:// address"
    )


def _bad_environment(problem: str) -> AttemptFailed:
    return AttemptFailed(Failure(kind="invalid_request", reason="bad_environment", message=problem, sent=False))
