"""How a job ends: whatever its journal has as ended is counted and told, and tasks come with the items."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

import furcate
from furcate.batch import ItemJob, Job, JobOptions, _job, _quick_look, open_job, read_journal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def engine() -> AsyncIterator[furcate.Engine]:
    async with furcate.Engine(backends=[furcate.Backend("none")]) as one:
        yield one


async def ended_in(journal: Path) -> set[str | None]:
    async with read_journal(journal) as reader, reader.rows() as rows:
        return {row.id for row in [row async for row in rows]}


async def told_until_cancelled(job: Job) -> list[str | None]:
    """Take all outcomes of a job that is cancelled at the first one."""
    told = []
    async for outcome in job:
        told.append(outcome.id)
        job.cancel()
    return told


async def test_what_the_journal_has_as_ended_is_told_whatever_is_cancelled(
    tmp_path: Path, engine: furcate.Engine
) -> None:
    """Eight items end together, and the first outcome cancels the job: each end in the journal has been told."""
    together = anyio.Event()
    begun = 0

    async def target(item: dict[str, int], job: ItemJob) -> int:
        nonlocal begun
        begun += 1
        if begun == 8:
            together.set()
        await together.wait()
        if begun % 2:
            raise ValueError("odd")
        return item["id"]

    items = [{"id": number} for number in range(40)]
    options = JobOptions(concurrency=8)
    async with open_job(target, items, engine=engine, journal=tmp_path / "j", options=options) as job:
        told = await told_until_cancelled(job)
    assert len(told) >= 8
    assert len(told) == len(set(told)) == job.progress.finished + job.progress.failed
    assert set(told) == await ended_in(tmp_path / "j")
    assert (job.progress.running, job.progress.ended) == (0, "cancelled")


async def test_bad_lines_that_the_journal_has_are_told_whatever_is_cancelled(
    tmp_path: Path, engine: furcate.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty lines that cannot be read come into the journal together, and the first outcome cancels the job."""
    monkeypatch.setattr(_quick_look, "FEWEST", 10)
    monkeypatch.setattr(_job, "_ENROLLED_AT_ONCE", 50)
    twice = [f'{{"id": "i{number}", "x": 1, "x": 2}}\n' for number in range(20)]
    (tmp_path / "items.jsonl").write_text("".join(twice))

    async def target(item: object, job: ItemJob) -> None:
        await anyio.sleep_forever()

    options = JobOptions(concurrency=2)
    async with open_job(
        target, tmp_path / "items.jsonl", engine=engine, journal=tmp_path / "j", options=options
    ) as job:
        told = await told_until_cancelled(job)
    assert sorted(map(str, told)) == sorted(f"i{number}" for number in range(20))
    assert set(told) == await ended_in(tmp_path / "j")


async def test_whoever_leaves_with_outcomes_untold_is_not_kept(tmp_path: Path, engine: furcate.Engine) -> None:
    """More items have ended than anybody takes: leaving the block waits for no reader, and what ended is kept."""

    enough = anyio.Event()

    async def target(item: int, job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        if item == 7:
            enough.set()
        return item

    options = JobOptions(concurrency=4)
    with anyio.fail_after(30):
        async with open_job(target, range(100), engine=engine, journal=tmp_path / "j", options=options) as job:
            await enough.wait()
    assert len(await ended_in(tmp_path / "j")) == job.progress.finished
    assert 4 <= job.progress.finished <= 8


async def test_tasks_come_with_the_items_that_there_are(tmp_path: Path, engine: furcate.Engine) -> None:
    """A million places for 20 items cost no more than the 20, and five places for 50 items no more than the five."""
    most = 0

    async def target(item: int, job: ItemJob) -> int:
        nonlocal most
        most = max(most, len(anyio.get_running_tasks()))
        await anyio.sleep(0.001)
        return item

    before = len(anyio.get_running_tasks())
    for count, concurrency, at_most in ((20, 1_000_000, 20), (50, 5, 5)):
        most = 0
        options = JobOptions(concurrency=concurrency)
        async with open_job(target, range(count), engine=engine, journal=tmp_path / str(count), options=options) as job:
            progress = await job.run()
        assert (progress.finished, progress.ended) == (count, "all")
        assert most - before <= at_most + 2


async def test_a_job_that_is_cancelled_as_an_item_begins_ends(tmp_path: Path, engine: furcate.Engine) -> None:
    """An item that was handed out and has not begun yet is cancelled like the others."""

    async def target(item: int, job: ItemJob) -> int:
        running.cancel()
        await anyio.sleep_forever()
        return item  # pragma: no cover

    options = JobOptions(concurrency=3)
    with anyio.fail_after(30):
        async with open_job(target, range(10), engine=engine, journal=tmp_path / "j", options=options) as running:
            assert [outcome async for outcome in running] == []
    assert running.progress.left == 10
