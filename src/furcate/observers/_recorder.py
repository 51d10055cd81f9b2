"""An observer that keeps what it hears, for tests and for looking at a run afterwards."""

from __future__ import annotations

from typing import TypeVar

from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    Observation,
    RunFinished,
    RunStarted,
)

_OF_A_RUN = (RunStarted, AttemptStarted, ActivityChanged, AttemptFinished, AttemptsPaused, RunFinished)
ObservationT = TypeVar("ObservationT", bound=Observation)


class Recorder:
    """Keep every observation in the order in which it was told; it grows with each one."""

    def __init__(self) -> None:
        self._events: list[Observation] = []

    def __repr__(self) -> str:
        return f"<Recorder of {len(self._events)} observations>"

    @property
    def events(self) -> tuple[Observation, ...]:
        """What was heard so far, in order."""
        return tuple(self._events)

    def on_event(self, event: Observation, /) -> None:
        """Take one observation."""
        self._events.append(event)

    def of(self, kind: type[ObservationT]) -> tuple[ObservationT, ...]:
        """Give the observations of one class, in order."""
        return tuple(event for event in self.events if isinstance(event, kind))

    def runs(self) -> dict[str, tuple[Observation, ...]]:
        """Give each run's own observations in order, by run id; runs stand in the order in which they were heard of.

        Coordinators, nurseries and backends belong to no single run and are left out.
        """
        found: dict[str, list[Observation]] = {}
        for event in self.events:
            if isinstance(event, _OF_A_RUN):
                found.setdefault(event.run_id, []).append(event)
        return {run_id: tuple(events) for run_id, events in found.items()}
