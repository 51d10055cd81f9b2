"""The way to a collector: how long it may take, how much it may answer, and whether that confirms anything.

The exporter's HTTP session is kept, with its proxies and certificates; only its adapters are wrapped.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl

# A cut comes from beside the thread that waits, which is one of the SDK.
import threading  # noqa: TID251
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

MOST_ANSWERED = 65_536
"""Most bytes that an answer may have; an honest one has few."""
_CHUNK = 8192
_LONGEST_WORDS = 120
_SHORTEST_SECRET = 6
_DEFAULT_TIMEOUT_S = 10.0
_PROTOBUF = ("application/x-protobuf", "application/protobuf", "")
_REJECTED = ("rejected_spans", "rejectedSpans", "rejected_data_points", "rejectedDataPoints")
_MESSAGE = ("error_message", "errorMessage")
_PLAIN_HEADERS = (
    "user-agent", "accept", "accept-encoding", "connection", "content-type", "content-length", "content-encoding",
)  # fmt: skip


class Wire:
    """Watch the exports of one exporter.

    Args:
        answer: makes an empty answer of the signal's service, to be read into.

    Attributes:
        confirmed: whether what was sent last has been confirmed, if only in part.
        cause: why what was sent last was not confirmed; empty where it was.
        rejected: how many the collector did not take of what it confirmed last.
        closed: whether nothing is sent any more.
    """

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._limit_s = 0.0
        self._expired = False
        self._watching = False
        self.confirmed = False
        self.cause = ""
        self.rejected = 0
        self.closed = False

    def attach(self, session: Any) -> None:
        """Watch what a session of the exporter sends."""
        self._watching = True
        for prefix, adapter in list(session.adapters.items()):
            session.mount(prefix, _Adapter(self, adapter))

    def begin(self) -> None:
        """Forget how the export before this one ended; its cause stands until there is an outcome."""
        self._limit_s = 0.0
        self.rejected = 0
        # Where an exporter has no session that is known here, its own word has to do.
        self.confirmed = not self._watching

    def close(self) -> None:
        """Send nothing more, and cut what is on its way."""
        self.closed = True
        self._cut()

    def hold(self, made: Callable[..., Any], *args: Any, **given: Any) -> Any:
        """Make a connection whose socket can be cut."""
        connection = made(*args, **given)
        connect = connection.connect

        def connect_and_hold() -> None:
            connect()
            self._sockets.add(connection.sock)

        connection.connect = connect_and_hold
        return connection

    @contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Bound what is sent and answered inside, altogether, and note why it failed."""
        if self.closed:
            raise ConnectionAbortedError("the block has ended")
        self._expired = False
        self._limit_s = max(self._limit_s, limit_s)
        timer = threading.Timer(limit_s, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if not self.closed:
                self.cause = self._too_late() if self._expired else _cause_of(error, self._too_late())
            raise
        finally:
            timer.cancel()
            timer.join()

    def judge(self, response: Any, secrets: tuple[str, ...]) -> None:
        """Read as much of an answer as is needed, and tell whether it confirms what was sent."""
        status, body = response.status_code, b""
        confirms = 200 <= status < 300
        if confirms:
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > MOST_ANSWERED:
                    break
        response.close()
        # Whoever asks the response for its content gets none, rather than all that may still come.
        response._content, response._content_consumed = b"", True
        response.headers.pop("location", None)
        if self._expired or self.closed:
            self.cause = self.cause if self.closed else self._too_late()
        elif not confirms:
            self.cause = f"it answered {_told_status(status, response.reason, secrets)}"
        elif len(body) > MOST_ANSWERED:
            self.cause = f"it answered {status} with more than {MOST_ANSWERED // 1024} KiB, which is no OTLP"
        else:
            self._read(status, body, content_type=response.headers.get("content-type", ""), secrets=secrets)

    def _read(self, status: int, body: bytes, *, content_type: str, secrets: tuple[str, ...]) -> None:
        kind = content_type.partition(";")[0].strip().lower()
        if not body:
            self.confirmed, self.cause = True, ""
            return
        try:
            if kind == "application/json":
                rejected, said = _partial_json(body)
            elif kind in _PROTOBUF:
                rejected, said = _partial_protobuf(self._answer(), body)
            else:
                self.cause = f"it answered {status} with {words(kind, secrets)}, which is no OTLP"
                return
        except (ValueError, TypeError, RecursionError):
            self.cause = f"it answered {status} with what is no OTLP"
            return
        self.confirmed, self.rejected, self.cause = True, max(0, rejected), ""
        if rejected > 0:
            why = words(said, secrets)
            self.cause = f"it rejected some ({why})" if why else "it rejected some"

    def _too_late(self) -> str:
        return f"no answer within {round(self._limit_s, 1) or self._limit_s:g} s"

    def _expire(self) -> None:
        self._expired = True
        self._cut()

    def _cut(self) -> None:
        for held in list(self._sockets):
            try:
                held.shutdown(socket.SHUT_RDWR)
            except (OSError, ValueError):
                # It has ended by itself.
                continue


class _Adapter:
    """Stand before an adapter of a session: below redirects, and below whoever reads the whole answer."""

    def __init__(self, wire: Wire, adapter: Any) -> None:
        self._wire = wire
        self._adapter = adapter
        self._find = getattr(adapter, "get_connection_with_tls_context", None)
        if self._find is not None:
            adapter.get_connection_with_tls_context = self._pool

    def send(self, request: Any, **given: Any) -> Any:
        """Send a request; the answer has no content any more.

        Raises:
            OSError: it could not be sent, or nothing came back.
        """
        timeout = given.get("timeout")
        limit = float(timeout) if isinstance(timeout, (int, float)) else _DEFAULT_TIMEOUT_S
        with self._wire.within(max(limit, 0.001)):
            response = self._adapter.send(request, **{**given, "stream": True})
            self._wire.judge(response, secrets_of(request.headers))
        return response

    def close(self) -> None:
        """Close what is open."""
        self._adapter.close()

    def _pool(self, *args: Any, **given: Any) -> Any:
        assert self._find is not None
        pool = self._find(*args, **given)
        if not isinstance(pool.ConnectionCls, partial):
            pool.ConnectionCls = partial(self._wire.hold, pool.ConnectionCls)
        return pool


def secrets_of(headers: Mapping[str, str | bytes]) -> tuple[str, ...]:
    """Give what must not be shown of a request's headers, longest first."""
    found: set[str] = set()
    for name, given in headers.items():
        if name.lower() not in _PLAIN_HEADERS:
            value = given.decode("latin-1") if isinstance(given, bytes) else given
            found |= {value, *(part for part in value.split() if len(part) >= _SHORTEST_SECRET)}
    return tuple(sorted(filter(None, found), key=len, reverse=True))


def words(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Make a collector's words fit for a line of a log: printable, short, whole words, and nothing secret in them."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text[: 4 * _LONGEST_WORDS]).split())
    if len(line) <= _LONGEST_WORDS:
        return line
    return f"{line[:_LONGEST_WORDS].rpartition(' ')[0] or line[:_LONGEST_WORDS]} ..."


def _told_status(status: int, reason: str | bytes | None, secrets: tuple[str, ...]) -> str:
    said = reason.decode("latin-1") if isinstance(reason, bytes) else reason or ""
    shown = words(said, secrets) or http.client.responses.get(status, "")
    elsewhere = ", which points elsewhere" if 300 <= status < 400 else ""
    return f"{status} ({shown}){elsewhere}" if shown else f"{status}{elsewhere}"


def _partial_protobuf(answer: Any, body: bytes) -> tuple[int, str]:
    try:
        answer.ParseFromString(body)
    except Exception as error:
        raise ValueError("no answer of OTLP") from error
    partial_success = getattr(answer, "partial_success", None)
    rejected = next((getattr(partial_success, name) for name in _REJECTED if hasattr(partial_success, name)), 0)
    return rejected, getattr(partial_success, "error_message", "")


def _partial_json(body: bytes) -> tuple[int, str]:
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("no answer of OTLP")
    told = answer.get("partialSuccess", answer.get("partial_success"))
    if not isinstance(told, dict):
        return 0, ""
    rejected = next((told[name] for name in _REJECTED if name in told), 0)
    said = next((told[name] for name in _MESSAGE if name in told), "")
    return int(rejected), said if isinstance(said, str) else ""


def _cause_of(error: BaseException, too_late: str) -> str:
    """Say why nothing was sent or answered, in our own words: those of an exception may hold addresses and headers."""
    chain = _chain(error)
    for found in chain:
        match found:
            case ConnectionRefusedError():
                return "nobody listens there (connection refused)"
            case socket.gaierror():
                return "there is no host of that name"
            case ssl.SSLCertVerificationError():
                return "its certificate is not trusted"
            case ssl.SSLError():
                return "it does not speak TLS as asked"
            case ConnectionResetError() | BrokenPipeError():
                return "it closed the connection"
            case http.client.HTTPException():
                return "it does not speak HTTP"
            case TimeoutError():
                return too_late
    if any("Timeout" in type(found).__name__ for found in chain):
        return too_late
    known = next((found.strerror for found in chain if isinstance(found, OSError) and found.strerror), None)
    return known or f"it could not be sent ({type(error).__name__})"


def _chain(error: BaseException) -> list[BaseException]:
    """Give an exception with all that it came from, the innermost first."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return found[::-1]
