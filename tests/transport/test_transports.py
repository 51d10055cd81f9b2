"""What holds for every transport, whatever HTTP library is beneath, down to single bytes."""

from __future__ import annotations

import gc
import gzip
import json
import os
import ssl
import weakref
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from furcate.primitives._errors import MisuseError
from furcate.primitives._wire import Address, AttemptFailed, Failure, SecretHeaders, WireRequest
from furcate.testing import Reset, StubProvider, Wait, Wire, answer, error, raw, refusing, steps
from furcate.transport import Call, Quiet, Transport, make_transport

pytestmark = pytest.mark.anyio

KEY = "hidden-0123456789-do-not-show"
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hello?"}]}'
MIB = 1024 * 1024


@pytest.fixture
async def transport(each_transport: str) -> AsyncIterator[Transport]:
    """Open a transport."""
    async with make_transport(each_transport) as opened:
        yield opened


def call_to(transport: Transport, url: str, *, body: bytes = BODY, connect_s: float | None = 30, **address) -> Call:
    wire = WireRequest("/chat/completions", (body[:20], body[20:]))
    secret = SecretHeaders((("authorization", f"Bearer {KEY}"),))
    return transport.call(wire, Address(url, **address), secret, connect_s=connect_s)


async def rest_of(call: Call) -> bytes:
    chunks = []
    while chunk := await call.receive():
        chunks.append(chunk)
    return b"".join(chunks)


async def answer_of(transport: Transport, url: str, **given) -> bytes:
    async with call_to(transport, url, **given) as call:
        await call.begin()
        return await rest_of(call)


async def failure_of(transport: Transport, url: str, **given) -> Failure:
    with pytest.raises(AttemptFailed) as caught:
        await answer_of(transport, url, **given)
    return caught.value.failure


@asynccontextmanager
async def serving(serve: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """Serve raw connections; what is served ends with the block."""

    async def guarded(stream: SocketStream) -> None:
        async with stream:
            try:
                await serve(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, guarded)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
        tasks.cancel_scope.cancel()


async def request_on(stream: SocketStream) -> bytes:
    """Read a request as far as these tests need it."""
    data = b""
    while BODY not in data:
        data += await stream.receive()
    return data


def sockets() -> int:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not show a process its open files")
    return sum(os.readlink(entry).startswith("socket:") for entry in list(folder.iterdir()) if entry.is_symlink())


async def test_a_request_arrives_as_it_was_encoded(transport) -> None:
    """Path, body, its length and both kinds of headers; and nothing is remembered for the next one."""
    async with StubProvider(answer("Hello.", headers={"set-cookie": "a=b"})) as stub:
        for _ in range(2):
            await answer_of(transport, stub.base_url)
    first, second = stub.requests
    assert first.body == second.body == json.loads(BODY)
    assert first.headers["content-length"] == str(len(BODY))
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert first.headers["content-type"] == "application/json"
    assert "transfer-encoding" not in first.headers
    assert "cookie" not in second.headers


async def test_a_large_body_goes_out_in_one_piece(transport) -> None:
    """Megabytes are sent with their length, and without a warning."""
    body = BODY.replace(b"Hello?", os.urandom(MIB).hex().encode())
    async with StubProvider(answer("Hello.")) as stub:
        await answer_of(transport, stub.base_url, body=body)
    assert stub.requests[0].body == json.loads(body)
    assert stub.requests[0].headers["content-length"] == str(len(body))


async def test_a_head_is_read_in_one_form(transport) -> None:
    """Names in lower case, values in any encoding, repeated fields apart, and a date where there is none."""
    head = b"HTTP/1.1 200 OK\r\nX-Two: a\r\nX-Two: b\r\nX-Latin: caf\xe9\r\nContent-Length: 2\r\n\r\nok"
    async with StubProvider(steps(Wire(head))) as stub, call_to(transport, stub.base_url) as call:
        seen = await call.begin()
        assert await rest_of(call) == b"ok"
    assert seen.status == 200
    assert [pair for pair in seen.headers if pair[0].startswith("x-")] == [
        ("x-two", "a"),
        ("x-two", "b"),
        ("x-latin", "café"),
    ]
    date = seen.get("date")
    assert date is not None
    assert parsedate_to_datetime(date).tzinfo is not None


async def test_a_redirect_is_not_followed(transport) -> None:
    """It is an answer like any other."""
    async with StubProvider(raw("", status=307, headers={"location": "http://127.0.0.1:9/"})) as stub:
        async with call_to(transport, stub.base_url) as call:
            assert (await call.begin()).status == 307
    assert len(stub.requests) == 1


@pytest.mark.parametrize("form", ["gzip", "deflate"])
async def test_a_compressed_body_is_unpacked(transport, form) -> None:
    """What is received is what was said."""
    packed = gzip.compress(BODY * 99) if form == "gzip" else zlib.compress(BODY * 99)
    async with StubProvider(raw(packed, headers={"content-encoding": form})) as stub:
        assert await answer_of(transport, stub.base_url) == BODY * 99


async def test_broken_compression_is_told(transport) -> None:
    """A body that only says that it is compressed is a broken one."""
    async with StubProvider(raw(b"no gzip at all", headers={"content-encoding": "gzip"})) as stub:
        failure = await failure_of(transport, stub.base_url)
    assert (failure.kind, failure.reason) == ("provider", "malformed")
    assert "compression" in failure.message


async def test_what_has_arrived_comes_at_once(transport, each_transport) -> None:
    """Pieces that came in one read of the network are received as one; with httpx2 they come one by one."""
    pieces = b"".join(b"6\r\npiece%d\r\n" % number for number in range(9)) + b"0\r\n\r\n"

    async def serve(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + pieces)
        await stream.receive()

    async with serving(serve) as url, call_to(transport, url) as call:
        await call.begin()
        first = await call.receive()
        whole = b"".join(b"piece%d" % number for number in range(9))
        assert whole.startswith(first)
        assert each_transport == "httpx2" or first == whole
        assert first + await rest_of(call) == whole


async def test_a_piece_is_waited_for_until_a_moment(transport) -> None:
    """Each piece has a moment of its own, later or earlier than the last one's."""
    go_on = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\none")
        await go_on.wait()
        await anyio.sleep(0.05)
        await stream.send(b"two")
        await anyio.sleep_forever()

    async with serving(serve) as url, call_to(transport, url) as call:
        await call.begin()
        assert await call.receive(anyio.current_time() + 60) == b"one"
        go_on.set()
        assert await call.receive(anyio.current_time() + 50) == b"two"
        assert not call.at_end
        with pytest.raises(Quiet):
            await call.receive(anyio.current_time() + 0.01)


async def test_a_moment_passes_while_nobody_waits(transport) -> None:
    """A moment that has come between two pieces ends nothing."""

    async def serve(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n")
        await anyio.sleep(0.02)
        await stream.send(b"one")
        await anyio.sleep(0.1)
        await stream.send(b"two")
        await anyio.sleep_forever()

    async with serving(serve) as url, call_to(transport, url) as call:
        await call.begin()
        assert await call.receive(anyio.current_time() + 0.07) == b"one"
        await anyio.sleep(0.08)
        assert await call.receive(anyio.current_time() + 60) == b"two"
        assert await call.receive(anyio.current_time() + 60) == b""
        assert call.at_end


async def test_what_came_at_the_very_moment_ends_nothing(transport) -> None:
    """A program that was busy until after the moment gets what had come meanwhile, and goes on."""
    half = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n")
        await half.wait()
        os.write(stream.extra(SocketAttribute.raw_socket).fileno(), b"one")
        wait_busily(0.1)
        await anyio.sleep(0.05)
        await stream.send(b"two")
        await anyio.sleep_forever()

    async with serving(serve) as url, call_to(transport, url) as call:
        await call.begin()
        half.set()
        assert await call.receive(anyio.current_time() + 0.05) == b"one"
        assert await call.receive(anyio.current_time() + 60) == b"two"


def wait_busily(seconds: float) -> None:
    until_s = anyio.current_time() + seconds
    while anyio.current_time() < until_s:
        pass


@pytest.mark.parametrize("end", ["reset", "close"])
async def test_what_came_before_a_break_is_not_lost(transport, end) -> None:
    """Whoever takes a while to look gets the bytes first and the failure then."""
    gone = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf")
        if end == "close":
            await stream.aclose()
            gone.set()
        else:
            await anyio.sleep_forever()

    async with serving(serve) as url, call_to(transport, url) as call:
        await call.begin()
        if end == "close":
            await gone.wait()
            for _ in range(20):
                await anyio.sleep(0.001)
            assert await call.receive() == b"half"
            with pytest.raises(AttemptFailed) as caught:
                await call.receive()
            assert caught.value.failure.reason == "cut_off"
            assert caught.value.failure.status == 200
        else:
            assert await call.receive() == b"half"


@pytest.mark.parametrize("script", [steps(Wire(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), Reset())])
async def test_a_reset_within_the_body_is_a_cut(transport, script) -> None:
    """However the connection ends, the answer is not whole."""
    async with StubProvider(script) as stub:
        failure = await failure_of(transport, stub.base_url)
    assert (failure.kind, failure.reason) == ("unavailable", "cut_off")


async def test_connecting_has_a_limit_and_an_answer_has_none(transport) -> None:
    """A handshake that nobody answers ends in time; an answer may take longer than that."""

    async def silent(stream: SocketStream) -> None:
        await stream.receive()
        await anyio.sleep_forever()

    async with serving(silent) as url:
        failure = await failure_of(transport, url.replace("http:", "https:"), connect_s=0.1)
    assert (failure.kind, failure.reason, failure.sent) == ("timeout", "connect_timeout", False)
    async with StubProvider(steps(Wait(0.3), Wire(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"))) as stub:
        assert await answer_of(transport, stub.base_url, connect_s=0.2) == b"ok"


async def test_leaving_while_a_request_is_sent_closes_at_once(each_transport) -> None:
    """A server that reads nothing does not keep the connection of a call that nobody waits for."""
    before = sockets()
    async with serving(lambda stream: anyio.sleep_forever()) as url:
        served = sockets()
        async with make_transport(each_transport) as transport:
            with anyio.move_on_after(0.2):
                await answer_of(transport, url, body=BODY + b" " * 32 * MIB)
        assert sockets() <= served + 1, "the server's own end is still there"
    assert sockets() == before


async def test_connections_that_are_not_kept_are_closed(transport) -> None:
    """An address that wants it so gets a connection for each call, and is told."""
    async with StubProvider(answer("Hello.")) as stub:
        for _ in range(2):
            await answer_of(transport, stub.base_url, keep_alive=False)
        assert stub.connections == 2
    assert stub.requests[0].headers["connection"] == "close"


async def test_a_local_server_is_asked_past_proxies_and_without_trust(transport, monkeypatch) -> None:
    """No variable matters for it, not even one that cannot be used."""
    monkeypatch.setenv("HTTP_PROXY", "ftp://nonsense")
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    async with StubProvider(answer("Hello.")) as stub:
        assert b"Hello." in await answer_of(transport, stub.base_url, direct=True)


async def test_a_password_of_a_proxy_reaches_the_proxy_alone(transport, monkeypatch) -> None:
    """It goes out in the header for it, and is in no failure."""
    async with StubProvider(answer("By proxy.")) as proxy:
        place = proxy.base_url.removesuffix("/v1").removeprefix("http://")
        monkeypatch.setenv("HTTP_PROXY", f"http://me:{KEY}@{place}")
        await answer_of(transport, "http://models.example/v1")
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
    with pytest.raises(AttemptFailed) as caught:
        await answer_of(transport, "http://models.example/v1")
    assert KEY not in f"{caught.value!r} {caught.value.failure}"


async def test_a_refused_connection_says_where(transport) -> None:
    """One sentence with host and port, and nothing of the request."""
    with refusing() as url:
        failure = await failure_of(transport, url)
    assert (failure.reason, failure.retryable, failure.sent) == ("connection_refused", True, False)
    assert url.split("/")[2] in failure.message
    assert KEY not in failure.message


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://a:port/v1", "gopher://a/v1"])
async def test_an_address_that_makes_no_url_is_told(transport, url) -> None:
    """It is the request that is wrong, and nothing was sent."""
    failure = await failure_of(transport, url)
    assert (failure.kind, failure.reason, failure.sent) == ("invalid_request", "bad_url", False)


async def test_an_error_has_a_body_too(transport) -> None:
    """The transport has no opinion on a status."""
    async with StubProvider(error(500, "broken")) as stub, call_to(transport, stub.base_url) as call:
        assert (await call.begin()).status == 500
        assert b"broken" in await rest_of(call)


async def test_a_transport_has_one_block_at_a_time(transport, each_transport) -> None:
    """Entering it twice, and calling it outside, are mistakes."""
    with pytest.raises(MisuseError, match="open already"):
        await transport.__aenter__()
    with pytest.raises(MisuseError, match="not open"):
        call_to(make_transport(each_transport), "http://127.0.0.1:9/v1")


@pytest.mark.parametrize("loop", ["asyncio-aiohttp", "asyncio-httpx2", "trio-httpx2"])
def test_a_transport_serves_one_event_loop_after_the_other(loop) -> None:
    """The same object, opened again on a new loop, starts with fresh connections."""
    backend, _, name = loop.partition("-")
    kept: list[Transport] = []

    async def once() -> None:
        transport = kept[0] if kept else make_transport(name)
        kept[:] = [transport]
        async with StubProvider(answer("Hello.")) as stub, transport:
            assert b"Hello." in await answer_of(transport, stub.base_url)
            transport.warm_up()

    before = sockets()
    for _ in range(2):
        anyio.run(once, backend=backend)
    assert sockets() == before


async def test_a_call_is_gone_with_its_last_reference(transport) -> None:
    """Nothing holds a call in a circle: its body would wait for a collection of garbage, and there may be thousands."""
    async with StubProvider(answer("Hello.")) as stub:
        gc.disable()
        try:
            call = call_to(transport, stub.base_url)
            async with call:
                await call.begin()
                await rest_of(call)
            gone = weakref.ref(call)
            del call
            assert gone() is None
        finally:
            gc.enable()


async def test_a_stream_that_says_nothing_more_can_be_left(transport) -> None:
    """After the block the server has seen the call go, without having said its last word."""
    script = steps(Wire(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"), Wait(60))
    async with StubProvider(script) as stub:
        with pytest.raises(LookupError):
            async with call_to(transport, stub.base_url) as call:
                await call.begin()
                assert await call.receive()
                raise LookupError
        await stub.wait_until(lambda s: s.disconnects == 1)


async def test_verification_cannot_be_switched_off(transport, monkeypatch) -> None:
    """Not even by the ways in which Python programs do it."""
    trustme = pytest.importorskip("trustme", reason="certificates for this test are made by trustme")
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with StubProvider(answer("Hello."), tls=context) as stub:
        failure = await failure_of(transport, stub.base_url)
    assert failure.reason == "certificate"


async def test_a_connection_forgets_the_moment_of_its_last_call(transport) -> None:
    """The next call on it waits for its head as long as it likes."""
    script = [answer("one"), steps(Wait(0.2), Wire(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"))]
    async with StubProvider(script) as stub:
        async with call_to(transport, stub.base_url) as call:
            await call.begin()
            while await call.receive(anyio.current_time() + 0.1):
                pass
        assert await answer_of(transport, stub.base_url) == b"ok"
        assert stub.connections == 1
