"""A cluster that stands by itself: a driver is killed, and another one goes on with the same workers."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs the extra dask"),
]

SOURCES = Path(__file__).parents[3] / "src"
TARGET = """
import os
import furcate

async def twice(item, job):
    for step in ("first", "second"):
        said = await job.engine.run(furcate.Request(profile="p", messages=f"{item['word']} {step}"))
    return [said.text, os.getpid()]
"""
ITEMS = 6
AT_ONCE = 4


def until(there: Callable[[], bool]) -> None:
    """Wait for what other processes do; the test's own limit ends what takes too long."""
    while not there():
        time.sleep(0.05)


@contextmanager
def process(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of Python's in a folder, to the end of the block at most."""
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES))}
    with (folder / f"{words[0]}.txt").open("ab") as said:
        command = [sys.executable, "-m", *words]
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said) as running:
            try:
                yield running
            finally:
                running.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, set[int]]]:
    """Give the address of a scheduler with two workers, and their process ids."""
    found = tmp_path / "scheduler.json"
    (tmp_path / "elsewhere").mkdir()
    with ExitStack() as running:

        def start(*words: str) -> int:
            return running.enter_context(process(tmp_path / "elsewhere", *words)).pid

        quiet = ("--no-dashboard", f"--scheduler-file={found}")
        start("distributed.cli.dask_scheduler", "--host=127.0.0.1", "--port=0", *quiet)
        until(found.exists)
        worker = ("distributed.cli.dask_worker", "--no-nanny", "--nthreads=1", *quiet)
        pids = {start(*worker), start(*worker)}
        address: str = json.loads(found.read_text())["address"]
        yield address.removeprefix("tcp://"), pids


def calls_kept(journal: Path) -> int:
    """Count the answers that a journal has."""
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
            [[count]] = connection.execute("SELECT count(*) FROM calls")
    except sqlite3.Error:
        return 0
    return int(count)


def test_another_driver_goes_on_where_one_was_killed(tmp_path: Path, cluster: tuple[str, set[int]]) -> None:
    """What was answered is not asked again, what was under way is closed and asked once more; no item is lost."""
    address, workers = cluster
    held = True
    asked: Counter[str] = Counter()

    async def script(request: StubRequest) -> Answer:
        said: str = request.body["messages"][-1]["content"]
        asked[said] += 1
        while held and said.endswith("second"):  # noqa: ASYNC110 - whoever lets go is in another thread
            await anyio.sleep(0.02)
        return answer(said)

    (tmp_path / "target_on_standing.py").write_text(TARGET)
    rows: list[Any] = [{"id": f"i{number}", "word": f"w{number}"} for number in range(ITEMS)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with StubProvider.in_thread(script) as stub:
        (tmp_path / "furcate.toml").write_text(
            f'[backends.b]\nbase_url = "{stub.base_url}"\ncapacity = {AT_ONCE}\n'
            '[profiles.p]\nbackend = "b"\nmodel = "m"\n'
        )
        command = ["furcate", "batch", "target_on_standing:twice", "items.jsonl", "--results=out.jsonl"]
        command += [f"--on=dask://{address}", f"--concurrency={AT_ONCE}"]
        with process(tmp_path, *command) as first:
            until(lambda: calls_kept(tmp_path / "items.journal") == AT_ONCE and stub.requests_read == 2 * AT_ONCE)
            first.kill()
            first.wait()
        with process(tmp_path, *command) as second:
            until(lambda: stub.requests_read == 3 * AT_ONCE and stub.disconnects == AT_ONCE)
            held = False
            assert second.wait() == 0, (tmp_path / "furcate.txt").read_text()
    assert {asked[f"w{number} first"] for number in range(ITEMS)} == {1}
    assert sorted(asked[f"w{number} second"] for number in range(ITEMS)) == [1] * (ITEMS - AT_ONCE) + [2] * AT_ONCE
    assert stub.most_in_flight == AT_ONCE
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {row["id"]: row["result"][0] for row in rows} == {f"i{n}": f"w{n} second" for n in range(ITEMS)}
    assert len(rows) == ITEMS
    assert {row["result"][1] for row in rows} <= workers
