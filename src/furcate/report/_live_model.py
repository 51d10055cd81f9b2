"""What goes on, folded from observations as they come; what has ended is kept as counts and a bounded number of rows.

Thousands of observations a second come through here, so the model changes in place, and no step of it looks at more
than the one thing that was heard of. It has no clock: whoever feeds it says when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from furcate.primitives._content import HostedActivity
from furcate.primitives._errors import ProviderError
from furcate.primitives._observations import (
    ActivityChanged,
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
    Purpose,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.report._activities import Activities
from furcate.report._live_nodes import BackendView, Node, State, Tokens, shown
from furcate.report._live_remembered import KEPT, KEPT_FAILED, Remembered

_SENDING: dict[Purpose, State] = {"generate": "generating", "repair": "repairing", "resume": "resuming"}
_MOST_NAMES = 10_000
_RUN_ENDS: dict[str, State] = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}


@define(eq=False)
class _Flight:
    """Hold what is known of a run that has not ended."""

    node: Node
    backend: BackendView
    placed: bool = False


class LiveModel(Remembered):
    """Know what goes on.

    Arguments:
        kept: most things that are remembered one by one after their end.
        kept_failed: most that failed, beside those.

    Attributes:
        backends: by name.
        nurseries: what open nurseries have their branches under, by scope id.
        tokens: the sum over all ended runs.
        began_s: when the first thing was heard.
    """

    def __init__(self, *, kept: int = KEPT, kept_failed: int = KEPT_FAILED) -> None:
        super().__init__(kept=kept, kept_failed=kept_failed)
        self._flights: dict[str, _Flight] = {}
        self._names: dict[str, str] = {}
        self.backends: dict[str, BackendView] = {}
        self.nurseries: dict[str, Node] = {}
        self.tokens = Tokens()
        self.began_s: float | None = None
        self._takers: dict[type, Callable[[Any], None]] = {
            RunStarted: self._run_started,
            AttemptStarted: self._attempt_started,
            ActivityChanged: self._activity_changed,
            AttemptFinished: self._attempt_finished,
            AttemptsPaused: self._paused,
            RunFinished: self._run_finished,
            CoordinatorStarted: self._branch_started,
            TurnDelivered: self._delivered,
            CoordinatorFinished: self._branch_finished,
            NurseryStarted: self._nursery_started,
            NurseryFinished: self._nursery_finished,
            BackendPaused: self._backend_paused,
            BackendLimited: self._backend_limited,
        }

    def take(self, event: Observation, at_s: float) -> None:
        """Take an observation; one of something that is not known any more changes nothing.

        Arguments:
            event: what was heard.
            at_s: when, on whatever clock pictures are drawn by.
        """
        if self.began_s is None:
            self.began_s = at_s
        self._now_s = at_s
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)

    def note(
        self,
        ident: str,
        at_s: float,
        *,
        name: str | None = None,
        text: str | None = None,
        waiting: bool | None = None,
    ) -> None:
        """Take what the application itself says of a run or a branch.

        Arguments:
            ident: the run's id, or the branch's scope id; it may be one that is still to come.
            at_s: when it says so, on the same clock.
            name: what people are to call it.
            text: what is to be shown of it.
            waiting: whether it waits for the application to give it its place.
        """
        self._now_s = at_s
        node = self._nodes.get(ident)
        if node is None:
            if name is not None:
                self._names[ident] = name
                # A name of what is forgotten already would wait for ever.
                if len(self._names) > _MOST_NAMES:
                    del self._names[next(iter(self._names))]
            return
        if name is not None:
            node.name, node.named = shown(name), True
        if text is not None:
            node.note = shown(text)
        if waiting is not None and not node.ended and (node.state == "waiting") != waiting:
            if not waiting:
                node.began_s = self._now_s
            self._enter(node, "waiting" if waiting else "callback" if node.kind == "branch" else "queued")

    def capacity(self, name: str, *, capacity: int, limit: int) -> None:
        """Take how many places a backend has, and how many of them are in use."""
        view = self._backend(name)
        view.capacity, view.limit = capacity, limit

    def pass_time(self, now_s: float) -> None:
        """Let pauses end whose time is over, since nobody tells of that: what paused queues for its place again."""
        self._now_s = now_s
        over = [node for node in self.living.get("pausing", {}).values() if (node.again_s or 0.0) <= now_s]
        for node in over:
            self._enter(node, "queued")
            node.since_s = node.again_s or now_s

    # What is heard of runs

    def _run_started(self, event: RunStarted) -> None:
        node = self._nodes.get(event.scope_id) if event.scope_id is not None else None
        if node is None:
            name = self._names.pop(event.run_id, None) or event.prompt
            node = self._grow(event.run_id, "run", name, parent=None, state="queued")
        else:
            node.turn += 1
            node.problem = node.note = ""
            node.again_s = None
            self._enter(node, "queued")
        self._own(event.run_id, node)
        self._flights[event.run_id] = _Flight(node, self._backend(event.backend))

    def _attempt_started(self, event: AttemptStarted) -> None:
        flight = self._flights.get(event.run_id)
        if flight is None:
            return
        if not flight.placed:
            flight.placed = True
            flight.backend.in_flight += 1
        flight.node.attempt = event.number
        flight.node.again_s = None
        flight.node.problem = ""
        self._enter(flight.node, _SENDING[event.purpose])

    def _activity_changed(self, event: ActivityChanged) -> None:
        flight = self._flights.get(event.run_id)
        if flight is not None:
            activity = HostedActivity(event.activity_id, event.name, event.state, scope=event.scope)
            flight.node.activities = (flight.node.activities or Activities()).after(activity)

    def _attempt_finished(self, event: AttemptFinished) -> None:
        flight = self._flights.get(event.run_id)
        if flight is None:
            return
        flight.node.activities = None
        if event.status == "failed":
            flight.node.problem = _why(event.failure_kind, event.failure_reason)

    def _paused(self, event: AttemptsPaused) -> None:
        flight = self._flights.get(event.run_id)
        if flight is None:
            return
        self._give_back(flight)
        flight.node.again_s = self._now_s + event.wait_s
        flight.node.problem = shown(event.failure_kind)
        self._enter(flight.node, "pausing")

    def _run_finished(self, event: RunFinished) -> None:
        flight = self._flights.pop(event.run_id, None)
        if flight is None:
            return
        self._give_back(flight)
        node = flight.node
        node.activities = None
        node.tokens = node.tokens or Tokens()
        node.tokens.add(event.usage)
        self.tokens.add(event.usage)
        node.problem = "validation failed" if event.validation == "failed" else ""
        if event.status == "failed":
            node.problem = _why(event.failure_kind, event.failure_reason)
        if node.kind == "branch":
            self._enter(node, "callback")
        else:
            self._end(node, _RUN_ENDS[event.status])

    # What is heard of branches and nurseries

    def _branch_started(self, event: CoordinatorStarted) -> None:
        parent = self.nurseries.get(event.parent_scope_id or "") or self._owners.get(event.parent_run_id)
        name = self._names.pop(event.scope_id, None) or event.name
        node = self._grow(event.scope_id, "branch", name, parent=parent, state="callback")
        node.turns = event.additional_turns

    def _delivered(self, event: TurnDelivered) -> None:
        node = self._nodes.get(event.scope_id)
        if node is not None and node.state != "waiting":
            self._enter(node, "callback")

    def _branch_finished(self, event: CoordinatorFinished) -> None:
        node = self._nodes.get(event.scope_id)
        if node is None or node.ended:
            return
        # What went wrong with a run says more than the error that tells of it.
        if event.error_type is not None and not (node.problem and event.error_type == ProviderError.__name__):
            node.problem = shown(event.error_type)
        state: State = event.outcome or ("cancelled" if event.status == "cancelled" else "failed")
        self._end(node, state)

    def _nursery_started(self, event: NurseryStarted) -> None:
        # The branches of an answer stand under the run that gave it.
        node = self._owners.get(event.parent_run_id)
        if node is None:
            node = self._grow(event.scope_id, "nursery", event.name, parent=None, state="open")
        elif event.name is not None and not node.named:
            node.name, node.named = shown(event.name), True
        self._reopen(node)
        node.open += 1
        self.nurseries[event.scope_id] = node

    def _nursery_finished(self, event: NurseryFinished) -> None:
        node = self.nurseries.pop(event.scope_id, None)
        if node is None:
            return
        node.open -= 1
        if node.kind == "nursery":
            self._end(node, _RUN_ENDS[event.status])
        else:
            self._settle(node)

    # What is heard of backends

    def _backend_paused(self, event: BackendPaused) -> None:
        view = self._backend(event.backend)
        view.paused_until_s = self._now_s + event.wait_s
        view.paused_by = shown(event.failure_kind)

    def _backend_limited(self, event: BackendLimited) -> None:
        view = self._backend(event.backend)
        view.limit, view.capacity = event.limit, event.capacity

    def _backend(self, name: str) -> BackendView:
        found = self.backends.get(name)
        if found is None:
            found = self.backends[name] = BackendView(shown(name))
        return found

    def _give_back(self, flight: _Flight) -> None:
        if flight.placed:
            flight.placed = False
            flight.backend.in_flight -= 1


def _why(kind: str | None, reason: str | None) -> str:
    return shown(", ".join(dict.fromkeys(filter(None, (kind, reason)))))
