"""What observers are told: metadata about execution; content only where an observer asks for it by a hook of its own.

Durations are in seconds. A run is told of as RunStarted, any number of attempts, RunFinished: exactly one of the last
for each of the first; of a run that a budget refused, nothing stands between the two. Coordinators and nurseries frame
the runs that they start. How a backend stands is told to the observers of the engine alone: it is no single run's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from attrs import field, frozen

from furcate.primitives._content import ActivityState
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._receipt import TransportReceipt
from furcate.primitives._settings import Settings
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import FailureKind, StopReason

RunStatus: TypeAlias = Literal["succeeded", "failed", "cancelled"]
Purpose: TypeAlias = Literal["generate", "repair", "resume"]
ValidationStatus: TypeAlias = Literal["not_requested", "passed", "failed", "skipped"]

NO_SETTINGS = Settings()
NO_CARRIER = FrozenMap()


@frozen(kw_only=True)
class RunStarted:
    """Tell that a run begins, before it queues for admission.

    Attributes:
        run_id: the run.
        parent_run_id: the run whose exchange it continues.
        prompt: the prompt's name; None for plain messages.
        session_id: the rendered session id, if any.
        scope_id: id of the coordinator that it runs in, as a turn or by hand in the callback, if any.
        parent_carrier: what the exchange that it continues carries of a trace (W3C trace context).
        settings: the sampling settings and limits that are sent, without `extra_body`.
        base_url: where the backend answers; None for a server that furcate starts itself.
        streamed: whether the answer is asked for as a stream.
    """

    run_id: str
    parent_run_id: str | None
    prompt: str | None
    profile: str
    backend: str
    model: str
    dialect: str
    session_id: str | None = None
    scope_id: str | None = None
    parent_carrier: FrozenMap = field(default=NO_CARRIER, repr=False)
    settings: Settings = NO_SETTINGS
    base_url: str | None = None
    streamed: bool = True


@frozen(kw_only=True)
class AttemptStarted:
    """Tell that an attempt is sent.

    Attributes:
        number: 1 for the run's first attempt.
        waited_s: how long it waited for admission; 0 where the lease was still held.
    """

    run_id: str
    number: int
    purpose: Purpose
    request_id: str
    waited_s: float


@frozen(kw_only=True)
class ActivityChanged:
    """Tell that work which the provider runs on its own side has begun or ended; what it is about is content.

    Attributes:
        number: the attempt that brought it.
        activity_id: the provider's id for it, unique within `scope`.
        name: the capability, such as ``web_search``.
        state: ``started``, ``completed`` or ``failed``.
        scope: the response that the id belongs to.
    """

    run_id: str
    number: int
    activity_id: str
    name: str
    state: ActivityState
    scope: str = ""


@frozen(kw_only=True)
class AttemptFinished:
    """Tell how an attempt ended.

    Attributes:
        body_sha256: digest of the exact HTTP body, in hex.
        first_event_s: from sending to the first content event; None where none came.
        response_id: the provider's name for its answer.
        model: the model that the provider says has answered.
        receipt: what can be said of the attempt afterwards.
        replayed: whether it was answered from what was kept of an earlier call, which cost nothing now.
    """

    run_id: str
    number: int
    purpose: Purpose
    request_id: str
    status: RunStatus
    duration_s: float
    first_event_s: float | None
    body_sha256: str
    usage: Usage = UNKNOWN
    stop_reason: StopReason | None = None
    failure_kind: FailureKind | None = None
    failure_reason: str | None = None
    response_id: str | None = None
    model: str | None = None
    receipt: TransportReceipt | None = None
    replayed: bool = False


@frozen(kw_only=True)
class AttemptsPaused:
    """Tell that a run waits before its next attempt; it holds no lease meanwhile."""

    run_id: str
    wait_s: float
    failure_kind: FailureKind


@frozen(kw_only=True)
class RunFinished:
    """Tell how a run ended; usage is the sum over its attempts.

    Attributes:
        attempts: number of attempts that were sent.
        repairs: how many of them were repairs.
        failure_kind: why it failed; None also where nothing was sent.
        failure_reason: a finer word; ``budget`` where a budget refused the run.
    """

    run_id: str
    status: RunStatus
    duration_s: float
    usage: Usage
    attempts: int
    repairs: int
    validation: ValidationStatus
    stop_reason: StopReason | None = None
    failure_kind: FailureKind | None = None
    failure_reason: str | None = None


@frozen(kw_only=True)
class CoordinatorStarted:
    """Tell that a coordinator begins.

    Attributes:
        scope_id: the coordinator; RunStarted of its runs carries it.
        parent_scope_id: the nursery that it belongs to, if any.
        parent_run_id: the run of the exchange it starts from.
        additional_turns: its budget.
        parent_carrier: what that exchange carries of a trace.
    """

    scope_id: str
    parent_scope_id: str | None
    parent_run_id: str
    name: str | None
    additional_turns: int
    parent_carrier: FrozenMap = field(default=NO_CARRIER, repr=False)


@frozen(kw_only=True)
class TurnDelivered:
    """Tell that a coordinator's callback is about to be called.

    Attributes:
        remaining: turns left at that moment.
    """

    scope_id: str
    remaining: int


@frozen(kw_only=True)
class CoordinatorFinished:
    """Tell how a coordinator ended.

    Attributes:
        outcome: ``stopped`` or ``exhausted`` on a normal end, else None.
        status: ``succeeded``, ``failed`` (an execution or the callback raised) or ``cancelled``.
        error_type: class name of what was raised.
    """

    scope_id: str
    status: RunStatus
    outcome: Literal["stopped", "exhausted"] | None
    error_type: str | None = None


@frozen(kw_only=True)
class NurseryStarted:
    """Tell that a nursery of branches opens.

    Attributes:
        parent_run_id: the run of the exchange that its branches share.
        parent_scope_id: the coordinator in whose callback it opens, if any.
        parent_carrier: what the exchange carries of a trace.
    """

    scope_id: str
    parent_run_id: str
    name: str | None = None
    parent_scope_id: str | None = None
    parent_carrier: FrozenMap = field(default=NO_CARRIER, repr=False)


@frozen(kw_only=True)
class NurseryFinished:
    """Tell that a nursery has closed; all its branches have ended."""

    scope_id: str
    status: RunStatus
    branches: int


@frozen(kw_only=True)
class BackendPaused:
    """Tell that nobody is admitted to a backend for a while, since its server asked for that.

    Attributes:
        wait_s: for how long, in seconds.
        failure_kind: what it said that with.
    """

    backend: str
    wait_s: float
    failure_kind: FailureKind


@frozen(kw_only=True)
class BackendLimited:
    """Tell that another number of a backend's places is in use from now on.

    Attributes:
        limit: how many, from 1 to the capacity.
        before: how many it was.
        capacity: how many there are.
    """

    backend: str
    limit: int
    before: int
    capacity: int


Observation: TypeAlias = (
    RunStarted
    | AttemptStarted
    | ActivityChanged
    | AttemptFinished
    | AttemptsPaused
    | RunFinished
    | CoordinatorStarted
    | TurnDelivered
    | CoordinatorFinished
    | NurseryStarted
    | NurseryFinished
    | BackendPaused
    | BackendLimited
)


@frozen(kw_only=True)
class ContentSent:
    """Tell what an attempt sends, to an observer that asks for content; told right after AttemptStarted.

    Attributes:
        inherited: how many messages of the exchange that the run continues stand before these; they are not repeated.
        messages: what the attempt sends after them, in order, as it is in the conversation.
    """

    run_id: str
    number: int
    inherited: int
    messages: tuple[Message, ...] = field(repr=False)


@frozen(kw_only=True)
class ContentReceived:
    """Tell what an attempt brought, whole or in part, to an observer that asks for content.

    Told right before AttemptFinished, and only where something arrived.
    """

    run_id: str
    number: int
    message: Message = field(repr=False)


ContentObservation: TypeAlias = ContentSent | ContentReceived


@runtime_checkable
class Observer(Protocol):
    """Hear what happens. `on_event` is called in order, must be quick, and must not block.

    What it raises is logged and changes nothing. An observer whose attribute `on_content` is a callable is told
    `ContentObservation` by that beside the rest; nobody else is ever handed content. One with `carrier(run_id)` is
    asked what travels along with the exchange of a run.
    """

    def on_event(self, event: Observation, /) -> None:
        """Take one observation."""


Listener: TypeAlias = Observer | Callable[[Observation], None]
"""An observer, or a plain callable in its place."""


def hearing(listener: Listener) -> Callable[[Observation], object]:
    """Give what to call with an observation."""
    return listener.on_event if isinstance(listener, Observer) else listener


def checked_listeners(listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    """Check observers when they are given.

    Raises:
        TypeError: one is neither an observer nor callable, or is a coroutine function, which nobody would await.
    """
    if not listeners and isinstance(listeners, (tuple, list)):
        return ()
    if isinstance(listeners, Observer) or callable(listeners):
        raise TypeError("observers and groups are given as a list or tuple, even a single one")
    found = tuple(listeners)
    for listener in found:
        if isinstance(listener, type):
            raise TypeError(f"{listener.__name__} is a class; give an object of it, {listener.__name__}()")
        heard = listener.on_event if isinstance(listener, Observer) else listener
        if not callable(heard):
            raise TypeError(f"{type(listener).__name__} has no on_event(event) and is not callable")
        if inspect.iscoroutinefunction(heard) or inspect.iscoroutinefunction(
            getattr(heard, "__call__", None)  # noqa: B004 - an object with an async __call__ is meant
        ):
            raise TypeError(
                f"observer {getattr(heard, '__qualname__', heard)!s} is a coroutine function; observers are synchronous"
            )
    return found
