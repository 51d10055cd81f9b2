"""An observer for people who watch: one plain line for each thing worth knowing."""

from __future__ import annotations

import sys
from typing import TextIO

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
from furcate.primitives._printable import printable
from furcate.primitives._usage import USAGE_FIELDS, Usage


class ConsoleObserver:
    """Write a line for each start and end, each further attempt and each turn.

    Ids are cut to their last eight characters. A token count that the provider did not report is shown as ``?``, one
    that may be too small with a trailing ``+``. A file that is closed or broken is passed over in silence.

    Args:
        file: where to write; by default what ``sys.stderr`` is at the time.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def on_event(self, event: Observation, /) -> None:
        """Write one observation, if it is worth a line."""
        line = line_for(event)
        file = self._file if self._file is not None else sys.stderr
        # A program without a console has no stderr at all.
        if line is None or file is None:
            return
        encoding = getattr(file, "encoding", None) or "utf-8"
        try:
            file.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            file.flush()
        except (OSError, ValueError, LookupError):
            # Watching is optional: the run that is told of must not notice that nobody can see it any more.
            return


def line_for(event: Observation) -> str | None:
    """Describe an observation in one printable line; None where it is not worth one."""
    line = _run_line(event) or _scope_line(event)
    # Names come from the application and the provider: none of them may move the cursor or begin a line.
    return line and printable(line)


def _run_line(event: Observation) -> str | None:
    match event:
        case RunStarted():
            parent = f", continues {_short(event.parent_run_id)}" if event.parent_run_id is not None else ""
            what = "messages" if event.prompt is None else f"prompt {event.prompt}"
            return f"run {_short(event.run_id)} starts: {what} to {event.model} on {event.backend}{parent}"
        case AttemptStarted() if event.number > 1:
            return f"run {_short(event.run_id)} attempt {event.number} ({event.purpose})"
        case AttemptFinished() if event.status == "failed":
            why = _why(event.failure_kind, event.failure_reason)
            return f"run {_short(event.run_id)} attempt {event.number} failed after {event.duration_s:.1f} s{why}"
        case AttemptsPaused():
            return f"run {_short(event.run_id)} waits {event.wait_s:.1f} s to try again ({event.failure_kind})"
        case RunFinished():
            facts = [f"{event.attempts} {'attempt' if event.attempts == 1 else 'attempts'}"]
            if event.repairs:
                facts.append(f"{event.repairs} {'repair' if event.repairs == 1 else 'repairs'}")
            if event.validation in ("passed", "failed"):
                facts.append(f"validation {event.validation}")
            why = _why(event.failure_kind, event.failure_reason)
            return (
                f"run {_short(event.run_id)} {event.status} after {event.duration_s:.1f} s{why}; "
                f"{', '.join(facts)}; tokens: {_tokens(event.usage)}"
            )
        case _:
            return None


def _scope_line(event: Observation) -> str | None:
    match event:
        case CoordinatorStarted():
            called = f" {event.name}" if event.name is not None else ""
            turns = f"{event.additional_turns} {'turn' if event.additional_turns == 1 else 'turns'}"
            return f"branch {_short(event.scope_id)}{called} starts from run {_short(event.parent_run_id)}: {turns}"
        case TurnDelivered():
            left = f"{event.remaining} {'turn' if event.remaining == 1 else 'turns'}"
            return f"branch {_short(event.scope_id)} decides, {left} left"
        case CoordinatorFinished():
            error = f" ({event.error_type})" if event.error_type is not None else ""
            return f"branch {_short(event.scope_id)} {event.outcome or event.status}{error}"
        case NurseryStarted():
            called = f" {event.name}" if event.name is not None else ""
            return f"branches {_short(event.scope_id)}{called} open from run {_short(event.parent_run_id)}"
        case NurseryFinished():
            return f"branches {_short(event.scope_id)} {event.status}: {event.branches} in all"
        case BackendPaused():
            return f"backend {event.backend} pauses for {event.wait_s:.1f} s ({event.failure_kind})"
        case BackendLimited():
            return f"backend {event.backend} takes {event.limit} of {event.capacity} at once"
        case _:
            return None


def _short(ident: str) -> str:
    # The last characters, since ids that are made in order of time begin alike.
    return ident[-8:]


def _why(kind: str | None, reason: str | None) -> str:
    if kind is None:
        return f": {reason}" if reason is not None else ""
    return f": {kind}" if reason in (None, kind) else f": {kind}, {reason}"


def _tokens(usage: Usage) -> str:
    shown = []
    for name in USAGE_FIELDS:
        value = getattr(usage, name)
        count = "?" if value is None else f"{value}{'+' if name in usage.lower_bounds else ''}"
        shown.append(f"{name.removesuffix('_tokens').replace('_', ' ')} {count}")
    return ", ".join(shown)
