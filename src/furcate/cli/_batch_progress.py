"""How far a batch job is, in a few lines: items, failures by kind, what backends do a minute, and the time left."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

import anyio

from furcate.batch import ItemOutcome, JobProgress
from furcate.primitives._observations import AttemptFinished, Observation, RunFinished, RunStarted
from furcate.primitives._usage import Usage
from furcate.report import LiveView
from furcate.report._live_words import age

_RATE_S = 60.0
_END_S = 300.0
_LEAST_ENDED = 10
_LEAST_S = 5.0
_MOST_KINDS = 6


class Recent:
    """Count what happens, and tell how often it happened lately.

    Arguments:
        span_s: what counts as lately, in seconds.
        began_s: since when it is counted, on anyio's clock.
    """

    def __init__(self, span_s: float, began_s: float) -> None:
        self._span_s = span_s
        self._began_s = began_s
        self._seconds: deque[list[int]] = deque()
        self._total = 0

    def add(self, now_s: float, count: int = 1) -> None:
        """Count some more."""
        second = int(now_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += count
        self._total += count
        self._forget(now_s)

    def per_s(self, now_s: float) -> float:
        """Give how many there were a second."""
        self._forget(now_s)
        return self._total / max(1.0, min(self._span_s, now_s - self._began_s))

    def _forget(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] < now_s - self._span_s:
            self._total -= self._seconds.popleft()[1]


class Traffic:
    """Hold what a backend did lately."""

    def __init__(self, now_s: float) -> None:
        self.calls = Recent(_RATE_S, now_s)
        self.read = Recent(_RATE_S, now_s)
        self.made = Recent(_RATE_S, now_s)

    def take(self, now_s: float, usage: Usage) -> None:
        """Take a call that has ended."""
        self.calls.add(now_s)
        counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        self.read.add(now_s, sum(count or 0 for count in counts))
        self.made.add(now_s, usage.output_tokens or 0)


class Progress:
    """Follow a job, and say how far it is.

    Arguments:
        limit: how many items this start of the job begins at most; None for all.
        concurrency: how many at once.
        view: is told which run is which item's.

    Attributes:
        kinds: how many items of the input have failed, by the kind of failure.
    """

    def __init__(self, *, limit: int | None, concurrency: int, view: LiveView | None = None) -> None:
        self.kinds: Counter[str] = Counter()
        self._limit = limit
        self._least = max(_LEAST_ENDED, concurrency)
        self._view = view
        self._job: JobProgress | None = None
        self._began_s = 0.0
        self._ends = Recent(_END_S, 0.0)
        self._backends: dict[str, Traffic] = {}
        self._runs: dict[str, str] = {}
        self._workers: Mapping[str, int] = {}

    def begin(self, job: JobProgress, kinds: Iterable[tuple[str, int]]) -> None:
        """Take the state in which a job begins.

        Arguments:
            job: how far it is.
            kinds: how many items have failed already, by the kind of failure.
        """
        self.kinds.update(dict(kinds))
        self._job = job
        self._began_s = anyio.current_time()
        self._ends = Recent(_END_S, self._began_s)

    def on_event(self, item_id: str, event: Observation) -> None:
        """Take what is observed of an item's runs."""
        if isinstance(event, RunStarted):
            self._runs[event.run_id] = event.backend
            if self._view is not None:
                self._view.note(event.run_id, name=item_id)
        elif isinstance(event, AttemptFinished):
            backend = self._runs.get(event.run_id)
            # What an earlier start was answered costs nothing now, and says nothing of the backend.
            if backend is not None and not event.replayed:
                now_s = anyio.current_time()
                self._backends.setdefault(backend, Traffic(self._began_s)).take(now_s, event.usage)
        elif isinstance(event, RunFinished):
            self._runs.pop(event.run_id, None)

    def ended(self, outcome: ItemOutcome) -> None:
        """Take the end of an item."""
        self._ends.add(anyio.current_time())
        if outcome.error is not None:
            self.kinds[outcome.error.kind] += 1

    def now(self, job: JobProgress, workers: Mapping[str, int] | None = None) -> None:
        """Take how far the job is, and how many items each of its workers has, where it has such."""
        self._job = job
        self._workers = workers or {}

    def lines(self, now_s: float, last: bool) -> Iterator[str]:
        """Say how far the job is, as lines of which two spaces end the beginning.

        Arguments:
            now_s: on anyio's clock.
            last: whether that is how it ended.
        """
        job = self._job
        if job is None:
            yield "items  being read"
            return
        facts = [f"{job.enrollment.finished + job.finished:,} of {job.enrollment.items:,} finished"]
        failed = self.kinds.total()
        facts += [f"{failed:,} failed"] if failed else []
        facts.append(f"{job.left:,} left")
        if not last:
            facts.append(f"{job.running:,} running")
            facts.append(self._time_left(job, now_s))
        yield f"items  {' · '.join(facts)}"
        if failed:
            yield f"failed  {kinds_told(self.kinds)}"
        if not last:
            if self._workers:
                yield f"workers  {workers_told(self._workers)}"
            for name, traffic in self._backends.items():
                yield f"{name}  {_told(traffic, now_s)}"

    def _time_left(self, job: JobProgress, now_s: float) -> str:
        if job.ended not in (None, "all"):
            return "no more are begun"
        left = job.left
        ended = job.finished + job.failed
        if self._limit is not None:
            left = min(left, max(0, self._limit - ended))
        if not left:
            return "the last ones"
        # A few ends say little of those to come, and the first ones wait for connections to be made.
        if ended < self._least or now_s - self._began_s < _LEAST_S:
            return "time left not known yet"
        rate = self._ends.per_s(now_s)
        if not rate:
            return f"time left not known: none ended in the last {age(_END_S)}"
        return f"about {roughly(left / rate)} left at this rate"


def roughly(seconds: float) -> str:
    """Say a duration in the unit that it is best told in, without claiming to know more.

    Arguments:
        seconds: how long.
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def kinds_told(kinds: Counter[str]) -> str:
    """Say how many failed by kind, the most frequent first."""
    told = [f"{count:,} {kind}" for kind, count in kinds.most_common(_MOST_KINDS)]
    more = kinds.total() - sum(count for _, count in kinds.most_common(_MOST_KINDS))
    return " · ".join([*told, *([f"{more:,} of other kinds"] if more else [])])


def workers_told(workers: Mapping[str, int]) -> str:
    """Say how many workers there are, and what they have to do."""
    idle = sum(not items for items in workers.values())
    facts = [f"{len(workers):,} connected"]
    facts += [f"{idle:,} idle"] if idle else []
    least, most = min(workers.values()), max(workers.values())
    facts.append(f"{least} to {most} items each" if least < most else f"{most} items each")
    return " · ".join(facts)


def _told(traffic: Traffic, now_s: float) -> str:
    facts = [f"{_per_minute(traffic.calls, now_s)} calls a minute"]
    read, made = _per_minute(traffic.read, now_s), _per_minute(traffic.made, now_s)
    if (read, made) != ("0", "0"):
        facts.append(f"tokens a minute: {read} in, {made} out")
    return " · ".join(facts)


def _per_minute(recent: Recent, now_s: float) -> str:
    return f"{60 * recent.per_s(now_s):,.0f}"
