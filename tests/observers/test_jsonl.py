"""Recording: whole lines, whatever becomes of the process, the file and the disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import furcate
from furcate.observers import JsonLinesObserver
from furcate.primitives._content import Media, Origin, Reasoning, ReasoningState, Text
from furcate.primitives._message import Message
from furcate.primitives._observations import (
    AttemptsPaused,
    ContentReceived,
    ContentSent,
    NurseryStarted,
    RunFinished,
    RunStarted,
)
from furcate.primitives._usage import Usage
from furcate.testing import StubProvider, answer, error

PAUSED = AttemptsPaused(run_id="r", wait_s=0.5, failure_kind="unavailable")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().decode().splitlines()]


async def test_a_run_is_recorded_without_content(tmp_path: Path) -> None:
    """Every observation is a line with version, time and kind, and nothing of what was said or of the key is there."""
    path = tmp_path / "r.jsonl"
    recorder = furcate.Recorder()
    async with StubProvider([error(503), answer("PRIVATE-91")]) as stub:
        with JsonLinesObserver(path) as observer:
            async with furcate.Engine(
                backends=[
                    furcate.Backend(
                        "b",
                        base_url=stub.base_url,
                        api_key="KEY-123",
                        retry=furcate.RetryPolicy(first_backoff_s=0.001),
                    )
                ],
                profiles=[furcate.Profile("p", backend="b", model="m")],
                observers=[observer, recorder],
            ) as engine:
                await engine.run(furcate.Request(profile="p", messages="SECRET-7F3A"))
    told = lines(path)
    assert [line["kind"] for line in told] == [type(event).__name__ for event in recorder.events]
    assert {line["v"] for line in told} == {1}
    assert all(isinstance(line["at"], float) for line in told)
    text = path.read_text()
    assert not [secret for secret in ("SECRET-7F3A", "PRIVATE-91", "KEY-123") if secret in text]
    assert told[-1]["usage"]["output_tokens"] == recorder.of(RunFinished)[0].usage.output_tokens
    assert (observer.lost, observer.problem) == (0, None)


async def test_content_is_recorded_where_it_is_asked_for(tmp_path: Path) -> None:
    """With content, each attempt's messages are there as plain data, in a file for its owner alone."""
    path = tmp_path / "r.jsonl"
    async with StubProvider([answer("One.")]) as stub:
        with JsonLinesObserver(path, content=True) as observer:
            async with furcate.Engine(
                backends=[furcate.Backend("b", base_url=stub.base_url)],
                profiles=[furcate.Profile("p", backend="b", model="m")],
                observers=[observer],
            ) as engine:
                await engine.run(furcate.Request(profile="p", messages="Say one"))
    sent, received = (line for line in lines(path) if line["kind"].startswith("Content"))
    assert sent["messages"] == [{"role": "user", "parts": [{"type": "text", "text": "Say one"}]}]
    assert received["message"] == {"role": "assistant", "parts": [{"type": "text", "text": "One."}]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_opaque_state_is_never_written(tmp_path: Path) -> None:
    """Of reasoning its text is recorded and of a file its size, but neither the state nor the bytes."""
    path = tmp_path / "r.jsonl"
    state = ReasoningState(Origin("p", "d", "m"), "f", b"OPAQUE-STATE")
    parts = (Reasoning("thought", state), Text("said"), Media("image/png", data=b"OPAQUE-BYTES"))
    with JsonLinesObserver(path, content=True) as observer:
        assert observer.on_content is not None
        observer.on_content(ContentReceived(run_id="r", number=1, message=Message("assistant", parts)))
        observer.on_content(ContentSent(run_id="r", number=1, inherited=2, messages=(Message("user", parts[1:]),)))
    text = path.read_text()
    assert "thought" in text
    assert "OPAQUE" not in text
    assert "T1BBUVVF" not in text


def test_nobody_is_handed_content_unasked(tmp_path: Path) -> None:
    """Without content the observer has no hook for it."""
    with JsonLinesObserver(tmp_path / "r.jsonl") as observer:
        assert observer.on_content is None


def test_fields_with_their_defaults_are_left_out(tmp_path: Path) -> None:
    """What has no default is written even as null; what has its default is not."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        observer.on_event(NurseryStarted(scope_id="s", parent_run_id="r"))
        observer.on_event(
            RunStarted(
                run_id="r", parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="d",
                settings=furcate.Settings(max_output_tokens=5, stop="x"),
            )
        )  # fmt: skip
    nursery, run = lines(path)
    assert nursery.keys() == {"v", "at", "kind", "scope_id", "parent_run_id"}
    assert run["parent_run_id"] is None
    assert run["settings"] == {"max_output_tokens": 5, "stop": ["x"]}


def test_writers_do_not_mix(tmp_path: Path) -> None:
    """The system gets each line as one piece on a descriptor that appends, so that writers do not mix."""
    path = tmp_path / "r.jsonl"
    one, other = JsonLinesObserver(path), JsonLinesObserver(path)
    with one, other:
        for observer in (one, other, one):
            observer.on_event(PAUSED)
            # It is in the file already, with nothing left in this process.
            assert path.read_bytes().endswith(b"}\n")
    assert len(lines(path)) == 3


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    """A process that is killed while it records has left lines that all can be read but for, at most, the last."""
    path = tmp_path / "r.jsonl"
    program = (
        "import sys\nfrom furcate.observers import JsonLinesObserver\n"
        "from furcate.primitives._observations import AttemptsPaused\n"
        "observer = JsonLinesObserver(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True:\n    observer.on_event(AttemptsPaused(run_id='r' * 5000, wait_s=1, failure_kind='timeout'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while not path.stat().st_size:
            pass
        process.send_signal(signal.SIGKILL)
    *whole, last = path.read_bytes().split(b"\n")
    assert whole
    assert all(len(json.loads(line)["run_id"]) == 5000 for line in whole)
    with JsonLinesObserver(path) as observer:
        observer.on_event(PAUSED)
    assert json.loads(path.read_bytes().splitlines()[-1])["run_id"] == "r"
    assert path.read_bytes().count(b"\n") == len(whole) + 1 + bool(last)


def test_a_line_that_was_cut_off_spoils_no_later_one(tmp_path: Path) -> None:
    """What is appended to a file that ends inside a line begins on a line of its own."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"v":1,"at":')
    with JsonLinesObserver(path) as observer:
        observer.on_event(PAUSED)
        observer.on_event(PAUSED)
    torn, *rest = path.read_bytes().splitlines()
    assert torn == b'{"v":1,"at":'
    assert [json.loads(line)["kind"] for line in rest] == ["AttemptsPaused"] * 2


@pytest.mark.parametrize("removed", [False, True])
def test_a_rotated_file_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: bool) -> None:
    """After the file was moved away or removed, lines go to a new one of its name, wherever the process is by then."""
    path = tmp_path / "r.jsonl"
    monkeypatch.chdir(tmp_path)
    with JsonLinesObserver("r.jsonl") as observer:
        observer.on_event(PAUSED)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        if removed:
            path.unlink()
        else:
            path.rename(tmp_path / "r.jsonl.1")
        observer.on_event(PAUSED)
        observer.on_event(PAUSED)
    assert len(lines(path)) == 2
    assert removed or len(lines(tmp_path / "r.jsonl.1")) == 1
    assert observer.lost == 0


def test_a_file_that_was_emptied_in_place_goes_on(tmp_path: Path) -> None:
    """After a copy and a truncation, the next line is the file's first."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        observer.on_event(PAUSED)
        os.truncate(path, 0)
        observer.on_event(PAUSED)
    assert len(lines(path)) == 1


class Disk:
    """Stands in for a file on a disk that has room for so many bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room, self.closed = file, room, False

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.room]
        self.room -= len(taken)
        written: int = self.file.write(taken)
        return written

    def close(self) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def furcate_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="furcate"):
        yield caplog


@pytest.mark.field(60)
def test_a_full_disk_costs_lines_and_is_told_once(tmp_path: Path, furcate_log: pytest.LogCaptureFixture) -> None:
    """What has no room is lost and counted, one warning tells it, and recording goes on once there is room."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        disk = Disk(observer._file, room=20)
        observer._file = disk  # type: ignore[assignment]
        for _ in range(3):
            observer.on_event(PAUSED)
        disk.room = 10_000
        observer.on_event(attrs.evolve(PAUSED, run_id="later"))
        assert observer.lost == 3
        assert isinstance(observer.problem, OSError)
    torn, last = path.read_bytes().splitlines()
    assert len(torn) == 20
    assert json.loads(last)["run_id"] == "later"
    [record] = furcate_log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"an observation cannot be recorded in {path}: No space left on device; the run goes on"
    )


def test_a_piece_that_another_left_spoils_no_line(tmp_path: Path) -> None:
    """Of two observers on one file, each begins a line of its own after the other was cut off by a full disk."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as one, JsonLinesObserver(path) as other:
        one.on_event(PAUSED)
        other.on_event(PAUSED)
        one._file = Disk(one._file, room=20)  # type: ignore[assignment]
        one.on_event(PAUSED)
        other.on_event(attrs.evolve(PAUSED, run_id="other"))
        other.on_event(PAUSED)
    *whole, torn, after, last = path.read_bytes().splitlines()
    assert len(torn) == 20
    assert json.loads(after)["run_id"] == "other"
    assert [json.loads(line)["run_id"] for line in (*whole, last)] == ["r"] * 3
    assert (one.lost, other.lost) == (1, 0)


def test_a_piece_that_comes_between_look_and_write_spoils_no_line(tmp_path: Path) -> None:
    """A line that was added to what another writer left just then is written again, on a line of its own."""

    class Raced(Disk):
        def write(self, data: bytes) -> int:
            if self.room:
                with path.open("ab") as file:
                    file.write(b'{"v":1')
            self.room = 0
            written: int = self.file.write(data)
            return written

    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        observer.on_event(PAUSED)
        observer._file = Raced(observer._file, room=1)  # type: ignore[assignment]
        observer.on_event(attrs.evolve(PAUSED, run_id="later"))
    assert json.loads(path.read_bytes().splitlines()[-1])["run_id"] == "later"
    assert observer.lost == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe under the name is an error rather than a wait for its reader, at the start and after a rotation."""
    path, pipe = tmp_path / "r.jsonl", tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="it is no regular file"):
        JsonLinesObserver(pipe)
    with JsonLinesObserver(path) as observer:
        observer.on_event(PAUSED)
        pipe.replace(path)
        observer.on_event(PAUSED)
        assert observer.lost == 1


async def test_a_closed_recording_never_hurts_a_run(tmp_path: Path, furcate_log: pytest.LogCaptureFixture) -> None:
    """A run under an observer that was closed too early ends well, and that is told once."""
    observer = JsonLinesObserver(tmp_path / "r.jsonl")
    observer.close()
    observer.close()
    async with (
        StubProvider([answer("fine")]) as stub,
        furcate.Engine(
            backends=[furcate.Backend("b", base_url=stub.base_url)],
            profiles=[furcate.Profile("p", backend="b", model="m")],
            observers=[observer],
        ) as engine,
    ):
        result = await engine.run(furcate.Request(profile="p", messages="go"))
    assert result.text == "fine"
    assert observer.lost == 4
    assert [record.levelname for record in furcate_log.records if record.name == "furcate"] == ["WARNING"]


def test_a_place_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    """A folder that is not there is an error where the observer is made."""
    with pytest.raises(FileNotFoundError):
        JsonLinesObserver(tmp_path / "no" / "r.jsonl")


def test_halves_of_characters_do_not_break_a_line(tmp_path: Path) -> None:
    """A name that has no UTF-8 form, or line breaks in it, is still one line of valid JSON."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        observer.on_event(NurseryStarted(scope_id="s", parent_run_id="r", name="a\ud800b\n\u2028\x85c"))
    [line] = path.read_bytes().split(b"\n")[:-1]
    assert json.loads(line)["name"] == "a?b\n\u2028\x85c"


def test_a_count_that_may_be_too_small_says_so(tmp_path: Path) -> None:
    """Lower bounds are part of a recorded usage."""
    path = tmp_path / "r.jsonl"
    usage = Usage(output_tokens=7, reasoning_tokens=1, lower_bounds={"reasoning_tokens", "output_tokens"})
    with JsonLinesObserver(path) as observer:
        observer.on_event(
            RunFinished(
                run_id="r", status="cancelled", duration_s=1, usage=usage, attempts=1, repairs=0, validation="skipped"
            )
        )
    assert lines(path)[0]["usage"] == {
        "output_tokens": 7,
        "reasoning_tokens": 1,
        "lower_bounds": ["output_tokens", "reasoning_tokens"],
    }
