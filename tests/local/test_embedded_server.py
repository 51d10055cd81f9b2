"""The real model in its real child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest

from furcate.local import EmbeddedServer, serve
from furcate.primitives._errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from furcate.primitives._wire import Address

pytestmark = pytest.mark.embedded

LONG = {"messages": [{"role": "user", "content": "Count."}], "ignore_eos": True, "max_tokens": 4000}
SHORT = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 2}


@pytest.fixture
async def server(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbeddedServer]:
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    async with EmbeddedServer(model=model) as server:
        yield server


def client(address: Address, *, key: str | None = None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=address.base_url,
        headers={"Authorization": f"Bearer {key or address.api_key}", "Connection": "close"},
        timeout=30,
        trust_env=False,
    )


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_answers_who_has_the_key_and_nobody_else(server: EmbeddedServer) -> None:
    """The wire is the ordinary chat-completions one; without the key it is 401, and there is no web page."""
    address = await server.address()
    assert address.base_url.startswith("http://127.0.0.1:")
    assert address.base_url.endswith("/v1")
    assert not address.keep_alive
    assert address.api_key is not None
    assert address.api_key not in repr(address)
    async with client(address) as http:
        answer = (await http.post("/chat/completions", json=SHORT)).json()
        assert answer["choices"][0]["message"]["role"] == "assistant"
        assert answer["usage"]["completion_tokens"] <= 2
        models = await http.get("/models", headers={"Origin": "http://elsewhere.example"})
        assert models.status_code == 200
        assert models.headers.get("access-control-allow-origin", "") == ""
        assert (await http.get(address.base_url.removesuffix("/v1") + "/")).status_code == 404
    async with client(address, key="guessed") as http:
        assert (await http.post("/chat/completions", json=SHORT)).status_code == 401
        assert (await http.get("/models")).status_code == 401
    told = server.statistics()
    assert told.pid == server.pid
    assert told.starts == 1
    assert address.base_url == f"http://127.0.0.1:{told.port}/v1"


async def test_an_answer_without_a_limit_is_bounded(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """A request that names no limit gets at most the server's own number of tokens."""
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    async with EmbeddedServer(model=model, output_tokens=3) as server, client(await server.address()) as http:
        body = {key: value for key, value in LONG.items() if key != "max_tokens"}
        answer = (await http.post("/chat/completions", json=body)).json()
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_child_killed_in_an_answer_is_followed_by_another(server: EmbeddedServer) -> None:
    """Who saw the connection break gets the address of a new child at the very next call."""
    address = await server.address()
    pid = server.pid
    assert pid is not None
    async with client(address) as http:
        async with http.stream("POST", "/chat/completions", json={**LONG, "stream": True}) as answer:
            chunks = answer.aiter_raw()
            await anext(chunks)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                b"".join([chunk async for chunk in chunks])
        again = await server.address()
    assert server.pid != pid
    assert again != address
    assert not runs(pid)
    async with client(again) as http:
        assert (await http.post("/chat/completions", json=SHORT)).status_code == 200


async def test_callers_at_once_start_one_child(server: EmbeddedServer) -> None:
    """Of several callers one starts the child, the others wait for the same."""
    addresses: list[Address] = []

    async def ask() -> None:
        addresses.append(await server.address())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert len(set(addresses)) == 1
    assert len(addresses) == 5
    assert server.statistics().starts == 1


async def test_a_start_that_is_cancelled_leaves_nothing(server: EmbeddedServer) -> None:
    """The child of a cancelled start is gone, and who waited for it starts another."""
    pids: list[int | None] = []
    addresses: list[Address] = []

    async def lead(scope: anyio.CancelScope) -> None:
        with scope:
            await server.address()

    async def follow() -> None:
        addresses.append(await server.address())

    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()
        tasks.start_soon(lead, scope)
        while server.pid is None:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        pids.append(server.pid)
        tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    assert pids[0] is not None
    assert not runs(pids[0])
    assert len(addresses) == 1
    assert server.statistics().starts == 1


async def test_closing_during_a_start_fails_the_start(server: EmbeddedServer) -> None:
    """Who waits for a start learns that the server was closed; afterwards it can be used again."""
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(LocalModelError) as caught:
            await server.address()
        failures.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        await server.aclose()
    assert failures == ["the embedded model's server was closed while it was starting"] * 2
    assert server.pid is None
    await server.address()


async def test_a_child_that_does_not_listen_is_killed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing is bounded: a stopped process is killed and collected."""
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    server = EmbeddedServer(model=model, stop_s=0.05)
    await server.address()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await server.aclose()
    await server.aclose()
    assert not runs(pid)


def test_one_server_serves_one_loop_after_the_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object may be used in a second run, on the other loop, after it was closed in the first."""
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    server = EmbeddedServer(model=model)

    async def use() -> int:
        async with server, client(await server.address()) as http:
            return (await http.get("/models")).status_code

    assert [anyio.run(use, backend="asyncio"), anyio.run(use, backend="trio")] == [200, 200]
    assert server.statistics().starts == 2


async def test_serving_goes_on_until_the_child_ends(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` tells its address and fails with a sentence when the server is killed under it."""
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / model.name).symlink_to(model)
    told: list[Address] = []
    done: list[str] = []

    async def run() -> None:
        with pytest.raises(LocalModelError) as caught:
            await serve(told.append, api_key="mine")
        done.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while not told:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        assert told[0].api_key == "mine"
        async with client(told[0]) as http:
            props = await http.get(told[0].base_url.removesuffix("/v1") + "/props")
            assert props.json()["default_generation_settings"]["n_ctx"] == 8192
            assert props.json()["total_slots"] == 1
        for pid in children(os.getpid()):
            os.kill(pid, signal.SIGKILL)
    assert done[0].startswith("the embedded model's server was ended by SIGKILL; its log is ")


def children(parent: int) -> list[int]:
    """Return the children of a process that run the embedded server's program."""
    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == parent and "_child.py" in row[-1]]


APPLICATION = """
import os, sys, time
from pathlib import Path
import anyio
import httpx2
from furcate.local import EmbeddedServer

async def main():
    server = EmbeddedServer(model=Path(sys.argv[1]))
    address = await server.address()
    key = {"Authorization": f"Bearer {address.api_key}"}
    body = {"messages": [], "stream": True, "ignore_eos": True, "max_tokens": 4000}
    answer = httpx2.stream("POST", address.base_url + "/chat/completions", json=body, headers=key, trust_env=False)
    next(answer.__enter__().iter_raw())
    reader, writer = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.write(writer, str(server.pid).encode() + b"\\n")
        time.sleep(60)
        os._exit(0)
    seen_by_copy = os.read(reader, 100).decode().strip()
    print(server.pid, copy, seen_by_copy, flush=True)
    await anyio.sleep(60)

anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_dies_with_its_parent(backend: str, model: Path, tmp_path: Path) -> None:
    """Killing the application in an answer ends the child within seconds, even while a forked copy lives on."""
    application = subprocess.Popen(
        [sys.executable, "-c", APPLICATION, str(model), backend],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FURCATE_CACHE": str(tmp_path)},
    )
    with application:
        assert application.stdout is not None
        pid, copy, seen_by_copy = application.stdout.readline().split()
        try:
            assert seen_by_copy == "None"
            assert runs(int(pid))
            application.kill()
            deadline = time.monotonic() + 10
            while runs(int(pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert not runs(int(pid))
            assert runs(int(copy))
        finally:
            os.kill(int(copy), signal.SIGKILL)
