"""Starts of the embedded server that fail, each with one sentence."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from furcate.local import EmbeddedServer, serve
from furcate.local._process import _first_error
from furcate.primitives._errors import LocalModelError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FURCATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def garbage(tmp_path: Path) -> Path:
    path = tmp_path / "garbage.gguf"
    path.write_bytes(b"x" * 1000)
    return path


async def refused(server: EmbeddedServer) -> str:
    """Return the one sentence with which the server does not start, and see that no child is left."""
    async with server:
        with pytest.raises(LocalModelError) as caught:
            await server.address()
        assert server.pid is None
        assert server.statistics().starts == 0
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_port_in_use_is_named(garbage: Path) -> None:
    """The sentence has host, port, the system's reason and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refused(EmbeddedServer(model=garbage, port=port))
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose another port" in said


async def test_weights_that_are_none_are_named(garbage: Path) -> None:
    """A file of another kind is told with the server's own reason and the log's place."""
    server = EmbeddedServer(model=garbage)
    said = await refused(server)
    assert f"could not load {garbage}: " in said
    assert "GGUF" in said
    assert said.endswith(str(server.log_path))


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is told as such."""
    assert "No such file" in await refused(EmbeddedServer(model=tmp_path / "gone.gguf"))


async def test_a_missing_xllamacpp_is_named(garbage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the extra to install is named."""
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no such wheel')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = await refused(EmbeddedServer(model=garbage))
    assert 'cannot be imported (no such wheel); install "furcate[local]"' in said


async def test_a_child_that_crashes_is_told_with_its_log(
    garbage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end without a report is told with the signal."""
    (tmp_path / "xllamacpp.py").write_text("import os; os.kill(os.getpid(), 4)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "was ended by SIGILL before it was ready; its log is" in await refused(EmbeddedServer(model=garbage))


async def test_a_fault_of_the_child_shows_its_last_line(
    garbage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that behaves unexpectedly is told with the traceback's last line."""
    (tmp_path / "xllamacpp.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = await refused(EmbeddedServer(model=garbage))
    assert "ended with status 1 before it was ready: AttributeError: module 'xllamacpp' has no" in said


async def test_a_start_that_takes_too_long_is_given_up(
    garbage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit is told, and the child is killed."""
    (tmp_path / "xllamacpp.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "was not ready within 0.1 s; its log is" in await refused(EmbeddedServer(model=garbage, start_s=0.1))


async def test_a_python_that_cannot_be_run_is_named(garbage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that is gone ends in a sentence too."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "cannot be started with '/nowhere/python'" in await refused(EmbeddedServer(model=garbage))


async def test_weights_of_another_digest_are_not_used(cache: Path) -> None:
    """A file of the right size with other content is told before a child is started, with both digests."""
    weights = cache / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    weights.parent.mkdir(parents=True)
    with weights.open("wb") as file:
        file.truncate(98_362_432)
    said = await refused(EmbeddedServer())
    assert "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" in said
    assert "run `furcate local fetch` to replace the file" in said


async def test_serving_on_a_port_in_use_tells_nobody_an_address(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` fails before `on_ready`."""
    monkeypatch.setattr("furcate.local._server.present_and_right", lambda: True)
    weights = cache / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    weights.parent.mkdir(parents=True)
    with weights.open("wb") as file:
        file.truncate(98_362_432)
    told: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(LocalModelError, match="already in use"):
        await serve(told.append, port=taken.getsockname()[1])
    assert told == []


async def test_only_the_last_logs_are_kept(cache: Path, tmp_path: Path) -> None:
    """Each child has a log of its own, readable by the user only; old ones go."""
    (cache / "logs").mkdir(parents=True)
    for number in range(15):
        (cache / "logs" / f"server-{number:02}.log").touch()
    server = EmbeddedServer(model=tmp_path / "gone.gguf")
    await refused(server)
    assert server.log_path is not None
    assert server.log_path.stat().st_mode & 0o777 == 0o600
    assert len(list((cache / "logs").iterdir())) == 10


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", ""),
        ("0.00.1 W slot: x\n0.01.2 E gguf_init: no (such) file\n0.01.3 E srv: exiting\n", "no (such) file"),
        ("0.00.1 W slot operator(): need to evaluate\n", ""),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'model'\n", "KeyError: 'model'"),
    ],
)
def test_the_first_error_of_a_log_is_its_cause(tmp_path: Path, log: str, cause: str) -> None:
    """Later errors are consequences, warnings are no cause, a traceback counts with its last line."""
    (tmp_path / "log").write_text(log)
    assert _first_error(tmp_path / "log") == cause
