"""Measure what telemetry costs: runs per second of this process's CPU, without and with it.

    python benchmarks/otel_overhead.py --runs 1000 --rounds 5 --loop trio

Each round does the same runs three times against a scripted server in the same process, whose share counts in all of
them: without an observer, with one whose spans and metrics are made and thrown away (``made``), and with one that
sends them to a collector in another process (``sent``), the exporter's thread included. What is printed is the median
of the rounds. The status is 1 where ``made`` costs more than the bound.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time  # noqa: TID251 - CPU time is what is measured
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median

import anyio
from attrs import define, field, frozen
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import furcate
from furcate.observers import OTelObserver
from furcate.testing import StubProvider, answer

WORDS = 60

_SINK = """
import http.server, sys

class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_port, flush=True)
server.serve_forever()
"""


@frozen(kw_only=True)
class Load:
    """Say how much is measured.

    Attributes:
        runs: runs of one measurement.
        at_once: how many of them go on at the same time.
        rounds: how often everything is measured.
        loop: the event loop.
    """

    runs: int = 1_000
    at_once: int = 32
    rounds: int = 5
    loop: str = "asyncio"


@define
class Figures:
    """Hold runs per second of CPU, one of each kind a round."""

    without: list[float] = field(factory=list)
    made: list[float] = field(factory=list)
    sent: list[float] = field(factory=list)

    def ratio(self, figures: Sequence[float]) -> float:
        """Give how many times the CPU is needed that is needed without, as the median of the rounds."""
        return median(plain / figure for plain, figure in zip(self.without, figures, strict=True))


class _Nowhere(SpanExporter):
    """Take spans and throw them away."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@contextmanager
def making() -> Iterator[OTelObserver]:
    """Give an observer whose telemetry goes nowhere."""
    traces = TracerProvider(shutdown_on_exit=False)
    traces.add_span_processor(BatchSpanProcessor(_Nowhere(), max_queue_size=100_000))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    try:
        yield OTelObserver(tracer_provider=traces, meter_provider=meters)
    finally:
        traces.shutdown()
        meters.shutdown()


@contextmanager
def sink() -> Iterator[str]:
    """Run a collector that keeps nothing, in a process of its own, and give its address."""
    process = subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def converse(load: Load, observers: Sequence[OTelObserver]) -> None:
    """Do the runs."""
    text = " ".join(["word"] * WORDS)
    usage = furcate.Usage(input_tokens=100, cache_read_tokens=20, output_tokens=WORDS)
    async with StubProvider(answer(text, usage=usage), remember=False) as stub:
        engine = furcate.Engine(
            backends=[furcate.Backend("b", base_url=stub.base_url, capacity=load.at_once)],
            profiles=[furcate.Profile("p", "b", "m")],
            observers=observers,
        )
        async with engine, anyio.create_task_group() as tasks:
            for _ in range(load.runs):
                tasks.start_soon(engine.run, furcate.Request(messages="Say words.", profile="p"))


def measured(load: Load, observing: AbstractContextManager[OTelObserver | None]) -> float:
    """Give runs per second of CPU; whatever is still to be sent at the end counts."""
    began = time.process_time()
    with observing as observer:
        anyio.run(converse, load, [observer] if observer is not None else [], backend=load.loop)
    return load.runs / (time.process_time() - began)


def measure(load: Load) -> Figures:
    """Measure all kinds in turn, so that a machine that gets slower is slower for each."""
    figures = Figures()
    with sink() as url:
        kinds: tuple[tuple[list[float], Callable[[], AbstractContextManager[OTelObserver | None]]], ...] = (
            (figures.without, nullcontext),
            (figures.made, making),
            (figures.sent, lambda: furcate.observe_otel(endpoint=url)),
        )
        for _, observing in kinds:
            measured(load, observing())  # whatever is imported or compiled on first use
        for _ in range(load.rounds):
            for found, observing in kinds:
                found.append(measured(load, observing()))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000, help="runs of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--most", type=float, default=1.25, help="most CPU with telemetry made, as a multiple")
    given = parser.parse_args(arguments)
    figures = measure(Load(runs=given.runs, rounds=given.rounds, loop=given.loop))
    print(f"{given.loop}: runs per second of CPU, median of {given.rounds} rounds of {given.runs:,} runs")  # noqa: T201
    print(f"  without  {median(figures.without):8,.0f}")  # noqa: T201
    for name, found in (("made", figures.made), ("sent", figures.sent)):
        print(f"  {name:7}  {median(found):8,.0f}   {figures.ratio(found):.2f} times the CPU")  # noqa: T201
    return int(figures.ratio(figures.made) > given.most)


if __name__ == "__main__":
    sys.exit(main())
