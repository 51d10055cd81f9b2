"""A model provider on the loopback interface that says what a test tells it to say."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Self

import anyio
from anyio.abc import SocketAttribute
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSListener, TLSStream

from furcate.primitives._errors import MisuseError
from furcate.testing._answer import Answer, error
from furcate.testing._door import refuse
from furcate.testing._request import StubRequest
from furcate.testing._serve import ClientLeft, Connection, Incoming
from furcate.testing._strict import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from anyio.abc import AnyByteStream, Listener, SocketStream, TaskGroup

    Accepted = SocketStream | TLSStream

Script = Answer | Sequence[Answer] | Callable[[StubRequest], Answer | Awaitable[Answer]]


class ScriptExhaustedError(Exception):
    """Raised when more requests came than a script of single answers has answers."""


class StubProvider:
    """Serve all four dialects on 127.0.0.1 by a script, inside the caller's own event loop.

    ::

        async with StubProvider([answer("Hello."), error(429, headers={"retry-after": "1"})]) as stub:
            ...  # a backend with base_url=stub.base_url
        assert stub.requests[0].body["model"] == "some-model"

    The path of a request tells its dialect, and whatever stands ahead of ``/chat/completions``, ``/responses``,
    ``/messages`` or ``/models/MODEL:generateContent`` (``:streamGenerateContent``) is accepted, so one base URL
    serves all.

    The script is one ``Answer``, given to every request; or a sequence of them, each used once, in the order in
    which requests were fully read; or a callable, plain or async, from ``StubRequest`` to ``Answer``. What
    the callable raises, or a request beyond the sequence's end, is answered with status 500 and raised again
    when the block is left (several of them as an exception group), so that no mistake in a script vanishes.

    Everything is counted: ``requests`` holds all that were read, those refused with 401 or 404 included. A
    request is in flight from the moment it was fully read until its last byte goes out, its connection is
    closed or its client leaves. A client that closes only its sending side counts as one that left. Leaving
    the block, or cancellation, closes every connection at once.

    A strict stub answers with status 400, aside from the script, what the real provider of the dialect refuses in a
    history: calls without results and the reverse, reasoning state, signatures, encrypted values and item ids that
    are missing, changed or not its own, reasoning apart from what it came with, empty messages and blocks. It knows
    what answers made by ``answer`` sent in this block; opaque values from elsewhere, recordings served by ``raw`` or
    ``events`` included, are foreign to it.

    Sockets need real time: not for tests on a virtual clock.

    Arguments:
        script: what to answer.
        key: the key that a request must carry, as a bearer token or in its dialect's own header (``x-api-key``,
            ``x-goog-api-key``), or else it gets 401, in Google's dialect 400; None takes any or none.
        strict: whether requests are looked at as the real provider does.
        keep_alive: whether a connection serves more than one request.
        tls: a server's context with its certificate; the stub then speaks HTTPS. A client that breaks the handshake
            off is no mistake of the script, and counts as no connection.
        remember: whether ``requests`` holds the requests; where not, they are only counted, which a run of hours is
            better served by.

    Attributes:
        in_flight: how many requests are being answered now.
        most_in_flight: how many ever were at the same time.
        disconnects: how many clients left before they had their whole answer.
        connections: how many connections were accepted.
        requests_read: how many requests were fully read.
    """

    def __init__(
        self,
        script: Script,
        *,
        key: str | None = None,
        keep_alive: bool = True,
        strict: bool = False,
        tls: ssl.SSLContext | None = None,
        remember: bool = True,
    ) -> None:
        self._decide = _decider(script)
        self._key = key
        self._keep_alive = keep_alive
        self._tls = tls
        self._remember = remember
        self._watch = Watch() if strict else None
        self._requests: list[StubRequest] = []
        self._errors: list[Exception] = []
        self._changed = anyio.Event()
        self._listener: Listener[SocketStream] | TLSListener | None = None
        self._port: int | None = None
        self._tasks: TaskGroup | None = None
        self.in_flight = 0
        self.most_in_flight = 0
        self.disconnects = 0
        self.connections = 0
        self.requests_read = 0

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        script: Script,
        *,
        key: str | None = None,
        keep_alive: bool = True,
        strict: bool = False,
        tls: ssl.SSLContext | None = None,
        remember: bool = True,
    ) -> Iterator[Self]:
        """Serve from a thread of its own, for tests that are not async or that wait for a subprocess.

        Counts and requests may be read at any time; ``wait_until`` belongs to the stub's own loop. A callable
        script runs in that thread.

        Arguments:
            script, key, keep_alive, strict, tls, remember: as for the class.
        """
        with start_blocking_portal("asyncio") as portal:
            stub = cls(script, key=key, keep_alive=keep_alive, strict=strict, tls=tls, remember=remember)
            with portal.wrap_async_context_manager(stub):
                yield stub

    @property
    def base_url(self) -> str:
        """Return the address to configure, such as ``http://127.0.0.1:49152/v1``.

        Raises:
            MisuseError: the stub was not started.
        """
        if self._port is None:
            raise MisuseError("the stub has no address yet; read base_url inside its with block")
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> tuple[StubRequest, ...]:
        """Return every request that was fully read, in that order."""
        return tuple(self._requests)

    async def wait_until(self, condition: Callable[[StubProvider], bool]) -> None:
        """Wait until the stub is as the test wants it, without guessing how long that takes.

        Arguments:
            condition: looked at now and after each change, such as ``lambda stub: stub.disconnects == 1``. A
                state that passes may be over before anyone looks; counts that only grow are safe.
        """
        while not condition(self):
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        if self._listener is not None:
            raise MisuseError("a stub serves one with block only; make another one")
        plain: Listener[SocketStream] = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self._port = plain.extra(SocketAttribute.local_port)
        self._listener = plain if self._tls is None else _Door(plain, self._tls, standard_compatible=False)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._listener is not None
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            # What the block raised passes as it is: given to the task group, it would come out in a group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()
            # A mistake in the script comes first: whatever the block raised is likely its consequence, and
            # stays visible as the context.
            self._raise_errors()

    def _raise_errors(self) -> None:
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup("several requests found a mistake in the stub's script", self._errors)

    async def _serve(self, stream: Accepted) -> None:
        connection = Connection(stream, keep_alive=self._keep_alive)
        self.connections += 1
        number = self.connections
        try:
            while (incoming := await connection.read()) is not None:
                # A client that left one connection and came back on another: see it leave first.
                await checkpoint()
                await self._attend(connection, self._record(incoming, number))
                if not connection.next_cycle():
                    return
        finally:
            await connection.close()

    async def _attend(self, connection: Connection, request: StubRequest) -> None:
        flight = _Flight(self)

        async def respond() -> None:
            try:
                steps = (await self._choose(request)).steps_for(request)
            except Exception as mistake:
                self._errors.append(mistake)
                steps = error(500, f"the stub's script failed: {mistake!r}").steps_for(request)
            try:
                await connection.perform(steps, before_end=flight.land)
            except ClientLeft:
                flight.lose()
            except Exception as mistake:
                # The answer has begun or makes no HTTP: no second one can follow, so the connection closes.
                self._errors.append(mistake)

        try:
            await connection.watched(respond, on_leave=flight.lose)
        finally:
            flight.land()

    def _record(self, incoming: Incoming, connection: int) -> StubRequest:
        headers: dict[str, str] = {}
        for name, value in incoming.headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        try:
            body = json.loads(incoming.body)
        except ValueError:
            body = None
        self.requests_read += 1
        request = StubRequest(
            number=self.requests_read,
            connection=connection,
            method=incoming.method,
            path=incoming.target,
            headers=headers,
            body=body,
            raw=incoming.body,
            at=anyio.current_time(),
        )
        if self._remember:
            self._requests.append(request)
        return request

    async def _choose(self, request: StubRequest) -> Answer:
        refusal = refuse(request, self._key)
        if refusal is None and self._watch is not None:
            refusal = self._watch.refusal(request)
        if refusal is not None:
            return refusal
        chosen = await self._decide(request)
        if self._watch is not None:
            self._watch.remember(chosen, request)
        return chosen

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Door(TLSListener):
    """Accept connections over TLS; a handshake that fails concerns its client alone."""

    @staticmethod
    async def handle_handshake_error(exc: BaseException, stream: AnyByteStream) -> None:
        """Close the connection, and nothing else."""
        await anyio.aclose_forcefully(stream)
        if not isinstance(exc, Exception):
            raise exc


class _Flight:
    """One request being answered; it ends once, however many ways out it has."""

    def __init__(self, stub: StubProvider) -> None:
        self._stub = stub
        self._open = True
        stub.in_flight += 1
        stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
        stub._tell()

    def land(self) -> None:
        if self._open:
            self._open = False
            self._stub.in_flight -= 1
            self._stub._tell()

    def lose(self) -> None:
        if self._open:
            self._stub.disconnects += 1
        self.land()


def _decider(script: Script) -> Callable[[StubRequest], Awaitable[Answer]]:
    if isinstance(script, Answer):
        return _calling(lambda request: script)
    if isinstance(script, Sequence):
        return _calling(_in_turn(tuple(script)))
    return _calling(script)


def _in_turn(answers: tuple[Answer, ...]) -> Callable[[StubRequest], Answer]:
    left = iter(answers)

    def take(request: StubRequest) -> Answer:
        for chosen in left:
            return chosen
        raise ScriptExhaustedError(
            f"request {request.number} found the script at its end: it has {len(answers)} answers; add one, or "
            "give a single Answer, which serves every request"
        )

    return take


def _calling(
    script: Callable[[StubRequest], Answer | Awaitable[Answer]],
) -> Callable[[StubRequest], Awaitable[Answer]]:
    async def decide(request: StubRequest) -> Answer:
        chosen = script(request)
        if isawaitable(chosen):
            chosen = await chosen
        if not isinstance(chosen, Answer):
            raise TypeError(
                f"the script returned {type(chosen).__name__} for request {request.number}; return an Answer, "
                'such as answer("text")'
            )
        return chosen

    return decide
