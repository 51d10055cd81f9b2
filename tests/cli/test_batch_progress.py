"""How far a batch job is, as it is told: counts, kinds of failure, rates, and an estimate that claims no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from furcate.batch import Enrollment, ItemFailure, ItemOutcome, JobOptions, JobProgress
from furcate.cli._batch_progress import Progress, Recent, roughly
from furcate.cli._batch_running import Assignment, Running
from furcate.cli._setup import built_in
from furcate.primitives._observations import AttemptFinished, RunFinished, RunStarted
from furcate.primitives._resources import Prompt
from furcate.primitives._usage import Usage
from furcate.report._live_frame import draw
from furcate.report._live_model import LiveModel
from furcate.report._live_table import Room
from furcate.report._live_words import Named

NOTHING = Enrollment(
    items=100, new=100, malformed=0, changed=0, outdated=0, redone=0, gone=0, pending=100, finished=0, failed=0
)
START = JobProgress(enrollment=NOTHING)


def lines(progress: Progress, now_s: float, *, last: bool = False) -> list[str]:
    return list(progress.lines(now_s, last))


def begun(limit: int | None = None, **kinds: int) -> Progress:
    """Make a progress at second 1000."""
    progress = Progress(limit=limit, concurrency=4)
    progress.begin(START, kinds.items())
    return progress


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let a test say what the time is."""
    at = [1000.0]
    monkeypatch.setattr(anyio, "current_time", lambda: at[0])
    return at


def started(run_id: str) -> RunStarted:
    """Make the beginning of a run."""
    return RunStarted(
        run_id=run_id, parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
    )


def outcome(number: int, kind: str | None = None) -> ItemOutcome:
    """Make the end of an item."""
    given: dict[str, Any] = {"id": f"i{number}", "line": number, "usage": Usage()}
    if kind is None:
        return ItemOutcome(state="finished", **given)
    return ItemOutcome(state="failed", error=ItemFailure(kind, "no"), **given)


def test_the_time_left_is_told_once_there_is_enough_to_go_by(now: list[float]) -> None:
    """Not at the start; then what is left over what ended lately; and that none ended is said as it is."""
    progress = begun()
    assert lines(progress, 1001.0) == ["items  0 of 100 finished · 100 left · 0 running · time left not known yet"]
    for number in range(20):
        now[0] += 1
        progress.ended(outcome(number))
    progress.now(evolve(START, finished=20, running=4))
    assert lines(progress, 1020.0) == ["items  20 of 100 finished · 80 left · 4 running · about 80 s left at this rate"]
    told = lines(progress, 1500.0)
    assert told[0].endswith("time left not known: none ended in the last 5:00")
    progress.now(evolve(START, finished=20, running=4, ended="drained"))
    assert lines(progress, 1020.0)[0].endswith("4 running · no more are begun")
    assert lines(progress, 1020.0, last=True) == ["items  20 of 100 finished · 80 left"]


def test_a_limit_shortens_the_time_left(now: list[float]) -> None:
    """What is not to be begun in this start does not count."""
    progress = begun(limit=30)
    for number in range(20):
        now[0] += 1
        progress.ended(outcome(number))
    progress.now(evolve(START, finished=20, running=4))
    assert lines(progress, 1020.0)[0].endswith("about 10 s left at this rate")


def test_failures_are_told_by_kind(now: list[float]) -> None:
    """Those of earlier starts included, the most frequent first; of many kinds the rest is summed up."""
    progress = begun(malformed=2)
    for number, kind in enumerate(["timeout", "rate_limited", "timeout", "timeout"]):
        progress.ended(outcome(number, kind))
    progress.now(evolve(START, failed=4))
    items, failed = lines(progress, 1001.0, last=True)
    assert items == "items  0 of 100 finished · 6 failed · 96 left"
    assert failed == "failed  3 timeout · 2 malformed · 1 rate_limited"
    for number in range(6):
        progress.ended(outcome(number, f"Error{number}"))
    assert lines(progress, 1001.0, last=True)[1].endswith(" of other kinds")


def test_backends_have_rates_of_what_was_really_asked(now: list[float]) -> None:
    """Calls and tokens of the last minute, without those that were answered from the journal."""
    progress = begun()
    now[0] += 30
    for number in range(4):
        progress.on_event("i", started(f"r{number}"))
        progress.on_event(
            "i",
            AttemptFinished(
                run_id=f"r{number}",
                number=1,
                purpose="generate",
                request_id="q",
                status="succeeded",
                duration_s=1.0,
                first_event_s=0.1,
                body_sha256="",
                usage=Usage(input_tokens=60, cache_read_tokens=40, output_tokens=10),
                replayed=number == 3,
            ),
        )
    progress.now(START)
    assert lines(progress, 1030.0)[-1] == "b  6 calls a minute · tokens a minute: 600 in, 60 out"
    assert lines(progress, 1200.0)[-1] == "b  0 calls a minute"


def test_recent_things_are_forgotten() -> None:
    """A rate is over the span, or over the time there was."""
    recent = Recent(10.0, 100.0)
    recent.add(101.0, 4)
    assert recent.per_s(102.0) == 2.0
    assert recent.per_s(109.0) == pytest.approx(4 / 9)
    recent.add(119.0, 1)
    assert recent.per_s(120.0) == 0.1


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.2, "1 s"), (80, "80 s"), (100, "2 min"), (3600, "60 min"), (9000, "2.5 h"), (200_000, "2.3 days")],
)
def test_durations_are_told_in_their_unit(seconds: float, told: str) -> None:
    """Nobody wants the seconds of an estimate in hours."""
    assert roughly(seconds) == told


def test_lines_above_take_room_of_the_picture() -> None:
    """They stand first, with what precedes two spaces in bold, and the picture is never larger than the terminal."""
    head = ["items  1 of 2", "a" * 50]
    picture = draw(LiveModel(), 0.0, Room(width=20, height=3), named=Named(), head=head)
    assert picture[0] == (("items  ", "bold"), ("1 of 2", ""))
    assert len(picture) <= 3
    assert all(sum(len(text) for text, _ in line) <= 20 for line in picture)
    assert len(draw(LiveModel(), 0.0, Room(width=20, height=1), named=Named(), head=head)) == 1


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (80, ["items  20 of 100 finished · 80 left · 4 running · time left not known yet"]),
        (60, ["items  20 of 100 finished · 80 left · 4 running", "  time left not known yet"]),
        (40, ["items  20 of 100 finished · 80 left", "  4 running · time left not known yet"]),
        (20, ["items", "  20 of 100 finished", "  80 left", "  4 running", "  time left not kno…"]),
    ],
)
def test_lines_above_are_broken_where_they_are_too_wide(now: list[float], width: int, told: list[str]) -> None:
    """Between two facts, so that what is left and what runs is seen in a narrow terminal as well."""
    progress = begun()
    progress.now(evolve(START, finished=20, running=4))
    [head, *_] = lines(progress, 1001.0)
    picture = draw(LiveModel(), 0.0, Room(width=width, height=9), named=Named(), head=[head])
    assert ["".join(text for text, _ in line) for line in picture][: len(told)] == told


def test_what_failed_leaves_room_for_what_runs() -> None:
    """Of many failures, which are told by kinds, few have rows of their own."""
    view = Running(
        Assignment(setup=built_in(), doing=Prompt("p", []), items="i", journal=Path("j"), options=JobOptions())
    ).view
    for number in range(30):
        view.model.take(started(f"r{number}"), 1.0)
    for number in range(25):
        view.model.take(
            RunFinished(
                run_id=f"r{number}",
                status="failed",
                duration_s=1.0,
                usage=Usage(),
                attempts=1,
                repairs=0,
                validation="not_requested",
                failure_kind="timeout",
                failure_reason="idle_timeout",
            ),
            2.0,
        )
    picture = draw(view.model, 3.0, Room(width=80, height=30), named=Named("calls"))
    states = Counter(word for line in picture[3:] for text, _ in line for word in text.split())
    assert (states["failed"], states["queued"]) == (5, 5)
