"""The real engines on this machine, two workers each, one of which is killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import furcate
from furcate.batch import Executor, JobOptions, open_job
from furcate.batch.cluster import Dask, Ray
from furcate.primitives._errors import ExecutorError
from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

TARGET = """
import os
import furcate

async def work(item, job):
    first = await job.engine.run(furcate.Request("say", vars=item, capture=True))

    async def more(turn):
        return furcate.Stop() if turn.result is not None else furcate.Continue(furcate.Request("say", vars=item))

    async with furcate.open_branches(job.engine, first.exchange) as branches:
        for _ in range(4):
            branches.start_soon(more, additional_turns=1)
    for branch in branches:
        branch.unwrap()
    return {"text": first.text, "pid": os.getpid()}
"""
CAPACITY = 5


async def slowly(request: StubRequest) -> Answer:
    """Echo after a moment."""
    await anyio.sleep(0.02)
    said: str = request.body["messages"][-1]["content"]
    return answer(said, usage={"prompt_tokens": 10, "completion_tokens": 2})


@pytest.fixture
def two_workers(request: pytest.FixtureRequest) -> Executor:
    """Give an engine with two workers."""
    needed = {"dask": "distributed", "ray": "ray"}[request.param]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs the extra {request.param}: {needed} is not installed")
    made: Executor = Dask(workers=2) if request.param == "dask" else Ray(workers=2)
    return made


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a target that workers can import."""
    (tmp_path / "target_on_cluster.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    import target_on_cluster  # type: ignore[import-not-found]  # noqa: PLC0415

    yield target_on_cluster.work
    del sys.modules["target_on_cluster"]


# Ray needs many seconds to start, and reaches either loop by the same bridge.
@pytest.mark.parametrize(
    ("two_workers", "anyio_backend"), [("dask", "asyncio"), ("dask", "trio"), ("ray", "asyncio")], indirect=True
)
async def test_every_item_once_although_a_worker_is_killed(two_workers: Executor, work: Any, tmp_path: Path) -> None:
    """Sixty items of five requests: each has one result, and the server never sees more than the capacity at once."""
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps({"id": f"i{number}", "word": f"w{number}"}) + "\n" for number in range(60)))
    killed: int | None = None
    pids: Counter[int] = Counter()
    seen: list[furcate.Observation] = []
    with StubProvider.in_thread(slowly) as stub:
        engine = furcate.Engine(
            backends=[furcate.Backend("b", base_url=stub.base_url, capacity=CAPACITY)],
            profiles=[furcate.Profile("p", "b", "m")],
            prompts=[furcate.Prompt("say", [furcate.MessageTemplate("user", "{{ word }}")], profile="p")],
            observers=[seen.append],
        )
        async with (
            engine,
            open_job(
                work,
                items,
                engine=engine,
                journal=tmp_path / "j",
                executor=two_workers,
                options=JobOptions(concurrency=8),
            ) as job,
        ):
            told = []
            texts: dict[str | None, str] = {}
            async for outcome in job:
                told.append(outcome)
                assert outcome.error is None
                result: Any = outcome.result
                pids[result["pid"]] += 1
                texts[outcome.id] = result["text"]
                if killed is None and len(told) >= 8 and len(pids) > 1:
                    killed = int(result["pid"])
                    os.kill(killed, signal.SIGKILL)
    assert killed is not None
    assert os.getpid() not in pids
    assert len(told) == 60
    assert texts == {f"i{number}": f"w{number}" for number in range(60)}
    assert {one.usage.input_tokens for one in told} == {50}
    assert stub.most_in_flight <= CAPACITY
    finished = [event for event in seen if isinstance(event, furcate.RunFinished) and event.status == "succeeded"]
    # What the killed one had not told any more is missing; what came of its items is not.
    assert len(finished) >= 60 * 5 - 8 * 5
    # Nothing is made again but what was under way at the one that was killed.
    assert 60 * 5 <= stub.requests_read <= 60 * 5 + 8 * 5


@pytest.mark.field(81)
@pytest.mark.parametrize(
    ("two_workers", "anyio_backend"), [("dask", "asyncio"), ("dask", "trio"), ("ray", "trio")], indirect=True
)
async def test_cancelling_reaches_the_workers(two_workers: Executor, work: Any, tmp_path: Path) -> None:
    """Calls that would take a minute are closed, and the job is over."""

    async def never(_: StubRequest) -> Answer:
        await anyio.sleep(60)
        return answer("late")

    items = [{"word": f"w{number}"} for number in range(4)]
    seen: list[furcate.Observation] = []
    with StubProvider.in_thread(never) as stub:
        engine = furcate.Engine(
            backends=[furcate.Backend("b", base_url=stub.base_url, capacity=CAPACITY)],
            profiles=[furcate.Profile("p", "b", "m")],
            prompts=[furcate.Prompt("say", [furcate.MessageTemplate("user", "{{ word }}")], profile="p")],
            observers=[seen.append],
        )
        async with (
            engine,
            open_job(work, items, engine=engine, journal=tmp_path / "j", executor=two_workers) as job,
        ):
            while stub.requests_read < 4:  # noqa: ASYNC110 - what is waited for is in other threads and processes
                await anyio.sleep(0.02)
            job.cancel()
            with anyio.fail_after(8):
                assert [outcome async for outcome in job] == []
                while stub.disconnects < 4:  # noqa: ASYNC110 - what is waited for is in other threads and processes
                    await anyio.sleep(0.02)
    assert [event.status for event in seen if isinstance(event, furcate.RunFinished)] == ["cancelled"] * 4


async def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The address is told, and nothing hangs."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    engine = furcate.Engine(
        backends=[furcate.Backend("b", base_url="http://127.0.0.1:1/v1")], profiles=[furcate.Profile("p", "b", "m")]
    )

    async def work(item: object, job: object) -> None:
        """Do nothing."""

    async with engine:
        with pytest.raises(ExecutorError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:1"):
            async with open_job(
                work,
                [1],
                engine=engine,
                journal=tmp_path / "j",
                executor=Dask(address="tcp://127.0.0.1:1", patience_s=0.5),
            ):
                pass
