"""Say what is measured of each workload, and tell what was found as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_FLOORS = ("bare_httpx2", "bare_aiohttp")

Found = dict[str, float]
"""What was measured of one process, by the name of the measure."""


class Measure(NamedTuple):
    """Say what is told of a workload.

    Attributes:
        workload: which one.
        key: the name of the measure among what the process found.
        title: what the table calls it, with its unit.
        compared: whether ratios of it are told.
    """

    workload: str
    key: str
    title: str
    compared: bool = True


MEASURES = (
    Measure("w1", "cpu_us", "W1, a run: CPU, µs"),
    Measure("w2", "cpu_us", "W2, a run of 50 pieces: CPU, µs"),
    Measure("w3", "cpu_us", "W3, a piece: CPU, µs"),
    Measure("w3p", "cpu_us", "W3p, a piece: CPU, µs"),
    Measure("w4", "cpu_us", "W4, a turn: CPU, µs"),
    Measure("w4", "wall_s", "W4: seconds (ideal {ideal_s:.2f})", compared=False),
    Measure("w4", "grown_mb", "W4: memory grown, MB", compared=False),
    Measure("w5", "branch_bytes", "W5, a branch: bytes"),
    Measure("w5", "gc_ms", "W5: a full collection, ms", compared=False),
    Measure("w6", "cpu_ms", "W6, import: CPU, ms"),
    Measure("w6", "grown_mb", "W6, import: memory, MB", compared=False),
)
WORKLOADS = tuple(dict.fromkeys(measure.workload for measure in MEASURES))
METHOD = {
    "w1": "500 single requests, not streamed, 50 at once",
    "w2": "the same, streamed in 50 pieces",
    "w3": "one stream of 20,000 pieces, as fast as it is read",
    "w3p": "50 streams of 100 pieces, one every 25 ms each, so that each piece wakes the client",
    "w4": "1,000 forks of a conversation of 40 messages and 40 kB, three turns each, 100 at once, 20 ms of latency; "
    "memory is the most that it was, less what it was before",
    "w5": "10,000 branches (langgraph: 300) of five turns of 240 characters over a shared history of 200 messages, "
    "held in memory; no network",
    "w6": "import of what a first request needs, less an interpreter that imports nothing",
}


class Results:
    """Hold what was found, and tell it.

    Arguments:
        names: the clients, in the order of the table's columns.
        workloads: the workloads.
    """

    def __init__(self, names: Sequence[str], workloads: Sequence[str]) -> None:
        self._names = names
        self.found: dict[str, dict[str, list[Found]]] = {one: {name: [] for name in names} for one in workloads}
        self.failed: dict[str, str] = {}

    def median(self, measure: Measure, name: str) -> float | None:
        """Give the median of a measure, None where nothing was found."""
        found = self.found[measure.workload].get(name)
        return statistics.median(one[measure.key] for one in found) if found else None

    def lines(self, scale: float) -> Iterator[str]:
        """Give the tables: medians, and ratios to each floor that was measured."""
        measures = [measure for measure in MEASURES if measure.workload in self.found]
        ideal_s = 0.06 * -(-max(1, round(1000 * scale)) // 100)
        yield from self._head("")
        for measure in measures:
            cells = [figure(self.median(measure, name)) for name in self._names]
            yield _row(measure.title.format(ideal_s=ideal_s), cells)
        for floor in _FLOORS:
            if floor in self._names:
                yield ""
                yield from self._head(f"times {floor}")
                for measure in measures:
                    if measure.compared:
                        yield _row(measure.title.rpartition(":")[0], self._ratios(measure, floor))

    def _head(self, corner: str) -> Iterator[str]:
        yield _row(corner, self._names)
        yield _row("---", ["---:"] * len(self._names))

    def _ratios(self, measure: Measure, floor: str) -> Iterator[str]:
        below = self.median(measure, floor)
        for name in self._names:
            above = self.median(measure, name)
            yield f"{above / below:.2f}" if above is not None and below else "-"


def _row(first: str, cells: Iterator[str] | Sequence[str]) -> str:
    return f"| {' | '.join((first, *cells))} |"


def figure(value: float | None) -> str:
    """Write a figure with as many digits as mean something, and a dash for none."""
    if value is None:
        return "-"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
