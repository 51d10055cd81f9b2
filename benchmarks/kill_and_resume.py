"""Kill a batch job at random moments, start it again each time, and look whether anything was lost or done twice.

    python benchmarks/kill_and_resume.py --kills 100
    python benchmarks/kill_and_resume.py --kills 100 --loop trio --seed 3

``furcate batch`` runs as a process of its own against a stub provider in this one. Each item has two turns, the second
of which continues the first one's exchange. The process gets SIGKILL, in turn some time after its start (while it
imports, reads its items, or works) and after some number of requests; then the same command is given again. What has
to hold:

- each item is in the results once, with the result of an undisturbed run;
- no call is made again of which the journal had the answer when the process was killed;
- a kill costs no more calls than were under way: one for each item that was worked on;
- the journal passes SQLite's own check after each kill.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - what is killed is a process, with no event loop here
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
from attrs import Factory, define, field, frozen

import furcate
from furcate.batch import open_journal
from furcate.testing import Answer, StubProvider, StubRequest, answer

TARGET = '''
import furcate

async def two_turns(item, job):
    """Ask for an item's word twice, in one conversation."""
    first = await job.engine.run(furcate.Request(profile="only", messages=f"1 {item['word']}", capture=True))
    second = await job.engine.continue_from(
        first.exchange, furcate.Request(profile="only", messages=f"2 {item['word']}")
    )
    return [first.text, second.text]
'''
_LONGEST_S = 120.0
_LAST_S = 1800.0

Call = tuple[str, str]
"""Which turn, of which item's word."""


@frozen(kw_only=True)
class Plan:
    """Say what is tried.

    Attributes:
        kills: how often the process is killed.
        items: how many items the job has.
        concurrency: how many are worked on at once.
        delay_s: how long the stub takes for an answer at most, in seconds.
        seed: of the random moments.
        loop: ``asyncio`` or ``trio``.
    """

    kills: int = 100
    items: int = 5000
    concurrency: int = 8
    delay_s: float = 0.06
    seed: int = 1
    loop: str = "asyncio"


@define
class Report:
    """Tell what was found.

    Attributes:
        killed: how often the process was killed while it ran.
        begun: how many of the kills came after a first request.
        requests: how many requests the stub was sent in all.
        needed: how many an undisturbed run sends.
        again: how many of the requests were sent before.
        seconds: how long it all took.
        problems: what does not hold.
    """

    killed: int = 0
    begun: int = 0
    requests: int = 0
    needed: int = 0
    again: int = 0
    seconds: float = 0.0
    problems: list[str] = Factory(list)

    def __str__(self) -> str:
        lines = (
            f"kills                     {self.killed} ({self.begun} of them after a first request)",
            f"calls of a run undisturbed {self.needed}",
            f"calls that were sent      {self.requests}, {self.again} of them once more",
            f"seconds                   {self.seconds:.0f}",
            *(f"PROBLEM: {problem}" for problem in self.problems),
            "" if self.problems else "nothing lost, nothing twice",
        )
        return "\n".join(line for line in lines if line)


@define
class Provider:
    """Answer with what was asked, and count that."""

    delay_s: float
    chance: random.Random
    calls: list[Call] = field(factory=list)

    async def script(self, request: StubRequest) -> Answer:
        """Answer a request, after some time."""
        said: str = request.body["messages"][-1]["content"]
        turn, word = said.split(" ", 1)
        self.calls.append((turn, word))
        await anyio.sleep(self.chance.uniform(0, self.delay_s))
        return answer(said, usage={"prompt_tokens": 10, "completion_tokens": 2})


def _prepare(folder: Path, plan: Plan, base_url: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "work.py").write_text(TARGET)
    (folder / "furcate.toml").write_text(
        f'[backends.stub]\nbase_url = "{base_url}"\ncapacity = 100\n[profiles.only]\nbackend = "stub"\nmodel = "m"\n'
    )
    rows = ({"id": f"i{number}", "word": f"w{number}"} for number in range(plan.items))
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _start(folder: Path, plan: Plan) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "furcate", "batch", "work:two_turns", "items.jsonl", "--results", "out.jsonl"]
    command += ["--loop", plan.loop, "--concurrency", str(plan.concurrency)]
    sources = str(Path(furcate.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": sources}
    with (folder / "stderr.txt").open("wb") as said:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)


def _results(folder: Path) -> dict[str, object]:
    """Read results; an id that occurs twice is told by a list."""
    found: dict[str, object] = {}
    for line in (folder / "out.jsonl").read_text().splitlines():
        row = json.loads(line)
        told = (row["status"], row.get("result"), row.get("usage"))
        found[row["id"]] = [found[row["id"]], told] if row["id"] in found else told
    return found


async def _paid(journal: Path) -> set[Call]:
    """Give the calls that a journal has the answers of, those of finished items included."""
    paid: set[Call] = set()
    async with open_journal(journal) as opened:
        unfinished = []
        async with opened.rows(states=("pending", "finished", "failed")) as rows:
            async for row in rows:
                word = str(row.id).replace("i", "w")
                if row.state == "pending":
                    unfinished.append((str(row.id), word))
                else:
                    paid |= {("1", word), ("2", word)}
        for name, word in unfinished:
            # One run has one attempt here, and an item's runs are answered in the order of its turns.
            kept = await opened.calls(name)
            paid |= {(str(turn), word) for turn in range(1, len(kept) + 1)}
    return paid


def _look(folder: Path, report: Report) -> set[Call]:
    """Look at the journal after a kill."""
    journal = folder / "items.journal"
    if not journal.exists():
        return set()
    with closing(sqlite3.connect(journal)) as connection:
        [[said]] = connection.execute("PRAGMA integrity_check").fetchall()
        if said != "ok":
            report.problems.append(f"the journal is damaged: {said}")
        [[tables]] = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'items'").fetchall()
    # A journal that was killed before it had its tables is made anew by the next start.
    return anyio.run(_paid, journal) if tables else set()


def _kill_later(process: subprocess.Popen[bytes], provider: Provider, chance: random.Random, *, by_time: bool) -> bool:
    """Kill a process at a random moment; tell whether it was still there."""
    until_s = time.monotonic() + (chance.uniform(0.0, 3.0) if by_time else _LONGEST_S)
    enough = len(provider.calls) + (sys.maxsize if by_time else chance.randint(1, 40))
    while process.poll() is None and time.monotonic() < until_s and len(provider.calls) < enough:
        time.sleep(0.001)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def _check(folder: Path, plan: Plan, provider: Provider, *, report: Report) -> None:
    expected = {
        f"i{n}": ("finished", [f"1 w{n}", f"2 w{n}"], {"input_tokens": 20, "output_tokens": 4})
        for n in range(plan.items)
    }
    found = _results(folder)
    different = [name for name in expected if found.get(name) != expected[name]]
    if different or len(found) != len(expected):
        report.problems.append(f"{len(found)} results, {len(different)} not as they should be: {different[:5]}")
    report.requests = len(provider.calls)
    report.needed = 2 * plan.items
    report.again = sum(count - 1 for count in Counter(provider.calls).values())
    most = report.killed * plan.concurrency
    if report.again > most:
        report.problems.append(f"{report.again} calls were made again; {report.killed} kills may cost {most}")
    if len(set(provider.calls)) != report.needed:
        report.problems.append(f"{len(set(provider.calls))} different calls, where there are {report.needed}")


def trial(folder: Path, plan: Plan) -> Report:
    """Kill a job as often as planned, let it end, and tell what does not hold.

    Arguments:
        folder: an empty one, or one to be made.
        plan: what is tried.
    """
    chance = random.Random(plan.seed)
    provider = Provider(plan.delay_s, random.Random(plan.seed + 1))
    report = Report()
    began_s = time.monotonic()
    with StubProvider.in_thread(provider.script, remember=False) as stub:
        _prepare(folder, plan, stub.base_url)
        paid: set[Call] = set()
        while True:
            mark = len(provider.calls)
            process = _start(folder, plan)
            try:
                if report.killed == plan.kills:
                    if process.wait(_LAST_S) != 0:
                        report.problems.append(f"the last start ended with status {process.returncode}")
                    _check_paid(provider.calls[mark:], paid, report)
                    break
                alive = _kill_later(process, provider, chance, by_time=report.killed % 2 == 0)
            finally:
                process.kill()
            _check_paid(provider.calls[mark:], paid, report)
            if not alive:
                said = (folder / "stderr.txt").read_text().strip().splitlines()[-2:]
                report.problems.append(f"the job ended after {report.killed} kills already, and said: {said}")
                break
            report.killed += 1
            report.begun += len(provider.calls) > mark
            paid = _look(folder, report)
        _check(folder, plan, provider, report=report)
    report.seconds = time.monotonic() - began_s
    return report


def _check_paid(calls: Sequence[Call], paid: set[Call], report: Report) -> None:
    twice = paid.intersection(calls)
    if twice:
        report.problems.append(f"{len(twice)} answered calls were made again: {sorted(twice)[:5]}")


def main() -> None:
    """Try it as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    given = parser.parse_args()
    plan = Plan(**vars(given))
    with tempfile.TemporaryDirectory() as folder:
        report = trial(Path(folder), plan)
    head = f"{plan.items} items of two turns, {plan.concurrency} at once, {plan.loop}, seed {plan.seed}"
    where = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()}"
    sys.stdout.write(f"{head}\n{where}\n{report}\n")
    raise SystemExit(bool(report.problems))


if __name__ == "__main__":
    main()
