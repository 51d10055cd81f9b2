"""``furcate local``: what stands where the weights belong, and the server by itself."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.cli._local import _reachable
from furcate.cli._told import changes_told
from furcate.local import WEIGHTS, weights_path

Command = Callable[..., Any]


def test_missing_weights_are_told(furcate_command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without weights the status says where they belong and what brings them, and exits with 1."""
    monkeypatch.setenv("FURCATE_CACHE", str(folder))
    said = furcate_command("local", "status")
    assert said.status == 1
    assert f"place: {folder}" in said.out
    assert "weights: missing; run `furcate local fetch`" in said.out


def test_wrong_weights_are_told(furcate_command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not the right one is told with what it is and what it should be."""
    monkeypatch.setenv("FURCATE_CACHE", str(folder))
    weights_path().parent.mkdir(parents=True)
    weights_path().write_bytes(b"not weights")
    said = furcate_command("local", "status")
    assert said.status == 1
    assert "weights: wrong, 11 bytes" in said.out
    assert WEIGHTS.sha256 in said.out


def test_wrong_weights_stop_a_run_before_it_begins(
    furcate_command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that needs the embedded model says in a sentence that its file is wrong."""
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("FURCATE_CACHE", str(folder))
    weights_path().parent.mkdir(parents=True)
    weights_path().write_bytes(b"not weights")
    said = furcate_command("run", "-m", "x")
    note, told = said.err.splitlines()
    assert said.status == 2
    assert note.startswith("furcate: no furcate.toml here; using the small embedded model")
    assert "have 11 bytes instead of" in told


@pytest.mark.embedded
def test_server_prints_its_table_and_ends_with_ctrl_c(spawn: Command, loop: str) -> None:
    """The server prints the table that a configuration needs for it, and serves until a signal."""
    pytest.importorskip("xllamacpp")
    if not weights_path().exists():
        pytest.skip("the embedded model's weights are not here; `furcate local fetch` brings them")
    process = spawn("local", "serve", "--loop", loop)
    table = tomllib.loads("".join(process.stdout.readline() for _ in range(3)))["backends"]["served"]
    assert table["base_url"].startswith("http://127.0.0.1:")
    assert table["api_key"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "serving until Ctrl-C\n")


def test_address_of_every_interface_is_given_as_one_to_ask() -> None:
    """An address that can only be listened on is replaced by this machine's own."""
    assert _reachable("http://0.0.0.0:81/v1") == "http://127.0.0.1:81/v1"
    assert _reachable("http://[::]:81/v1") == "http://[::1]:81/v1"
    assert _reachable("http://10.0.0.1:81/v1") == "http://10.0.0.1:81/v1"


def test_equal_lines_of_progress_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress that stands still says nothing more."""
    tell = changes_told()
    for text in ("0 bytes", "0 bytes", "5 bytes", "5 bytes"):
        tell(text)
    assert capsys.readouterr().err == "0 bytes\n5 bytes\n"
