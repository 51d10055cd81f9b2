"""What a recording tells more than once, because two observers wrote it or a file was joined with its own copy."""

from __future__ import annotations

from furcate.primitives._observations import (
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    RunFinished,
    RunStarted,
)
from furcate.report._recording import RecordedEvent


class Repeats:
    """Know again what has been told; a number is held for each line, so that millions of lines find room.

    A run that a batch takes up again has its id of before, but ends and lasts otherwise: that is no repetition.
    """

    def __init__(self) -> None:
        self._told: set[int] = set()
        self._attempts: dict[str, int] = {}

    def knows(self, event: RecordedEvent) -> bool:
        """Note an observation, and tell whether it was noted before."""
        facts = self._facts(event)
        if facts is None:
            return False
        key = hash((type(event).__name__, *facts))
        known = key in self._told
        self._told.add(key)
        return known

    def _facts(self, event: RecordedEvent) -> tuple[object, ...] | None:
        """Give what tells an observation from others of its kind; None where equal ones may follow each other."""
        match event:
            case RunStarted():
                return (event.run_id,)
            case AttemptStarted():
                return event.run_id, event.number, event.purpose, event.waited_s
            case AttemptFinished():
                self._attempts[event.run_id] = event.number
                return event.run_id, event.number, event.purpose, event.status, event.duration_s
            case AttemptsPaused():
                # Two pauses of a run may be equal, but an attempt lies between them.
                return event.run_id, event.wait_s, self._attempts.get(event.run_id)
            case RunFinished():
                self._attempts.pop(event.run_id, None)
                return event.run_id, event.status, event.duration_s
            case CoordinatorStarted() | NurseryStarted():
                return (event.scope_id,)
            case CoordinatorFinished() | NurseryFinished():
                return event.scope_id, event.status
            case _:
                return None
