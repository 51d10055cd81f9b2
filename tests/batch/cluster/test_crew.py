"""A job whose items are worked on by several members: each item once, the capacity kept, and all told at home."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import furcate
from furcate.batch import JobOptions, open_job, open_journal, read_journal
from furcate.batch.cluster import _crew
from furcate.primitives._errors import ExecutorError
from furcate.primitives._observations import ContentReceived, ContentSent
from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


def word(request: StubRequest) -> str:
    """Give the word that a request is about."""
    said: str = request.body["messages"][-1]["content"]
    return said.removeprefix("Say ").removesuffix(".")


async def slowly(request: StubRequest) -> Answer:
    """Echo the word after a moment."""
    await anyio.sleep(0.01)
    return answer(word(request), usage=USAGE)


async def twice(item: Any, job: Any) -> dict[str, Any]:
    """Ask, and go on from the answer in three branches."""
    first = await job.engine.run(furcate.Request("say", vars=item, capture=True))
    texts: list[str] = []

    async def more(turn: Any) -> Any:
        if turn.result is not None:
            texts.append(turn.result.text)
            return furcate.Stop()
        return furcate.Continue(furcate.Request("say", vars=item))

    async with furcate.open_branches(job.engine, first.exchange) as branches:
        for _ in range(3):
            branches.start_soon(more, additional_turns=1)
    return {"text": first.text, "more": texts}


async def states(path: Path) -> Counter[str]:
    """Count the items of a journal by state."""
    async with read_journal(path) as journal, journal.rows(states=("pending", "finished", "failed")) as rows:
        return Counter([row.state async for row in rows])


async def test_every_item_is_worked_on_once(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """Twenty items with three branches each at two members: twenty results, four requests for each, never above 4."""
    there = place("a", "b")
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        async with open_job(
            twice,
            numbered(20),
            engine=engine,
            journal=tmp_path / "j",
            executor=there,
            options=JobOptions(concurrency=8),
        ) as job:
            told = [outcome async for outcome in job]
            assert set(job.workers) == {"a", "b"}
    assert {one.id: one.result for one in told} == {
        f"i{number}": {"text": f"w{number}", "more": [f"w{number}"] * 3} for number in range(20)
    }
    assert len(told) == 20
    assert Counter(map(word, stub.requests)) == {f"w{number}": 4 for number in range(20)}
    assert stub.most_in_flight <= 4
    assert set(there.begun) == {"a", "b"}
    assert await states(tmp_path / "j") == {"finished": 20}


async def test_what_is_observed_arrives_at_home(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """The engine's observers and the job's listener hear each run begin and end once; the journal has it, and usage."""
    seen: list[furcate.Observation] = []
    heard: list[tuple[str, furcate.Observation]] = []
    async with StubProvider(slowly) as stub, engine_for(stub, observers=[seen.append]) as engine:
        async with open_job(
            twice,
            numbered(6),
            engine=engine,
            journal=tmp_path / "j",
            executor=place("a", "b"),
            on_event=lambda item_id, event: heard.append((item_id, event)),
        ) as job:
            told = [outcome async for outcome in job]
    assert {one.usage.input_tokens for one in told} == {40}
    assert {one.usage.output_tokens for one in told} == {8}
    begun = [event.run_id for event in seen if isinstance(event, furcate.RunStarted)]
    ended = [event.run_id for event in seen if isinstance(event, furcate.RunFinished)]
    assert len(begun) == len(set(begun)) == 24
    assert sorted(begun) == sorted(ended)
    assert [event for _, event in heard] == seen
    assert Counter(item for item, event in heard if isinstance(event, furcate.RunFinished)) == {
        f"i{number}": 4 for number in range(6)
    }
    async with read_journal(tmp_path / "j") as journal, journal.rows() as rows:
        assert {(row.usage.input_tokens, row.usage.output_tokens) async for row in rows} == {(40, 8)}
    async with open_journal(tmp_path / "j") as journal:
        lines = [line for number in range(6) for line in await journal.observations(f"i{number}")]
    assert Counter(json.loads(line)["kind"] for line in lines) == {
        "RunStarted": 24,
        "AttemptFinished": 24,
        "RunFinished": 24,
    }


class Reader:
    """Hear what happens, and what is said."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.on_event = self.heard.append
        self.on_content = self.heard.append


async def test_what_is_said_arrives_at_home_where_it_is_asked_for(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """An observer that reads content is told what was sent and received, between an attempt's beginning and its end."""
    reader = Reader()
    deaf: list[furcate.Observation] = []
    async with StubProvider(slowly) as stub, engine_for(stub, observers=[reader, deaf.append]) as engine:
        async with open_job("say", numbered(1), engine=engine, journal=tmp_path / "j", executor=place("a")) as job:
            await job.run()
    kinds = ["RunStarted", "AttemptStarted", "ContentSent", "ContentReceived", "AttemptFinished", "RunFinished"]
    assert [type(event).__name__ for event in reader.heard] == kinds
    sent, received = reader.heard[2:4]
    assert isinstance(sent, ContentSent)
    assert isinstance(received, ContentReceived)
    assert [message.text for message in sent.messages] == ["Say w0."]
    assert received.message.text == "w0"
    assert not any(isinstance(event, (ContentSent, ContentReceived)) for event in deaf)


async def test_without_listeners_nothing_is_told_on_the_way(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """Where nobody listens, only what the journal keeps comes home, and without observations none of it does."""
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        async with open_job(
            "say",
            numbered(4),
            engine=engine,
            journal=tmp_path / "j",
            executor=place("a"),
            options=JobOptions(observations=False),
        ) as job:
            told = [outcome async for outcome in job]
    assert {one.usage.input_tokens for one in told} == {10}
    async with open_journal(tmp_path / "j") as journal:
        assert [await journal.observations(f"i{number}") for number in range(4)] == [()] * 4


async def test_the_capacity_is_kept_while_members_come_and_go(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """Two members, a third that comes, one that is killed, another that comes: never more than three at once."""
    there = place("a", "b")
    async with StubProvider(slowly) as stub, engine_for(stub, capacity=3) as engine:
        async with open_job(
            twice,
            numbered(30),
            engine=engine,
            journal=tmp_path / "j",
            executor=there,
            options=JobOptions(concurrency=9),
        ) as job:
            ended: list[str | None] = []
            async for outcome in job:
                ended.append(outcome.id)
                assert outcome.state == "finished", outcome.error
                if len(ended) == 5:
                    there.names.append("c")
                elif len(ended) == 10:
                    await there.kill("a")
                elif len(ended) == 16:
                    there.names.append("d")
                elif len(ended) == 22:
                    await there.kill("c")
    assert sorted(map(str, ended)) == sorted(f"i{number}" for number in range(30))
    assert stub.most_in_flight <= 3
    assert {"a", "b", "c", "d"} == set(there.begun)


async def test_a_member_that_comes_late_is_used(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """A job without members waits for the first one."""
    there = place()
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        async with open_job("say", numbered(3), engine=engine, journal=tmp_path / "j", executor=there) as job:
            await anyio.sleep(0.1)
            assert job.workers == {}
            assert job.progress.finished == 0
            there.names.append("late")
            progress = await job.run()
    assert progress.finished == 3


async def test_without_any_member_the_job_ends_with_a_word(
    place: Callable[..., Any],
    engine_for: Callable[..., Any],
    numbered: Callable[[int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told soon that none is there, and after the patience the job ends by that; the items stay to be done."""
    monkeypatch.setattr(_crew, "_NOBODY_S", 0.0)
    said: list[str] = []
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        with pytest.raises(ExecutorError, match="there has been no worker for 1 s; start one"):
            nobody = place(patience_s=0.6, on_notice=said.append)
            async with open_job("say", numbered(3), engine=engine, journal=tmp_path / "j", executor=nobody) as job:
                await job.run()
    assert said == ["there is no worker; one is waited for, 1 s at the most"]
    assert await states(tmp_path / "j") == {"pending": 3}


async def test_a_member_that_does_not_fit_is_refused_at_the_start(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """Where the only member cannot do the job, the job ends by what it says."""
    there = place("odd")
    there.unfit["odd"] = "the driver has furcate 2, this worker 1; install the same on both"
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        with pytest.raises(ExecutorError, match=r"worker odd cannot do the job: .*install the same on both"):
            async with open_job("say", numbered(3), engine=engine, journal=tmp_path / "j", executor=there) as job:
                await job.run()
        assert not stub.requests


async def test_a_late_member_that_does_not_fit_is_not_used(
    place: Callable[..., Any],
    engine_for: Callable[..., Any],
    numbered: Callable[[int], Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The others go on, and a warning names it."""
    there = place("a")
    there.unfit["odd"] = "install the same on both"
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        async with open_job(
            "say",
            numbered(12),
            engine=engine,
            journal=tmp_path / "j",
            executor=there,
            options=JobOptions(concurrency=2),
        ) as job:
            async for _ in job:
                if "odd" not in there.names:
                    there.names.append("odd")
    assert job.progress.finished == 12
    assert set(there.begun) == {"a"}
    if there.there.get("odd"):
        assert "worker odd is not used: install the same on both" in caplog.text


async def test_a_member_has_no_more_items_than_it_may(
    place: Callable[..., Any], engine_for: Callable[..., Any], numbered: Callable[[int], Path], tmp_path: Path
) -> None:
    """With two for each of two members, four of eight are under way, and the rest wait for room."""
    there = place("a", "b", per_worker=2)
    most: list[int] = []
    async with StubProvider(slowly) as stub, engine_for(stub) as engine:
        async with open_job(
            "say",
            numbered(20),
            engine=engine,
            journal=tmp_path / "j",
            executor=there,
            options=JobOptions(concurrency=8),
        ) as job:
            async for _ in job:
                most.extend(job.workers.values())
    assert job.progress.finished == 20
    assert max(most) <= 2
