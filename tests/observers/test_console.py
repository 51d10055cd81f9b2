"""The console observer's lines, and what it does where nobody can read them."""

import io
import sys
from contextlib import redirect_stderr

import pytest

from furcate.observers import ConsoleObserver
from furcate.primitives._observations import (
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    BackendLimited,
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

RUN = "0192-aaaa-00000001"
CHILD = "0192-aaaa-00000002"


def _started(run_id: str = RUN, *, parent: str | None = None, prompt: str | None = "draft") -> RunStarted:
    return RunStarted(
        run_id=run_id,
        parent_run_id=parent,
        prompt=prompt,
        profile="careful",
        backend="claude",
        model="large",
        dialect="anthropic-messages",
    )


def _attempt_finished(status: str, kind: str | None, reason: str | None) -> AttemptFinished:
    return AttemptFinished(
        run_id=RUN,
        number=1,
        purpose="generate",
        request_id=f"{RUN}/1",
        status=status,  # type: ignore[arg-type]
        duration_s=0.25,
        first_event_s=None,
        body_sha256="",
        failure_kind=kind,  # type: ignore[arg-type]
        failure_reason=reason,
    )


def _written(*events: Observation) -> list[str]:
    file = io.StringIO()
    observer = ConsoleObserver(file)
    for event in events:
        observer.on_event(event)
    return file.getvalue().splitlines()


def test_runs_are_told_in_lines() -> None:
    """Start, failed attempt, pause, further attempt and end of a run each have a line; the smooth attempt has none."""
    assert _written(
        _started(),
        AttemptStarted(run_id=RUN, number=1, purpose="generate", request_id=f"{RUN}/1", waited_s=0.0),
        _attempt_finished("failed", "provider", "overloaded"),
        AttemptsPaused(run_id=RUN, wait_s=2.0, failure_kind="provider"),
        AttemptStarted(run_id=RUN, number=2, purpose="generate", request_id=f"{RUN}/2", waited_s=0.1),
        _attempt_finished("succeeded", None, None),
        RunFinished(
            run_id=RUN,
            status="succeeded",
            duration_s=3.21,
            usage=Usage(input_tokens=120, output_tokens=7, lower_bounds=frozenset({"output_tokens"})),
            attempts=2,
            repairs=1,
            validation="failed",
        ),
    ) == [
        "run 00000001 starts: prompt draft to large on claude",
        "run 00000001 attempt 1 failed after 0.2 s: provider, overloaded",
        "run 00000001 waits 2.0 s to try again (provider)",
        "run 00000001 attempt 2 (generate)",
        "run 00000001 succeeded after 3.2 s; 2 attempts, 1 repair, validation failed; "
        "tokens: input 120, cache read ?, cache write ?, output 7+, reasoning ?",
    ]


def test_a_continuation_names_its_parent_and_a_failure_its_kind() -> None:
    """A run that continues another says so, and a failed one says why."""
    first, last = _written(
        _started(CHILD, parent=RUN, prompt=None),
        RunFinished(
            run_id=CHILD,
            status="failed",
            duration_s=1.0,
            usage=UNKNOWN,
            attempts=1,
            repairs=0,
            validation="not_requested",
            failure_kind="authentication",
        ),
    )
    assert first == "run 00000002 starts: messages to large on claude, continues 00000001"
    assert last.startswith("run 00000002 failed after 1.0 s: authentication; 1 attempt; tokens: input ?")


def test_backends_are_told_in_lines() -> None:
    """A pause and another limit have a line each, and a run that a budget refused says so."""
    pause, limit, refused = _written(
        BackendPaused(backend="claude", wait_s=2.5, failure_kind="rate_limited"),
        BackendLimited(backend="claude", limit=4, before=8, capacity=8),
        RunFinished(
            run_id=RUN,
            status="failed",
            duration_s=0.0,
            usage=UNKNOWN,
            attempts=0,
            repairs=0,
            validation="not_requested",
            failure_reason="budget",
        ),
    )
    assert pause == "backend claude pauses for 2.5 s (rate_limited)"
    assert limit == "backend claude takes 4 of 8 at once"
    assert refused.startswith("run 00000001 failed after 0.0 s: budget; 0 attempts; tokens: input ?")


def test_branches_are_told_in_lines() -> None:
    """Nursery, branch and turn have a line each."""
    assert _written(
        NurseryStarted(scope_id="nursery-00000009", parent_run_id=RUN, name="angles"),
        CoordinatorStarted(
            scope_id="branch-00000003",
            parent_scope_id="nursery-00000009",
            parent_run_id=RUN,
            name="cost",
            additional_turns=3,
        ),
        TurnDelivered(scope_id="branch-00000003", remaining=1),
        CoordinatorFinished(scope_id="branch-00000003", status="succeeded", outcome="exhausted"),
        CoordinatorFinished(scope_id="branch-00000004", status="failed", outcome=None, error_type="KeyError"),
        NurseryFinished(scope_id="nursery-00000009", status="succeeded", branches=2),
    ) == [
        "branches 00000009 angles open from run 00000001",
        "branch 00000003 cost starts from run 00000001: 3 turns",
        "branch 00000003 decides, 1 turn left",
        "branch 00000003 exhausted",
        "branch 00000004 failed (KeyError)",
        "branches 00000009 succeeded: 2 in all",
    ]


def test_names_cannot_break_lines_or_steer_a_terminal() -> None:
    """Control characters in a name are replaced."""
    (line,) = _written(_started(prompt="a\nb\x1b[2J"))
    assert (
        line == "run 00000001 starts: prompt a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J to large on claude"
    )


def test_joined_emoji_stay_whole() -> None:
    """What joins the parts of an emoji is no control."""
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    assert _written(_started(prompt=family)) == [f"run 00000001 starts: prompt {family} to large on claude"]


def test_a_narrow_encoding_is_served() -> None:
    """Where the file cannot encode a name, the name is escaped instead of lost."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    ConsoleObserver(file).on_event(_started(prompt="Größe"))
    assert raw.getvalue() == rb"run 00000001 starts: prompt Gr\xf6\xdfe to large on claude" + b"\n"


def test_a_closed_file_is_passed_over() -> None:
    """A file that was closed, before or between lines, raises nothing."""
    file = io.StringIO()
    observer = ConsoleObserver(file)
    observer.on_event(_started())
    file.close()
    observer.on_event(_started())


def test_a_broken_pipe_is_passed_over() -> None:
    """A reader that went away raises nothing."""

    class Broken(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    ConsoleObserver(Broken()).on_event(_started())


def test_the_default_is_where_errors_go_at_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file, lines go to stderr as it is when they are written, if there is one."""
    observer = ConsoleObserver()
    caught = io.StringIO()
    with redirect_stderr(caught):
        observer.on_event(_started())
    assert caught.getvalue() == "run 00000001 starts: prompt draft to large on claude\n"
    monkeypatch.setattr(sys, "stderr", None)
    observer.on_event(_started())
