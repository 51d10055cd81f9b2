"""One branch, driven turn by turn: the application says after every turn whether there is a next."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeAlias
from uuid import uuid4

import anyio.lowlevel
import attrs
from attrs import field, frozen

from furcate.orchestrator._engine import Engine
from furcate.orchestrator._scopes import current_scope
from furcate.orchestrator._telling import Listeners
from furcate.primitives._budget import Spending, checked_budgets
from furcate.primitives._checks import check_instance, check_whole
from furcate.primitives._errors import ActionError, MisuseError
from furcate.primitives._exchange import Exchange
from furcate.primitives._observations import (
    CoordinatorFinished,
    CoordinatorStarted,
    Listener,
    RunStatus,
    TurnDelivered,
    checked_listeners,
)
from furcate.primitives._request import Request
from furcate.primitives._result import Result


class Outcome(enum.Enum):
    """Say how a coordinator ended normally; neither says anything about content."""

    STOPPED = "stopped"
    """The application stopped it."""
    EXHAUSTED = "exhausted"
    """The application asked for a turn more than there were."""


def _check_request(_instance: object, _attribute: object, value: Request) -> None:
    check_instance("Continue's request", value, Request)


@frozen
class Continue:
    """Ask for another turn with this request.

    Raises:
        TypeError: it is no request.
    """

    request: Request = field(validator=_check_request)


@frozen
class Stop:
    """Ask for no further turn."""


Action: TypeAlias = Continue | Stop


@frozen
class Turn:
    """Tell a callback where its branch stands.

    Attributes:
        exchange: the conversation so far.
        result: the newest result; None at the first call.
        remaining: how many further turns may be asked for.
    """

    exchange: Exchange
    result: Result | None
    remaining: int


NextAction: TypeAlias = Callable[[Turn], Awaitable[Action]]


class Coordinator:
    """Drive one branch: call back, execute what is asked for, call back with what came of it.

    Each completed result is delivered to the callback exactly once, the last permitted one too. While the callback
    runs, the coordinator holds no place of any backend's capacity.

    Arguments:
        engine: executes the turns.
        exchange: where the branch starts.
        next_action: an async callable that takes a `Turn` and returns `Continue` or `Stop`. Its state is its own.
        additional_turns: how many executions may be started, 0 or more; retries, repairs and callbacks count as none.
        name: for people who watch.
        groups: count the executions that this coordinator starts, and no others.
        observers: told of the same executions, and of the coordinator.
        budgets: the same executions are paid from them; one that is used up ends the branch with its error.

    Attributes:
        undelivered: the completed result that cancellation kept from the callback, or None.

    Raises:
        TypeError: `additional_turns` is no whole number, or `next_action` is not callable.
        ValueError: `additional_turns` is negative.
    """

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        next_action: NextAction,
        *,
        additional_turns: int,
        name: str | None = None,
        groups: Iterable[Listener] = (),
        observers: Iterable[Listener] = (),
        budgets: Iterable[Spending] = (),
    ) -> None:
        check_instance("engine", engine, Engine)
        check_instance("exchange", exchange, Exchange)
        check_whole("additional_turns", additional_turns, 0)
        if not callable(next_action):
            raise TypeError(f"next_action is a {type(next_action).__name__}; give an async callable")
        self._engine = engine
        self._exchange = exchange
        self._next_action = next_action
        self._additional_turns = additional_turns
        self._name = name
        self._groups = checked_listeners(groups)
        self._observers = checked_listeners(observers)
        self._budgets = checked_budgets(budgets)
        self._state: Literal["new", "running", "ended"] = "new"
        self._parent_scope_id: str | None = None
        self.undelivered: Result | None = None

    async def run(self) -> Outcome:
        """Drive the branch to its end.

        Returns:
            `Outcome.STOPPED` where the callback stopped, `Outcome.EXHAUSTED` where it asked for a turn more than there
            were; that request is not even rendered.

        Raises:
            ActionError: the callback returned something else; its turn stays delivered.
            Exception: whatever the callback or an execution raised, the same object.
            MisuseError: the coordinator was run before.

        Cancellation is looked for right before each callback, after it, and in every execution. A result that had
        completed but was not delivered is then in `undelivered`.
        """
        if self._state != "new":
            word = "is being run by another task" if self._state == "running" else "was run before"
            raise MisuseError(f"this coordinator {word}; make one for each branch")
        self._state = "running"
        scope_id = uuid4().hex
        listeners = self._engine._listeners.with_ranks(self._groups, self._observers)
        listeners.tell(
            CoordinatorStarted(
                scope_id=scope_id,
                parent_scope_id=self._parent_scope_id or current_scope.get(),
                parent_run_id=self._exchange.run_id,
                name=self._name,
                additional_turns=self._additional_turns,
                parent_carrier=self._exchange.carrier,
            )
        )
        outside = current_scope.get()
        current_scope.set(scope_id)
        status: RunStatus = "cancelled"
        outcome: Outcome | None = None
        error_type: str | None = None
        try:
            outcome = await self._drive(scope_id, listeners)
            status = "succeeded"
            return outcome
        except Exception as error:
            status, error_type = "failed", type(error).__name__
            raise
        finally:
            # Not by the token of the setting: whoever closes this from another context could not use it.
            current_scope.set(outside)
            self._state = "ended"
            listeners.tell(
                CoordinatorFinished(
                    scope_id=scope_id,
                    status=status,
                    outcome=outcome.value if outcome is not None else None,
                    error_type=error_type,
                )
            )

    def _join(self, parent_scope_id: str) -> None:
        """Note the nursery that this coordinator belongs to; observers are told."""
        self._parent_scope_id = parent_scope_id

    async def _drive(self, scope_id: str, listeners: Listeners) -> Outcome:
        turn = Turn(self._exchange, None, self._additional_turns)
        while True:
            action = await self._deliver(turn, scope_id, listeners)
            if isinstance(action, Stop):
                return Outcome.STOPPED
            if turn.remaining == 0:
                return Outcome.EXHAUSTED
            run = self._engine._start(self._joined(action.request), turn.exchange, scope_id=scope_id)
            result = await self._engine._primer.complete(run)
            turn = Turn(result.exchange, result, turn.remaining - 1)

    async def _deliver(self, turn: Turn, scope_id: str, listeners: Listeners) -> Action:
        # A full checkpoint: anything less misses a task that was cancelled natively on asyncio.
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException:
            self.undelivered = turn.result
            raise
        listeners.tell(TurnDelivered(scope_id=scope_id, remaining=turn.remaining))
        returned = self._next_action(turn)
        if not isinstance(returned, Awaitable):
            raise ActionError(returned)
        action = await returned
        await anyio.lowlevel.checkpoint()
        if not isinstance(action, (Continue, Stop)):
            raise ActionError(action)
        return action

    def _joined(self, request: Request) -> Request:
        """Attach the coordinator's groups, observers and budgets beside the request's own."""
        if not self._groups and not self._observers and not self._budgets:
            return request
        return attrs.evolve(
            request,
            groups=(*self._groups, *request.groups),
            observers=(*self._observers, *request.observers),
            budgets=(*self._budgets, *request.budgets),
        )
