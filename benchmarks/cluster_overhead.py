"""Measure what an item costs in this process, on Dask and on Ray, side by side, and what a second worker brings.

    python benchmarks/cluster_overhead.py
    python benchmarks/cluster_overhead.py --items 2000 --loop trio --only in-process dask

Needs the extras ``dask`` and ``ray``, or that of what ``--only`` names; clusters are started on this machine. All of
it takes five minutes on two processors that others use too; a single job that takes as long is given up. Two jobs are
measured, against a stub provider in a process of its own:

- small items, of one call each that is answered after 1 ms: what an item costs in processor time, here and in the
  processes of the cluster (its workers, and what else it starts), and in time on the clock;
- busy items, which also take 20 ms of a processor in pure Python each: how many are done in a second by one worker and
  by two.

The clock starts once a number of items have ended, so that what is told is not the start of a cluster; how long that
takes is told beside it. Ratios are to the items worked on in this process. Where there are no more than two processors,
the driver, the stub and two workers have to share them, and a second worker cannot bring all of itself.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - processor time is what is measured
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import psutil
from attrs import frozen

import furcate
from furcate.batch import ItemJob, JobOptions, open_job
from furcate.batch.cluster import Dask, Ray

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
_ENGINES = ("in-process", "dask", "ray")


@frozen(kw_only=True)
class Plan:
    """Say what is tried.

    Attributes:
        items: how many small ones there are.
        busy_items: how many busy ones.
        busy_s: how much of a processor a busy one takes in its target, in seconds.
        before: how many items end before the clock starts.
        concurrency: how many are worked on at once.
        engines: where, in this order.
        loop: ``asyncio`` or ``trio``.
        longest_s: how long one job may take before it is given up, in seconds.
    """

    items: int = 1000
    busy_items: int = 600
    busy_s: float = 0.02
    before: int = 100
    concurrency: int = 16
    engines: tuple[str, ...] = _ENGINES
    loop: str = "asyncio"
    longest_s: float = 300.0


@frozen(kw_only=True)
class Figures:
    """Hold what was measured of one job.

    Attributes:
        items: how many ended while the clock ran.
        first_s: seconds until the first outcome.
        wall_s: seconds on the clock.
        here_s: processor time of this process, in seconds.
        there_s: processor time of the processes that it started, in seconds.
    """

    items: int
    first_s: float
    wall_s: float
    here_s: float
    there_s: float

    @property
    def rate(self) -> float:
        """How many items ended in a second."""
        return self.items / self.wall_s

    def each_ms(self, seconds: float) -> float:
        """Give milliseconds of an item."""
        return 1000 * seconds / self.items


async def work(item: dict[str, Any], job: ItemJob) -> str:
    """Take so much of a processor, and ask the stub."""
    until_s = time.thread_time() + item["busy_s"]
    while time.thread_time() < until_s:
        sum(range(100))
    return (await job.engine.run(furcate.Request(profile="only", messages="Say it."))).text


async def measure(engine: str, workers: int, plan: Plan, *, busy: bool, base_url: str) -> Figures:
    """Run a job once.

    Arguments:
        engine: where: ``in-process``, ``dask`` or ``ray``.
        workers: how many processes of a cluster.
        plan: what is tried.
        busy: whether items take processor time.
        base_url: the stub's.
    """
    number = plan.before + (plan.busy_items if busy else plan.items)
    items = [{"id": f"i{n}", "busy_s": plan.busy_s if busy else 0.0} for n in range(number)]
    placed: dict[str, Any] = (
        {} if engine == "in-process" else {"executor": {"dask": Dask, "ray": Ray}[engine](workers=workers)}
    )
    began_s = time.monotonic()
    first_s = 0.0
    ended = 0
    start = (0.0, 0.0, 0.0)
    with tempfile.TemporaryDirectory() as folder, anyio.fail_after(plan.longest_s):
        options, journal = JobOptions(concurrency=plan.concurrency), Path(folder) / "job.journal"
        async with (
            _engine(base_url) as here,
            open_job(work, items, engine=here, journal=journal, options=options, **placed) as job,
        ):
            async for outcome in job:
                if outcome.error is not None:
                    raise RuntimeError(f"an item failed on {engine}: {outcome.error}")
                ended += 1
                first_s = first_s or time.monotonic() - began_s
                if ended == plan.before:
                    start = _now()
            end = _now()
    wall_s, here_s, there_s = (after - before for before, after in zip(start, end, strict=True))
    return Figures(items=number - plan.before, first_s=first_s, wall_s=wall_s, here_s=here_s, there_s=there_s)


def _engine(base_url: str) -> furcate.Engine:
    return furcate.Engine(
        backends=[furcate.Backend("stub", base_url=base_url, capacity=50)],
        profiles=[furcate.Profile("only", "stub", "m")],
    )


def _now() -> tuple[float, float, float]:
    """Give the clock, and the processor time of this process and of those that it started, in seconds."""
    there_s = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if _STUB not in process.cmdline():
                spent = process.cpu_times()
                there_s += spent.user + spent.system
    return time.monotonic(), time.process_time(), there_s


@contextmanager
def open_stub() -> Iterator[str]:
    """Run a stub provider in a process of its own, and give its address."""
    environment = {**os.environ, "PYTHONPATH": str(Path(furcate.__file__).parents[1])}
    command = [sys.executable, "-c", _STUB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as stub:
        assert stub.stdout is not None
        try:
            yield stub.stdout.readline().strip()
        finally:
            stub.terminate()


def overhead(plan: Plan, base_url: str) -> Iterator[str]:
    """Measure small items, with two workers, and give the lines of a table."""
    yield f"{plan.items:,} small items, two workers, {plan.concurrency} at once: milliseconds of an item"
    yield "              clock    CPU here  CPU there  CPU in all  items/s   first after"
    plain: Figures | None = None
    for engine in plan.engines:
        found = anyio.run(partial(measure, engine, 2, plan, busy=False, base_url=base_url), backend=plan.loop)
        plain = plain or found
        clock, here, there = map(found.each_ms, (found.wall_s, found.here_s, found.there_s))
        much = (found.here_s + found.there_s) / (plain.here_s + plain.there_s) * plain.items / found.items
        yield (
            f"  {engine:10} {clock:6.2f} ({found.wall_s / plain.wall_s:4.1f}x) {here:6.2f} {there:10.2f} "
            f"{here + there:8.2f} ({much:4.1f}x) {found.rate:8.0f} {found.first_s:10.1f} s"
        )


def scaling(plan: Plan, base_url: str) -> Iterator[str]:
    """Measure busy items with one worker and with two, and give the lines of a table."""
    yield f"{plan.busy_items:,} items of {1000 * plan.busy_s:.0f} ms of a processor each: items in a second"
    yield "              one worker     two workers   ratio"
    plain: float | None = None
    for engine in plan.engines:
        one, two = (
            anyio.run(partial(measure, engine, workers, plan, busy=True, base_url=base_url), backend=plan.loop).rate
            if workers == 1 or engine != "in-process"
            else None
            for workers in (1, 2)
        )
        assert one is not None
        plain = plain or one
        line = f"  {engine:10} {one:6.1f} ({one / plain:4.2f}x)"
        yield line if two is None else f"{line} {two:6.1f} ({two / plain:4.2f}x) {two / one:6.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000, help="small ones")
    parser.add_argument("--busy-items", type=int, default=600)
    parser.add_argument("--busy", type=float, default=0.02, help="seconds of a processor that a busy item takes")
    parser.add_argument("--concurrency", type=int, default=16, help="items at once")
    parser.add_argument("--only", nargs="+", choices=_ENGINES, default=_ENGINES)
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    given = parser.parse_args(arguments)
    plan = Plan(
        items=given.items,
        busy_items=given.busy_items,
        busy_s=given.busy,
        concurrency=given.concurrency,
        engines=tuple(given.only),
        loop=given.loop,
    )
    needed = {"dask": "distributed", "ray": "ray"}
    used = [f"{needed[name]} {version(needed[name])}" for name in plan.engines if name in needed]
    where = [f"Python {platform.python_version()}", *used, f"{os.cpu_count()} processors", plan.loop]
    print(", ".join(where))  # noqa: T201
    with open_stub() as base_url:
        for table in (overhead, scaling):
            for line in table(plan, base_url):
                print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
