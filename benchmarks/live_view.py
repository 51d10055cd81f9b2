"""Measure what the live view costs: CPU seconds for each second of view, with thousands of branches under way.

    python benchmarks/live_view.py --branches 5000 --runs 200 --seconds 20

Observations of branches that never end are made up at the rate of `--runs` ended runs a second, some of them repaired,
paused or failed, and shown on a terminal of the script's own, whose other side is read by another process. The same is
done without a view, and what that took is taken away. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import os
import pty
import random
import subprocess
import sys

# What a view costs is processor time, which no event loop knows.
import time  # noqa: TID251
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from typing import TextIO

import anyio
from attrs import define, field

import furcate
from furcate.report import LiveView

USAGE = furcate.Usage(input_tokens=900, cache_read_tokens=2100, cache_write_tokens=0, output_tokens=160)
Listener = Callable[[furcate.Observation], None]


@define
class Story:
    """Make up what an engine with many branches tells.

    Attributes:
        branches: how many there are at any time; whatever ends is replaced.
        capacity: how many of them have their request out.
        told: how many observations there were.
    """

    branches: int
    capacity: int
    told: int = 0
    _numbers: Iterator[int] = field(factory=count)
    _chance: random.Random = field(factory=lambda: random.Random(1))
    _queued: list[tuple[str, str]] = field(factory=list)
    _out: list[tuple[str, str]] = field(factory=list)

    def begin(self, tell: Listener) -> None:
        """Tell of the opening and of all branches, each with a first run that queues."""
        self._tell(tell, _run_started("opening", None))
        self._tell(tell, _run_finished("opening"))
        self._tell(tell, furcate.NurseryStarted(scope_id="all", parent_run_id="opening", name="chapter 1"))
        for _ in range(self.branches):
            self._branch(tell)
        self._send(tell)

    def go_on(self, tell: Listener) -> None:
        """Tell of the end of a run that is out, and of what follows from it."""
        scope, run = self._out.pop(int(self._chance.expovariate(8) * len(self._out)) % len(self._out))
        chance = self._chance.random()
        if chance < 0.05:
            self._tell(tell, furcate.AttemptsPaused(run_id=run, wait_s=1.0, failure_kind="rate_limited"))
            self._queued.insert(0, (scope, run))
        else:
            failed = chance < 0.07
            self._tell(tell, _run_finished(run, failed=failed))
            self._tell(tell, furcate.TurnDelivered(scope_id=scope, remaining=3))
            if failed or chance > 0.75:
                self._tell(
                    tell,
                    furcate.CoordinatorFinished(
                        scope_id=scope,
                        status="failed" if failed else "succeeded",
                        outcome=None if failed else "stopped",
                        error_type="ProviderError" if failed else None,
                    ),
                )
                self._branch(tell)
            else:
                self._run(tell, scope)
        self._send(tell)

    def _branch(self, tell: Listener) -> None:
        number = next(self._numbers)
        scope = f"scope-{number}"
        started = furcate.CoordinatorStarted(
            scope_id=scope,
            parent_scope_id="all",
            parent_run_id="opening",
            name=f"angle-{number:05}",
            additional_turns=4,
        )
        self._tell(tell, started)
        self._run(tell, scope)

    def _run(self, tell: Listener, scope: str) -> None:
        run = f"run-{next(self._numbers)}"
        self._tell(tell, _run_started(run, scope))
        self._queued.append((scope, run))

    def _send(self, tell: Listener) -> None:
        while len(self._out) < self.capacity and self._queued:
            scope, run = self._queued.pop(0)
            started = furcate.AttemptStarted(run_id=run, number=1, purpose="generate", request_id=run, waited_s=1.0)
            self._tell(tell, started)
            self._out.append((scope, run))

    def _tell(self, tell: Listener, event: furcate.Observation) -> None:
        self.told += 1
        tell(event)


def _run_started(run: str, scope: str | None) -> furcate.RunStarted:
    return furcate.RunStarted(
        run_id=run,
        parent_run_id=None if scope is None else "opening",
        prompt=None,
        profile="p",
        backend="stub",
        model="m",
        dialect="openai-chat",
        scope_id=scope,
    )


def _run_finished(run: str, *, failed: bool = False) -> furcate.RunFinished:
    return furcate.RunFinished(
        run_id=run,
        status="failed" if failed else "succeeded",
        duration_s=1.0,
        usage=furcate.Usage() if failed else USAGE,
        attempts=1,
        repairs=0,
        validation="not_requested",
        failure_kind="provider" if failed else None,
        failure_reason="cut_off" if failed else None,
    )


@contextmanager
def terminal(columns: int, lines: int) -> Iterator[TextIO]:
    """Give one side of a terminal whose other side somebody else reads."""
    os.environ.update(COLUMNS=str(columns), LINES=str(lines), TERM="xterm-256color")
    ours, theirs = pty.openpty()
    with subprocess.Popen(["cat"], stdin=ours, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as reader:
        os.close(ours)
        with open(theirs, "w", encoding="utf-8") as file:
            yield file
        reader.kill()


async def spend(story: Story, view: LiveView | None, *, runs: int, seconds: float) -> float:
    """Let a story go on for a while, and give the processor time that it took, in seconds."""
    tell: Listener = view.on_event if view is not None else lambda event: None
    async with view or nullcontext():
        story.begin(tell)
        await anyio.sleep(1)
        story.told = 0
        began_s, spent_s = anyio.current_time(), time.process_time()
        done = 0
        while (now_s := anyio.current_time()) < began_s + seconds:
            while done < (now_s - began_s) * runs:
                story.go_on(tell)
                done += 1
            await anyio.sleep(0.01)
        return time.process_time() - spent_s


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments, measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("branches", 5000), ("capacity", 256), ("runs", 200), ("columns", 120), ("lines", 40)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    given = parser.parse_args(arguments)
    spent = []
    story = Story(given.branches, given.capacity)
    with terminal(given.columns, given.lines) as file:
        for view in (None, LiveView(file=file)):
            story = Story(given.branches, given.capacity)

            async def measured(story: Story = story, view: LiveView | None = view) -> float:
                return await spend(story, view, runs=given.runs, seconds=given.seconds)

            spent.append(anyio.run(measured, backend=given.loop))
    without_s, with_s = spent
    share = (with_s - without_s) / given.seconds
    print(  # noqa: T201
        f"{given.branches:,} branches, {given.capacity} requests out, {given.runs} runs and "
        f"{story.told / given.seconds:,.0f} observations a second, {given.columns} x {given.lines} cells, {given.loop}"
    )
    print(f"the view took {share:.4f} CPU seconds per second ({100 * share:.1f} % of a core)")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
