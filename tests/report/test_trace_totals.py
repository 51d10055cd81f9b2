"""What a recording comes to, in numbers, in columns, and as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable

import attrs
import pytest
from rich.cells import cell_len

from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    BackendPaused,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.report import Recorded, Recording, TraceTotals, trace_data, trace_text
from furcate.report._trace_measures import Durations
from furcate.report._trace_totals import NO_PROMPT, UNSTARTED


def started(run_id: str, *, backend: str = "b", prompt: str | None = None) -> RunStarted:
    return RunStarted(
        run_id=run_id, parent_run_id=None, prompt=prompt, profile="p", backend=backend, model="m", dialect="d"
    )


def finished(run_id: str, status: str = "succeeded", *, usage: Usage = UNKNOWN, duration_s: float = 1.0) -> RunFinished:
    failed = status == "failed"
    return RunFinished(
        run_id=run_id,
        status=status,  # type: ignore[arg-type]
        duration_s=duration_s,
        usage=usage,
        attempts=1,
        repairs=0,
        validation="not_requested",
        failure_kind="timeout" if failed else None,
        failure_reason="idle" if failed else None,
    )


def attempt(run_id: str, *, duration_s: float, first_s: float | None, purpose: str = "generate") -> AttemptFinished:
    failed = first_s is None
    return AttemptFinished(
        run_id=run_id,
        number=1,
        purpose=purpose,  # type: ignore[arg-type]
        request_id=f"{run_id}-1",
        status="failed" if failed else "succeeded",
        duration_s=duration_s,
        first_event_s=first_s,
        body_sha256="",
        failure_kind="timeout" if failed else None,
        failure_reason="idle" if failed else None,
    )


def totals_of(events: Iterable[Observation]) -> TraceTotals:
    totals = TraceTotals()
    for number, event in enumerate(events):
        totals.add(Recorded(1_800_000_000.0 + number, event))
    totals.conclude()
    return totals


STORY: tuple[Observation, ...] = (
    started("one", prompt="draft"),
    AttemptStarted(run_id="one", number=1, purpose="generate", request_id="one-1", waited_s=0.5),
    ActivityChanged(run_id="one", number=1, activity_id="a", name="web_search", state="started"),
    ActivityChanged(run_id="one", number=1, activity_id="a", name="web_search", state="completed"),
    attempt("one", duration_s=3.0, first_s=1.0),
    finished("one", usage=Usage(input_tokens=60, cache_read_tokens=40, output_tokens=7), duration_s=4.0),
    started("two", backend="other"),
    AttemptStarted(run_id="two", number=1, purpose="generate", request_id="two-1", waited_s=0.0),
    attempt("two", duration_s=2.0, first_s=None),
    AttemptsPaused(run_id="two", wait_s=1, failure_kind="timeout"),
    BackendPaused(backend="other", wait_s=1, failure_kind="timeout"),
    attempt("two", duration_s=2.0, first_s=None, purpose="repair"),
    finished("two", "failed", usage=Usage(output_tokens=3, lower_bounds={"output_tokens"}), duration_s=9.0),
    NurseryStarted(scope_id="n", parent_run_id="one", name="angles"),
    *(
        CoordinatorStarted(scope_id=f"c{n}", parent_scope_id="n", parent_run_id="one", name=None, additional_turns=1)
        for n in range(4)
    ),
    TurnDelivered(scope_id="c0", remaining=1),
    CoordinatorFinished(scope_id="c0", status="succeeded", outcome="stopped"),
    CoordinatorFinished(scope_id="c1", status="succeeded", outcome="exhausted"),
    CoordinatorFinished(scope_id="c2", status="failed", outcome=None, error_type="ValueError"),
    NurseryFinished(scope_id="n", status="succeeded", branches=4),
    started("three"),
    finished("earlier", "cancelled"),
)


def test_a_story_is_counted() -> None:
    """Runs, attempts, retries, branches and nurseries are counted by what became of them."""
    totals = totals_of(STORY)
    assert totals.all.runs == {"succeeded": 1, "failed": 1, "cancelled": 1, "unfinished": 1}
    assert totals.attempts == {"succeeded": 1, "failed": 2}
    assert totals.purposes == {"generate": 2, "repair": 1}
    assert totals.retries == {"timeout": 1}
    assert totals.pauses == {"other": 1}
    assert totals.activities == {("web_search", "completed"): 1}
    assert totals.branches.ended == {"stopped": 1, "exhausted": 1, "failed": 1}
    assert (totals.branches.started, totals.branches.unfinished, totals.turns) == (4, 1, 0)
    assert totals.branches.errors == {"ValueError": 1}
    assert totals.nurseries.ended == {"succeeded": 1}
    assert {name: part.runs.total() for name, part in totals.backends.items()} == {"b": 2, "other": 1, UNSTARTED: 1}
    assert {name: part.runs.total() for name, part in totals.prompts.items()} == {
        "draft": 1, NO_PROMPT: 2, UNSTARTED: 1,
    }  # fmt: skip


def turn(run_id: str, scope: str) -> RunStarted:
    return attrs.evolve(started(run_id), scope_id=scope)


def branch(scope: str, name: str | None = None) -> CoordinatorStarted:
    return CoordinatorStarted(scope_id=scope, parent_scope_id="n", parent_run_id="one", name=name, additional_turns=3)


def test_turns_are_those_asked_for() -> None:
    """A turn is a run of a branch: a callback that is called for the first time, or stops, makes none."""
    events: list[Observation] = []
    for scope in ("c0", "c1"):
        events.append(branch(scope))
        for number in range(3):
            events += (TurnDelivered(scope_id=scope, remaining=3 - number), turn(f"{scope}-{number}", scope))
        events.append(TurnDelivered(scope_id=scope, remaining=0))
    assert totals_of(events).turns == 6
    assert totals_of([*events, *events]).turns == 6


@pytest.mark.parametrize("order", ["joined", "interleaved"])
def test_what_is_told_twice_is_counted_once(order: str) -> None:
    """A file that was joined with its copy, or that two observers wrote, comes to what happened once."""
    events = STORY
    twice = [*events, *events] if order == "joined" else [event for event in events for _ in range(2)]
    once, again = totals_of(events), totals_of(twice)
    assert (once.repeated, again.repeated) == (0, 3)
    assert again.all.runs == once.all.runs
    assert again.attempts == once.attempts
    assert again.retries == once.retries
    assert again.failures == once.failures
    assert again.all.tokens.fields == once.all.tokens.fields
    assert [len(part) for part in (again.all.waited, again.all.run)] == [2, 3]
    assert (again.branches, again.nurseries, again.slowest) == (once.branches, once.nurseries, once.slowest)
    assert "3 runs are told again and counted once" in trace_text(again, Recording([]))
    assert trace_data(again, Recording([]))["recording"]["repeated_runs"] == 3  # type: ignore[index, call-overload]


def test_a_run_that_is_taken_up_again_is_no_repetition() -> None:
    """A second end of one run that differs from the first is counted, as a batch ends a run that it takes up again."""
    events = (started("r"), finished("r", "cancelled"), started("r"), finished("r", duration_s=2.0))
    totals = totals_of(events)
    assert (totals.all.runs, totals.repeated) == ({"cancelled": 1, "succeeded": 1}, 0)


def test_long_names_are_told_apart() -> None:
    """Names that begin alike differ in their rows, and a run of a branch is called as the branch is."""
    names = [f"branches[{number}].follow_ups[{turn}]" for number in range(3) for turn in range(2)]
    events: list[Observation] = [branch("c", "sceptic"), turn("t", "c"), finished("t", duration_s=0.5)]
    for name in names:
        events += (started(name, prompt=name), finished(name))
    text = trace_text(totals_of(events), Recording([]))
    _, prompts = text.split("\nprompt ")
    shown = [line.split()[0] for line in prompts.split("\n\n")[0].splitlines()[1:]]
    assert len(set(shown)) == len(names) + 1
    slowest = text.split("slowest runs")[1].splitlines()[1:]
    assert len({line.split()[0] for line in slowest}) == len(names) + 1
    assert slowest[-1].split()[0] == "sceptic"


def test_names_that_no_cut_tells_apart_are_numbered() -> None:
    """Of long names that differ only where no row has room for it, each has a number."""
    names = [f"{'a' * 30}{number}{'b' * 30}" for number in range(3)]
    events = [event for name in names for event in (started(name, prompt=name), finished(name))]
    prompts = trace_text(totals_of(events), Recording([])).split("\nprompt ")[1].split("\n\n")[0]
    assert len({line.split()[0] for line in prompts.splitlines()[1:]}) == 3


def test_tokens_say_what_is_unknown() -> None:
    """A sum knows how many runs told exactly, at least, or nothing; the cache's share is of the runs that told it."""
    fields = totals_of(STORY).all.tokens.fields
    assert (fields["output_tokens"].known, fields["output_tokens"].exact) == (10, 1)
    assert (fields["output_tokens"].at_least, fields["output_tokens"].unknown) == (1, 1)
    assert (fields["reasoning_tokens"].known, fields["reasoning_tokens"].unknown) == (None, 3)
    assert totals_of(STORY).all.tokens.cache_share == 0.4
    assert totals_of(STORY).all.tokens.share_runs == 1
    assert totals_of([]).all.tokens.cache_share is None


def test_times_are_told_apart() -> None:
    """Waiting, the time to the first event, and streaming after it are separate measurements."""
    part = totals_of(STORY).all
    assert (part.waited.at(0.5), part.waited.at(1.0), len(part.waited)) == (0.0, 0.5, 2)
    assert (part.first_event.at(0.5), part.streamed.at(0.5)) == (1.0, 2.0)
    assert len(part.first_event) == len(part.streamed) == 1
    assert (part.run.at(0.5), part.run.at(1.0)) == (4.0, 9.0)


def test_failures_name_a_run_each() -> None:
    """Each kind and reason has the number of attempts and runs that failed so, and one run to look at."""
    [(cause, failure)] = totals_of(STORY).failures.items()
    assert cause == ("timeout", "idle")
    assert (failure.attempts, failure.runs, failure.run_id) == (2, 1, "two")


def test_the_slowest_come_first() -> None:
    """Of many runs, the ten that took longest are kept, in order."""
    events = [finished(f"run {n}", duration_s=float(n * 37 % 101)) for n in range(100)]
    slowest = totals_of(events).slowest
    assert [run.duration_s for run in slowest] == sorted((e.duration_s for e in events), reverse=True)[:10]


def test_quantiles_are_measured_values() -> None:
    """The middle and the end of a few numbers are some of them, and of none there is neither."""
    durations = Durations()
    assert durations.at(0.5) is None
    for seconds in (5.0, 1.0, 4.0, 2.0, 3.0):
        durations.add(seconds)
    assert (durations.at(0.5), durations.at(0.95), durations.at(1.0)) == (3.0, 5.0, 5.0)
    durations.add(0.0)
    assert (durations.at(0.0), durations.at(0.5)) == (0.0, 2.0)


def test_columns_fit_a_terminal() -> None:
    """Whatever names and numbers there are, no line is wider than 80 cells, and none holds a control character."""
    names = ("界" * 60, "a\x1b[2Jb\nc", "x" * 200, *(f"name {n}" for n in range(40)))
    events: list[Observation] = []
    for name in names:
        events += (started(name, backend=name, prompt=name), attempt(name, duration_s=1e7, first_s=9e6))
        events.append(finished(name, "failed", usage=Usage(input_tokens=10**12, cache_read_tokens=10**9)))
    text = trace_text(totals_of(events), Recording([]))
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert all(line.isprintable() for line in text.split("\n"))
    assert "and 23 more" in text


def test_the_text_tells_the_story() -> None:
    """The columns hold the counts, bounds marked, and the failed run's id."""
    text = trace_text(totals_of(STORY), Recording([]))
    whole = " ".join(text.split())
    assert "runs 4 1 succeeded, 1 failed, 1 cancelled, 1 unfinished attempts" in whole
    assert "branches 4 1 stopped, 1 exhausted, 1 failed, 1 unfinished (1 ValueError) turns" in whole
    told = [" ".join(line.split()) for line in text.splitlines()]
    assert "provider's tools 1 1 web_search completed" in told
    assert "attempts 3 1 succeeded, 2 failed, 1 repair" in told
    assert "output >= 10 1 1 1" in told
    assert "reasoning unknown 0 0 3" in told
    assert "cache share 40.0% of the input of 1 run" in told
    assert "timeout, idle 2 1 two" in told


def test_plain_data_says_the_same() -> None:
    """The JSON form holds the same facts, unknown ones as null."""
    data = json.loads(json.dumps(trace_data(totals_of(STORY), Recording([])), allow_nan=False))
    assert data["runs"] == {"succeeded": 1, "failed": 1, "cancelled": 1, "unfinished": 1}
    assert data["tokens"]["reasoning_tokens"]["tokens"] is None
    assert data["tokens"]["cache_share"] == pytest.approx(0.4)
    assert data["seconds"]["first_event"]["median_s"] == 1.0
    assert data["failures"] == [{"kind": "timeout", "reason": "idle", "attempts": 2, "runs": 1, "run_id": "two"}]
    assert data["activities"] == [{"name": "web_search", "state": "completed", "count": 1}]
    assert data["slowest"][0]["run_id"] == "two"
    assert set(data["backends"]) == {"b", "other", UNSTARTED}


def test_an_empty_recording_has_a_summary() -> None:
    """Nothing recorded is told as nothing."""
    text = trace_text(totals_of([]), Recording([]))
    assert text.startswith("0 observations\n")
    assert json.dumps(trace_data(totals_of([]), Recording([])))
