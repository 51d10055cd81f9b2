"""What a recording comes to: counted while its lines go by, so that only open runs and numbers are held."""

from __future__ import annotations

import heapq
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
from furcate.report._recording import ContentRecorded, Recorded, RecordedEvent
from furcate.report._trace_measures import Durations, Tokens
from furcate.report._trace_repeats import Repeats

SLOWEST = 10
UNSTARTED = "(start not recorded)"
NO_PROMPT = "(messages)"


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
    """Hold what is known of a run while it goes on.

    Attributes:
        branch: name of the branch that it is a turn of, empty where there is none.
    """

    backend: str
    prompt: str
    model: str
    branch: str


@frozen(kw_only=True)
class SlowRun:
    """Name a run that took long."""

    run_id: str
    duration_s: float
    status: str
    backend: str
    prompt: str
    model: str
    branch: str


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
        turns: number of turns that callbacks asked for and that began: runs of branches.
        repeated: number of ends of runs that were told before, and are counted once.
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
        self.repeated = 0
        self.pauses: Counter[str] = Counter()
        self.activities: Counter[tuple[str, str]] = Counter()
        self.contents = 0
        self._open: dict[str, OpenRun] = {}
        self._branches: dict[str, str] = {}
        self._repeats = Repeats()
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
        if self._repeats.knows(event):
            self._again(event)
            return
        match event:
            case RunStarted():
                self.turns += event.scope_id in self._branches
                self._start(event)
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
            case _:
                self._scope(event)

    def _start(self, event: RunStarted) -> None:
        prompt = NO_PROMPT if event.prompt is None else event.prompt
        branch = self._branches.get(event.scope_id or "", "")
        self._open[event.run_id] = OpenRun(event.backend, prompt, event.model, branch)

    def _again(self, event: RecordedEvent) -> None:
        """Take what was told before: it counts for nothing, but a run may be taken up again and end otherwise."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, RunFinished):
            self.repeated += 1
            self._open.pop(event.run_id, None)

    def conclude(self) -> None:
        """Count the runs whose end was not recorded, once all lines have gone by."""
        for run in self._open.values():
            for part in self._parts(run):
                part.runs["unfinished"] += 1
        self._open.clear()

    def _scope(
        self,
        event: CoordinatorStarted
        | CoordinatorFinished
        | NurseryStarted
        | NurseryFinished
        | TurnDelivered
        | BackendLimited,
    ) -> None:
        match event:
            case CoordinatorStarted():
                self.branches.started += 1
                self._branches[event.scope_id] = event.name or ""
            case TurnDelivered():
                pass  # the first is no turn yet, and after another the callback may stop
            case BackendLimited():
                pass  # how many places are in use says nothing about what was done
            case CoordinatorFinished():
                self._branches.pop(event.scope_id, None)
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
            branch=run.branch if run is not None else "",
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
