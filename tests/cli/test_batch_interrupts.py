"""Batch jobs that are interrupted, watched, or left without readers: results stay whole, and the next start goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import furcate.cli._batch_running as running
from furcate.batch import Job, JournalReader, Status
from furcate.report import LiveView
from furcate.testing import Answer, StubProvider, StubRequest, answer

Command = Callable[..., Any]

PROMPT = '[prompts.say]\nmessages = [{ role = "user", template = "Say {{ word }}." }]\n'
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")


def echo(request: StubRequest) -> Answer:
    """Answer with the word."""
    return answer(request.body["messages"][-1]["content"].removeprefix("Say ").removesuffix("."))


def numbered(count: int) -> None:
    """Write items."""
    rows = ({"id": f"i{number}", "word": f"w{number}"} for number in range(count))
    Path("items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def parsed(path: str) -> list[Any]:
    """Read JSON lines, of which each has its end."""
    text = Path(path).read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def wait_for(done: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for what a process brings about."""
    until_s = time.monotonic() + 30
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.01)


def lines_in(path: str, count: int) -> Callable[[], bool]:
    """Tell whether a file has so many lines."""
    return lambda: Path(path).exists() and Path(path).read_bytes().count(b"\n") >= count


@pytest.mark.field(78)
def test_interrupted_twice_it_ends_at_once_and_goes_on_later(
    configured: Command, spawn: Command, furcate_by_descriptor: Command, loop: str
) -> None:
    """20 of 50 are on disk and parse; those under way are closed by the second signal; the next start does 30."""
    numbered(50)
    hang = True

    def script(request: StubRequest) -> Answer:
        if hang and len(stub.requests) > 20:
            return answer("not all of it", silence_after=2)
        return echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT)
        given = ("batch", "say", "items.jsonl", "--results", "out.jsonl", "--loop", loop)
        process = spawn(*given)
        wait_for(lines_in("out.jsonl", 20), process)
        wait_for(lambda: stub.in_flight == 2, process)
        process.send_signal(signal.SIGINT)
        while not (line := process.stderr.readline()).startswith("furcate: interrupted"):
            assert line
        # On a busy machine some of the eight have not begun by then.
        assert re.search(r"no more items are begun, and the [2-8] running ones are finished", line)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert re.search(r"furcate: interrupted again: [2-8] items cancelled", err)
        assert "30 items left; the same command goes on" in err
        assert len({line["id"] for line in parsed("out.jsonl")}) == len(parsed("out.jsonl")) == 20
        deadline_s = time.monotonic() + 10
        while stub.in_flight and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert stub.in_flight == 0
        hang, before = False, len(stub.requests)
        assert furcate_by_descriptor(*given).status == 0
        assert len(stub.requests) - before == 30
    assert {line["id"]: line["result"]["text"] for line in parsed("out.jsonl")} == {f"i{n}": f"w{n}" for n in range(50)}
    assert len(parsed("out.jsonl")) == 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(configured: Command, spawn: Command, loop: str, number: signal.Signals) -> None:
    """What has begun is finished and written, no more is begun, and the status says that it was interrupted."""
    numbered(50)

    async def script(request: StubRequest) -> Answer:
        await anyio.sleep(0.3)
        return echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT)
        given = ("--results", "out.jsonl", "--concurrency", "2")
        process = spawn("batch", "say", "items.jsonl", "--loop", loop, *given)
        wait_for(lines_in("out.jsonl", 1), process)
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == 130
        rows = parsed("out.jsonl")
        assert len(rows) == len(stub.requests) < 10
        assert {row["status"] for row in rows} == {"finished"}


def test_a_signal_as_soon_as_items_have_begun_drains(
    configured: Command, furcate_by_descriptor: Command, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Though nothing is shown yet, what has begun is finished."""
    numbered(50)
    status = JournalReader.status

    async def status_after_a_signal(journal: JournalReader) -> Status:
        while not stub.requests_read:  # noqa: ASYNC110 - the stub is in another thread
            await anyio.sleep(0.002)
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep(0.3)
        return await status(journal)

    monkeypatch.setattr(JournalReader, "status", status_after_a_signal)
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=PROMPT)
        said = furcate_by_descriptor("batch", "say", "items.jsonl", "--loop", loop, "--concurrency", "1")
    assert said.status == 130
    assert re.search(r"no more items are begun, and (none is running|the running one is finished)", said.err)
    assert 0 < len(said.lines) < 50


def test_a_signal_once_all_has_ended_does_not_say_that_nothing_was_done(
    configured: Command, furcate_by_descriptor: Command, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """While the account of it all is made, there is nothing left to drain; all results are written."""
    numbered(3)

    async def unmet_after_a_signal(ours: running.Running, job: Job) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()
        return 0

    monkeypatch.setattr(running.Running, "_unmet", unmet_after_a_signal)
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=PROMPT)
        said = furcate_by_descriptor("batch", "say", "items.jsonl", "--loop", loop)
    assert (said.status, len(said.lines)) == (130, 3)
    assert said.err.endswith("furcate: interrupted; the same command goes on\n")


STUCK = """
import sys, time

async def step(item, job):
    print("stuck", file=sys.stderr, flush=True)
    time.sleep(60)
"""


@pytest.mark.field(78)
def test_the_third_signal_leaves_at_once(configured: Command, spawn: Command, loop: str) -> None:
    """Even where a function keeps the event loop from turning."""
    numbered(1)
    Path("stuck.py").write_text(STUCK)
    configured("http://127.0.0.1:9/v1")
    process = spawn("batch", "stuck:step", "items.jsonl", "--loop", loop)
    while process.stderr.readline() != "stuck\n":
        assert process.poll() is None
    for _ in range(3):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        # Two of one kind that come close together would count as one.
        time.sleep(0.3)
    assert process.wait(timeout=30) == 130


LIMITS = "attempts = 2\nfirst_backoff_s = 0.01\nfirst_event_s = 2\n"


@pytest.mark.field(13)
def test_one_that_hangs_ends_and_is_seen(
    configured: Command, furcate_by_descriptor: Command, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """49 results are on disk while the last one waits; the lines say which one and for how long; then it has failed."""
    numbered(50)
    on_disk: list[int] = []

    async def script(request: StubRequest) -> Answer:
        if "w49." in request.body["messages"][-1]["content"]:
            await anyio.sleep(1.5)
            on_disk.append(len(parsed("out.jsonl")))
            await anyio.sleep_forever()
        return echo(request)

    monkeypatch.setattr(running, "LiveView", partial(LiveView, every_s=0.1))
    with StubProvider.in_thread(script) as stub:
        path = configured(stub.base_url, more=PROMPT)
        text = path.read_text().replace("attempts = 1\n", LIMITS)
        path.write_text(text.replace('model = "m"\n', 'model = "m"\nrepeat_safe = true\n'))
        said = furcate_by_descriptor("batch", "say", "items.jsonl", "--results", "out.jsonl", "--loop", loop)
        asked = [request.body["messages"][-1]["content"] for request in stub.requests]
    assert asked.count("Say w49.") == 2
    assert said.status == 1
    assert max(on_disk) == 49
    assert "longest: i49 generating for " in said.err
    assert "items  49 of 50 finished · 1 left · 1 running" in said.err
    [failed] = [row for row in parsed("out.jsonl") if row["status"] == "failed"]
    assert (failed["id"], failed["error"]["kind"]) == ("i49", "timeout")


@pytest.mark.field(76)
def test_stdout_has_results_and_stderr_plain_lines(
    configured: Command, furcate_by_descriptor: Command, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """Without a terminal, stdout is JSON lines only, and stderr says at intervals how all stands, without control."""
    numbered(20)

    async def script(request: StubRequest) -> Answer:
        await anyio.sleep(0.05)
        return echo(request)

    monkeypatch.setattr(running, "LiveView", partial(LiveView, every_s=0.1))
    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT)
        said = furcate_by_descriptor("batch", "say", "items.jsonl", "--loop", loop)
    assert len(said.lines) == 20
    told = [line for line in said.err.splitlines() if line.startswith("items  ")]
    assert len(told) > 2
    assert told[-1] == "items  20 of 20 finished · 0 left"
    assert all(char.isprintable() for char in said.err.replace("\n", ""))


@pytest.mark.field(76)
def test_a_closed_stderr_is_harmless(configured: Command, spawn: Command) -> None:
    """Whoever closes it, before the start or in the middle, gets the results all the same."""
    numbered(5)
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=PROMPT)
        process = spawn("batch", "say", "items.jsonl")
        process.stderr.close()
        process.stderr = None
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert len(out.splitlines()) == 5
        process = spawn("batch", "say", "items.jsonl", preexec_fn=partial(_close, 2), stderr=None)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert len(out.splitlines()) == 5


def _close(number: int) -> None:
    os.close(number)


def test_a_reader_that_goes_away_ends_the_job(configured: Command, spawn: Command) -> None:
    """What has begun is finished, no more is begun, and the sentence says where the results are."""
    numbered(200)

    async def script(request: StubRequest) -> Answer:
        await anyio.sleep(0.02)
        return echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url, more=PROMPT)
        process = spawn("batch", "say", "items.jsonl")
        assert process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=30) == 1
        assert len(stub.requests) < 200
    assert re.search(r"\d+ items left; the same command goes on\n", err)
    assert "results cannot be written to stdout any more (Broken pipe), so no more items were begun" in err
    assert "'furcate batch results items.journal'" in err


@full
def test_results_that_a_full_disk_does_not_take_are_in_the_journal(
    configured: Command, spawn: Command, furcate_by_descriptor: Command
) -> None:
    """The status says that something went wrong; the journal has what was finished."""
    numbered(3)
    with StubProvider.in_thread(echo) as stub, open("/dev/full", "w") as nowhere:
        configured(stub.base_url, more=PROMPT)
        process = spawn("batch", "say", "items.jsonl", stdout=nowhere)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "(No space left on device)" in err
        process = spawn("batch", "results", "items.journal", stdout=nowhere)
        _, err = process.communicate(timeout=30)
        assert err == "furcate: stdout cannot be written (No space left on device); what was to be said there is lost\n"
    assert len(furcate_by_descriptor("batch", "results", "items.journal").lines) == 3


@pytest.mark.field(15)
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent"])
def test_every_dialect_runs_on_both_loops(
    configured: Command, furcate_by_descriptor: Command, loop: str, dialect: str
) -> None:
    """The batch command works with each of them on asyncio and on trio."""
    numbered(2)
    with StubProvider.in_thread(answer("done")) as stub:
        base_url = stub.base_url if dialect.startswith("openai") else stub.base_url.removesuffix("/v1")
        path = configured(base_url, more=f"max_output_tokens = 10\n{PROMPT}")
        path.write_text(path.read_text().replace("[backends.stub]\n", f'[backends.stub]\ndialect = "{dialect}"\n'))
        said = furcate_by_descriptor("batch", "say", "items.jsonl", "--loop", loop)
    assert said.status == 0, said.err
    assert [line["result"]["text"] for line in said.lines] == ["done", "done"]


def test_a_signal_while_items_are_read_ends_it(configured: Command, spawn: Command, loop: str) -> None:
    """Before any item has begun there is nothing to finish: the first signal ends the command, with one sentence."""
    configured("http://127.0.0.1:9/v1", more=PROMPT)
    given = ("batch", "say", "-", "--journal", "job.journal", "--loop", loop)
    process = spawn(*given, stdin=subprocess.PIPE)
    # More than a pipe holds, so that it has been read from once this is written.
    process.stdin.write(f"{json.dumps({'word': 'x' * 400_000})}\n")
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read() == "furcate: interrupted before any item was begun\n"
    process.stdin.close()
