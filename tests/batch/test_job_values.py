"""What a job is told is checked where it is told, in one sentence."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.lowlevel
import pytest

import furcate
from furcate.batch import ItemJob, JobOptions, open_job, open_source


@pytest.fixture
async def engine() -> AsyncIterator[furcate.Engine]:
    async with furcate.Engine(backends=[furcate.Backend("none")]) as one:
        yield one


async def target(item: object, job: ItemJob) -> int:
    await anyio.lowlevel.checkpoint()
    return 1


@pytest.mark.parametrize(
    ("name", "value", "wrong", "said"),
    [
        ("code", 5, TypeError, "code is 5; give text"),
        ("replay", "no", TypeError, "replay is 'no'; give True or False"),
        ("observations", 1, TypeError, "observations is 1; give True or False"),
        ("on_changed", "ask", ValueError, "on_changed is 'ask'; give one of refuse, redo, keep"),
        ("format", "xml", ValueError, "format is 'xml'; give one of jsonl, csv, json"),
        ("format", ["csv"], ValueError, "format is ['csv']; give one of jsonl, csv, json"),
        ("id_field", 5, TypeError, "id_field is 5; give the name of a member as text"),
        ("id_field", "", ValueError, "id_field is empty; give the name of a member"),
        ("concurrency", 0, ValueError, "concurrency is 0; give 1 or more"),
        ("limit", 1.5, TypeError, "limit is 1.5; give a whole number"),
    ],
)
def test_options_that_are_none_are_told(name: str, value: str, wrong: type[Exception], said: str) -> None:
    """Which option, what it was given, and what would be right."""
    with pytest.raises(wrong, match=f"^{re.escape(said)}$"):
        JobOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_field_of_ids_is_checked_for_items_as_well(tmp_path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match="id_field is empty"):
        async with open_source(tmp_path / "none.jsonl", id_field=""):
            pytest.fail("the items were opened")


@pytest.mark.anyio
@pytest.mark.parametrize("journal", ["", ":memory:", b"job.journal"])
async def test_the_path_of_a_journal_is_checked(engine: furcate.Engine, journal: str) -> None:
    """On both loops in the same words."""
    with pytest.raises((TypeError, ValueError), match=r"^the path of the journal is .+; give the path of "):
        async with open_job(target, [1], engine=engine, journal=journal):
            pytest.fail("the job began")


@pytest.mark.anyio
async def test_a_job_is_iterated_in_its_block(tmp_path: Path, engine: furcate.Engine) -> None:
    """After it nothing comes, and that is said."""
    async with open_job(target, [1, 2], engine=engine, journal=tmp_path / "j") as job:
        assert (await job.run()).finished == 2
        assert [outcome async for outcome in job] == []
    with pytest.raises(furcate.MisuseError, match="the job is iterated outside the block that opened it"):
        await job.run()


async def _yields(item: object, job: ItemJob) -> AsyncIterator[int]:
    yield 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (5, "the target is 5; give an async function that returns a value, or the id of a prompt"),
        (
            _yields,
            "the target is an async generator; give an async function that returns a value, or the id of a prompt",
        ),
        (len, "the target is <built-in function len>; give an async function that returns a value, or"),
    ],
)
async def test_a_target_is_an_async_function(
    tmp_path: Path, engine: furcate.Engine, wrong: furcate.Prompt, said: str
) -> None:
    """What else it is, is told; one that yields gives no result."""
    with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
        async with open_job(wrong, [1], engine=engine, journal=tmp_path / "j"):
            pytest.fail("the job began")


@pytest.mark.anyio
async def test_options_of_another_kind_are_told(tmp_path: Path, engine: furcate.Engine) -> None:
    """Where the right ones are found, too."""
    options: JobOptions = {"limit": 5}  # type: ignore[assignment]
    with pytest.raises(TypeError, match=re.escape("options is {'limit': 5}; give furcate.batch.JobOptions")):
        async with open_job(target, [1], engine=engine, journal=tmp_path / "j", options=options):
            pytest.fail("the job began")
