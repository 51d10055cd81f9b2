"""What the command line's tests share: running it in this process, and configurations for a stub."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

import furcate.cli

SOURCES = Path(furcate.cli.__file__).parents[2]


@attrs.frozen
class Said:
    """What a command gave back."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> str:
    """Name each event loop in turn."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, which callables may be imported from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def furcate_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command line in this process."""

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            furcate.cli.main(arguments)
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)

    return run


@pytest.fixture
def furcate_by_descriptor(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command line in this process, where it writes past Python's own stdout."""

    def run(*arguments: str) -> Said:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            furcate.cli.main(arguments)
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)

    return run


@pytest.fixture
def configured() -> Callable[..., Path]:
    """Write furcate.toml for a server; every failure is told at once."""

    def write(base_url: str, *, more: str = "") -> Path:
        path = Path("furcate.toml")
        path.write_text(
            f'[backends.stub]\nbase_url = "{base_url}"\nattempts = 1\ncapacity = 2\n'
            f'[profiles.only]\nbackend = "stub"\nmodel = "m"\n{more}',
            encoding="utf-8",
        )
        return path

    return write


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line in processes of their own; whatever is left of them is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": "error"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(
            [sys.executable, "-m", "furcate", *arguments], text=True, encoding="utf-8", env=environment, **pipes
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def on_terminal(spawn: Callable[..., subprocess.Popen[str]]) -> Callable[..., tuple[int, str]]:
    """Run the command line on a terminal of its own, and give its status and all that it showed."""

    def run(*arguments: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        try:
            process = spawn(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
            shown = b""
            # Linux tells the end of a terminal's other side as an error.
            with suppress(OSError):
                while piece := os.read(ours, 4096):
                    shown += piece
            return process.wait(), shown.decode().replace("\r\n", "\n")
        finally:
            os.close(ours)

    return run
