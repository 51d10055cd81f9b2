"""The command that makes a page of a recording."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.observers import JsonLinesObserver
from furcate.primitives._message import Message
from furcate.primitives._observations import ContentReceived, RunStarted

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def recorded(folder: Path) -> Path:
    """Record the start of a run."""
    with JsonLinesObserver("r.jsonl") as observer:
        observer.on_event(
            RunStarted(
                run_id="run-1", parent_run_id=None, prompt="draft", profile="p", backend="b", model="m", dialect="d"
            )
        )
    return folder / "r.jsonl"


def test_a_page_is_made(furcate_command: Command) -> None:
    """The page is called report.html unless told otherwise, and stderr says where it is."""
    said = furcate_command("report", "r.jsonl")
    assert (said.status, said.out) == (0, "")
    assert said.err == "report.html: 1 observation; open it in a browser\n"
    made = Path("report.html").read_text(encoding="utf-8")
    assert made.startswith("<!DOCTYPE html>")
    assert "run-1" in made
    assert sorted(os.listdir()) == ["r.jsonl", "report.html"]


def test_a_page_may_go_to_stdout(furcate_command: Command) -> None:
    """With -o - the page is what stdout holds."""
    said = furcate_command("report", "r.jsonl", "-o", "-")
    assert (said.status, said.err) == (0, "")
    assert said.out.rstrip().endswith("</html>")


def test_a_page_of_a_damaged_recording_says_so(furcate_command: Command, recorded: Path) -> None:
    """Broken lines are told on stderr and on the page, and the status is 1."""
    recorded.write_bytes(b"x\n" + recorded.read_bytes() + b'{"v":1')
    said = furcate_command("report", "r.jsonl", "-o", "p.html")
    assert said.status == 1
    assert said.err.startswith("r.jsonl:1: is no JSON")
    made = Path("p.html").read_text(encoding="utf-8")
    assert "1 broken line" in made
    assert "was cut off" in made


@pytest.mark.parametrize(
    ("recording", "content", "wanted"),
    [(0o600, False, 0o600), (0o640, False, 0o640), (0o644, False, 0o644), (0o644, True, 0o600), (0o600, True, 0o600)],
)
def test_nobody_reads_more_of_a_page_than_of_its_recording(
    furcate_command: Command, recorded: Path, recording: int, content: bool, wanted: int
) -> None:
    """A page has at most the recording's mode, and is for its owner alone where it holds what was said."""
    if content:
        with JsonLinesObserver("r.jsonl", content=True) as observer:
            assert observer.on_content is not None
            observer.on_content(ContentReceived(run_id="run-1", number=1, message=Message.assistant("PRIVATE")))
    recorded.chmod(recording)
    Path("report.html").write_text("older")
    Path("report.html").chmod(0o666)
    mask = os.umask(0o022)
    try:
        assert furcate_command("report", "r.jsonl").status == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE(Path("report.html").stat().st_mode) == wanted
    assert ("PRIVATE" in Path("report.html").read_text(encoding="utf-8")) == content


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("none.jsonl",),
            "none.jsonl cannot be read: No such file or directory; name a file that --record has written",
        ),
        (("r.jsonl", "-o", "r.jsonl"), "-o r.jsonl is the recording; name another file"),
        (("r.jsonl", "-o", "no/p.html"), "-o no/p.html: there is no folder no; make it first"),
        (("words.txt",), "words.txt is no recording (line 1 is no JSON: "),
    ],
)
def test_wrong_use_is_told_in_a_sentence(furcate_command: Command, arguments: tuple[str, ...], problem: str) -> None:
    """Whatever file is the wrong one, nothing is written, and an older page stays."""
    Path("words.txt").write_text("words\n")
    Path("report.html").write_text("older")
    said = furcate_command("report", *arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"furcate: {problem}")
    assert Path("report.html").read_text() == "older"
