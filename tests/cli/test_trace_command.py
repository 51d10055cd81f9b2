"""Recording on the command line, and what a recording comes to."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.report import ContentRecorded, Recording, read_recording
from furcate.testing import StubProvider, answer, error

Command = Callable[..., Any]

PLAN = """
[opening]
messages = [{ role = "user", template = "SECRET-7F3A" }]
[[branches]]
name = "a"
follow_ups = ["more"]
[[branches]]
name = "b"
follow_ups = ["less"]
"""


def kinds(recording: Recording) -> list[str]:
    return [type(recorded.event).__name__ for recorded in recording]


def test_run_appends_to_a_recording(furcate_command: Command, configured: Command, loop: str) -> None:
    """Each run appends what happened, without a word of what was said."""
    with StubProvider.in_thread(answer("PRIVATE-91")) as stub:
        configured(stub.base_url)
        for _ in range(2):
            said = furcate_command("run", "-m", "SECRET-7F3A", "--record", "r.jsonl", "--loop", loop)
            assert said.status == 0
    assert kinds(read_recording("r.jsonl")) == ["RunStarted", "AttemptStarted", "AttemptFinished", "RunFinished"] * 2
    text = Path("r.jsonl").read_text()
    assert "SECRET-7F3A" not in text
    assert "PRIVATE-91" not in text


def test_explore_records_content_where_it_is_asked_to(furcate_command: Command, configured: Command, loop: str) -> None:
    """With content, the opening and every turn have what was sent and received; branches and nursery frame them."""
    Path("plan.toml").write_text(PLAN)
    with StubProvider.in_thread(lambda _: answer("PRIVATE-91")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "--record", "r.jsonl", "--record-content", "--loop", loop)
    assert said.status == 0
    found = [recorded.event for recorded in read_recording("r.jsonl")]
    contents = [event for event in found if isinstance(event, ContentRecorded)]
    assert [event.direction for event in contents].count("received") == 3
    assert "SECRET-7F3A" in str(contents)
    assert "PRIVATE-91" in str(contents)
    assert {"CoordinatorStarted", "CoordinatorFinished"} <= {type(event).__name__ for event in found}


def test_content_needs_a_recording(furcate_command: Command, configured: Command) -> None:
    """Content without a file to put it is wrong use."""
    configured("http://127.0.0.1:9/v1")
    said = furcate_command("run", "-m", "x", "--record-content")
    assert said.status == 2
    assert said.err == "furcate: --record-content goes with --record FILE: there is no recording without one\n"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no/r.jsonl", "--record no/r.jsonl: there is no folder no; make it first"),
        (".", "--record . is a folder; name a file"),
        ("furcate.toml", "--record furcate.toml is the configuration; name another file"),
        ("q.jsonl", "--record q.jsonl is the file of --receipts too; name another file"),
    ],
)
def test_a_place_for_a_recording_is_checked(
    furcate_command: Command, configured: Command, target: str, problem: str
) -> None:
    """What cannot be written, or is used already, is refused before anyone is called."""
    configured("http://127.0.0.1:9/v1")
    said = furcate_command("run", "-m", "x", "--receipts", "q.jsonl", "--record", target)
    assert (said.status, said.err) == (2, f"furcate: {problem}\n")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "{} names no file: the name is empty; give one, such as kept.jsonl"),
        ("-", "{} - does not mean stdout, which is for results; name a file to append to"),
    ],
)
@pytest.mark.parametrize("option", ["--record", "--receipts"])
def test_no_file_is_told_as_such(
    furcate_command: Command, configured: Command, option: str, name: str, problem: str
) -> None:
    """An empty name and a dash name no file, and none is made."""
    configured("http://127.0.0.1:9/v1")
    before = sorted(os.listdir())
    said = furcate_command("run", "-m", "x", option, name)
    assert (said.status, said.err) == (2, f"furcate: {problem.format(option)}\n")
    assert sorted(os.listdir()) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_no_place_for_a_recording(furcate_command: Command, configured: Command) -> None:
    """A pipe that nobody reads is refused in a sentence rather than waited for."""
    configured("http://127.0.0.1:9/v1")
    os.mkfifo("pipe")
    said = furcate_command("run", "-m", "x", "--record", "pipe")
    assert said.status == 2
    assert said.err == "furcate: --record pipe cannot be written: it is no regular file; name another file\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_recording_that_cannot_be_written_fails_the_command(furcate_command: Command, configured: Command) -> None:
    """The answer is given all the same, and one sentence says what is lost."""

    def spoil(_: Any) -> Any:
        Path("r.jsonl").unlink()
        os.mkfifo("r.jsonl")
        return answer("fine")

    with StubProvider.in_thread(spoil) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--record", "r.jsonl")
    assert (said.status, said.out) == (1, "fine\n")
    assert "furcate: --record r.jsonl: 2 lines could not be written (it is no regular file)" in said.err


@pytest.mark.parametrize(("mode", "told"), [(0o644, True), (0o640, True), (0o600, False)])
def test_content_for_other_eyes_is_told(furcate_command: Command, configured: Command, mode: int, told: bool) -> None:
    """What is said goes into a file that others may read only with a word about it; its mode stays."""
    path = Path("r.jsonl")
    path.touch()
    path.chmod(mode)
    with StubProvider.in_thread(lambda _: answer("fine")) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--record", "r.jsonl", "--record-content")
        quiet = furcate_command("run", "-m", "x", "--record", "r.jsonl")
    assert (said.status, stat.S_IMODE(path.stat().st_mode)) == (0, mode)
    assert said.err.count("others may read what is said in it") == told
    assert "others may read" not in quiet.err


def recorded(furcate_command: Command, configured: Command) -> None:
    with StubProvider.in_thread([error(503), answer("fine")]) as stub:
        path = configured(stub.base_url)
        path.write_text(path.read_text().replace("attempts = 1", "attempts = 2\nfirst_backoff_s = 0.001"))
        assert furcate_command("run", "-m", "x", "--record", "r.jsonl").status == 0


def test_a_recording_is_summed_up(furcate_command: Command, configured: Command) -> None:
    """The columns name the runs, the retry, the failure and the backend; the status is that all is well."""
    recorded(furcate_command, configured)
    said = furcate_command("trace", "summarize", "r.jsonl")
    assert (said.status, said.err) == (0, "")
    told = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "runs 1 1 succeeded" in told
    assert "attempts 2 1 failed, 1 succeeded" in told
    assert "retries 1 1 unavailable" in told
    assert any(line.startswith("stub 1 0 ") for line in told)
    assert any(line.startswith("unavailable, overloaded 1 0 ") for line in told)
    assert all(len(line) <= 80 for line in said.out.splitlines())


def test_a_summary_for_machines(furcate_command: Command, configured: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """--json gives one object; stdin serves as the file."""
    recorded(furcate_command, configured)
    stdin = io.TextIOWrapper(io.BytesIO(Path("r.jsonl").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    said = furcate_command("trace", "summarize", "--json", "-")
    assert said.status == 0
    [data] = said.lines
    assert (data["runs"], data["retries"]) == ({"succeeded": 1}, {"unavailable": 1})
    assert data["recording"]["observations"] == len(Path("r.jsonl").read_text().splitlines())


def test_broken_lines_are_told_and_passed_over(furcate_command: Command, configured: Command) -> None:
    """A broken line in the middle is named by its number and makes the status 1; a cut-off end does not."""
    recorded(furcate_command, configured)
    whole = Path("r.jsonl").read_bytes()
    Path("r.jsonl").write_bytes(whole + b'{"v":1,"at')
    said = furcate_command("trace", "summarize", "r.jsonl")
    assert (said.status, said.err) == (0, "")
    assert "the last line was cut off and is passed over" in said.out
    Path("r.jsonl").write_bytes(b'{"v":1,"at\n' + whole)
    said = furcate_command("trace", "summarize", "r.jsonl")
    assert said.status == 1
    assert said.err.startswith("r.jsonl:1: is no JSON: ")
    assert "1 broken line passed over" in said.out


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "r.jsonl cannot be read: No such file or directory; name a file that --record has written"),
        ("# Title\n", "r.jsonl is no recording (line 1 is no JSON: "),
        ('{"a": 1}\n', "r.jsonl is no recording (line 1 has no version v, a whole number from 1)"),
    ],
)
def test_what_is_no_recording_is_refused(furcate_command: Command, content: str | None, problem: str) -> None:
    """A file that is not there, or holds something else, is wrong use, told in one sentence."""
    if content is not None:
        Path("r.jsonl").write_text(content)
    said = furcate_command("trace", "summarize", "r.jsonl")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"furcate: {problem}")
    assert said.err.count("\n") == 1
