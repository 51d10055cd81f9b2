"""A collector of runs, fed by observations and by nothing else."""

from __future__ import annotations

# Applications look at a group from other threads, such as a progress display, while runs go on in the event loop.
import threading  # noqa: TID251

import attrs

from furcate.groups._summary import GroupSummary, Member, summarise
from furcate.primitives._observations import Observation, RunFinished, RunStarted


class Group:
    """Collect the runs that it is attached to and count them together.

    Give it in a request's ``groups``. A run belongs to the group because the group hears of it: neither a run whose
    exchange is continued nor what a callback starts joins by itself. It changes nothing about the runs, and needs no
    closing. A run may be in several groups; each counts it once, so their totals do not add up.

    Args:
        name: shown in summaries.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}

    def __repr__(self) -> str:
        return f"<Group {self._name!r} of {len(self._members)} runs>"

    @property
    def name(self) -> str | None:
        """The name it was given."""
        return self._name

    def on_event(self, event: Observation, /) -> None:
        """Take one observation: a run's start enrols it, its first end is kept, all else is passed over."""
        if not isinstance(event, (RunStarted, RunFinished)):
            return
        with self._lock:
            member = self._members.get(event.run_id, Member(event.run_id))
            if isinstance(event, RunStarted):
                member = attrs.evolve(member, parent_run_id=event.parent_run_id)
            elif member.finished is None:
                member = attrs.evolve(member, finished=event)
            self._members[event.run_id] = member

    def summary(self) -> GroupSummary:
        """Summarise what was heard so far; may be asked for at any time and from any thread."""
        with self._lock:
            members = tuple(self._members.values())
        return summarise(self._name, members)
