"""Run one workload once for one client, in this process, and print what it took as a line of JSON.

    python benchmarks/compare/worker.py bare_httpx2 w1 --base-url http://127.0.0.1:PORT/v1

``run.py`` starts it, with the interpreter of the client's own environment, so it needs nothing but the standard library
and the client's file. ``--scale`` makes the workloads smaller.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import sys
import time  # noqa: TID251 - time is what is measured
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from clients.base import Client, Pairs

_ASK = "Tell me about number {}. Answer in {} pieces, {} ms apart, after {} ms."
_TURNS_W4, _TURNS_W5 = 3, 5


class Shape(NamedTuple):
    """Say what a workload asks of the server.

    Attributes:
        jobs: how many runs, or forks.
        at_once: how many of them at once.
        pieces: how many pieces an answer's text has.
        pace_ms: the time between two pieces of a stream.
        latency_ms: the time before an answer.
        warm: how many jobs come first, unmeasured.
        warm_pieces: how many pieces their answers have; they have no pace.
        units: how many units a job is, in which its cost is told.
    """

    jobs: int
    at_once: int
    pieces: int = 50
    pace_ms: int = 0
    latency_ms: int = 0
    warm: int = 100
    warm_pieces: int = 50
    units: int = 1

    def prompt(self, number: int) -> str:
        """Ask for an answer."""
        return _ASK.format(number, self.pieces, self.pace_ms, self.latency_ms)

    def warming(self) -> Shape:
        """Give the shape of what comes first."""
        return self._replace(jobs=self.warm, pieces=self.warm_pieces, pace_ms=0)


def shape(workload: str, scale: float) -> Shape:
    """Give the shape of a workload that uses the network, so much smaller."""

    def much(number: int) -> int:
        return max(1, round(number * scale))

    warm = max(10, much(100))
    match workload:
        case "w1" | "w2":
            return Shape(much(500), 50, warm=warm)
        case "w3":
            return Shape(1, 1, pieces=much(20_000), warm=10, warm_pieces=200, units=much(20_000))
        case "w3p":
            # Each of the connections is opened first, as they are in the other workloads.
            return Shape(much(50), 50, pieces=100, pace_ms=25, warm=max(10, much(50)), units=100)
        case "w4":
            return Shape(much(1000), 100, latency_ms=20, warm=warm, units=_TURNS_W4)
    raise ValueError(f"{workload!r} is no workload that uses the network: w1, w2, w3, w3p and w4 do")


def text_of(pieces: int) -> str:
    """Give the text that the server answers with."""
    return "".join(f"{number:05d}," for number in range(pieces))


def conversation(turns: int, size: int, name: str) -> Pairs:
    """Make turns whose messages have so many characters each, and differ."""

    def filled(start: str) -> str:
        return (start + " and so on, as people say," * size)[:size]

    return [(filled(f"{name}, question {turn}"), filled(f"{name}, answer {turn}")) for turn in range(turns)]


async def networked(client: Client, workload: str, base_url: str, scale: float) -> dict[str, Any]:
    """Run a workload against the server, in rounds until they make a second, and give the median round.

    Raises:
        ValueError: a text was not what the server had sent, or a stream came in too few pieces.
    """
    what = shape(workload, scale)
    await client.open(base_url, what.at_once)
    shared = client.history(conversation(20, 1000, "shared")) if workload == "w4" else None
    await _round(client, workload, what.warming(), shared)
    # A round of forks is long enough, and what memory grows by is told of the first.
    least_s = 0 if workload == "w4" else min(1.0, scale)
    rounds: list[tuple[float, float]] = []
    gc.collect()
    _forget_peak()
    before = _resident()
    began_s = time.perf_counter()
    while not rounds or time.perf_counter() - began_s < least_s:
        gc.collect()
        start = _now()
        await _round(client, workload, what, shared)
        end = _now()
        rounds.append((end[0] - start[0], end[1] - start[1]))
    grown = _peak() - before
    await client.close()
    wall_s, cpu_s = (statistics.median(found) for found in zip(*rounds, strict=True))
    units = what.jobs * what.units
    return {"cpu_us": 1e6 * cpu_s / units, "wall_s": wall_s, "grown_mb": grown / 1e6, "rounds": len(rounds)}


async def _round(client: Client, workload: str, what: Shape, shared: Any) -> None:
    """Do all jobs of a workload, so many at once."""
    waiting = iter(range(what.jobs))
    whole = text_of(what.pieces)

    async def work() -> None:
        for number in waiting:
            text = await _text(client, workload, what, shared, number)
            if text != whole:
                raise ValueError(f"the text was {text[:60]!r}, {len(text)} characters: {len(whole)} were sent")

    await client.together([work] * min(what.at_once, what.jobs))


async def _text(client: Client, workload: str, what: Shape, shared: Any, number: int) -> str:
    """Do one job, and give the text that came of it."""
    if workload == "w1":
        return await client.run(what.prompt(number))
    if workload == "w4":
        return await client.turns(shared, [what.prompt(_TURNS_W4 * number + turn) for turn in range(_TURNS_W4)])
    found = await client.stream(what.prompt(number))
    if len(found) < what.pieces:
        raise ValueError(f"the text came in {len(found)} pieces: {what.pieces} were sent, and each should be seen")
    return "".join(found)


async def held(client: Client, base_url: str, scale: float) -> dict[str, Any]:
    """Hold many branches of five turns over a shared history, and give what one of them takes."""
    branches = max(1, round(client.most_branches * scale))
    await client.open(base_url, 1)
    shared = client.history(conversation(100, 200, "shared"))

    def own(number: int) -> Pairs:
        return [(said[:40], answered) for said, answered in conversation(_TURNS_W5, 200, f"branch {number}")]

    kept = [await client.hold(shared, own(-number)) for number in range(50)]
    gc.collect()
    before = _resident()
    start = _now()
    kept += [await client.hold(shared, own(number)) for number in range(branches)]
    wall_s, cpu_s = (after - earlier for earlier, after in zip(start, _now(), strict=True))
    gc.collect()
    bytes_each = (_resident() - before) / branches
    began_s = time.perf_counter()
    gc.collect()
    collecting_s = time.perf_counter() - began_s
    del kept
    await client.close()
    return {"branch_bytes": bytes_each, "gc_ms": 1e3 * collecting_s, "cpu_us": 1e6 * cpu_s / branches, "wall_s": wall_s}


def _now() -> tuple[float, float]:
    """Give the clock and this process's time on processors, user and system, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _resident() -> int:
    """Give the bytes of memory that this process has now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:  # no Linux: the high-water mark is what can be had
        return _peak()
    return pages * resource.getpagesize()


def _forget_peak() -> None:
    """Let the high-water mark begin anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    """Give the most bytes of memory that this process had."""
    # Not the number of getrusage: on Linux it begins with what the parent had when it started this process.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except FileNotFoundError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", help="the name of a file in clients/")
    parser.add_argument("workload", choices=["w1", "w2", "w3", "w3p", "w4", "w5"])
    parser.add_argument("--base-url", required=True, help="the server's, with /v1")
    parser.add_argument("--variant", default="", help="which of the ways that the client's file knows")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--core", type=int, help="the only core to use, where the system can be told")
    given = parser.parse_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    client: Client = import_module(f"clients.{given.client}").CLIENT(given.variant)
    if given.workload == "w5":
        found = client.launch(partial(held, client, given.base_url, given.scale))
    else:
        found = client.launch(partial(networked, client, given.workload, given.base_url, given.scale))
    print(json.dumps(found), flush=True)  # noqa: T201
    # Threads and exit hooks of some libraries take seconds, which nobody needs to wait for.
    os._exit(0)


if __name__ == "__main__":
    main()
