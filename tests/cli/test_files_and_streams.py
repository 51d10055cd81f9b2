"""Files that are read only once, files that must not be written over, and a stdout that takes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.testing import StubProvider, answer

Command = Callable[..., Any]

PLAN = (
    '[opening]\nmessages = [{ role = "user", file = "opening.txt" }]\ncontract = { schema = "form.json" }\n'
    '[[branches]]\nname = "b"\nturns = 1\ncallable = "kept:go"\n'
)
CALLABLE = "import furcate\nasync def go(turn):\n    return furcate.Stop()\n"
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")


@pytest.fixture
def plan(configured: Command) -> Path:
    """Write a plan that names files of every kind, and its configuration."""
    configured("http://127.0.0.1:9/v1")
    Path("opening.txt").write_text("{{ inputs.input }}")
    Path("form.json").write_text('{"type": "object"}')
    Path("kept.py").write_text(CALLABLE)
    Path("in.txt").write_text("text")
    Path("plan.toml").write_text(PLAN)
    return Path("plan.toml")


@pytest.mark.parametrize("option", ["--out", "--receipts"])
@pytest.mark.parametrize("name", ["plan.toml", "furcate.toml", "opening.txt", "form.json", "kept.py", "in.txt", "link"])
def test_nothing_that_is_read_is_written_over(furcate_command: Command, plan: Path, option: str, name: str) -> None:
    """Every file that an exploration reads is refused as a place to write to, under its other names too."""
    os.link("form.json", "link")
    before = Path(name).read_bytes()
    said = furcate_command("explore", "plan.toml", "in.txt", option, name)
    assert said.status == 2
    assert said.err.startswith(f"furcate: {option} {name} is ")
    assert said.err.endswith("; name another file\n")
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize("name", ["furcate.toml", "form.json", "vars.json"])
def test_receipts_of_a_run_are_not_written_over_what_it_reads(furcate_command: Command, plan: Path, name: str) -> None:
    """The configuration and the files that the command line names are refused for receipts."""
    Path("vars.json").write_text("{}")
    given = ("--schema", "form.json", "--vars", "vars.json")
    said = furcate_command("run", "-m", "x", *given, "--receipts", name)
    assert said.status == 2
    assert said.err.startswith(f"furcate: --receipts {name} is ")


def test_pipes_are_refused_as_files(furcate_command: Command, plan: Path) -> None:
    """What can be read only once is no input, no plan and no configuration."""
    os.mkfifo("pipe")
    for arguments, where in (
        (("explore", "plan.toml", "pipe"), "input pipe is"),
        (("explore", "pipe"), "pipe: is"),
        (("run", "-m", "x", "--config", "pipe"), "pipe: is"),
        (("run", "-m", "x", "--input", "a=pipe"), "input pipe is"),
    ):
        said = furcate_command(*arguments)
        assert (said.status, said.err) == (2, f"furcate: {where} no regular file; save it first\n")
    said = furcate_command("check", "pipe")
    assert (said.status, said.err) == (2, "pipe: is no regular file; save it first\n")


@full
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_answer_that_cannot_be_written_is_told(spawn: Command, configured: Command, more: tuple[str, ...]) -> None:
    """An answer that a full disk does not take is no success."""
    with StubProvider.in_thread(answer("Hi" * 20_000)) as stub, open("/dev/full", "w") as nowhere:
        configured(stub.base_url)
        process = spawn("run", "-m", "x", *more, stdout=nowhere)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.splitlines()[-1] == (
        "furcate: the answer cannot be written to stdout (No space left on device) and is lost"
    )


@full
@pytest.mark.parametrize("arguments", [("--version",), ("check",), ("--help",)])
def test_words_that_cannot_be_written_are_told(spawn: Command, plan: Path, arguments: tuple[str, ...]) -> None:
    """Commands that only say something tell in one sentence that they could not."""
    with open("/dev/full", "w") as nowhere:
        process = spawn(*arguments, stdout=nowhere)
        _, err = process.communicate(timeout=30)
    said = "furcate: stdout cannot be written (No space left on device); what was to be said there is lost\n"
    assert (process.returncode, err) == (1, said)


@pytest.mark.parametrize("arguments", ["run -m x --json", "explore plan.toml in.txt"])
def test_results_have_to_have_a_place(plan: Path, arguments: str) -> None:
    """Without a stdout nobody is asked for results that would go there."""
    shell = f"exec {sys.executable} -m furcate {arguments} >&-"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    ended = subprocess.run(["sh", "-c", shell], env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("furcate: stdout is closed, so that the ")


def test_binary_on_stdin_is_told(spawn: Command, plan: Path) -> None:
    """A message from stdin has to be text."""
    with Path("binary").open("wb") as made:
        made.write(b"ab\xff")
    with Path("binary").open("rb") as binary:
        process = spawn("run", "-m", "-", stdin=binary)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err == "furcate: -m -: stdin holds no UTF-8 text (byte 2); convert it to UTF-8\n"


@pytest.mark.parametrize("body", ["{ messages = [] }", "{ stream = true }"])
def test_check_refuses_what_requests_are_made_of(furcate_command: Command, configured: Command, body: str) -> None:
    """A body member that every request would be refused for is found beforehand."""
    configured("http://127.0.0.1:9/v1", more=f"extra_body = {body}\n")
    said = furcate_command("check")
    assert said.status == 2
    assert "[profiles.only] extra_body: " in said.err
    assert "is made from the request itself; take it out" in said.err
