"""What a group counts, and what it says of what it does not know."""

import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.groups import Group, GroupSummary, RunEntry
from furcate.primitives._observations import (
    AttemptFinished,
    AttemptStarted,
    CoordinatorStarted,
    Observation,
    RunFinished,
    RunStarted,
    RunStatus,
    ValidationStatus,
)
from furcate.primitives._usage import UNKNOWN, USAGE_FIELDS, FieldTotal, Usage


def started(run_id: str, parent_run_id: str | None = None) -> RunStarted:
    return RunStarted(
        run_id=run_id,
        parent_run_id=parent_run_id,
        prompt=None,
        profile="p",
        backend="b",
        model="m",
        dialect="openai-chat",
    )


def finished(
    run_id: str,
    status: RunStatus = "succeeded",
    *,
    usage: Usage = UNKNOWN,
    duration_s: float = 1.0,
    attempts: int = 1,
    repairs: int = 0,
    validation: ValidationStatus = "not_requested",
) -> RunFinished:
    return RunFinished(
        run_id=run_id,
        status=status,
        duration_s=duration_s,
        usage=usage,
        attempts=attempts,
        repairs=repairs,
        validation=validation,
    )


def told(*events: Observation) -> GroupSummary:
    group = Group()
    for event in events:
        group.on_event(event)
    return group.summary()


@pytest.mark.req("S4-117")
def test_a_summary_holds_runs_statuses_and_counters() -> None:
    """Every run is listed with its end, and the facts of the ends are added up."""
    summary = told(
        started("a"),
        started("b", "a"),
        started("c"),
        started("d"),
        finished("b", "failed", duration_s=0.5, attempts=3),
        finished("a", duration_s=2.0, attempts=2, repairs=1, validation="failed"),
        finished("d", "cancelled", duration_s=0.25, attempts=0),
    )
    assert summary.runs == (
        RunEntry("a", None, "succeeded"),
        RunEntry("b", "a", "failed"),
        RunEntry("c", None, None),
        RunEntry("d", None, "cancelled"),
    )
    assert (summary.succeeded, summary.failed, summary.cancelled, summary.running) == (1, 1, 1, 1)
    assert summary.ended == 3
    assert (summary.attempts, summary.repairs, summary.validation_failed) == (5, 1, 1)
    assert summary.run_seconds_total == pytest.approx(2.75)


@pytest.mark.req("S4-103", "S4-112", "S4-119")
def test_unknown_running_and_zero_stay_apart() -> None:
    """A field's total tells what was reported, zero included, from what was not and what is still to come."""
    summary = told(
        *(started(name) for name in "abcd"),
        finished("a", usage=Usage(input_tokens=40, output_tokens=0)),
        finished("b", usage=Usage(input_tokens=2, lower_bounds=frozenset({"input_tokens"}))),
        finished("c"),
    )
    assert summary.usage.input_tokens == FieldTotal(known=42, exact=1, at_least=1, unknown=1, running=1)
    assert summary.usage.output_tokens == FieldTotal(known=0, exact=1, at_least=0, unknown=2, running=1)
    assert summary.usage.reasoning_tokens == FieldTotal(known=None, exact=0, at_least=0, unknown=3, running=1)


def test_a_total_is_complete_only_when_every_run_ended_and_reported() -> None:
    """One run without an end, or without the field, keeps the total from being complete."""
    reports: list[Observation] = [started("a"), finished("a", usage=Usage(input_tokens=5))]
    assert told(*reports).usage.input_tokens.complete
    assert not told(*reports).usage.output_tokens.complete
    assert not told(*reports, started("b")).usage.input_tokens.complete
    assert not told(*reports, started("b"), finished("b")).usage.input_tokens.complete


def test_an_empty_group_has_no_totals() -> None:
    """Where nothing was counted there is no total, not a total of zero."""
    summary = Group("quiet").summary()
    assert summary.runs == ()
    assert summary.run_seconds_total is None
    for name in USAGE_FIELDS:
        total = getattr(summary.usage, name)
        assert total == FieldTotal(known=None, exact=0, at_least=0, unknown=0, running=0)
        assert not total.complete
    assert str(summary) == "group quiet: no runs"


@pytest.mark.req("S4-114")
def test_a_run_counts_once_however_often_it_is_told() -> None:
    """Attaching a group twice, or telling an event twice, changes nothing; the first end is the one that counts."""
    events: list[Observation] = [started("a", "root"), finished("a", usage=Usage(input_tokens=7))]
    once = told(*events)
    assert told(*(event for event in events for _ in range(2))) == once
    assert told(*events, finished("a", "failed", attempts=9)) == once
    assert told(*events, started("a", "root")) == once


@pytest.mark.req("S4-114")
def test_a_run_may_be_in_several_groups() -> None:
    """Each group counts the shared run, independently of the others."""
    first, second = Group("first"), Group("second")
    events: list[Observation] = [started("shared"), finished("shared", usage=Usage(output_tokens=3))]
    for event in events:
        first.on_event(event)
        second.on_event(event)
    second.on_event(started("own"))
    assert first.summary().usage.output_tokens.known == second.summary().usage.output_tokens.known == 3
    assert [len(group.summary().runs) for group in (first, second)] == [1, 2]


@pytest.mark.req("S4-120")
def test_a_run_that_failed_counts_with_all_its_facts() -> None:
    """A run that gave no result still adds what its end tells."""
    summary = told(started("a"), finished("a", "failed", usage=Usage(input_tokens=9), attempts=4, duration_s=3.0))
    assert (summary.failed, summary.attempts, summary.run_seconds_total) == (1, 4, 3.0)
    assert summary.usage.input_tokens.known == 9


def test_an_end_without_a_start_counts() -> None:
    """A group that was attached late keeps the facts of the end; the parent is then unknown."""
    summary = told(finished("a", usage=Usage(input_tokens=1)))
    assert summary.runs == (RunEntry("a", None, "succeeded"),)
    assert summary.usage.input_tokens.complete


@pytest.mark.req("S4-118")
def test_attempts_are_not_added() -> None:
    """Only the end of a run is counted: an attempt's own usage and duration add nothing to it."""
    summary = told(
        started("a"),
        AttemptStarted(run_id="a", number=1, purpose="generate", request_id="a/1", waited_s=0.0),
        AttemptFinished(
            run_id="a",
            number=1,
            purpose="generate",
            request_id="a/1",
            status="succeeded",
            duration_s=5.0,
            first_event_s=None,
            body_sha256="",
            usage=Usage(input_tokens=100),
        ),
        finished("a", usage=Usage(input_tokens=100), duration_s=6.0),
    )
    assert summary.usage.input_tokens.known == 100
    assert summary.run_seconds_total == 6.0
    assert summary.attempts == 1


@pytest.mark.req("S4-097")
def test_a_parent_does_not_join_by_being_continued() -> None:
    """Only runs that the group hears of are in it: a parent's id alone enrols nobody, nor does a coordinator."""
    coordinator = CoordinatorStarted(
        scope_id="s", parent_scope_id=None, parent_run_id="root", name=None, additional_turns=3
    )
    assert [entry.run_id for entry in told(coordinator, started("child", "root")).runs] == ["child"]


@pytest.mark.req("S4-109", "S4-111")
def test_snapshots_stay_as_they_were() -> None:
    """A summary may be taken before, between and after the ends, and none changes later."""
    group = Group("g")
    group.on_event(started("a"))
    before = group.summary()
    group.on_event(finished("a"))
    assert (before.running, before.ended, before.run_seconds_total) == (1, 0, None)
    assert before.runs == (RunEntry("a", None, None),)
    assert (group.summary().running, group.summary().ended) == (0, 1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.running = 0  # type: ignore[misc]


@pytest.mark.req("S4-110")
def test_threads_may_tell_and_ask_at_once() -> None:
    """Four threads tell 200 runs each while a fifth asks; no snapshot is torn and nothing is lost."""
    group = Group()
    torn: list[GroupSummary] = []
    done = threading.Event()

    def tell(prefix: int) -> None:
        for number in range(200):
            run_id = f"{prefix}-{number}"
            group.on_event(started(run_id))
            group.on_event(finished(run_id, usage=Usage(input_tokens=12)))

    def ask() -> None:
        while not done.is_set():
            summary = group.summary()
            total = summary.usage.input_tokens
            if summary.ended + summary.running != len(summary.runs) or (total.known or 0) != 12 * summary.ended:
                torn.append(summary)

    asking = threading.Thread(target=ask)
    telling = [threading.Thread(target=tell, args=(prefix,)) for prefix in range(4)]
    for thread in (asking, *telling):
        thread.start()
    for thread in telling:
        thread.join()
    done.set()
    asking.join()
    assert torn == []
    assert group.summary().usage.input_tokens == FieldTotal(known=9600, exact=800, at_least=0, unknown=0, running=0)


def test_the_text_of_a_summary_says_what_is_unknown() -> None:
    """A person reads which totals are whole, which are not and why."""
    group = Group("angles")
    events: list[Observation] = [
        *(started(name) for name in "abcd"),
        finished("a", usage=Usage(input_tokens=1200, output_tokens=1), attempts=2, repairs=1, validation="failed"),
        finished("b", usage=Usage(input_tokens=3, output_tokens=0, lower_bounds=frozenset({"input_tokens"}))),
        finished("c", "cancelled", duration_s=2.5),
    ]
    for event in events:
        group.on_event(event)
    assert str(group.summary()).splitlines() == [
        "group angles: 4 runs (2 succeeded, 1 cancelled, 1 running)",
        "  4 attempts, 1 repair, 1 answer failed validation",
        "  durations of single runs add up to 4.5 s",
        "  input 1,203 tokens (1 run at least, 1 run unknown, 1 run running)",
        "  cache read unknown (3 runs unknown, 1 run running)",
        "  cache write unknown (3 runs unknown, 1 run running)",
        "  output 1 token (1 run unknown, 1 run running)",
        "  reasoning unknown (3 runs unknown, 1 run running)",
    ]


def test_the_text_of_a_group_that_only_runs_makes_no_totals() -> None:
    """Before the first end there is nothing to add up."""
    text = str(told(started("a")))
    assert text.startswith("group: 1 run (1 running)\n  input unknown (1 run running)\n")
    assert "attempt" not in text
    assert "add up" not in text


_USAGES = st.builds(
    Usage,
    input_tokens=st.none() | st.integers(0, 50),
    output_tokens=st.none() | st.integers(0, 50),
    lower_bounds=st.sets(st.sampled_from(USAGE_FIELDS)),
)


@given(st.lists(st.tuples(st.booleans(), _USAGES), max_size=8), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_the_order_of_the_events(runs: list[tuple[bool, Usage]], order: object) -> None:
    """However the events of several runs interleave, each field accounts for every run exactly once."""
    events: list[Observation] = []
    for number, (ended, usage) in enumerate(runs):
        events.append(started(str(number)))
        if ended:
            events.append(finished(str(number), usage=usage))
    shuffled = list(events)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    straight, mixed = told(*events), told(*shuffled)
    assert mixed.usage == straight.usage
    assert sorted(mixed.runs, key=lambda run: run.run_id) == sorted(straight.runs, key=lambda run: run.run_id)
    for name in USAGE_FIELDS:
        total = getattr(straight.usage, name)
        assert total.exact + total.at_least + total.unknown + total.running == len(runs)
