"""What a job on a cluster does when a member dies, is out of reach, or is told to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

import furcate
from furcate.batch import Job, JobOptions, KeptCall, open_job, open_journal, read_journal
from furcate.primitives._errors import JournalError
from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


def word(request: StubRequest) -> str:
    """Give the word that a request is about."""
    said: str = request.body["messages"][-1]["content"]
    return said.removeprefix("Say ").removesuffix(".")


async def states(path: Path) -> dict[str, tuple[str, int]]:
    """Give the state of each item, and how often it was begun."""
    async with read_journal(path) as journal, journal.rows(states=("pending", "finished", "failed")) as rows:
        return {str(row.id): (row.state, row.tries) async for row in rows}


class Steps:
    """A target of two requests one after the other, and a script that holds back the second ones."""

    def __init__(self) -> None:
        self.go = anyio.Event()

    async def target(self, item: Any, job: Any) -> str:
        """Ask, and ask again."""
        texts = [
            (await job.engine.run(furcate.Request("say", vars={"word": f"{item['word']} {step}"}))).text
            for step in ("first", "second")
        ]
        return str(texts[-1])

    async def halfway(self, job: Job, count: int) -> None:
        """Wait until the first answers of so many items are in the journal."""
        while not all([await job.journal.calls(f"i{number}") for number in range(count)]):  # noqa: ASYNC110 - what is waited for is in other threads and processes
            await anyio.sleep(0.01)

    async def script(self, request: StubRequest) -> Answer:
        """Answer the first requests at once, and the second ones when it is time."""
        if word(request).endswith("second"):
            await self.go.wait()
        return answer(word(request), usage=USAGE)


@pytest.fixture
async def steps() -> Steps:
    """Make one, on the loop of the test."""
    return Steps()


async def test_the_items_of_a_killed_member_go_to_others(
    steps: Steps, place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """What was answered before is not asked again; what was under way is, and each item has one result."""
    there = place("a", "b")
    heard: list[tuple[str, Any]] = []
    async with StubProvider(steps.script) as stub, engine_for(stub, capacity=8) as engine:
        async with open_job(
            steps.target,
            numbered(6),
            engine=engine,
            journal=tmp_path / "j",
            executor=there,
            on_event=lambda item, event: heard.append((item, event)),
        ) as job:
            await steps.halfway(job, 6)
            await stub.wait_until(lambda stub: stub.requests_read == 12)
            # Which of them was ready first, and has how many, is a matter of moments.
            had, name = max((count, name) for name, count in job.workers.items())
            await there.kill(name)
            await stub.wait_until(lambda stub: stub.requests_read == 12 + had)
            steps.go.set()
            told = {outcome.id: (outcome.result, outcome.usage.input_tokens) async for outcome in job}
    # Whoever heard of a run's beginning has heard of its end, though its worker died in between.
    begun = [event.run_id for _, event in heard if isinstance(event, furcate.RunStarted)]
    ended = [event.run_id for _, event in heard if isinstance(event, furcate.RunFinished)]
    assert Counter(begun) == Counter(ended)
    assert [event.status for _, event in heard if isinstance(event, furcate.RunFinished)].count("cancelled") == had
    # The first answers of those items count, although nobody was asked for them again.
    assert told == {f"i{number}": (f"w{number} second", 20) for number in range(6)}
    asked = Counter(map(word, stub.requests))
    assert {asked[f"w{number} first"] for number in range(6)} == {1}
    assert sorted(asked[f"w{number} second"] for number in range(6)) == [1] * (6 - had) + [2] * had
    assert sorted((await states(tmp_path / "j")).values()) == [("finished", 1)] * (6 - had) + [("finished", 2)] * had


async def test_a_lost_member_is_noticed_whatever_the_listener_does(
    steps: Steps, place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """One sentence is told; that the listener fails is logged, and the job goes on."""
    noticed: list[str] = []

    def fail(text: str) -> None:
        noticed.append(text)
        raise ValueError("no ear for that")

    there = place("a", "b")
    there.terms = evolve(there.terms, on_notice=fail)
    async with StubProvider(steps.script) as stub, engine_for(stub, capacity=8) as engine:
        async with open_job(steps.target, numbered(4), engine=engine, journal=tmp_path / "j", executor=there) as job:
            await steps.halfway(job, 4)
            await there.kill("a")
            steps.go.set()
            progress = await job.run()
    assert progress.finished == 4
    assert noticed == ["worker a is gone; its items are given to others"]


async def test_a_member_out_of_reach_may_come_back(
    steps: Steps, place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """One that is cut off and found again begins anew: it stops what it had, and is given items."""
    there = place("a")
    async with StubProvider(steps.script) as stub, engine_for(stub) as engine:
        async with open_job(steps.target, numbered(2), engine=engine, journal=tmp_path / "j", executor=there) as job:
            await steps.halfway(job, 2)
            await stub.wait_until(lambda stub: stub.requests_read == 4)
            there.cut("a")
            while job.workers:  # noqa: ASYNC110 - what is waited for is in other threads and processes
                await anyio.sleep(0.01)
            there.there["a"].lost = anyio.Event()
            await stub.wait_until(lambda stub: stub.disconnects == 2)
            await stub.wait_until(lambda stub: stub.requests_read == 6)
            steps.go.set()
            progress = await job.run()
    assert progress.finished == 2
    assert Counter(map(word, stub.requests)) == {"w0 first": 1, "w0 second": 2, "w1 first": 1, "w1 second": 2}


async def test_an_item_that_kills_its_members_fails_after_three(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """It counts as failed, with the kind ``worker_lost``; the others finish, and nothing is tried for ever."""
    there = place("a")
    poisoned: list[str] = []

    async def target(item: Any, job: Any) -> str:
        if item["word"] == "w1":
            poisoned.append(item["word"])
            await anyio.sleep_forever()
        return str((await job.engine.run(furcate.Request("say", vars=item))).text)

    async def killing() -> None:
        for number, name in enumerate("abc"):
            while len(poisoned) <= number:  # noqa: ASYNC110 - what is waited for is in other threads and processes
                await anyio.sleep(0.01)
            there.names.append("bcd"[number])
            await there.kill(name)

    async with StubProvider(lambda request: answer(word(request))) as stub, engine_for(stub) as engine:
        async with (
            open_job(
                target,
                numbered(3),
                engine=engine,
                journal=tmp_path / "j",
                executor=there,
                options=JobOptions(concurrency=1),
            ) as job,
            anyio.create_task_group() as killer,
        ):
            killer.start_soon(killing)
            told = {outcome.id: outcome async for outcome in job}
    assert {name: one.state for name, one in told.items()} == {"i0": "finished", "i1": "failed", "i2": "finished"}
    assert told["i1"].error is not None
    assert told["i1"].error.kind == "worker_lost"
    assert "worker c is gone; it is the last of 3 that were lost with this item" in told["i1"].error.message
    assert len(poisoned) == 3


@pytest.mark.field(81)
@pytest.mark.parametrize("how", ["cancel", "leave", "scope"])
async def test_cancelling_the_job_reaches_the_calls(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path, how: str
) -> None:
    """However it is cancelled, the connections close, each run is told to be cancelled, and no late result is kept."""
    seen: list[furcate.Observation] = []

    async def script(_: StubRequest) -> Answer:
        await anyio.sleep(60)
        return answer("late")

    async with StubProvider(script) as stub, engine_for(stub, observers=[seen.append]) as engine:
        with anyio.fail_after(10), anyio.CancelScope() as scope:
            async with open_job(
                "say", numbered(4), engine=engine, journal=tmp_path / "j", executor=place("a", "b")
            ) as job:
                await stub.wait_until(lambda stub: stub.requests_read == 4)
                if how == "cancel":
                    job.cancel()
                    assert [outcome async for outcome in job] == []
                elif how == "scope":
                    scope.cancel()
                    await anyio.sleep_forever()
        with anyio.fail_after(5):
            await stub.wait_until(lambda stub: stub.disconnects == 4)
        assert stub.in_flight == 0
    assert [event.status for event in seen if isinstance(event, furcate.RunFinished)] == ["cancelled"] * 4
    assert [event.status for event in seen if isinstance(event, furcate.AttemptFinished)] == ["cancelled"] * 4
    assert await states(tmp_path / "j") == {f"i{number}": ("pending", 1) for number in range(4)}


@pytest.mark.field(79)
async def test_an_item_that_is_too_large_is_not_sent(
    place: Callable[..., Any], engine_for: Callable[..., Any], tmp_path: Path
) -> None:
    """A prompt of 3 MB where 2 MB may be sent: failed once, with size and limit; the others finish."""
    there = place("a", most_bytes=2_000_000)
    items = [{"word": "small"}, {"word": "x" * 3_000_000}, {"word": "too"}]
    async with StubProvider(lambda request: answer(word(request))) as stub, engine_for(stub) as engine:
        async with open_job("say", items, engine=engine, journal=tmp_path / "j", executor=there) as job:
            told = {outcome.line: outcome async for outcome in job}
    assert [told[line].state for line in (1, 2, 3)] == ["finished", "failed", "finished"]
    error = told[2].error
    assert error is not None
    assert error.kind == "too_large"
    assert "3,000," in error.message
    assert "2,000,000 may be sent" in error.message
    assert len(there.packed) == 2
    assert max(map(len, there.packed)) < 2_000_000


@pytest.mark.field(79)
async def test_a_result_that_is_too_large_is_not_tried_again(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """What came of the item is 3 MB where 2 MB may be sent: failed once, with size and limit."""
    there = place("a", most_bytes=2_000_000)

    async def target(item: Any, _: Any) -> str:
        return "x" * (3_000_000 if item["word"] == "w1" else 3)

    async with StubProvider(answer("")) as stub, engine_for(stub) as engine:
        async with open_job(target, numbered(3), engine=engine, journal=tmp_path / "j", executor=there) as job:
            told = {outcome.id: outcome async for outcome in job}
    error = told["i1"].error
    assert error is not None
    assert error.kind == "too_large"
    assert "what came of the item is 3,000,002 bytes large, and 2,000,000 may be sent" in error.message
    assert len(there.begun) == 3
    assert await states(tmp_path / "j") == {"i0": ("finished", 1), "i1": ("failed", 1), "i2": ("finished", 1)}


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
async def test_leaving_the_program_is_the_items_failure(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path, leaving: type
) -> None:
    """A target that calls sys.exit, or acts as if interrupted, does not take the other items of its member along."""

    async def target(item: Any, _: Any) -> str:
        if item["word"] == "w1":
            raise leaving
        return "well"

    async with StubProvider(answer("")) as stub, engine_for(stub) as engine:
        async with open_job(target, numbered(3), engine=engine, journal=tmp_path / "j", executor=place("a")) as job:
            told = {outcome.id: outcome.error and outcome.error.kind async for outcome in job}
    assert told == {"i0": None, "i1": leaving.__name__, "i2": None}


async def test_a_damaged_answer_in_the_journal_is_told_as_here(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Any, tmp_path: Path
) -> None:
    """A kept call that a member cannot read ends the job by the journal's own error."""
    path = tmp_path / "j"
    items = numbered(1)
    async with StubProvider(lambda request: answer(word(request))) as stub, engine_for(stub) as engine:
        async with open_job(
            "say", items, engine=engine, journal=path, options=JobOptions(limit=0), executor=place("a")
        ) as job:
            await job.run()
        async with open_journal(path) as journal:
            await journal.begin("i0")
            await journal.keep_call("i0", KeptCall(run_id="r", number=1, key=b"k" * 32, data=b"\xc1"))
        with pytest.raises(JournalError, match=r"a kept call of run r cannot be read"):
            async with open_job("say", items, engine=engine, journal=path, executor=place("a")) as job:
                await job.run()
