"""How soon a job of many items begins: the first ones are worked on while the others are still being enrolled."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import anyio
import pytest

import furcate
from furcate.batch import ItemJob, JobOptions, _job, _quick_look, open_job, read_journal
from furcate.primitives._errors import ItemsError
from furcate.testing import StubProvider, answer

pytestmark = pytest.mark.anyio

FIFTY = JobOptions(concurrency=50)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is done for very many items be done for hundreds."""
    monkeypatch.setattr(_quick_look, "FEWEST", 100)
    monkeypatch.setattr(_job, "_ENROLLED_AT_ONCE", 100)


def engine_on(stub: StubProvider) -> furcate.Engine:
    return furcate.Engine(
        backends=[furcate.Backend("stub", base_url=stub.base_url, capacity=50)],
        profiles=[furcate.Profile("p", "stub", "m")],
        prompts=[furcate.Prompt("say", [furcate.MessageTemplate("user", "{{ text }}")], profile="p")],
    )


def write(path: Path, count: int, *more: str, size: int = 20, end: str = "\n") -> Path:
    given = [json.dumps({"id": f"i{number}", "text": f"{number} ".ljust(size, "x")}) for number in range(count)]
    path.write_text("\n".join([*given, *more]) + end)
    return path


async def instant(item: dict[str, str], job: ItemJob) -> str:
    await anyio.lowlevel.checkpoint()
    return item["id"]


async def slowly(request: object) -> object:
    await anyio.sleep(0.001)
    return answer("done")


@pytest.mark.field(73)
async def test_the_first_of_many_results_comes_before_the_other_items_are_enrolled(tmp_path: Path) -> None:
    """100,000 rows of 1 kB, 50 at once: about 50 tasks, memory that does not grow with the rows, and no waiting."""
    items, journal = write(tmp_path / "items.jsonl", 100_000, size=1000), tmp_path / "job.journal"
    told, tasks = 0, 0
    with StubProvider.in_thread(slowly, remember=False) as stub:
        tracemalloc.start()
        try:
            engine = engine_on(stub)
            async with engine, open_job("say", items, engine=engine, journal=journal, options=FIFTY) as job:
                assert job.progress.enrollment.items == 100_000
                async for outcome in job:
                    assert outcome.state == "finished"
                    if not told:
                        known = (await job.journal.status()).items
                        assert known < 50_000, "nearly all had to be enrolled before the first result came"
                    tasks = max(tasks, len(anyio.get_running_tasks()))
                    told += 1
                    if told == 200:
                        break
            assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
        finally:
            tracemalloc.stop()
    assert tasks < 130
    async with read_journal(journal) as kept:
        assert (await kept.status()).finished >= 200


async def test_all_items_of_a_job_that_began_early_are_done_once(tmp_path: Path) -> None:
    """300 items, a line without its end the last: all have one outcome each, and the journal agrees."""
    items, journal = write(tmp_path / "items.jsonl", 300, end=""), tmp_path / "job.journal"
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(instant, items, engine=engine, journal=journal, options=FIFTY) as job:
        told = sorted([str(outcome.id) async for outcome in job])
        assert told == sorted(f"i{number}" for number in range(300))
        assert job.progress.ended == "all"
        assert job.progress.left == 0
        status = await job.journal.status()
    assert (status.finished, status.pending, status.failed) == (300, 0, 0)


async def test_a_job_that_was_left_while_items_were_enrolled_goes_on(tmp_path: Path) -> None:
    """What was not enrolled when the block was left is new to the next start, and nothing is done twice."""
    items, journal = write(tmp_path / "items.jsonl", 300), tmp_path / "job.journal"
    done: list[str] = []

    async def note(item: dict[str, str], job: ItemJob) -> str:
        await anyio.lowlevel.checkpoint()
        done.append(item["id"])
        return "done"

    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(note, items, engine=engine, journal=journal, options=JobOptions(concurrency=1)) as job:
        async for _ in job:
            break
    async with engine, open_job(note, items, engine=engine, journal=journal, options=FIFTY) as job:
        begun = job.progress.enrollment.finished
        assert begun >= 1
        await job.run()
        assert job.progress.finished == 300 - begun
    # Whatever was under way when the block was left is done again.
    assert len(done) <= 300 + 3
    assert len(set(done)) == 300


@pytest.mark.parametrize("twice", ["i7", "i299"])
async def test_an_id_that_stands_twice_in_a_long_input_is_refused_before_anything_is_done(
    tmp_path: Path, twice: str
) -> None:
    """Both lines are named, and no item was begun."""
    items = write(tmp_path / "items.jsonl", 300, json.dumps({"id": twice, "text": "again"}))
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine:
        with pytest.raises(ItemsError, match=twice) as caught:
            async with open_job(instant, items, engine=engine, journal=tmp_path / "job.journal"):
                pytest.fail("the job began")
    assert caught.value.lines == (int(twice[1:]) + 1, 301)


async def test_numbers_and_texts_are_one_id_where_they_read_alike(tmp_path: Path) -> None:
    """1 and "1" would be the same item in the results."""
    items = write(tmp_path / "items.jsonl", 300, '{"id": 1}', '{"id": "1"}')
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine:
        with pytest.raises(ItemsError) as caught:
            async with open_job(instant, items, engine=engine, journal=tmp_path / "job.journal"):
                pytest.fail("the job began")
    assert caught.value.lines == (301, 302)


async def test_a_line_that_turns_out_to_be_bad_is_told_when_it_is_come_upon(tmp_path: Path) -> None:
    """A key given twice does not show at a quick look: the line fails by itself, in the outcomes and in the journal."""
    bad = '{"id": "x", "text": "a", "text": "b"}'
    items, journal = write(tmp_path / "items.jsonl", 300, bad), tmp_path / "job.journal"
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(instant, items, engine=engine, journal=journal, options=FIFTY) as job:
        told = {outcome.id: outcome async for outcome in job}
        status = await job.journal.status()
        assert (job.progress.finished, job.progress.failed, job.progress.left) == (300, 1, 0)
    assert told["x"].state == "failed"
    assert told["x"].error is not None
    assert "twice" in told["x"].error.message
    assert (status.finished, status.failed, status.failures) == (300, 1, (("malformed", 1),))


async def test_an_input_that_has_an_id_only_under_another_name_is_known_by_that(tmp_path: Path) -> None:
    """The quick look goes by the member that is named."""
    items, journal = tmp_path / "items.jsonl", tmp_path / "job.journal"
    items.write_text("".join(f'{{"key": {number}, "id": "same"}}\n' for number in range(300)))

    async def key(item: dict[str, int], job: ItemJob) -> int:
        await anyio.lowlevel.checkpoint()
        return item["key"]

    engine = furcate.Engine(backends=[furcate.Backend("none")])
    options = JobOptions(concurrency=50, id_field="key")
    async with engine, open_job(key, items, engine=engine, journal=journal, options=options) as job:
        assert {outcome.id: outcome.result async for outcome in job} == {str(n): n for n in range(300)}


async def test_a_line_that_nests_too_deeply_fails_alone(tmp_path: Path) -> None:
    """The quick look gives up on it, and whoever reads all lines tells what is wrong with this one."""
    deep = '{"id": "deep", "text": ' + "[" * 5000 + "]" * 5000 + "}"
    items = write(tmp_path / "items.jsonl", 3, deep)
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine, open_job(instant, items, engine=engine, journal=tmp_path / "job.journal") as job:
        await job.run()
        assert (job.progress.finished, job.progress.enrollment.malformed) == (3, 1)


@pytest.mark.parametrize(
    "given", ['{"id": 1}\n{"id": 1}\n', '[{"id": 1}', "id,x,x\n1,2,3\n"], ids=["jsonl", "json", "csv"]
)
async def test_a_first_start_that_is_refused_leaves_no_journal(
    tmp_path: Path, given: str, request: pytest.FixtureRequest
) -> None:
    """One that is there would say that the job is done."""
    items = tmp_path / f"items.{request.node.callspec.id.rpartition('-')[2]}"
    items.write_text(given)
    engine = furcate.Engine(backends=[furcate.Backend("none")])
    async with engine:
        with pytest.raises(ItemsError):
            async with open_job(instant, items, engine=engine, journal=tmp_path / "job.journal"):
                pytest.fail("the job began")
    assert os.listdir(tmp_path) == [items.name]
