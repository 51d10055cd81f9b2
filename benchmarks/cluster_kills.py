"""Kill the workers of a job on a cluster at random moments, and its driver, and look whether anything is lost or twice.

    python benchmarks/cluster_kills.py --on dask --items 2000 --branches 30 --kills 20
    python benchmarks/cluster_kills.py --on ray --items 500 --kills 10 --driver-kills 2 --loop trio

``furcate batch ... --on dask --workers 2`` runs as a process of its own, against a stub provider in another one. Each
item has one run and forks branches of one further turn each from what it was answered. After random numbers of
requests one of the worker processes gets SIGKILL, or the driver does; a driver is started again by the same command.
What has to hold:

- each item is in the results once, with the result and the tokens of an undisturbed run;
- the server never counts more requests at once than the backend has places, however the workers come and go;
- no more calls are made again than were under way at the kills (asked for, with no answer in the journal), and were
  begun in the moment until a kill took effect;
- no process of the cluster is left when it is over.

Needs the extra ``dask`` or ``ray``. Nearly all the time goes into the calls, at the workers: 200 items with four kills
take 80 s on two processors that others use too, and the 2,000 of the first line ten times that. A job that takes longer
than ``--longest`` seconds is given up, which is a problem like any other.
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
import time  # noqa: TID251 - what is killed are processes, with no event loop here
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import anyio
import anyio.to_thread
from attrs import Factory, define, field, frozen

import furcate
from furcate.testing import Answer, StubProvider, StubRequest, answer

TARGET = '''
import os
from functools import partial
from pathlib import Path

import furcate

PIDS = Path(__file__).with_name("pids")

async def explore(item, job):
    """Ask for an item's word, and fork branches from the answer that ask for one thing more."""
    (PIDS / str(os.getpid())).touch()
    first = await job.engine.run(furcate.Request(profile="only", messages=f"{item['word']} root", capture=True))
    said = {}

    async def ask(number, turn):
        if turn.result is not None:
            said[number] = turn.result.text
            return furcate.Stop()
        return furcate.Continue(furcate.Request(profile="only", messages=f"{item['word']} {number}"))

    async with furcate.open_branches(job.engine, first.exchange, on_failure="cancel") as branches:
        for number in range(item["branches"]):
            branches.start_soon(partial(ask, number), additional_turns=1)
    return [first.text, *(said[number] for number in range(item["branches"]))]
'''
_LOOK_S = 0.02
_GONE_S = 60.0
_INPUT, _OUTPUT = 10, 2


@frozen(kw_only=True)
class Plan:
    """Say what is tried.

    Attributes:
        on: ``dask`` or ``ray``, a cluster on this machine.
        items: how many items the job has.
        branches: how many each of them forks.
        kills: how often a worker is killed.
        driver_kills: how often the driver is.
        workers: how many there are.
        concurrency: how many items are worked on at once.
        capacity: places of the backend.
        delay_s: how long the stub takes for an answer at most, in seconds.
        seed: of the random moments.
        loop: ``asyncio`` or ``trio``.
        longest_s: how long the job may take before it is given up, in seconds.
    """

    on: str = "dask"
    items: int = 2000
    branches: int = 30
    kills: int = 20
    driver_kills: int = 2
    workers: int = 2
    concurrency: int = 8
    capacity: int = 50
    delay_s: float = 0.05
    seed: int = 1
    loop: str = "asyncio"
    longest_s: float = 1800.0

    @property
    def needed(self) -> int:
        """How many calls an undisturbed run makes."""
        return self.items * (1 + self.branches)


@frozen
class Count:
    """Hold what a stub has counted.

    Attributes:
        requests: how many it has read.
        different: how many different ones.
        most: how many ever were in flight.
    """

    requests: int
    different: int
    most: int


@define
class Figures:
    """Tell what was found.

    Attributes:
        killed: process ids of the workers that were killed.
        drivers: how often the driver was.
        count: what the stub had counted at the end.
        under_way: how many calls were under way at the kills, together.
        undone_s: how long processes of a cluster outlived a driver that was killed, at most, in seconds.
        tokens: of all items, as the results tell it.
        seconds: how long it all took.
        noise: how many lines were said on the screen that are not furcate's own.
        problems: what does not hold.
    """

    killed: list[int] = Factory(list)
    drivers: int = 0
    count: Count = Count(0, 0, 0)
    under_way: int = 0
    undone_s: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    noise: int = 0
    problems: list[str] = Factory(list)

    @property
    def again(self) -> int:
        """How many requests had been sent before."""
        return self.count.requests - self.count.different

    def lines(self, plan: Plan) -> Iterator[str]:
        """Give what to print."""
        yield f"kills                        {len(self.killed)} of workers, {self.drivers} of the driver"
        yield f"calls of a run undisturbed   {plan.needed:,}"
        yield f"calls that were sent         {self.count.requests:,}, {self.again:,} of them once more"
        yield f"calls under way at kills     {self.under_way:,}"
        yield f"requests in flight, at most  {self.count.most} of {plan.capacity}"
        yield f"tokens in the results        {self.tokens:,} of {plan.needed * (_INPUT + _OUTPUT):,}"
        yield f"cluster outlived its driver  {self.undone_s:.1f} s at most"
        yield f"lines of others' on stderr   {self.noise}"
        yield f"seconds                      {self.seconds:.0f}, {self.count.requests / self.seconds:.0f} calls in each"
        yield from (f"PROBLEM: {problem}" for problem in self.problems)
        if not self.problems:
            yield "nothing lost, nothing twice, nothing beyond the capacity"


async def serve(delay_s: float, seed: int) -> None:
    """Serve as the stub provider's process: tell the address, and the counts for each line that is read.

    Arguments:
        delay_s: how long an answer takes at most, in seconds.
        seed: of how long it takes.
    """
    chance = random.Random(seed)
    asked: Counter[str] = Counter()

    async def script(request: StubRequest) -> Answer:
        said: str = request.body["messages"][-1]["content"]
        asked[said] += 1
        await anyio.sleep(chance.uniform(0, delay_s))
        return answer(f"to {said}", usage={"prompt_tokens": _INPUT, "completion_tokens": _OUTPUT})

    async with StubProvider(script, remember=False) as stub:
        print(stub.base_url, flush=True)  # noqa: T201
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps([asked.total(), len(asked), stub.most_in_flight]), flush=True)  # noqa: T201


@define
class Stub:
    """Talk to the stub provider's process.

    Attributes:
        process: which it is.
        base_url: its address.
    """

    process: subprocess.Popen[str]
    base_url: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Wait for it to be there."""
        self.base_url = self._line()

    def count(self) -> Count:
        """Ask what it has counted."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return Count(*json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def open_stub(plan: Plan) -> Iterator[Stub]:
    """Run a stub provider in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--serve", str(plan.delay_s), "--seed", str(plan.seed)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment()) as process:
        yield Stub(process)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(furcate.__file__).parents[1])}


class Trial:
    """Run a job to its end while its processes are killed.

    Arguments:
        folder: an empty one, or one to be made.
        plan: what is tried.
        stub: the provider.
    """

    def __init__(self, folder: Path, plan: Plan, stub: Stub) -> None:
        self.folder = folder
        self.plan = plan
        self.stub = stub
        self.figures = Figures()
        self._chance = random.Random(plan.seed)
        self._pids = folder / "pids"
        self._seen: set[int] = set()
        self._until_s = 0.0

    def run(self) -> Figures:
        """Try it, and tell what was found."""
        self._prepare()
        began_s = time.monotonic()
        self._until_s = began_s + self.plan.longest_s
        victims = ["worker"] * self.plan.kills + ["driver"] * self.plan.driver_kills
        self._chance.shuffle(victims)
        # The last tenth is left for the job to end in.
        moments = sorted(self._chance.sample(range(1, max(len(victims) + 1, self.plan.needed * 9 // 10)), len(victims)))
        process = self._start()
        try:
            for victim, moment in zip(victims, moments, strict=True):
                if not self._await(process, moment):
                    break
                if victim == "driver":
                    self._kill_driver(process)
                    process = self._start()
                else:
                    self._kill_worker(process)
            if not self._ends(process):
                self.figures.problems.append(f"the job was given up after {self.plan.longest_s:g} s")
            elif process.returncode != 0:
                said = (self.folder / "stderr.txt").read_text().strip().splitlines()[-3:]
                self.figures.problems.append(f"the job ended with status {process.returncode}, and said: {said}")
        finally:
            process.kill()
            process.wait()
        self.figures.seconds = time.monotonic() - began_s
        self.figures.count = self.stub.count()
        self._check()
        return self.figures

    def _prepare(self) -> None:
        self._pids.mkdir(parents=True)
        (self.folder / "work.py").write_text(TARGET)
        (self.folder / "furcate.toml").write_text(
            f'[backends.stub]\nbase_url = "{self.stub.base_url}"\ncapacity = {self.plan.capacity}\n'
            '[profiles.only]\nbackend = "stub"\nmodel = "m"\nstream = false\n'
        )
        rows = ({"id": f"i{n}", "word": f"w{n}", "branches": self.plan.branches} for n in range(self.plan.items))
        (self.folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def _start(self) -> subprocess.Popen[bytes]:
        plan = self.plan
        command = [sys.executable, "-m", "furcate", "batch", "work:explore", "items.jsonl", "--results", "out.jsonl"]
        command += ["--on", plan.on, "--workers", str(plan.workers)]
        command += ["--loop", plan.loop, "--concurrency", str(plan.concurrency)]
        with (self.folder / "stderr.txt").open("ab") as said:
            return subprocess.Popen(command, cwd=self.folder, env=_environment(), stdout=said, stderr=said)

    def _ends(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the job's end; tell whether it came in time."""
        try:
            process.wait(max(0.0, self._until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _runs(self, process: subprocess.Popen[bytes]) -> bool:
        return process.poll() is None and time.monotonic() < self._until_s

    def _await(self, process: subprocess.Popen[bytes], moment: int) -> bool:
        """Wait until so many different calls were asked for; tell whether the job still runs."""
        while self._runs(process):
            if self.stub.count().different >= moment:
                return True
            time.sleep(_LOOK_S)
        return False

    def _kill_worker(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one of the processes that have worked on items; where there is none at the moment, wait for one."""
        while self._runs(process):
            workers = self._workers()
            if workers:
                victim = self._chance.choice(workers)
                kept = self._kept()
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    self.figures.killed.append(victim)
                    self._note(kept)
                    return
            time.sleep(_LOOK_S)

    def _kill_driver(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.figures.drivers += 1
        self.figures.undone_s = max(self.figures.undone_s, self._until_gone("a driver that was killed"))
        self._note(self._kept())

    def _until_gone(self, whom: str) -> float:
        """Wait until no worker is left, and tell how long that took, in seconds."""
        began_s = time.monotonic()
        while workers := self._workers():
            if time.monotonic() - began_s > _GONE_S:
                self.figures.problems.append(f"{len(workers)} workers outlive {whom} by {_GONE_S:.0f} s")
                for worker in workers:
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                break
            time.sleep(_LOOK_S)
        return time.monotonic() - began_s

    def _workers(self) -> list[int]:
        """Give the processes that have worked on items and run still."""
        self._seen |= {int(path.name) for path in self._pids.iterdir()}
        return sorted(pid for pid in self._seen.difference(self.figures.killed) if _runs(pid))

    def _kept(self) -> int:
        """Count the calls of which the journal has the answer, those of finished items included."""
        with closing(sqlite3.connect(self.folder / "items.journal")) as connection:
            [[finished]] = connection.execute("SELECT count(*) FROM items WHERE state = 'finished'")
            [[calls]] = connection.execute(
                "SELECT count(*) FROM calls JOIN items USING (number) WHERE items.state = 'pending'"
            )
        return int(finished) * (1 + self.plan.branches) + int(calls)

    def _note(self, kept: int) -> None:
        """Add what is under way: what the stub was asked by now, and the journal did not have before the kill."""
        self.figures.under_way += self.stub.count().different - kept

    def _check(self) -> None:
        plan, figures = self.plan, self.figures
        self._until_gone("the job's end")
        if len(figures.killed) + figures.drivers != plan.kills + plan.driver_kills:
            figures.problems.append("the job ended before all kills")
        if figures.count.most > plan.capacity:
            figures.problems.append(f"{figures.count.most} requests were in flight, of {plan.capacity} places")
        if figures.count.different != plan.needed:
            figures.problems.append(f"{figures.count.different} different calls, where there are {plan.needed}")
        # Between being counted and being killed a worker goes on for a moment.
        moments = plan.capacity * (len(figures.killed) + figures.drivers)
        if figures.again > figures.under_way + moments:
            figures.problems.append(f"{figures.again} calls were made again; {figures.under_way} were under way")
        self._check_results()
        said = (self.folder / "stderr.txt").read_text(errors="replace").splitlines()
        figures.noise = sum(_is_noise(line) for line in said)

    def _check_results(self) -> None:
        plan, figures = self.plan, self.figures
        found: dict[str, list[object]] = {}
        results = self.folder / "out.jsonl"
        for line in results.read_text().splitlines() if results.exists() else ():
            row = json.loads(line)
            found.setdefault(row["id"], []).append((row["status"], row.get("result"), row.get("usage")))
            figures.tokens += sum((row.get("usage") or {}).values())
        calls = 1 + plan.branches
        usage = {"input_tokens": _INPUT * calls, "output_tokens": _OUTPUT * calls}
        asked = ("root", *range(plan.branches))
        expected = {f"i{n}": [("finished", [f"to w{n} {x}" for x in asked], usage)] for n in range(plan.items)}
        different = [name for name in expected if found.get(name) != expected[name]]
        if different or len(found) != len(expected):
            shown = [(name, str(found.get(name))[:200]) for name in different[:3]]
            figures.problems.append(f"{len(found)} results, {len(different)} not as they should be: {shown}")


def _runs(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and that nobody has looked after does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        # Without such files the first question has to do.
        return not Path("/proc/self").exists()
    return state not in "ZX"


def _is_noise(line: str) -> bool:
    """Tell whether a line is neither furcate's warning nor what tells how far the job is."""
    return bool(line.strip()) and ("distributed" in line or "ray" in line or line.startswith((" ", "Traceback")))


def trial(folder: Path, plan: Plan) -> Figures:
    """Run a job while its processes are killed as planned, and tell what does not hold.

    Arguments:
        folder: an empty one, or one to be made.
        plan: what is tried.
    """
    with open_stub(plan) as stub:
        try:
            return Trial(folder, plan, stub).run()
        finally:
            assert stub.process.stdin is not None
            stub.process.stdin.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Try it as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=["dask", "ray"], default="dask")
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--branches", type=int, default=30)
    parser.add_argument("--kills", type=int, default=20, help="of workers")
    parser.add_argument("--driver-kills", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8, help="items at once")
    parser.add_argument("--capacity", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--longest", dest="longest_s", type=float, default=1800, help="seconds until it is given up")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the job's files, to be looked at later")
    parser.add_argument("--serve", type=float, default=None, help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    keep, serving_s = given.pop("keep"), given.pop("serve")
    if serving_s is not None:
        # A terminal's Ctrl-C reaches this process, too; whoever started it tells.
        with suppress(KeyboardInterrupt):
            anyio.run(serve, serving_s, given["seed"])
        return 0
    plan = Plan(**given)
    with tempfile.TemporaryDirectory() as folder:
        figures = trial(keep or Path(folder) / "job", plan)
    head = f"{plan.items:,} items of {plan.branches} branches on {plan.workers} workers of {plan.on}"
    library = "distributed" if plan.on == "dask" else "ray"
    where = f"Python {platform.python_version()}, {library} {version(library)}, {os.cpu_count()} processors"
    sys.stdout.write(f"{head}, {plan.concurrency} at once, {plan.loop}, seed {plan.seed}\n{where}\n")
    sys.stdout.write("\n".join(figures.lines(plan)) + "\n")
    return int(bool(figures.problems))


if __name__ == "__main__":
    sys.exit(main())
