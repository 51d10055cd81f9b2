"""Run a batch job of very many items, and tell what that costs in tasks, memory and time.

    python benchmarks/many_items.py --items 100000
    python benchmarks/many_items.py --items 100000 --loop trio

``open_job`` works on items of 1 kB against a stub provider that answers after 1 ms, 50 at once. The stub runs in a
process of its own, so that what is told is the job's. Told are:

- how many tasks of the event loop were alive at most, as counted while the job runs;
- by how much the process has grown, at most, since the job was about to be opened;
- the seconds until the items were known and checked, until the first result, and in all.

Seconds are this machine's, at this moment.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from attrs import define, frozen

import furcate
from furcate.batch import ItemJob, JobOptions, open_job

_STUB = """
import anyio
from furcate.testing import StubProvider, answer

async def script(request):
    await anyio.sleep(0.001)
    return answer("done", usage={"prompt_tokens": 250, "completion_tokens": 1})

async def main():
    async with StubProvider(script, remember=False) as stub:
        print(stub.base_url, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
_ANSWER_S = 0.001
_LOOK_S = 0.05


@frozen(kw_only=True)
class Plan:
    """Say what is tried.

    Attributes:
        items: how many there are.
        size: of each item's text, in bytes.
        concurrency: how many are worked on at once.
        asking: every how-many-th item asks the stub; the others wait for as long as it takes.
        traced: whether memory is what Python allocates, as tracemalloc counts it, or what the process has grown by.
    """

    items: int = 100_000
    size: int = 1000
    concurrency: int = 50
    asking: int = 1
    traced: bool = False


@define
class Figures:
    """Hold what was measured.

    Attributes:
        finished: how many items were.
        tasks: most tasks that were alive at a time, beside those of whoever looks.
        grown: by how much memory has grown at most, in bytes.
        known_s: seconds until the items were known and checked.
        first_s: seconds until the first result, from then on.
        total_s: seconds in all.
    """

    finished: int = 0
    tasks: int = 0
    grown: int = 0
    known_s: float = 0.0
    first_s: float = 0.0
    total_s: float = 0.0

    def __str__(self) -> str:
        return "\n".join(
            (
                f"finished                     {self.finished:,}",
                f"tasks alive, at most         {self.tasks}",
                f"memory grown by, at most     {self.grown / 2**20:.0f} MB",
                f"seconds to know all items    {self.known_s:.1f}",
                f"seconds to the first result  {self.first_s:.2f}",
                f"seconds in all               {self.total_s:.0f}",
                f"items a second               {self.finished / max(0.001, self.total_s):,.0f}",
            )
        )


def write_items(path: Path, plan: Plan) -> None:
    """Write items of equal size as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(plan.items):
            file.write(json.dumps({"id": f"i{number}", "text": f"{number} ".ljust(plan.size, "x")}) + "\n")


def engine_on(base_url: str) -> furcate.Engine:
    """Make an engine that sends an item's text to a server."""
    return furcate.Engine(
        backends=[furcate.Backend("stub", base_url=base_url, capacity=50)],
        profiles=[furcate.Profile("only", "stub", "m")],
        prompts=[furcate.Prompt("say", [furcate.MessageTemplate("user", "{{ text }}")], profile="only")],
    )


async def measure(folder: Path, plan: Plan, base_url: str) -> Figures:
    """Run the job once.

    Arguments:
        folder: for its items and its journal.
        plan: what is tried.
        base_url: the stub's.
    """
    figures = Figures()
    write_items(folder / "items.jsonl", plan)
    if plan.traced:
        tracemalloc.start()
    before = _memory(plan)

    async def ask(item: dict[str, str], job: ItemJob) -> str:
        if job.line % plan.asking:
            await anyio.sleep(_ANSWER_S)
            return "waited"
        return (await job.engine.run(furcate.Request("say", vars=item))).text

    began_s = anyio.current_time()
    options = JobOptions(concurrency=plan.concurrency)
    engine, items, journal = engine_on(base_url), folder / "items.jsonl", folder / "job.journal"
    async with engine, open_job(ask, items, engine=engine, journal=journal, options=options) as job:
        opened_s = anyio.current_time()
        figures.known_s = opened_s - began_s
        async with _watched(figures, plan, before):
            async for outcome in job:
                figures.finished += outcome.state == "finished"
                figures.first_s = figures.first_s or anyio.current_time() - opened_s
    figures.total_s = anyio.current_time() - began_s
    if plan.traced:
        tracemalloc.stop()
    return figures


@asynccontextmanager
async def _watched(figures: Figures, plan: Plan, before: int) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, figures, plan, before)
        yield
        _look(figures, plan, before)
        tasks.cancel_scope.cancel()


async def _watch(figures: Figures, plan: Plan, before: int) -> None:
    while True:
        _look(figures, plan, before)
        await anyio.sleep(_LOOK_S)


def _look(figures: Figures, plan: Plan, before: int) -> None:
    figures.tasks = max(figures.tasks, len(anyio.get_running_tasks()) - 1)
    figures.grown = max(figures.grown, _memory(plan) - before)


def _memory(plan: Plan) -> int:
    if plan.traced:
        return tracemalloc.get_traced_memory()[1]
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Measure as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    given = parser.parse_args()
    plan = Plan(items=given.items, concurrency=given.concurrency)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, "-c", _STUB], stdout=subprocess.PIPE, text=True) as stub,
    ):
        assert stub.stdout is not None
        base_url = stub.stdout.readline().strip()
        try:
            figures = anyio.run(partial(measure, Path(folder), plan, base_url), backend=given.loop)
        finally:
            stub.terminate()
    head = f"{plan.items:,} items of {plan.size:,} bytes, {plan.concurrency} at once, {given.loop}"
    where = f"Python {platform.python_version()}, {platform.system()}"
    sys.stdout.write(f"{head}\n{where}\n{figures}\n")


if __name__ == "__main__":
    main()
