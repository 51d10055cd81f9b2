"""What a user of ``furcate batch --on`` reads when a worker is killed, items fail and the driver gets SIGTERM."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = pytest.mark.timeout(90)

SOURCES = Path(__file__).parents[3] / "src"
TARGET = """
import os
from pathlib import Path

import furcate

async def ask(item, job):
    if item["word"] == "bad":
        raise ValueError("no good")
    print("said by the target", flush=True)
    Path(__file__).with_name(f"pid-{os.getpid()}").touch()
    return (await job.engine.run(furcate.Request(profile="p", messages=item["word"]))).text
"""
NOISE = re.compile(r"distributed|raylet|pid=|Traceback|never retrieved|SIGTERM received|Error:")


def until(there: Callable[[], bool]) -> None:
    """Wait for what other processes do; the test's own limit ends what takes too long."""
    while not there():
        time.sleep(0.05)


@pytest.mark.parametrize(("engine", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_lost_worker_and_sigterm_are_told_in_sentences(tmp_path: Path, engine: str, module: str) -> None:
    """One sentence for each, what has begun is finished, and nothing that the engine has to say of it is on stderr."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the extra {engine}: {module} is not installed")
    held = True

    async def script(_: StubRequest) -> Answer:
        while held:  # noqa: ASYNC110 - whoever lets go is in another thread
            await anyio.sleep(0.02)
        return answer("well")

    (tmp_path / "target_on_terminal.py").write_text(TARGET)
    words = ["bad", *(f"w{number}" for number in range(20))]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": word, "word": word}) + "\n" for word in words))
    said = tmp_path / "stderr.txt"
    with StubProvider.in_thread(script) as stub:
        (tmp_path / "furcate.toml").write_text(
            f'[backends.b]\nbase_url = "{stub.base_url}"\ncapacity = 8\n[profiles.p]\nbackend = "b"\nmodel = "m"\n'
        )
        command = [sys.executable, "-m", "furcate", "batch", "target_on_terminal:ask", "items.jsonl"]
        command += ["--on", engine, "--workers", "2", "--concurrency", "4", "--results", "out.jsonl"]
        environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES))}
        outputs = {"stdout": subprocess.PIPE, "stderr": said.open("wb")}
        with outputs["stderr"], subprocess.Popen(command, cwd=tmp_path, env=environment, **outputs) as job:
            try:
                until(lambda: stub.requests_read >= 4)
                worker = int(next(tmp_path.glob("pid-*")).name.removeprefix("pid-"))
                os.kill(worker, signal.SIGKILL)
                until(lambda: "its items are given to others" in said.read_text())
                job.send_signal(signal.SIGTERM)
                until(lambda: "no more items are begun, and the 4 running ones are finished" in said.read_text())
                held = False
                assert job.wait() == 130
                assert job.stdout is not None
                assert job.stdout.read() == b"", "where results go, a target's words are not seen"
            finally:
                job.kill()
    lines = said.read_text().splitlines()
    assert [line for line in lines if NOISE.search(line)] == []
    assert sum("its items are given to others" in line for line in lines) == 1
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(row["status"] for row in rows) == ["failed", *["finished"] * 4]


STUCK = """
import threading
from pathlib import Path

async def wait_for_ever(item, job):
    Path("stuck").touch()
    threading.Event().wait()
"""


@pytest.mark.parametrize(("engine", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_function_that_blocks_its_worker_does_not_keep_the_command(tmp_path: Path, engine: str, module: str) -> None:
    """Nothing can cancel it; after the second signal its worker is ended with the cluster that was started here."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the extra {engine}: {module} is not installed")
    (tmp_path / "stuck_on_terminal.py").write_text(STUCK.replace('Path("stuck")', f"Path({str(tmp_path / 'stuck')!r})"))
    (tmp_path / "items.jsonl").write_text('{"id": "one"}\n')
    (tmp_path / "furcate.toml").write_text('[backends.b]\nbase_url = "http://127.0.0.1:9/v1"\n')
    command = [sys.executable, "-m", "furcate", "batch", "stuck_on_terminal:wait_for_ever", "items.jsonl"]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES))}
    said = tmp_path / "stderr.txt"
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [*command, "--on", engine, "--workers", "1"], cwd=tmp_path, env=environment, stderr=stderr
        ) as job,
    ):
        try:
            until((tmp_path / "stuck").exists)
            job.send_signal(signal.SIGINT)
            until(lambda: "once more cancels" in said.read_text())
            job.send_signal(signal.SIGINT)
            assert job.wait() == 130
        finally:
            job.kill()
    lines = said.read_text().splitlines()
    assert (
        "furcate: interrupted again: 1 item cancelled, to be done again at the next start; once more leaves at once"
        in lines
    )
    assert [line for line in lines if NOISE.search(line)] == []
