"""What a recording comes to: counted while its lines go by, so that only open runs and numbers are held."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import assert_never

from attrs import define, field, frozen

from furcate.primitives._json import Plain
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    BackendLimited,
    BackendPaused,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._usage import USAGE_FIELDS, Usage
from furcate.report._recording import ContentRecorded, Recorded

SLOWEST = 10
UNSTARTED = "(start not recorded)"
NO_PROMPT = "(messages)"
INPUTS = ("input_tokens", "cache_read_tokens", "cache_write_tokens")


class Durations:
    """Hold numbers of seconds, and give what lies in their middle and at their end."""

    def __init__(self) -> None:
        self._held = array("d")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._held)

    def add(self, seconds: float) -> None:
        """Take one."""
        self._held.append(seconds)
        self._sorted = False

    def at(self, share: float) -> float | None:
        """Give the smallest of them that a share of all, from 0 to 1, does not exceed; None where there is none."""
        if not self._held:
            return None
        if not self._sorted:
            self._held = array("d", sorted(self._held))
            self._sorted = True
        # Nearest rank: always one of the measured numbers, the last one for a share of 1.
        return self._held[max(0, math.ceil(share * len(self._held)) - 1)]

    def described(self) -> Plain:
        """Give them as plain data."""
        return {"count": len(self), "median_s": self.at(0.5), "p95_s": self.at(0.95), "max_s": self.at(1.0)}


@define
class TokenTotal:
    """Total one usage field over ended runs.

    Attributes:
        known: sum of what was reported; None where nobody reported.
        exact: number of runs that reported it exactly.
        at_least: number of runs that reported a lower bound.
        unknown: number of runs that did not report it.
    """

    known: int | None = None
    exact: int = 0
    at_least: int = 0
    unknown: int = 0

    def add(self, value: int | None, *, bound: bool) -> None:
        """Take what one run reported."""
        if value is None:
            self.unknown += 1
            return
        self.known = (self.known or 0) + value
        if bound:
            self.at_least += 1
        else:
            self.exact += 1

    def described(self) -> Plain:
        """Give it as plain data."""
        return {"tokens": self.known, "exact": self.exact, "at_least": self.at_least, "unknown": self.unknown}


class Tokens:
    """Total the usage of ended runs.

    Attributes:
        fields: a total for each usage field.
        share_runs: number of runs that told both how much they read from a cache and how much not.
    """

    def __init__(self) -> None:
        self.fields = {name: TokenTotal() for name in USAGE_FIELDS}
        self.share_runs = 0
        self._cached = 0
        self._sent = 0

    def add(self, usage: Usage) -> None:
        """Take what one run used."""
        for name, total in self.fields.items():
            total.add(getattr(usage, name), bound=name in usage.lower_bounds)
        if usage.input_tokens is not None and usage.cache_read_tokens is not None:
            self.share_runs += 1
            self._cached += usage.cache_read_tokens
            self._sent += sum(getattr(usage, name) or 0 for name in INPUTS)

    @property
    def cache_share(self) -> float | None:
        """Share of the input that was read from a cache, over the runs that told; None where nobody told of any."""
        return self._cached / self._sent if self._sent else None

    def described(self) -> dict[str, Plain]:
        """Give them as plain data."""
        return {
            **{name: total.described() for name, total in self.fields.items()},
            "cache_share": self.cache_share,
            "cache_share_runs": self.share_runs,
        }


class Part:
    """Total what one backend or one prompt had to do with.

    Attributes:
        runs: number of runs by status, those that have not ended under ``unfinished``.
        tokens: of the ended ones.
        waited: how long attempts waited for admission.
        first_event: how long they took from sending to the first content event.
        streamed: how long content came after that.
        run: how long runs took as a whole.
    """

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.tokens = Tokens()
        self.waited = Durations()
        self.first_event = Durations()
        self.streamed = Durations()
        self.run = Durations()

    def described(self) -> dict[str, Plain]:
        """Give it as plain data."""
        return {
            "runs": {**self.runs},
            "tokens": self.tokens.described(),
            "seconds": {
                "waited": self.waited.described(),
                "first_event": self.first_event.described(),
                "streamed": self.streamed.described(),
                "run": self.run.described(),
            },
        }


@frozen
class OpenRun:
    """Hold what is known of a run while it goes on."""

    backend: str
    prompt: str
    model: str
    started_s: float


@frozen(kw_only=True)
class SlowRun:
    """Name a run that took long."""

    run_id: str
    duration_s: float
    status: str
    backend: str
    prompt: str
    model: str


@define
class FailureCount:
    """Count what failed in one way.

    Attributes:
        attempts: how many attempts did.
        runs: how many runs ended so.
        run_id: one of the runs that met it.
    """

    run_id: str
    attempts: int = 0
    runs: int = 0


@define
class Scopes:
    """Count coordinators or nurseries.

    Attributes:
        started: how many began.
        ended: how many ended, by outcome, or by status where none was reached.
        errors: how many ended by each class of error.
    """

    started: int = 0
    ended: Counter[str] = field(factory=Counter)
    errors: Counter[str] = field(factory=Counter)

    @property
    def unfinished(self) -> int:
        """Number of those whose end was not recorded."""
        return max(0, self.started - self.ended.total())

    def described(self) -> dict[str, Plain]:
        """Give them as plain data."""
        return {
            "started": self.started,
            "ended": {**self.ended},
            "errors": {**self.errors},
            "unfinished": self.unfinished,
        }


class TraceTotals:
    """Total what a recording tells.

    Attributes:
        first_s: when its first observation was told, in seconds since 1970; None where it holds none.
        last_s: when its last one was.
        all: totals of all runs.
        backends: totals by backend; runs whose start was not recorded are under `UNSTARTED`.
        prompts: totals by prompt; runs of plain messages are under `NO_PROMPT`.
        attempts: ended attempts by status.
        purposes: ended attempts by purpose.
        retries: pauses before another attempt, by what the attempt before them failed of.
        validation: ended runs by validation status.
        failures: what failed, by kind and reason.
        branches: coordinators.
        nurseries: nurseries of branches.
        turns: number of turns that callbacks were called for.
        pauses: how often a backend as a whole paused.
        activities: work that providers ran on their own side and that ended, by its name and state.
        contents: number of lines that hold content.
    """

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.all = Part()
        self.backends: dict[str, Part] = {}
        self.prompts: dict[str, Part] = {}
        self.attempts: Counter[str] = Counter()
        self.purposes: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.validation: Counter[str] = Counter()
        self.failures: dict[tuple[str, str], FailureCount] = {}
        self.branches = Scopes()
        self.nurseries = Scopes()
        self.turns = 0
        self.pauses: Counter[str] = Counter()
        self.activities: Counter[tuple[str, str]] = Counter()
        self.contents = 0
        self._open: dict[str, OpenRun] = {}
        self._slow: list[tuple[float, int, SlowRun]] = []
        self._order = count()

    @property
    def slowest(self) -> tuple[SlowRun, ...]:
        """The runs that took longest, the longest first."""
        return tuple(run for _, _, run in sorted(self._slow, reverse=True))

    def add(self, recorded: Recorded) -> None:
        """Take one observation."""
        event = recorded.event
        self.first_s = recorded.at_s if self.first_s is None else min(self.first_s, recorded.at_s)
        self.last_s = recorded.at_s if self.last_s is None else max(self.last_s, recorded.at_s)
        match event:
            case RunStarted():
                prompt = NO_PROMPT if event.prompt is None else event.prompt
                self._open[event.run_id] = OpenRun(event.backend, prompt, event.model, recorded.at_s)
            case AttemptStarted():
                for part in self._parts(self._open.get(event.run_id)):
                    part.waited.add(event.waited_s)
            case AttemptFinished():
                self._attempt(event)
            case AttemptsPaused():
                self.retries[event.failure_kind] += 1
            case RunFinished():
                self._run(event)
            case ContentRecorded():
                self.contents += 1
            case ActivityChanged():
                # Some providers tell only of the end, so beginnings cannot be counted.
                if event.state != "started":
                    self.activities[event.name, event.state] += 1
            case BackendPaused():
                self.pauses[event.backend] += 1
            case BackendLimited():
                pass  # how many places are in use says nothing about what was done
            case _:
                self._scope(event)

    def conclude(self) -> None:
        """Count the runs whose end was not recorded, once all lines have gone by."""
        for run in self._open.values():
            for part in self._parts(run):
                part.runs["unfinished"] += 1
        self._open.clear()

    def _scope(
        self, event: CoordinatorStarted | CoordinatorFinished | NurseryStarted | NurseryFinished | TurnDelivered
    ) -> None:
        match event:
            case CoordinatorStarted():
                self.branches.started += 1
            case TurnDelivered():
                self.turns += 1
            case CoordinatorFinished():
                self.branches.ended[event.outcome or event.status] += 1
                if event.error_type is not None:
                    self.branches.errors[event.error_type] += 1
            case NurseryStarted():
                self.nurseries.started += 1
            case NurseryFinished():
                self.nurseries.ended[event.status] += 1
            case _:
                assert_never(event)

    def _attempt(self, event: AttemptFinished) -> None:
        self.attempts[event.status] += 1
        self.purposes[event.purpose] += 1
        if event.first_event_s is not None:
            for part in self._parts(self._open.get(event.run_id)):
                part.first_event.add(event.first_event_s)
                part.streamed.add(max(0.0, event.duration_s - event.first_event_s))
        if event.status == "failed":
            self._failure(event).attempts += 1

    def _run(self, event: RunFinished) -> None:
        run = self._open.pop(event.run_id, None)
        for part in self._parts(run):
            part.runs[event.status] += 1
            part.tokens.add(event.usage)
            part.run.add(event.duration_s)
        self.validation[event.validation] += 1
        if event.status == "failed":
            self._failure(event).runs += 1
        entry = SlowRun(
            run_id=event.run_id,
            duration_s=event.duration_s,
            status=event.status,
            backend=run.backend if run is not None else UNSTARTED,
            prompt=run.prompt if run is not None else UNSTARTED,
            model=run.model if run is not None else "",
        )
        # The order of ending decides between equals, so that entries themselves are never compared.
        keep = heapq.heappush if len(self._slow) < SLOWEST else heapq.heappushpop
        keep(self._slow, (event.duration_s, -next(self._order), entry))

    def _failure(self, event: AttemptFinished | RunFinished) -> FailureCount:
        kind = event.failure_kind or "none"
        return self.failures.setdefault((kind, event.failure_reason or kind), FailureCount(event.run_id))

    def _parts(self, run: OpenRun | None) -> Iterable[Part]:
        backend, prompt = (run.backend, run.prompt) if run is not None else (UNSTARTED, UNSTARTED)
        yield self.all
        for parts, name in ((self.backends, backend), (self.prompts, prompt)):
            if name not in parts:
                parts[name] = Part()
            yield parts[name]
