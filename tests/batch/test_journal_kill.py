"""Processes that are killed in the middle of a job: nothing that was finished is lost, and nothing is done twice."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest

from furcate.batch import open_journal, read_journal

ITEMS = 400
KILLS = 30

# Forks one process after the other, so that what is slow, importing, is done once. Each works on the job until it is
# killed: ten at a random moment from their start on, the others after a random number of finished items.
PROGRAM = f"""
import io, os, random, signal, sys, time
import anyio
from furcate.batch import KeptCall, encode, open_journal, open_source

folder, kills = sys.argv[1], {KILLS}
chance = random.Random(7)
content = b"".join(b'{{"id":"%d","x":"%s"}}\\n' % (n, b"x" * 100) for n in range({ITEMS}))

async def job(acknowledge):
    async with open_journal(folder + "/job.journal") as journal:
        async with open_source(io.BytesIO(content)) as source:
            await journal.enroll(source)
            async for item in source:
                if waiting := await journal.pending([item]):
                    items.append(waiting[0])
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(work, journal, acknowledge)

items = []

async def work(journal, acknowledge):
    while items:
        item = items.pop(0)
        await journal.begin(item.id)
        kept = await journal.calls(item.id)
        os.write(acknowledge, b"replayed %s\\n" % item.id.encode() if kept else b"called %s\\n" % item.id.encode())
        if not kept:
            await journal.keep_call(item.id, KeptCall(run_id="r", number=1, key=bytes(32), data=b"x" * 300))
            os.write(acknowledge, b"kept %s\\n" % item.id.encode())
        await journal.finish(item.id, encode({{"id": item.id, "x": "y" * 3000}}))
        os.write(acknowledge, b"finished %s\\n" % item.id.encode())

def start(backend):
    # What is said goes to a pipe for the parent to count, and so outlives the process that said it.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        anyio.run(job, writing, backend=backend)
        os._exit(0)
    os.close(writing)
    return child, os.fdopen(reading, "rb")

log = open(folder + "/log", "wb")
for number in range(kills + 1):
    child, said = start(("asyncio", "trio")[number % 2])
    if number % 3 == 0 and number < kills:
        time.sleep(chance.uniform(0, 0.4))
        os.kill(child, signal.SIGKILL)
    else:
        left = chance.randrange(1, 15) if number < kills else -1
        for line in said:
            log.write(line)
            left -= line.startswith(b"finished")
            if left == 0:
                time.sleep(chance.uniform(0, 0.004))
                os.kill(child, signal.SIGKILL)
                break
    _, status = os.waitpid(child, 0)
    log.write(said.read())
    log.write(b"ended %d\\n" % status)
log.close()
"""


# The processes run on both loops, one after the other.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.timeout(300)
async def test_killed_jobs_finish_each_item_exactly_once(tmp_path: Path) -> None:
    """After thirty kills every item is there once, with its own result, and the file is sound."""
    await anyio.run_process([sys.executable, "-c", PROGRAM, str(tmp_path)])
    said = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    endings = [words[1] for words in said if words[0] == "ended"]
    assert endings == ["9"] * KILLS + ["0"]

    finished = [words[1] for words in said if words[0] == "finished"]
    assert len(finished) == len(set(finished)), "an item that was finished was finished again"
    kept: set[str] = set()
    for words in said:
        if words[0] == "kept":
            kept.add(words[1])
        assert not (words[0] == "called" and words[1] in kept), "a call that was kept was made again"

    async with read_journal(tmp_path / "job.journal") as reader:
        assert await reader.holder() is None
        async with reader.rows() as rows:
            results = [(row.id, row.value, row.tries) async for row in rows]
    assert [(name, value) for name, value, _ in results] == [
        (str(number), {"id": str(number), "x": "y" * 3000}) for number in range(ITEMS)
    ]
    assert all(tries >= 1 for *_, tries in results)
    connection = sqlite3.connect(tmp_path / "job.journal")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*), count(DISTINCT ended), max(ended) FROM items").fetchall() == [
        (ITEMS, ITEMS, ITEMS)
    ]
    assert connection.execute("SELECT count(*) FROM calls").fetchall() == [(0,)]
    connection.close()
    async with open_journal(tmp_path / "job.journal") as journal:
        assert (await journal.status()).finished == ITEMS
    assert sorted(os.listdir(tmp_path)) == ["job.journal", "job.journal.lock", "log"]
