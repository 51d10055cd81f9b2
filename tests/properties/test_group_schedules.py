"""Groups against a naive recount, whatever they are told and in which order."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.groups import Group
from furcate.primitives._observations import RunFinished, RunStarted
from furcate.primitives._usage import USAGE_FIELDS, Usage

RUNS = st.sampled_from(["a", "b", "c", "d", "e"])
GROUPS = ("one", "two", "three")

USAGES = st.builds(
    lambda counts, bounds: Usage(**counts, lower_bounds=bounds & {name for name in counts if counts[name] is not None}),
    st.dictionaries(st.sampled_from(USAGE_FIELDS), st.none() | st.integers(0, 1000)),
    st.frozensets(st.sampled_from(USAGE_FIELDS)),
)
STARTS = st.builds(
    RunStarted,
    run_id=RUNS,
    parent_run_id=st.none() | RUNS,
    prompt=st.none(),
    profile=st.just("p"),
    backend=st.just("b"),
    model=st.just("m"),
    dialect=st.just("openai-chat"),
    session_id=st.none(),
    scope_id=st.none(),
)
ENDS = st.builds(
    RunFinished,
    run_id=RUNS,
    status=st.sampled_from(["succeeded", "failed", "cancelled"]),
    # Halves add up exactly in any order.
    duration_s=st.integers(0, 20).map(lambda halves: halves / 2),
    usage=USAGES,
    attempts=st.integers(0, 5),
    repairs=st.integers(0, 2),
    validation=st.sampled_from(["not_requested", "passed", "failed", "skipped"]),
    stop_reason=st.none(),
    failure_kind=st.none(),
    failure_reason=st.none(),
)
Told: TypeAlias = tuple[RunStarted | RunFinished, frozenset[Literal["one", "two", "three"]], int]
SCHEDULES = st.lists(
    st.tuples(st.one_of(STARTS, ENDS), st.frozensets(st.sampled_from(GROUPS)), st.integers(1, 3)), max_size=25
)


@pytest.mark.req("S4-114", "S4-118", "S4-119")
@given(SCHEDULES, st.integers(0, 25))
def test_a_summary_is_what_a_naive_recount_gives(schedule: list[Told], snapshot_after: int) -> None:
    """Starts and ends, repeated and in any order, over several groups: each summary is the recount of what it heard."""
    groups = {name: Group(name) for name in GROUPS}
    heard: dict[str, list[RunStarted | RunFinished]] = {name: [] for name in GROUPS}
    early = None
    for number, (event, told_to, times) in enumerate(schedule):
        if number == snapshot_after:
            early = groups["one"].summary(), recount(heard["one"])
        for name in told_to:
            for _ in range(times):
                groups[name].on_event(event)
                heard[name].append(event)
    for name, group in groups.items():
        summary = group.summary()
        assert summary.name == name
        assert flat(summary) == recount(heard[name])
    if early is not None:
        assert flat(early[0]) == early[1], "a snapshot stays as it was"


def flat(summary: object) -> dict[str, object]:
    plain = attrs.asdict(summary)
    plain.pop("name")
    plain["complete"] = {name: getattr(summary.usage, name).complete for name in USAGE_FIELDS}
    return plain


def recount(events: list[RunStarted | RunFinished]) -> dict[str, object]:
    """Count again from the list of what was told, one question at a time."""
    runs = list(dict.fromkeys(event.run_id for event in events))
    parents = {event.run_id: event.parent_run_id for event in events if isinstance(event, RunStarted)}
    # The first end of a run is the one that counts, so later ones are overwritten by it.
    ends = {event.run_id: event for event in reversed(events) if isinstance(event, RunFinished)}
    running = len(runs) - len(ends)

    def number(status: str) -> int:
        return len([end for end in ends.values() if end.status == status])

    def field(name: str) -> dict[str, object]:
        reported = [end.usage for end in ends.values() if getattr(end.usage, name) is not None]
        bounds = [usage for usage in reported if name in usage.lower_bounds]
        return {
            "known": sum(getattr(usage, name) for usage in reported) if reported else None,
            "exact": len(reported) - len(bounds),
            "at_least": len(bounds),
            "unknown": len(ends) - len(reported),
            "running": running,
        }

    usage = {name: field(name) for name in USAGE_FIELDS}
    return {
        "runs": tuple(
            {"run_id": run, "parent_run_id": parents.get(run), "status": ends[run].status if run in ends else None}
            for run in runs
        ),
        "succeeded": number("succeeded"),
        "failed": number("failed"),
        "cancelled": number("cancelled"),
        "running": running,
        "attempts": sum(end.attempts for end in ends.values()),
        "repairs": sum(end.repairs for end in ends.values()),
        "validation_failed": len([end for end in ends.values() if end.validation == "failed"]),
        "run_seconds_total": sum(end.duration_s for end in ends.values()) if ends else None,
        "usage": usage,
        "complete": {name: bool(runs) and usage[name]["exact"] == len(runs) for name in USAGE_FIELDS},
    }
