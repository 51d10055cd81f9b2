"""What a lost worker had begun: whoever heard of a beginning hears of its end."""

from __future__ import annotations

from collections.abc import Iterator

from furcate.primitives._observations import (
    AttemptFinished,
    AttemptStarted,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    RunFinished,
    RunStarted,
)
from furcate.primitives._usage import UNKNOWN, Usage


class Unended:
    """Follow what is told of one try of an item."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[float, list[Usage]]] = {}
        self._attempts: dict[str, tuple[float, AttemptStarted]] = {}
        self._scopes: dict[str, CoordinatorFinished | NurseryFinished] = {}

    def take(self, event: Observation, now_s: float) -> None:
        """Take what was told, at a moment on anyio's clock."""
        match event:
            case RunStarted():
                self._runs[event.run_id] = (now_s, [])
            case AttemptStarted():
                self._attempts[event.run_id] = (now_s, event)
            case AttemptFinished():
                self._attempts.pop(event.run_id, None)
                if event.run_id in self._runs:
                    self._runs[event.run_id][1].append(event.usage)
            case RunFinished():
                self._runs.pop(event.run_id, None)
            case CoordinatorStarted():
                self._scopes[event.scope_id] = CoordinatorFinished(
                    scope_id=event.scope_id, status="cancelled", outcome=None
                )
            case NurseryStarted():
                self._scopes[event.scope_id] = NurseryFinished(scope_id=event.scope_id, status="cancelled", branches=0)
            case CoordinatorFinished() | NurseryFinished():
                self._scopes.pop(event.scope_id, None)
            case _:
                pass

    def ends(self, now_s: float) -> Iterator[Observation]:
        """Give the ends of all that has none, the innermost first; each was cancelled."""
        for run_id, (began_s, begun) in self._attempts.items():
            yield AttemptFinished(
                run_id=run_id,
                number=begun.number,
                purpose=begun.purpose,
                request_id=begun.request_id,
                status="cancelled",
                duration_s=max(0.0, now_s - began_s),
                first_event_s=None,
                body_sha256="",
            )
        for run_id, (began_s, used) in self._runs.items():
            sent = len(used) + (run_id in self._attempts)
            yield RunFinished(
                run_id=run_id,
                status="cancelled",
                duration_s=max(0.0, now_s - began_s),
                usage=Usage.total([*used, *[UNKNOWN] * (run_id in self._attempts)]),
                attempts=sent,
                repairs=0,
                validation="not_requested",
            )
        yield from reversed(self._scopes.values())
