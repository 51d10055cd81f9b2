"""What the page shows of a recording: its runs, and the rows in which they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs
from attrs import define, field

from furcate.primitives._json import Plain, thaw_object
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
)
from furcate.primitives._receipt import Completed, TransportReceipt
from furcate.primitives._settings import Settings
from furcate.primitives._usage import USAGE_FIELDS, Usage
from furcate.report._recording import ContentRecorded, Recorded

Facts = dict[str, Plain]


@define
class _Row:
    """Hold a row: runs that follow one from another, a branch, or a nursery.

    Attributes:
        facts: what is known of it.
        runs: ids of its runs, in order.
        above: the row that it stands under; None at the top.
    """

    facts: Facts
    runs: list[str] = field(factory=list)
    above: _Row | None = None


class PageFacts:
    """Collect what a recording tells of its runs, and arrange it in rows.

    A branch is a row, and so is a nursery. Runs that no coordinator started stand in rows of their own: one for each
    line of continuations, as far as nobody forks it.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Facts] = {}
        self._attempts: dict[tuple[str, int], Facts] = {}
        self._scopes: dict[str, Facts] = {}
        self._first_s: float | None = None
        self._last_s = 0.0

    def add(self, recorded: Recorded) -> None:
        """Take one observation."""
        if self._first_s is None:
            self._first_s = recorded.at_s
        at_s = round(recorded.at_s - self._first_s, 4)
        self._last_s = max(self._last_s, at_s)
        match recorded.event:
            case RunStarted() as event:
                self._runs.setdefault(event.run_id, {}).update(_run(event, at_s))
            case RunFinished() as event:
                self._run_of(event.run_id).update(_run_end(event, at_s))
            case AttemptStarted() as event:
                self._attempt(event.run_id, event.number).update(_told(event, at=at_s))
            case AttemptFinished() as event:
                self._attempt(event.run_id, event.number).update(_attempt_end(event, at_s))
            case ActivityChanged() as event:
                activities = self._attempt(event.run_id, event.number).setdefault("activities", [])
                assert isinstance(activities, list)
                activities.append(_bounded([f"{event.scope} {event.activity_id}", event.name, event.state]))
            case AttemptsPaused() as event:
                self._list_of(event.run_id, "pauses").append([at_s, event.wait_s, event.failure_kind])
            case ContentRecorded() as event:
                self._list_of(event.run_id, "content").append(_content(event))
            case event:
                self._scope(event, at_s)

    def described(self) -> Facts:
        """Give it all as plain data: runs by order of beginning, and rows that name them by their place in it."""
        order = {run_id: number for number, run_id in enumerate(self._runs)}
        rows = self._rows()
        place = {id(row): number for number, row in enumerate(rows)}
        listed: list[Plain] = [
            {
                **row.facts,
                "runs": [order[run_id] for run_id in row.runs],
                **({"up": place[id(row.above)]} if row.above is not None else {}),
            }
            for row in rows
        ]
        return {"began": self._first_s, "took": self._last_s, "runs": list(self._runs.values()), "rows": listed}

    def _run_of(self, run_id: str) -> Facts:
        return self._runs.setdefault(run_id, {"id": _bounded(run_id)})

    def _list_of(self, run_id: str, name: str) -> list[Plain]:
        held = self._run_of(run_id).setdefault(name, [])
        assert isinstance(held, list)
        return held

    def _attempt(self, run_id: str, number: int) -> Facts:
        key = (run_id, number)
        if key not in self._attempts:
            self._attempts[key] = {}
            self._list_of(run_id, "attempts").append(self._attempts[key])
        return self._attempts[key]

    def _scope(self, event: Observation, at_s: float) -> None:
        match event:
            case CoordinatorStarted():
                self._scopes.setdefault(event.scope_id, {}).update(_told(event, kind="branch", at=at_s))
            case NurseryStarted():
                self._scopes.setdefault(event.scope_id, {}).update(_told(event, kind="nursery", at=at_s))
            case CoordinatorFinished():
                state = event.outcome or event.status
                self._scopes.setdefault(event.scope_id, {"kind": "branch"}).update(
                    _told(event, kind="branch", state=state, end=at_s)
                )
            case NurseryFinished():
                self._scopes.setdefault(event.scope_id, {"kind": "nursery"}).update(
                    _told(event, kind="nursery", state=event.status, end=at_s)
                )
            case _:
                pass  # pauses and limits of a backend, and turns as such, have no row

    def _rows(self) -> list[_Row]:
        scoped = {scope_id: _Row({**facts, "id": _bounded(scope_id)}) for scope_id, facts in self._scopes.items()}
        row_of: dict[str, _Row] = {}
        rows: list[_Row] = []
        continued = Counter(str(run.get("parent_run_id")) for run in self._runs.values() if "scope_id" not in run)
        for run_id, run in self._runs.items():
            row = scoped.get(str(run.get("scope_id")))
            if row is None:
                above = row_of.get(str(run.get("parent_run_id")))
                row = above if _goes_on(run, above, continued) else None
                if row is None:
                    row = _Row({"kind": "line"}, above=above)
                    rows.append(row)
            row.runs.append(run_id)
            row_of[run_id] = row
        for row in scoped.values():
            row.above = scoped.get(str(row.facts.get("parent_scope_id")))
            if row.above is None:
                row.above = row_of.get(str(row.facts.get("parent_run_id")))
        rows += scoped.values()
        _cut_circles(rows)
        return rows


def _goes_on(run: Facts, above: _Row | None, continued: Mapping[str, int]) -> bool:
    """Tell whether a run goes on with the line that its parent ends, rather than beginning one that forks from it."""
    if above is None or above.facts["kind"] != "line":
        return False
    parent = run.get("parent_run_id")
    return above.runs[-1] == parent and continued[str(parent)] == 1


def _cut_circles(rows: list[_Row]) -> None:
    """See that every row stands under a row at the top, whatever a recording says."""
    sound: set[int] = set()
    for row in rows:
        path: set[int] = set()
        at: _Row | None = row
        while at is not None and id(at) not in sound:
            path.add(id(at))
            if at.above is not None and id(at.above) in path:
                at.above = None
            at = at.above
        sound |= path


# Names and ids have no bound of their own; what was said is shown in full.
_LONGEST_NAME = 1000


def _bounded(value: Plain) -> Plain:
    if isinstance(value, str) and len(value) > _LONGEST_NAME:
        return f"{value[:_LONGEST_NAME]}… ({len(value):,} characters)"
    return [_bounded(item) for item in value] if isinstance(value, list) else value


_LEFT_OUT = ("parent_carrier", "settings", "usage", "receipt", "body_sha256")


def _told(event: attrs.AttrsInstance, **more: Plain) -> Facts:
    """Give an observation's own words and numbers, but for what is empty."""
    told: Facts = {}
    for item in attrs.fields(type(event)):
        value = getattr(event, item.name)
        if item.name not in _LEFT_OUT and value is not None:
            told[item.name] = _bounded(round(value, 4) if isinstance(value, float) else value)
    return {**told, **more}


def _run(event: RunStarted, at_s: float) -> Facts:
    told = _told(event, id=_bounded(event.run_id), at=at_s)
    del told["run_id"]
    settings = _settings(event.settings)
    return {**told, "settings": settings} if settings else told


def _settings(settings: Settings) -> Facts:
    held = attrs.asdict(settings, recurse=False)
    return {
        name: _bounded(list(value) if isinstance(value, tuple) else value)
        for name, value in held.items()
        if value not in (None, ()) and name != "extra_body"
    }


def _run_end(event: RunFinished, at_s: float) -> Facts:
    told = _told(event, end=at_s, usage=_usage(event.usage))
    del told["run_id"], told["attempts"]
    return told


def _attempt_end(event: AttemptFinished, at_s: float) -> Facts:
    told = _told(event, end=at_s, body=event.body_sha256)
    del told["run_id"]
    if event.receipt is not None:
        told["receipt"] = _receipt(event.receipt)
    return told


def _usage(usage: Usage) -> Facts:
    told: Facts = {name: getattr(usage, name) for name in USAGE_FIELDS if getattr(usage, name) is not None}
    bounds: list[Plain] = [*sorted(usage.lower_bounds)]
    return {**told, "bounds": bounds} if bounds else told


def _receipt(receipt: TransportReceipt) -> Facts:
    outcome = receipt.outcome
    return {
        "runtime": _bounded(receipt.caller_runtime_id),
        "native": receipt.native_request_sha256.hex(),
        "sent": receipt.provider_request_sha256.hex(),
        "provider": _bounded(receipt.provider),
        "dropped": receipt.foreign_reasoning_dropped,
        "outcome": _bounded(
            outcome.stop_reason if isinstance(outcome, Completed) else f"{outcome.kind}: {outcome.message}"
        ),
    }


def _content(event: ContentRecorded) -> Facts:
    return {
        "number": event.number,
        "direction": event.direction,
        "inherited": event.inherited,
        "messages": [thaw_object(message) for message in event.messages],
    }
