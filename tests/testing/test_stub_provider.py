"""The stub provider over real sockets."""

from __future__ import annotations

import json
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest

from furcate.primitives._errors import MisuseError
from furcate.testing import (
    Answer,
    Head,
    Hold,
    Script,
    ScriptExhaustedError,
    Send,
    Silence,
    StubProvider,
    StubRequest,
    Wait,
    answer,
    error,
    html_error,
    no_head,
    raw,
    steps,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


def new_client() -> httpx2.AsyncClient:
    # Nothing here speaks TLS, and an empty context spares each test the loading of certificates.
    return httpx2.AsyncClient(timeout=20, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with new_client() as client:
        yield client


def url(stub: StubProvider) -> str:
    return f"{stub.base_url}/chat/completions"


async def until_it_breaks(response: httpx2.Response) -> bytes:
    got = b""
    try:
        async for piece in response.aiter_raw():
            got += piece
    except httpx2.RemoteProtocolError:
        return got
    pytest.fail("the body came to its end")


@asynccontextmanager
async def asking(stub: StubProvider) -> AsyncIterator[SocketStream]:
    """Ask for a stream over a plain socket, which can be left at any byte."""
    body = json.dumps(STREAM).encode()
    lines = ("POST /v1/chat/completions HTTP/1.1", "Host: stub", f"Content-Length: {len(body)}", "", "")
    async with await anyio.connect_tcp("127.0.0.1", httpx2.URL(stub.base_url).port or 0) as socket:
        await socket.send("\r\n".join(lines).encode() + body)
        yield socket


async def read_until(socket: SocketStream, mark: bytes) -> bytes:
    got = b""
    while mark not in got:
        got += await socket.receive()
    return got


def text_of(response: httpx2.Response) -> str:
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


async def test_whole_and_stream(client: httpx2.AsyncClient) -> None:
    """One answer serves a request for JSON and a request for a stream."""
    async with StubProvider(answer("Hello there.")) as stub:
        assert text_of(await client.post(url(stub), json=BODY)) == "Hello there."
        streamed = await client.post(url(stub), json=STREAM)
    payloads = [line[6:] for line in streamed.text.split("\n\n") if line]
    assert payloads[-1] == "[DONE]"
    parsed = [json.loads(payload) for payload in payloads[:-1]]
    assert "".join(c["delta"].get("content", "") for p in parsed for c in p["choices"]) == "Hello there."
    assert parsed[-1]["usage"]["completion_tokens"] == 2
    assert streamed.headers["content-type"] == "text/event-stream"


async def test_requests_are_remembered(client: httpx2.AsyncClient) -> None:
    """Every request is there to be looked at, with its headers, body, bytes and time."""
    async with StubProvider(answer("a")) as stub:
        before = anyio.current_time()
        await client.post(url(stub), json=BODY, headers=[("X-Tag", "one"), ("X-Tag", "two")])

        async def body() -> AsyncIterator[bytes]:
            yield b'{"model": '
            yield b'"chunked"}'

        await client.post(url(stub), content=body())
        first, second = stub.requests
    assert (first.number, second.number) == (1, 2)
    assert first.method == "POST"
    assert first.path == "/v1/chat/completions"
    assert first.headers["x-tag"] == "one, two"
    assert first.body == BODY
    assert json.loads(first.raw) == BODY
    assert before <= first.at <= second.at
    assert second.raw == b'{"model": "chunked"}'
    assert second.model == "chunked"


async def test_answers_in_turn_and_what_comes_after(client: httpx2.AsyncClient) -> None:
    """A sequence is used in order; a request beyond it gets 500 and the block raises."""

    async def story() -> None:
        async with StubProvider([answer("one"), error(503, "busy", headers={"retry-after": "1"})]) as stub:
            assert text_of(await client.post(url(stub), json=BODY)) == "one"
            busy = await client.post(url(stub), json=BODY)
            assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
            assert busy.json()["error"]["message"] == "busy"
            assert (await client.post(url(stub), json=BODY)).status_code == 500

    with pytest.raises(ScriptExhaustedError, match="request 3 found the script at its end: it has 2 answers"):
        await story()


async def test_a_callable_chooses(client: httpx2.AsyncClient) -> None:
    """Plain and async callables decide by the request."""

    def plain(request: StubRequest) -> Answer:
        return answer(f"number {request.number}")

    async def slowly(request: StubRequest) -> Answer:
        await anyio.lowlevel.checkpoint()
        return answer(request.body["messages"][0]["content"])

    async with StubProvider(plain) as stub, StubProvider(slowly) as other:
        assert text_of(await client.post(url(stub), json=BODY)) == "number 1"
        assert text_of(await client.post(url(other), json=BODY)) == "hi"


async def test_a_script_that_raises_is_heard(client: httpx2.AsyncClient) -> None:
    """What a callable raises reaches the client as 500 and leaves the block."""

    def broken(request: StubRequest) -> Answer:
        raise LookupError("no such answer")

    async def story() -> None:
        async with StubProvider(broken) as stub:
            response = await client.post(url(stub), json=BODY)
            assert response.status_code == 500
            assert "no such answer" in response.json()["error"]["message"]

    with pytest.raises(LookupError, match="no such answer"):
        await story()


async def test_several_mistakes_come_as_a_group(client: httpx2.AsyncClient) -> None:
    """Two mistakes leave together; a value that is no answer is one, a late step another."""
    script = iter([None, answer("a", disconnect_after=50)])

    async def story() -> None:
        async with StubProvider(lambda request: next(script)) as stub:  # type: ignore[arg-type,return-value]
            for _ in range(2):
                assert (await client.post(url(stub), json=BODY)).status_code == 500

    with pytest.raises(ExceptionGroup) as caught:
        await story()
    assert [type(mistake) for mistake in caught.value.exceptions] == [TypeError, ValueError]
    assert "the script returned NoneType for request 1" in str(caught.value.exceptions[0])


async def test_steps_that_are_no_http_are_heard(client: httpx2.AsyncClient) -> None:
    """A body without a head closes the connection and leaves the block as an error."""

    async def story() -> None:
        async with StubProvider(steps(Send(b"no head"))) as stub:
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.post(url(stub), json=BODY)

    with pytest.raises(Exception, match="Data"):
        await story()


async def test_the_blocks_own_error_passes_as_it_is(client: httpx2.AsyncClient) -> None:
    """An exception of the block is neither wrapped nor hidden; beside a mistake it is the context."""

    async def story(script: Script) -> None:
        async with StubProvider(script) as stub:
            await client.post(url(stub), json=BODY)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await story(answer("a"))
    with pytest.raises(ScriptExhaustedError) as caught:
        await story([])
    assert isinstance(caught.value.__context__, KeyError)


async def test_a_mistake_survives_cancellation(client: httpx2.AsyncClient) -> None:
    """A mistake in the script is raised even if the block is left by cancellation."""

    async def story() -> None:
        with anyio.CancelScope() as scope:
            async with StubProvider([]) as stub:
                await client.post(url(stub), json=BODY)
                scope.cancel()
                await anyio.sleep_forever()

    with pytest.raises(ScriptExhaustedError):
        await story()


async def test_cancellation_closes_the_stub(client: httpx2.AsyncClient) -> None:
    """A cancelled block ends at once, and nobody listens at its address any more."""
    with anyio.CancelScope() as scope:
        async with StubProvider(answer("a")) as stub:
            address = url(stub)
            await client.post(address, json=BODY)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with new_client() as other:
        with pytest.raises(httpx2.ConnectError):
            await other.post(address, json=BODY)


async def test_the_key_is_checked(client: httpx2.AsyncClient) -> None:
    """With a key, a request without it or with another gets 401 and takes no answer of the script."""
    async with StubProvider([answer("in")], key="sesame") as stub:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = await client.post(url(stub), json=BODY, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
        right = await client.post(url(stub), json=BODY, headers={"authorization": "Bearer sesame"})
        assert text_of(right) == "in"
        assert len(stub.requests) == 3


async def test_what_is_no_chat_request_takes_no_answer(client: httpx2.AsyncClient) -> None:
    """Other routes get 404 and bodies that are no JSON object get 400, aside from the script."""
    async with StubProvider([]) as stub:
        assert (await client.get(f"{stub.base_url}/models")).status_code == 404
        assert (await client.post(f"{stub.base_url}/completions", json=BODY)).status_code == 404
        assert (await client.post(url(stub), content=b"no json")).status_code == 400
        assert (await client.post(url(stub), json=[1])).status_code == 400
        assert stub.requests[2].body is None


async def test_connections_are_reused_or_not(client: httpx2.AsyncClient) -> None:
    """By default a connection serves many requests; with keep_alive=False each has its own."""
    async with StubProvider(answer("a")) as stub:
        for body in (BODY, STREAM, BODY):
            await client.post(url(stub), json=body)
        assert [request.connection for request in stub.requests] == [1, 1, 1]
    async with StubProvider(answer("a"), keep_alive=False) as stub:
        for body in (BODY, STREAM):
            response = await client.post(url(stub), json=body)
            assert response.headers["connection"] == "close"
        assert stub.connections == 2


async def test_a_reused_connection_may_die_without_a_byte(client: httpx2.AsyncClient) -> None:
    """A second request on a kept connection can be met by silence and a close."""
    async with StubProvider([answer("a"), no_head(), answer("b")]) as stub:
        await client.post(url(stub), json=BODY)
        with pytest.raises(httpx2.RemoteProtocolError, match="disconnected"):
            await client.post(url(stub), json=BODY)
        assert text_of(await client.post(url(stub), json=BODY)) == "b"
        assert [request.connection for request in stub.requests] == [1, 1, 2]
        assert (stub.disconnects, stub.in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("script", "body", "part"),
    [
        (answer(deltas=("one", "two"), disconnect_after=2), STREAM, b"one"),
        (answer("one two", disconnect_after=1), BODY, b"{"),
        (raw("one", "two", disconnect_after=1), BODY, b"one"),
        (raw("one", "two", disconnect_after=0), BODY, b""),
    ],
)
async def test_bodies_that_break(client: httpx2.AsyncClient, script: Answer, body: object, part: bytes) -> None:
    """A disconnect cuts streams and whole bodies after the events that were granted."""
    async with StubProvider(script) as stub:
        async with client.stream("POST", url(stub), json=body) as response:
            got = await until_it_breaks(response)
        assert (stub.in_flight, stub.disconnects) == (0, 0)
    assert part in got
    assert not got.endswith((b"two", b"[DONE]\n\n", b"}"))


async def test_a_client_that_leaves_a_silence_is_counted() -> None:
    """While the stub is silent it notices at once that its client leaves."""
    async with StubProvider(answer(deltas=("one", "two"), silence_after=2)) as stub:
        async with asking(stub) as socket:
            got = await read_until(socket, b"one")
            assert (stub.in_flight, stub.disconnects) == (1, 0)
        await stub.wait_until(lambda stub: stub.disconnects == 1)
        assert stub.in_flight == 0
        assert b"two" not in got


@pytest.mark.parametrize(
    "script",
    [
        no_head(silent=True),
        answer("a", delay_s=3600),
        answer("a", delta_delay_s=3600),
        answer("a", at={1: Hold(anyio.sleep_forever)}),
        steps(Wait(3600)),
    ],
)
async def test_every_wait_ends_with_its_client(client: httpx2.AsyncClient, script: Answer) -> None:
    """Whatever the stub waits for, a client that gives up ends it and is counted."""
    async with StubProvider(script) as stub, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.post(url(stub), json=STREAM))
        await stub.wait_until(lambda stub: stub.in_flight == 1)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await stub.wait_until(lambda stub: (stub.disconnects, stub.in_flight) == (1, 0))


async def test_a_callable_ends_with_its_client(client: httpx2.AsyncClient) -> None:
    """A script that is still thinking is cancelled when its client gives up."""
    ended = anyio.Event()

    async def think(request: StubRequest) -> Answer:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with StubProvider(think) as stub, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.post(url(stub), json=BODY))
        await stub.wait_until(lambda stub: stub.in_flight == 1)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
    assert stub.disconnects == 1


async def test_comments_keep_a_silence_alive() -> None:
    """A silence may send comments for ever, and ends with its client."""
    head = Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")))
    async with StubProvider(steps(head, Silence(comment_every_s=0.001))) as stub:
        async with asking(stub) as socket:
            got = await read_until(socket, 3 * b"e\r\n: keep-alive\n\n\r\n")
        await stub.wait_until(lambda stub: stub.disconnects == 1)
    assert got.startswith(b"HTTP/1.1 200 ")


async def test_a_client_may_ask_before_it_sends_its_body() -> None:
    """``Expect: 100-continue`` is answered, and HTTP that makes no sense closes the connection."""
    async with StubProvider(raw("done")) as stub:
        port = httpx2.URL(stub.base_url).port or 0
        async with await anyio.connect_tcp("127.0.0.1", port) as socket:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: stub\r\nContent-Length: 2\r\n"
            await socket.send(head + b"Expect: 100-continue\r\n\r\n")
            assert (await read_until(socket, b"\r\n")).startswith(b"HTTP/1.1 100 ")
            await socket.send(b"{}")
            assert b"HTTP/1.1 200 " in await read_until(socket, b"done")
        async with await anyio.connect_tcp("127.0.0.1", port) as socket:
            await socket.send(b"no HTTP\r\n\r\n")
            with pytest.raises(anyio.EndOfStream):
                await socket.receive()
        assert (len(stub.requests), stub.connections, stub.disconnects) == (1, 2, 0)


async def test_the_most_in_flight() -> None:
    """The stub knows how many requests it ever had at once, however they ended."""
    full = anyio.Event()

    async def together(request: StubRequest) -> Answer:
        if stub.in_flight == 3:
            full.set()
        await full.wait()
        return answer("a")

    async with StubProvider(together) as stub, new_client() as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(lambda: client.post(url(stub), json=STREAM))
        assert (stub.in_flight, stub.most_in_flight) == (0, 3)


async def test_clients_that_take_turns_are_never_seen_together() -> None:
    """Requests one after another count as one in flight, whether they end well, break or are given up."""
    scripts = [answer("a"), answer("a", disconnect_after=1), answer("a", silence_after=1), html_error()] * 12
    marks = [b"[DONE]", b"unfindable", b"assistant", b"</html>"]
    one_at_a_time = anyio.Lock()
    asked: list[object] = []

    async def client() -> None:
        # The connection is left before the next one asks, as a lease would have it.
        async with one_at_a_time, asking(stub) as socket:
            asked.append(socket)
            await stub.wait_until(lambda stub: len(stub.requests) == len(asked))
            with suppress(anyio.EndOfStream):
                await read_until(socket, marks[len(asked) % 4 - 1])

    async with StubProvider(scripts) as stub:
        async with anyio.create_task_group() as tasks:
            for _ in scripts:
                tasks.start_soon(client)
        await stub.wait_until(lambda stub: stub.in_flight == 0)
        assert len(stub.requests) == len(scripts)
        assert (stub.most_in_flight, stub.disconnects) == (1, len(scripts) // 4)


async def test_the_life_of_a_stub() -> None:
    """A stub has an address once it runs, and runs once."""
    stub = StubProvider(answer("a"))
    with pytest.raises(MisuseError, match="inside its with block"):
        _ = stub.base_url
    async with stub:
        assert stub.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(MisuseError, match="make another one"):
        async with stub:
            pass


def test_a_stub_in_a_thread() -> None:
    """Code that is not async can use a stub as well, and hears of mistakes too."""
    with StubProvider.in_thread([answer("one")], key="k") as stub, httpx2.Client(timeout=20) as client:
        headers = {"authorization": "Bearer k"}
        assert text_of(client.post(url(stub), json=BODY, headers=headers)) == "one"
        assert stub.requests[0].body == BODY
        assert stub.most_in_flight == 1
    with pytest.raises(ScriptExhaustedError), StubProvider.in_thread([]) as stub:
        httpx2.post(url(stub), json=BODY)
