"""Connections: used again, gone stale, through proxies, over TLS, and closed behind us."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

import furcate
from furcate.testing import Reset, Silence, StubProvider, Wire, answer, error, no_head, refusing, steps

trustme = pytest.importorskip("trustme", reason="certificates for these tests are made by trustme")

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

NO_REPEATS = furcate.RetryPolicy(attempts=1)


@pytest.fixture(autouse=True)
def _no_own_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority():
    """Make a certificate authority that nobody knows."""
    return trustme.CA()


@pytest.fixture
def tls(authority) -> ssl.SSLContext:
    """Make a server's context with a certificate of that authority for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def failure_of(engine: furcate.Engine, request: furcate.Request) -> tuple[furcate.Failure, int]:
    with pytest.raises(furcate.ProviderError) as caught:
        await engine.run(request)
    return caught.value.failure, len(caught.value.attempts)


@asynccontextmanager
async def listening(serve) -> AsyncIterator[int]:
    """Serve raw connections on a port of the loopback interface."""

    async def guarded(stream: SocketStream) -> None:
        async with stream:
            try:
                await serve(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, guarded)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def tunnel(stream: SocketStream, asked: list[bytes], refusal: bytes = b"") -> None:
    """Be a proxy that opens a way to wherever it is asked to, or refuses."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive()
    asked.append(head.split(b"\r\n")[0])
    if refusal:
        await stream.send(refusal)
        return
    host, port = head.split()[1].decode().split(":")
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    async with await anyio.connect_tcp(host, int(port)) as server, anyio.create_task_group() as tasks:

        async def pump(source, target) -> None:
            try:
                async for data in source:
                    await target.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(pump, stream, server)
        tasks.start_soon(pump, server, stream)


async def test_connections_are_used_again(engine_for, ask) -> None:
    """Ten runs one after the other share a connection; four at once need four, and no more later."""
    async with StubProvider(answer("Hello.")) as stub, engine_for(stub, capacity=4) as engine:
        for _ in range(10):
            await engine.run(ask())
        assert stub.connections == 1
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(engine.run, ask())
        assert stub.connections <= 4


@pytest.mark.parametrize("goodbye", [no_head(), steps(Reset())])
async def test_a_stale_connection_is_replaced_at_once(engine_for, ask, goodbye) -> None:
    """The server closes a connection just as it is used again: the call goes out once more, without a wait."""
    recorder = furcate.Recorder()
    async with StubProvider([answer("One."), goodbye, answer("Two.")]) as stub:
        async with engine_for(stub, observers=[recorder]) as engine:
            await engine.run(ask())
            second = await engine.run(ask())
        assert [request.connection for request in stub.requests] == [1, 1, 2]
    assert second.text == "Two."
    assert [attempt.failure and attempt.failure.reason for attempt in second.attempts] == ["stale_connection", None]
    assert [paused.wait_s for paused in recorder.of(furcate.AttemptsPaused)] == [0.0]
    assert second.usage.known, "a call that never arrived used nothing"


async def test_stale_connections_can_be_left_alone(engine_for, ask) -> None:
    """With the switch off, such a call counts as one that may have been worked on."""
    async with StubProvider([answer("One."), no_head()]) as stub:
        async with engine_for(stub, retry_stale_connection=False) as engine:
            await engine.run(ask())
            failure, attempts = await failure_of(engine, ask())
    assert (failure.reason, failure.sent, attempts) == ("no_answer", True, 1)


async def test_a_connection_that_was_closed_meanwhile_is_not_used(engine_for, ask) -> None:
    """Whoever closes after an answer costs nobody an attempt."""
    async with StubProvider(answer("Hello."), keep_alive=False) as stub, engine_for(stub) as engine:
        results = [await engine.run(ask()) for _ in range(3)]
        assert stub.connections == 3
    assert [len(result.attempts) for result in results] == [1, 1, 1]


async def test_noise_on_a_used_connection_is_no_stale_one(engine_for, ask) -> None:
    """A server that answered, though no HTTP, has seen the request: it is not repeated."""
    async with StubProvider([answer("One."), steps(Wire(b"BOO\r\n\r\n"))]) as stub, engine_for(stub) as engine:
        await engine.run(ask())
        failure, attempts = await failure_of(engine, ask())
    assert (failure.kind, failure.reason, attempts) == ("provider", "malformed", 1)
    assert "no HTTP" in failure.message


async def test_cookies_stay_where_they_are(engine_for, ask) -> None:
    """What one answer sets goes along with no other request."""
    async with StubProvider(answer("Hello.", headers={"set-cookie": "who=me"})) as stub, engine_for(stub) as engine:
        for _ in range(2):
            await engine.run(ask())
        assert all("cookie" not in request.headers for request in stub.requests)


async def test_a_proxy_of_the_environment_is_used(engine_for, ask, monkeypatch) -> None:
    """Plain HTTP goes to the proxy, which is told the whole address; whom NO_PROXY names is asked directly."""
    async with StubProvider(answer("By proxy.")) as proxy, StubProvider(answer("Directly.")) as near:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        async with engine_for("http://models.example/v1") as engine:
            assert (await engine.run(ask())).text == "By proxy."
        assert [request.path for request in proxy.requests] == ["http://models.example/v1/chat/completions"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        async with engine_for(near) as engine:
            assert (await engine.run(ask())).text == "Directly."


async def test_https_goes_through_a_proxy_unread(engine_for, ask, monkeypatch, tmp_path, authority, tls) -> None:
    """The proxy opens a way and sees no more; the certificate that counts is the server's own."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    asked: list[bytes] = []
    async with StubProvider(answer("Hello."), tls=tls) as stub, listening(partial(tunnel, asked=asked)) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        async with engine_for(stub) as engine:
            for _ in range(2):
                assert (await engine.run(ask())).text == "Hello."
    assert len(asked) == 1
    assert asked[0].startswith(b"CONNECT 127.0.0.1:")


@pytest.mark.parametrize(("status", "attempts"), [("407 Proxy Authentication Required", 1), ("502 Bad Gateway", 3)])
async def test_a_proxy_that_refuses_is_told(engine_for, ask, monkeypatch, status, attempts) -> None:
    """A proxy that wants a password gets one call; one that is out of order is tried again."""
    refusal = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()
    async with listening(partial(tunnel, asked=[], refusal=refusal)) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        async with engine_for("https://models.example/v1") as engine:
            failure, tried = await failure_of(engine, ask())
    assert (failure.reason, failure.sent, tried) == ("proxy_refused", False, attempts)
    assert status in failure.message


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SSL_CERT_FILE", "/no/such/file.pem", "SSL_CERT_FILE"),
        ("SSL_CERT_FILE", os.devnull, "SSL_CERT_FILE"),
        ("HTTPS_PROXY", "ftp://me:hidden@proxy.example", "HTTPS_PROXY"),
        ("HTTPS_PROXY", "::nonsense::", "HTTPS_PROXY"),
    ],
)
async def test_an_environment_that_cannot_be_used_is_told(engine_for, ask, monkeypatch, variable, value, said) -> None:
    """A failure of one sentence that names the variable, and no password in it."""
    monkeypatch.setenv(variable, value)
    async with engine_for("https://models.example/v1") as engine:
        failure, attempts = await failure_of(engine, ask())
    assert (failure.kind, failure.reason, attempts) == ("invalid_request", "bad_environment", 1)
    assert said in failure.message
    assert "hidden" not in failure.message


async def test_a_certificate_of_a_stranger_is_refused(engine_for, ask, tls) -> None:
    """It is not tried again, and the sentence says what to do."""
    async with StubProvider(answer("Hello."), tls=tls) as stub, engine_for(stub) as engine:
        failure, attempts = await failure_of(engine, ask())
        assert stub.requests == ()
    assert (failure.kind, failure.reason, failure.sent, attempts) == ("unavailable", "certificate", False, 1)
    assert "SSL_CERT_FILE" in failure.message


async def test_a_certificate_for_another_name_is_refused(engine_for, ask, monkeypatch, tmp_path, authority) -> None:
    """A trusted authority vouches for its names only."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(context)
    async with StubProvider(answer("Hello."), tls=context) as stub, engine_for(stub) as engine:
        failure, attempts = await failure_of(engine, ask())
    assert (failure.reason, attempts) == ("certificate", 1)


@pytest.mark.parametrize("given", ["file", "folder"])
async def test_an_own_authority_is_trusted(engine_for, ask, monkeypatch, tmp_path, authority, tls, given) -> None:
    """SSL_CERT_FILE and SSL_CERT_DIR say whom to trust."""
    pem = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(pem)
    if given == "file":
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    else:
        _hashed(pem)
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    async with StubProvider(answer("Hello."), tls=tls) as stub, engine_for(stub) as engine:
        assert (await engine.run(ask())).text == "Hello."


def _hashed(pem: Path) -> None:
    """Name a certificate as OpenSSL looks for it in a folder."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("only the openssl command knows how files in a folder of certificates are called")
    found = subprocess.run(
        [openssl, "x509", "-noout", "-hash", "-in", str(pem)], capture_output=True, text=True, check=True
    )
    (pem.parent / f"{found.stdout.strip()}.0").symlink_to(pem)


async def test_https_to_a_server_without_it_is_told(engine_for, ask) -> None:
    """A server that answers the handshake in plain HTTP is not tried again."""

    async def plain(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with listening(plain) as port, engine_for(f"https://127.0.0.1:{port}/v1") as engine:
        failure, attempts = await failure_of(engine, ask())
    assert (failure.reason, failure.sent, attempts) == ("tls", False, 1)
    assert "https" in failure.message


async def test_a_refused_connection_is_unsent(engine_for, ask) -> None:
    """Nobody listens: as many attempts as the policy has, none of them sent."""
    with refusing() as url:
        async with engine_for(url) as engine:
            failure, attempts = await failure_of(engine, ask())
    assert (failure.reason, failure.sent, attempts) == ("connection_refused", False, 3)


@pytest.mark.parametrize("secure", [False, True])
async def test_leaving_a_silent_stream_takes_no_second(
    engine_for, ask, monkeypatch, tmp_path, authority, tls, secure
) -> None:
    """Whoever leaves a stream early is out at once, and the server sees it go."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    script = answer("A long answer.", at={2: Silence()})
    async with StubProvider(script, tls=tls if secure else None) as stub, engine_for(stub) as engine:
        with anyio.CancelScope() as leaving:
            async with engine.stream(ask()) as stream:
                async for event in stream:
                    if isinstance(event, furcate.TextDelta):
                        break
                leaving.deadline = anyio.current_time() + 1
        await stub.wait_until(lambda stub: stub.disconnects == 1)
        assert not leaving.cancelled_caught
        assert engine.statistics()["stub"].in_use == 0


@pytest.mark.parametrize("script", [answer("Hello."), error(500), no_head()])
async def test_an_engine_leaves_no_socket_open(engine_for, ask, script) -> None:
    """After the block the pool is empty, whatever the last answer was."""
    before = _sockets()
    async with StubProvider(script) as stub, engine_for(stub, retry=NO_REPEATS) as engine:
        with suppress(furcate.ProviderError):
            await engine.run(ask())
    assert _sockets() == before


def _sockets() -> int:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not show a process its open files")
    return sum(os.readlink(entry).startswith("socket:") for entry in list(folder.iterdir()) if entry.is_symlink())


def test_the_configuration_has_a_switch_for_stale_connections(tmp_path) -> None:
    """The key is read from the file, and is on where it is left out."""
    path = tmp_path / "furcate.toml"
    path.write_text(
        '[backends.a]\nbase_url = "https://a.example/v1"\nretry_stale_connection = false\n'
        '[backends.b]\nbase_url = "https://b.example/v1"\n'
    )
    engine = furcate.Engine.from_config(path)
    assert [engine.inspect_backend(name).retry_stale_connection for name in "ab"] == [False, True]
