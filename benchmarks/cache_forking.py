"""Count what branches of one long exchange cost where their beginning is shared, and where it is not.

    python benchmarks/cache_forking.py stub --branches 200
    python benchmarks/cache_forking.py embedded --branches 16 --slots 1 4

``stub`` asks a stub with a model of a provider's prompt cache. ``embedded`` starts llama.cpp's server with the embedded
model, anew for each row, so that each begins with nothing read. Each branch asks for one short turn on top of an
exchange of about 2,000 tokens:

- ``one first``: ``prime=True``, one branch goes ahead and the others wait for its answer to begin;
- ``all at once``: ``prime=False``; the stub begins no answer before all requests have come;
- ``no forking``: each branch has the whole conversation by itself, the opening run too;
- ``one by one``: ``capacity = 1`` at a server with several slots.

Tokens are what the servers report. Seconds are this machine's, at this moment.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
import attrs
from attrs import frozen

import furcate
from furcate.primitives._history import History
from furcate.testing import Hold, PromptCache, StubProvider, answer

Mode = Literal["one first", "all at once", "no forking"]
MODES: tuple[Mode, ...] = ("one first", "all at once", "no forking")
ONE_BY_ONE = "one by one"
DIALECTS = ("anthropic-messages", "openai-responses", "openai-chat", "google-generatecontent")

_SUBJECTS = ("The keeper", "A clerk", "Her brother", "The old pilot", "One of the rowers", "The harbour master")
_DEEDS = (
    "counts the boats",
    "mends a net",
    "notes the wind",
    "trims the lamp",
    "waits for the tide",
    "sings low",
)
_PLACES = ("by the stone wall", "under the tower", "near the third pier", "in the long shed", "at the edge of the sand")
NO_LIMITS = furcate.TimeLimits(first_event_s=None, idle_s=None)
_CONTEXT_TOKENS = 4096


@frozen(kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        what: where it was measured.
        mode: how the branches began.
        usage: what the server counted, over all runs.
        took_s: elapsed time, in seconds.
    """

    what: str
    mode: str
    usage: furcate.Usage
    took_s: float

    @property
    def read(self) -> int:
        """Input tokens that no cache had."""
        return (self.usage.input_tokens or 0) + (self.usage.cache_write_tokens or 0)

    def cells(self) -> tuple[str, ...]:
        """Give the row as text."""
        cached = self.usage.cache_read_tokens or 0
        share = cached / (cached + self.read) if self.read + cached else 0.0
        return (self.what, self.mode, f"{self.read:,}", f"{cached:,}", f"{share:.0%}", f"{self.took_s:.1f}")


@frozen(kw_only=True)
class Load:
    """Say what is asked.

    Attributes:
        branches: how many.
        words: length of the opening text.
        output_tokens: most tokens of a branch's answer.
    """

    branches: int
    words: int
    output_tokens: int = 12

    @property
    def opening(self) -> furcate.Request:
        """The request whose exchange is forked."""
        text = opening_text(self.words)
        return furcate.Request(messages=f"{text}\n\nSay in one sentence what this is about.", profile="p", capture=True)

    @property
    def exchange(self) -> furcate.Exchange:
        """An exchange as it would be captured from it; nobody is asked, so nobody has read it yet."""
        said = furcate.Message.assistant("It tells what people do at a harbour, time and again, year after year.")
        return furcate.Exchange(History((*self.opening.messages, said)), "opening")

    def turn(self, number: int) -> furcate.Request:
        """The request of a branch."""
        return furcate.Request(messages=f"Angle {number}: say it in other words.", profile="p")


def opening_text(words: int) -> str:
    """Make a text of so many words, the same each time."""
    sentences: list[str] = []
    count = number = 0
    while count < words:
        parts = (
            _SUBJECTS[number % len(_SUBJECTS)],
            _DEEDS[number // 2 % len(_DEEDS)],
            _PLACES[number // 3 % len(_PLACES)],
            f"for the {number + 1} time this year.",
        )
        sentences.append(" ".join(parts))
        count += len(sentences[-1].split())
        number += 1
    return " ".join(sentences)


async def measure(engine: furcate.Engine, load: Load, mode: Mode, exchange: furcate.Exchange) -> Row:
    """Let the branches run once, in one of the three ways."""
    group = furcate.Group()
    began_s = anyio.current_time()

    def once(number: int) -> furcate.NextAction:
        async def next_action(turn: furcate.Turn) -> furcate.Action:
            return furcate.Continue(load.turn(number)) if turn.result is None else furcate.Stop()

        return next_action

    async def alone(number: int) -> None:
        opening = await engine.run(attrs.evolve(load.opening, groups=[group]))
        await engine.continue_from(opening.exchange, attrs.evolve(load.turn(number), groups=[group]))

    if mode == "no forking":
        async with anyio.create_task_group() as tasks:
            for number in range(load.branches):
                tasks.start_soon(alone, number)
    else:
        async with furcate.open_branches(engine, exchange, prime=mode == "one first", groups=[group]) as branches:
            for number in range(load.branches):
                branches.start_soon(once(number), additional_turns=1)
    took_s = anyio.current_time() - began_s
    summary = group.summary()
    assert summary.failed == summary.cancelled == 0, str(summary)
    totals = summary.usage
    usage = furcate.Usage(
        input_tokens=totals.input_tokens.known,
        cache_read_tokens=totals.cache_read_tokens.known,
        cache_write_tokens=totals.cache_write_tokens.known,
        output_tokens=totals.output_tokens.known,
    )
    return Row(what="", mode=mode, usage=usage, took_s=took_s)


def engine_at(base_url: str, load: Load, *, key: str | None = None, **backend: Any) -> furcate.Engine:
    """Make an engine with one backend."""
    settings = furcate.Settings(max_output_tokens=load.output_tokens, temperature=0.0)
    return furcate.Engine(
        # A busy machine may take minutes to read what is long.
        backends=[furcate.Backend("b", base_url=base_url, api_key=key, limits=NO_LIMITS, **backend)],
        profiles=[furcate.Profile("p", "b", "m", settings=settings)],
    )


class Together:
    """Hold all answers back until so many requests have come: sending is quicker than reading what is long."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._all = anyio.Event()

    async def wait(self) -> None:
        """Wait for the others."""
        self._missing -= 1
        if self._missing <= 0:
            self._all.set()
        await self._all.wait()


async def measure_stub(load: Load, dialect: str, mode: Mode) -> Row:
    """Measure against the model of a provider's cache."""
    cache, together = PromptCache(), Together(1 if mode == "one first" else load.branches)
    script = cache.before(answer("It is about a harbour.", at={0: Hold(together.wait)}))
    async with (
        StubProvider(script, remember=False) as stub,
        engine_at(stub.base_url, load, dialect=dialect, capacity=load.branches) as engine,
    ):
        row = await measure(engine, load, mode, load.exchange)
    return Row(what=dialect, mode=mode, usage=row.usage, took_s=row.took_s)


@asynccontextmanager
async def llama_server(slots: int) -> AsyncIterator[tuple[str, str]]:
    """Run llama.cpp's server with the embedded model in so many slots; give its address and key."""
    process = await anyio.open_process([sys.executable, __file__, "serve", str(slots)], stderr=None)
    try:
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive()
        said = json.loads(line)
        yield said["address"] + "/v1", said["key"]
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


def serve(slots: int) -> None:
    """Be the server: set up as the embedded one, but for the number of slots."""
    import xllamacpp  # noqa: PLC0415 - only this process needs it

    from furcate.local._weights import weights_path  # noqa: PLC0415

    report = os.dup(1)
    os.dup2(2, 1)
    key = os.urandom(16).hex()
    params = xllamacpp.CommonParams()
    params.model.path = str(weights_path())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_ctx = _CONTEXT_TOKENS * slots
    params.n_parallel = slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 2048
    params.fit_params = False
    params.ui = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    os.write(report, json.dumps({"address": server.listening_address, "key": key}).encode() + b"\n")
    sys.stdin.read()
    os._exit(0)


async def measure_embedded(load: Load, slots: int, mode: Mode, exchange: furcate.Exchange, *, capacity: int) -> Row:
    """Measure with a server of its own, which has read nothing yet."""
    async with (
        llama_server(slots) as (address, key),
        engine_at(address, load, key=key, capacity=capacity, cache="per-slot") as engine,
    ):
        row = await measure(engine, load, mode, exchange)
    what = f"{slots} slot{'s' * (slots > 1)}"
    return Row(what=what, mode=mode if capacity == slots else ONE_BY_ONE, usage=row.usage, took_s=row.took_s)


async def stub_rows(load: Load, modes: tuple[str, ...], *, show: Callable[[Row], None]) -> None:
    """Measure all that concerns the stub."""
    for dialect in DIALECTS:
        for mode in (mode for mode in MODES if mode in modes):
            show(await measure_stub(load, dialect, mode))


async def embedded_rows(load: Load, slots: list[int], modes: tuple[str, ...], *, show: Callable[[Row], None]) -> None:
    """Measure all that concerns the embedded model."""
    for number in slots:
        for mode in MODES:
            if mode in modes:
                show(await measure_embedded(load, number, mode, load.exchange, capacity=number))
        if number > 1 and ONE_BY_ONE in modes:
            show(await measure_embedded(load, number, "all at once", load.exchange, capacity=1))


def say(line: str) -> None:
    """Print a line at once: a row may take minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show(row: Row) -> None:
    """Print a row of the table."""
    say("| " + " | ".join(row.cells()) + " |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(dest="which", required=True)
    for name, branches in (("stub", 200), ("embedded", 16)):
        one = which.add_parser(name)
        one.add_argument("--branches", type=int, default=branches)
        one.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
        one.add_argument("--how", choices=(*MODES, ONE_BY_ONE), nargs="+", default=(*MODES, ONE_BY_ONE))
        if name == "embedded":
            one.add_argument("--slots", type=int, nargs="+", default=[1, 4])
    which.add_parser("serve").add_argument("slots", type=int)
    asked = parser.parse_args()
    if asked.which == "serve":
        serve(asked.slots)
        return
    logging.basicConfig(level=logging.WARNING)
    say(f"{asked.branches} branches; {platform.machine()}, {os.cpu_count()} processors\n")
    say("| where | how | input read | from cache | cached | seconds |")
    say("| --- | --- | ---: | ---: | ---: | ---: |")
    if asked.which == "stub":
        rows = partial(stub_rows, Load(branches=asked.branches, words=2000), tuple(asked.how), show=show)
    else:
        rows = partial(
            embedded_rows, Load(branches=asked.branches, words=1500), asked.slots, tuple(asked.how), show=show
        )
    anyio.run(rows, backend=asked.loop)


if __name__ == "__main__":
    main()
