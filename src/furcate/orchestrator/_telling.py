"""Telling listeners: in order, apart from each other, and without effect on what they hear about."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import attrs
from attrs import frozen

from furcate.orchestrator._plan import Plan
from furcate.orchestrator._policy import usage_of
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._observations import (
    NO_CARRIER,
    ActivityChanged,
    ContentObservation,
    ContentSent,
    Listener,
    Observation,
    RunFinished,
    RunStarted,
    RunStatus,
    ValidationStatus,
    hearing,
)
from furcate.primitives._result import Attempt
from furcate.primitives._stream import HostedTransition
from furcate.primitives._wire import FailureKind, StopReason

_log = logging.getLogger("furcate")


class Listeners:
    """Tell each observation to every listener once; groups first, so that they have their facts before anybody acts."""

    __slots__ = ("_failed", "_heard", "_hearing", "_readers")

    def __init__(self, *ranks: tuple[Listener, ...], failed: Counter[str] | None = None) -> None:
        self._heard: tuple[Listener, ...] = tuple({id(one): one for rank in ranks for one in rank}.values())
        self._hearing = tuple((one, hearing(one)) for one in self._heard)
        self._readers = tuple(one for one in self._heard if callable(getattr(one, "on_content", None)))
        self._failed: Counter[str] = Counter() if failed is None else failed

    def with_ranks(self, first: tuple[Listener, ...], then: tuple[Listener, ...]) -> Listeners:
        """Give listeners that begin with `first` and `then`; one that occurs twice is told once."""
        if not first and not then:
            return self
        return Listeners(first, then, self._heard, failed=self._failed)

    def tell(self, event: Observation) -> None:
        """Tell an observation. What a listener raises is logged and counted; the others are told all the same."""
        for listener, hear in self._hearing:
            try:
                hear(event)
            except Exception:
                self._note(listener, f"failed on {type(event).__name__}")

    @property
    def heard(self) -> bool:
        """Whether there is any listener."""
        return bool(self._heard)

    def afar(self) -> Listeners:
        """Give those who hear of runs in other processes: not those who trace runs, which they do where they run."""
        untraced = tuple(one for one in self._heard if getattr(one, "carrier", None) is None)
        return Listeners(untraced, failed=self._failed)

    @property
    def read_content(self) -> bool:
        """Whether any listener asks for content."""
        return bool(self._readers)

    def tell_content(self, event: ContentObservation) -> None:
        """Tell what was said to those listeners that ask for it, under the rules of `tell`."""
        for listener in self._readers:
            try:
                take: Callable[[ContentObservation], object] = getattr(listener, "on_content")  # noqa: B009
                take(event)
            except Exception:
                self._note(listener, f"failed on {type(event).__name__}")

    def carrier(self, run_id: str) -> dict[str, str]:
        """Ask the listeners that carry traces for what travels with the run's exchange."""
        found: dict[str, str] = {}
        for listener in self._heard:
            ask: Callable[[str], Mapping[object, object]] | None = getattr(listener, "carrier", None)
            if ask is None:
                continue
            try:
                found.update(_carried(ask(run_id)))
            except Exception:
                self._note(listener, "failed to give its carrier")
        return found

    def _note(self, listener: Listener, what: str) -> None:
        name = getattr(listener, "__qualname__", type(listener).__name__)
        self._failed[name] += 1
        # Once is enough to find a broken observer; thousands of runs must not flood the log.
        level = logging.ERROR if self._failed[name] == 1 else logging.DEBUG
        _log.log(level, "observer %s %s", name, what, exc_info=True)


def _carried(given: Mapping[object, object]) -> dict[str, str]:
    """Check what a listener gives before it goes into a run's exchange."""
    carried: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a carrier maps str to str; found {type(key).__name__} to {type(value).__name__}")
        carried[key] = value
    return carried


@frozen
class Ending:
    """Hold how a run ended.

    Attributes:
        status: in which of the three ways.
        kind: why it failed.
        reason: a finer word for that.
        validation: what came of its contract; None where it has no result.
        stop: why the model stopped, where there is a result.
    """

    status: RunStatus
    kind: FailureKind | None = None
    reason: str | None = None
    validation: ValidationStatus | None = None
    stop: StopReason | None = None


def run_started(plan: Plan, run_id: str, *, scope_id: str | None, base_url: str | None) -> RunStarted:
    """Make the observation that a run begins."""
    settings = plan.call.settings
    return RunStarted(
        run_id=run_id,
        parent_run_id=plan.parent.run_id if plan.parent is not None else None,
        prompt=plan.prompt,
        profile=plan.profile.name,
        backend=plan.backend.name,
        model=plan.call.model,
        dialect=plan.backend.dialect,
        session_id=plan.session_id,
        scope_id=scope_id,
        parent_carrier=plan.parent.carrier if plan.parent is not None else NO_CARRIER,
        # What is sent as it is may be anything, so it is not told.
        settings=attrs.evolve(settings, extra_body={}) if settings.extra_body else settings,
        base_url=base_url,
        streamed=plan.call.stream,
    )


def run_finished(
    plan: Plan, run_id: str, ending: Ending, *, attempts: Sequence[Attempt], duration_s: float
) -> RunFinished:
    """Make the observation that a run has ended.

    Arguments:
        plan: what the run was.
        run_id: its id.
        ending: how it ended.
        attempts: what it sent.
        duration_s: how long it took, in seconds.
    """
    return RunFinished(
        run_id=run_id,
        status=ending.status,
        duration_s=duration_s,
        usage=usage_of(attempts),
        attempts=len(attempts),
        repairs=sum(1 for record in attempts if record.purpose == "repair"),
        validation=ending.validation or ("not_requested" if plan.checker is None else "skipped"),
        stop_reason=ending.stop,
        failure_kind=ending.kind,
        failure_reason=ending.reason,
    )


def activity_changed(run_id: str, number: int, event: HostedTransition) -> ActivityChanged:
    """Make the observation of a transition of provider-run work: what it is about is left out."""
    activity = event.activity
    return ActivityChanged(
        run_id=run_id,
        number=number,
        activity_id=activity.id,
        name=activity.name,
        state=activity.state,
        scope=activity.scope,
    )


def content_sent(run_id: str, number: int, parent: Exchange | None, *, asked: History, sent: History) -> ContentSent:
    """Make the content observation of what an attempt sends.

    Arguments:
        run_id: the run.
        number: the attempt's.
        parent: the exchange that the run continues.
        asked: the conversation as the application sees it.
        sent: the same without what its provider may not see.
    """
    added = len(asked) - (len(parent.history) if parent is not None else 0)
    # Counted from the end, since a message that held nothing but foreign state is not among those that are sent.
    inherited = max(0, len(sent) - added)
    new = tuple(islice(sent, inherited, None))
    return ContentSent(run_id=run_id, number=number, inherited=inherited, messages=new)
