"""Run many branches of coordinated turns against a server that spoils a tenth of its answers, and count what is left.

    python benchmarks/soak.py --turns 20000 --branches 2000 --loop trio

At the end every branch has one outcome, every place is back, what a group counted is what the server counted, memory
has not grown with the branches that ended, and no socket is open. Whatever of this does not hold is printed, and the
status is 1.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections import Counter
from pathlib import Path

import anyio
from attrs import define, field, frozen

import furcate
from furcate.testing import Answer, FaultRecord, Faults, Send, StubProvider, StubRequest, answer

TOKENS = furcate.Usage(input_tokens=11, output_tokens=7)
_END_MARK = b"data: [DONE]"


@frozen(kw_only=True)
class Load:
    """Say how much is done.

    Attributes:
        turns: turns that are asked for in all branches together.
        branches: how many branches they are spread over.
        waves: how many nurseries the branches are spread over, one after the other; memory is looked at in between.
        share: the part of the requests that the server spoils.
        seed: which of them, and how.
        capacity: most requests at once.
        quiet_s: how long a stream may be silent, in seconds.
    """

    turns: int = 20_000
    branches: int = 2_000
    waves: int = 10
    share: float = 0.1
    seed: int = 1
    capacity: int = 64
    quiet_s: float = 10.0


@define
class Tally:
    """Count what an engine tells."""

    runs_started: int = 0
    runs_ended: int = 0
    attempts: Counter[str] = field(factory=Counter)
    reasons: Counter[str] = field(factory=Counter)

    def on_event(self, event: furcate.Observation) -> None:
        """Take an observation."""
        if isinstance(event, furcate.RunStarted):
            self.runs_started += 1
        elif isinstance(event, furcate.RunFinished):
            self.runs_ended += 1
        elif isinstance(event, furcate.AttemptFinished):
            self.attempts[event.status] += 1
            self.reasons[event.failure_reason or "none"] += 1


@define
class Ledger:
    """Count what the server really said, answer by answer."""

    completed: int = 0
    tokens: int = 0
    faults: Counter[str] = field(factory=Counter)
    _events: dict[int, tuple[int, int, int]] = field(factory=dict)

    def script(self, request: StubRequest) -> Answer:
        """Give the proper answer to a request, and note where in it the ending and the usage are complete."""
        proper = answer(f"Turn after {len(request.body['messages'])} messages.", usage=TOKENS)
        *others, usage, end_mark = (step.data for step in proper.steps_for(request) if isinstance(step, Send))
        ending = sum(map(len, others))
        assert end_mark.startswith(_END_MARK), "the last two events are the usage and the end mark"
        self._events[request.number] = ending, ending + len(usage), len(others) + 2
        return proper

    def settle(self, records: list[FaultRecord]) -> None:
        """Count what was done since the last time."""
        for record in records:
            ending, usage, events = self._events.pop(record.number)
            self.faults[record.fault or "none"] += 1
            ended, used = record.whole, record.body_sent >= usage
            if record.fault in ("duplicate", "out_of_order"):
                ended = True
                used = record.detail != f"events {events - 1} and {events}"  # nobody reads on behind the end mark
            elif record.fault == "short_length":
                # What seems to be the end of the body completes an event that lacks but its blank line, and an answer
                # that said why it ends lacks but its mark.
                ended, used = record.body_sent >= ending - 2, record.body_sent >= usage - 2
            self.completed += ended
            self.tokens += used * ((TOKENS.input_tokens or 0) + (TOKENS.output_tokens or 0))
        records.clear()


@define
class Report:
    """Hold what came of it.

    Attributes:
        lines: the table, each row with a name and a value.
        problems: what does not hold, a sentence each.
        memory: resident memory in MiB, after the first wave and after each further one.
    """

    lines: list[tuple[str, str]] = field(factory=list)
    problems: list[str] = field(factory=list)
    memory: list[float] = field(factory=list)

    def row(self, name: str, value: object) -> None:
        """Add a row."""
        self.lines.append((name, f"{value:,}" if isinstance(value, int) else str(value)))

    def equal(self, name: str, ours: int, theirs: int) -> None:
        """Add a row of two counts that have to be the same."""
        self.row(name, f"{ours:,} = {theirs:,}" if ours == theirs else f"{ours:,} but {theirs:,}")
        if ours != theirs:
            self.problems.append(f"{name}: {ours:,} here, {theirs:,} there")

    def __str__(self) -> str:
        wide = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:<{wide}}  {value}" for name, value in self.lines)


def engine_for(base_url: str, load: Load, tally: Tally) -> furcate.Engine:
    """Make an engine that takes what comes: it repeats what was lost, soon."""
    backend = furcate.Backend(
        "stub",
        base_url=base_url,
        capacity=load.capacity,
        limits=furcate.TimeLimits(first_event_s=load.quiet_s, idle_s=load.quiet_s),
        retry=furcate.RetryPolicy(attempts=4, first_backoff_s=0.01, max_backoff_s=0.05),
    )
    profile = furcate.Profile("p", "stub", "m", repeat_safe=True)
    return furcate.Engine(backends=[backend], profiles=[profile], observers=[tally])


async def go_on(turn: furcate.Turn) -> furcate.Action:
    """Ask for one turn after the other, until there is none left."""
    return furcate.Continue(furcate.Request(messages="And then?", profile="p"))


async def soak(load: Load) -> Report:
    """Run it all and say what came of it."""
    report, tally, ledger = Report(), Tally(), Ledger()
    faults = Faults(load.seed, script=ledger.script, share=load.share)
    sockets_before = open_sockets()
    outcomes: Counter[str] = Counter()
    completed = tokens = 0
    began_s = anyio.current_time()
    async with StubProvider(faults, remember=False) as stub:
        async with engine_for(stub.base_url, load, tally) as engine:
            beginning = furcate.Group()
            root = await _root(engine, beginning)
            tokens += _tokens(beginning)
            for wave in range(load.waves):
                group = furcate.Group()
                size = load.branches // load.waves
                async with furcate.open_branches(engine, root, groups=[group]) as branches:
                    for _ in range(size):
                        branches.start_soon(go_on, additional_turns=load.turns // load.branches)
                ends = [branch.outcome.name.lower() if branch.outcome else branch.status for branch in branches]
                outcomes.update(ends)
                if len(ends) != size or any((b.outcome is None) == (b.error is None) for b in branches):
                    report.problems.append(f"wave {wave + 1}: {len(ends)} of {size} branches have one outcome")
                completed += group.summary().succeeded
                tokens += _tokens(group)
                del group, branches, ends
                ledger.settle(faults.records)
                report.memory.append(resident_mib())
            places = engine.statistics()["stub"]
        spent_s = anyio.current_time() - began_s
        await _quiet(stub)
        report.row("branches", load.branches)
        report.row("  ended as", ", ".join(f"{n:,} {word}" for word, n in outcomes.most_common()))
        report.row("turns completed", completed)
        _tell_trouble(report, stub, ledger, tally=tally)
        report.equal("runs started = ended", tally.runs_started, tally.runs_ended)
        report.equal("answers completed, ours = the server's", tally.attempts["succeeded"], ledger.completed)
        report.equal("tokens, the groups' = the server's", tokens, ledger.tokens)
        report.equal("places in use = none", places.in_use, 0)
        report.equal("waiting = none", places.waiting, 0)
        report.equal("being answered = none", stub.in_flight, 0)
    report.equal("sockets after = before", open_sockets(), sockets_before)
    report.row("memory after each wave, MiB", " ".join(f"{size:.0f}" for size in report.memory))
    report.row("seconds", f"{spent_s:.1f} ({completed / spent_s:.0f} turns a second)")
    _judge_memory(report)
    return report


def _tokens(group: furcate.Group) -> int:
    usage = group.summary().usage
    return (usage.input_tokens.known or 0) + (usage.output_tokens.known or 0)


async def _root(engine: furcate.Engine, group: furcate.Group) -> furcate.Exchange:
    """Make the conversation that all branches begin with, however often that takes."""
    request = furcate.Request(messages="Once upon a time?", profile="p", capture=True, groups=[group])
    while True:
        try:
            result = await engine.run(request)
        except furcate.ProviderError:
            continue
        return result.exchange


async def _quiet(stub: StubProvider) -> None:
    """Wait until the server has noticed that everybody left."""
    with anyio.move_on_after(5):
        await stub.wait_until(lambda stub: stub.in_flight == 0)


def _tell_trouble(report: Report, stub: StubProvider, ledger: Ledger, *, tally: Tally) -> None:
    report.row("requests at the server", stub.requests_read)
    report.row("  of them spoiled", stub.requests_read - ledger.faults["none"])
    for fault, number in sorted(ledger.faults.items()):
        report.row(f"    {fault}", number)
    report.row("connections", stub.connections)
    report.row("most at once", stub.most_in_flight)
    report.row("failed attempts", tally.attempts["failed"])
    for reason, number in sorted(tally.reasons.items()):
        report.row(f"    {reason}", number)


def _judge_memory(report: Report) -> None:
    # The first waves warm caches and the allocator; from the third on a leak of each branch would show.
    settled = report.memory[2:]
    if len(settled) > 3:
        half = len(settled) // 2
        grown = min(settled[half:]) - max(settled[:half])
        if grown > 4:
            report.problems.append(f"memory grew by {grown:.1f} MiB from the first half of the waves to the second")


def open_sockets() -> int:
    """Count the sockets of this process; 0 where the system does not show them."""
    folder = Path("/proc/self/fd")
    entries = list(folder.iterdir()) if folder.is_dir() else []
    # The descriptor of the listing itself is closed by now.
    return sum(os.readlink(entry).startswith("socket:") for entry in entries if entry.is_symlink())


def resident_mib() -> float:
    """Measure this process's memory, without what only waits for the collector; 0 where the system does not say."""
    gc.collect()
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if statm.exists() else 0.0


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("turns", 20_000), ("branches", 2_000), ("waves", 10), ("seed", 1), ("capacity", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--quiet-s", type=float, default=10.0)
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    given = vars(parser.parse_args(arguments))
    loop = given.pop("loop")
    # Branches fail here by the hundred, and the table counts them.
    logging.getLogger("furcate").setLevel(logging.CRITICAL)
    report = anyio.run(soak, Load(**given), backend=loop)
    print(f"soak on {loop}\n\n{report}\n")  # noqa: T201
    for problem in report.problems:
        print(f"PROBLEM: {problem}")  # noqa: T201
    print("everything holds" if not report.problems else "")  # noqa: T201
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
