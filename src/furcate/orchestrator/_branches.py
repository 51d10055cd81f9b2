"""Many branches from one exchange, in a block that none of them outlives."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextvars import Context, copy_context
from types import TracebackType
from typing import Literal, TypeAlias, TypedDict, Unpack
from uuid import uuid4

import anyio
import anyio.abc
from attrs import frozen

from furcate.orchestrator._coordinator import Coordinator, NextAction, Outcome
from furcate.orchestrator._engine import Engine
from furcate.orchestrator._priming import Prime, Priming, current_priming
from furcate.orchestrator._scopes import current_scope
from furcate.primitives._budget import Spending, checked_budgets
from furcate.primitives._checks import check_instance, check_whole
from furcate.primitives._errors import BranchCancelled, FurcateError, MisuseError
from furcate.primitives._exchange import Exchange
from furcate.primitives._observations import (
    Listener,
    NurseryFinished,
    NurseryStarted,
    RunStatus,
    checked_listeners,
)
from furcate.primitives._printable import printable
from furcate.primitives._result import Result

_log = logging.getLogger("furcate")

FailurePolicy: TypeAlias = Literal["isolate", "cancel"]
BranchStatus: TypeAlias = Literal["waiting", "running", "succeeded", "failed", "cancelled"]


class Attached(TypedDict, total=False):
    """What the executions of all branches are attached to; a nursery takes these as keywords.

    Keys:
        groups: count every execution that the branches start.
        observers: told of them, of the branches, and of the nursery.
        budgets: the executions that the branches start are paid from them.
    """

    groups: Iterable[Listener]
    observers: Iterable[Listener]
    budgets: Iterable[Spending]


@frozen(kw_only=True)
class _Attached:
    """The same, checked."""

    groups: tuple[Listener, ...]
    observers: tuple[Listener, ...]
    budgets: tuple[Spending, ...]


class Branch:
    """Follow one branch of a nursery; most of it is read after the block.

    Attributes:
        name: the name it was started with, or None.
        outcome: how it ended normally, or None.
        error: what ended it otherwise: the very object that was raised, the event loop's own on cancellation.
        status: ``waiting``, ``running``, ``succeeded``, ``failed`` or ``cancelled``.
    """

    def __init__(self, coordinator: Coordinator, name: str | None) -> None:
        self._coordinator = coordinator
        self.name = name
        self.status: BranchStatus = "waiting"
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None

    @property
    def undelivered(self) -> Result | None:
        """The completed result that cancellation kept from the callback."""
        return self._coordinator.undelivered

    def unwrap(self) -> Outcome:
        """Give the outcome, or raise what ended the branch.

        Raises:
            Exception: what the callback or an execution raised, the same object.
            BranchCancelled: the branch was cancelled, before or after it had started.
            MisuseError: it has not ended yet.
        """
        if self.outcome is not None:
            return self.outcome
        if self.status == "cancelled":
            raise BranchCancelled(self.name) from self.error
        if self.error is not None:
            raise self.error
        raise MisuseError("this branch has not ended yet; read it after its block")

    def __repr__(self) -> str:
        return f"<Branch {self.name or 'unnamed'}: {self.status}>"


class Branches:
    """Hold branches that run side by side; iterating gives their handles in the order in which they were started."""

    def __init__(
        self,
        engine: Engine,
        exchange: Exchange,
        *,
        on_failure: FailurePolicy,
        max_active: int | None,
        attached: _Attached,
        priming: Priming | None,
        name: str | None,
    ) -> None:
        self._engine = engine
        self._exchange = exchange
        self._on_failure = on_failure
        self._max_active = max_active
        self._attached = attached
        self._priming = priming
        self._name = name
        self._listeners = engine._listeners.with_ranks(attached.groups, attached.observers)
        self._scope_id = uuid4().hex
        self._handles: list[Branch] = []
        self._names: set[str] = set()
        # With the context that each was started in: whoever lets one in later has another.
        self._waiting: deque[tuple[Branch, Context]] = deque()
        self._active = 0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._state: Literal["new", "open", "closed"] = "new"

    async def __aenter__(self) -> Branches:
        if self._state != "new":
            raise MisuseError("a nursery of branches is entered once; open another")
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        self._state = "open"
        self._listeners.tell(
            NurseryStarted(
                scope_id=self._scope_id,
                parent_run_id=self._exchange.run_id,
                name=self._name,
                parent_scope_id=current_scope.get(),
                parent_carrier=self._exchange.carrier,
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._tasks is None:
            raise MisuseError("a nursery of branches is left only after it was entered")
        status: RunStatus = "cancelled"
        try:
            swallowed = await self._tasks.__aexit__(kind, error, trace)
            status = "succeeded" if error is None or swallowed else "failed"
            return swallowed
        except Exception as raised:
            status = "failed"
            if self._on_failure == "isolate" and isinstance(error, Exception) and _only(raised, error):
                # No branch raises under this policy, so the block's own error need not come wrapped.
                return False
            raise
        finally:
            self._state = "closed"
            for branch, _ in self._waiting:
                branch.status = "cancelled"
            self._waiting.clear()
            self._listeners.tell(NurseryFinished(scope_id=self._scope_id, status=status, branches=len(self._handles)))

    def start_soon(
        self,
        next_action: NextAction,
        *,
        additional_turns: int,
        name: str | None = None,
        exchange: Exchange | None = None,
        groups: Iterable[Listener] = (),
        observers: Iterable[Listener] = (),
        budgets: Iterable[Spending] = (),
    ) -> Branch:
        """Start a branch; it begins at the next checkpoint, or when `max_active` lets it.

        Arguments:
            next_action: the branch's callback, as for `Coordinator`.
            additional_turns: its budget.
            name: unique among the nursery's branches, where given.
            exchange: where it starts; the nursery's exchange by default.
            groups: further groups for this branch.
            observers: further observers for this branch.
            budgets: further budgets that this branch is paid from.

        Returns:
            Its handle, to be read after the block.

        Raises:
            MisuseError: the nursery is not open.
            ValueError: the name is taken, or the budget is negative.
            TypeError: an argument has the wrong type.
        """
        if self._state != "open" or self._tasks is None:
            raise MisuseError("branches are started inside 'async with furcate.open_branches(...)', not after it")
        if name is not None and name in self._names:
            raise ValueError(f"there is a branch named {name!r} already; names are unique within a nursery")
        coordinator = Coordinator(
            self._engine,
            exchange or self._exchange,
            next_action,
            additional_turns=additional_turns,
            name=name,
            groups=(*self._attached.groups, *checked_listeners(groups)),
            observers=(*self._attached.observers, *checked_listeners(observers)),
            budgets=(*self._attached.budgets, *checked_budgets(budgets)),
        )
        coordinator._join(self._scope_id)
        branch = Branch(coordinator, name)
        if name is not None:
            self._names.add(name)
        self._handles.append(branch)
        self._waiting.append((branch, copy_context()))
        self._start_waiting()
        return branch

    def _start_waiting(self) -> None:
        while self._waiting and (self._max_active is None or self._active < self._max_active):
            assert self._tasks is not None
            self._active += 1
            branch, context = self._waiting.popleft()
            context.run(self._tasks.start_soon, self._drive, branch)

    async def _drive(self, branch: Branch) -> None:
        """Run a branch to its end, then let one that waits begin."""
        branch.status = "running"
        current_priming.set(self._priming)  # the task is the branch's own, and so is what is set in it
        try:
            branch.outcome = await branch._coordinator.run()
            branch.status = "succeeded"
        except Exception as error:
            branch.status, branch.error = "failed", error
            # Our own errors say all in a sentence; what an application's callback raised is found by its traceback.
            trace = None if isinstance(error, FurcateError) else error
            called = printable(branch.name) if branch.name else "(unnamed)"
            _log.error("branch %s failed: %s", called, error, exc_info=trace)
            if self._on_failure == "cancel":
                raise
        except BaseException as error:
            branch.status, branch.error = "cancelled", error
            raise
        finally:
            self._active -= 1
        self._start_waiting()

    def __iter__(self) -> Iterator[Branch]:
        return iter(tuple(self._handles))

    def __getitem__(self, name: str) -> Branch:
        """Give the branch of that name.

        Raises:
            KeyError: there is none.
        """
        for branch in self._handles:
            if branch.name == name:
                return branch
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self._handles)

    def cancel(self) -> None:
        """Cancel all branches; the block then ends without an error of its own.

        Raises:
            MisuseError: the nursery is not open.
        """
        if self._tasks is None or self._state != "open":
            raise MisuseError("the nursery is not open")
        self._tasks.cancel_scope.cancel()


def open_branches(
    engine: Engine,
    exchange: Exchange,
    *,
    on_failure: FailurePolicy = "isolate",
    max_active: int | None = None,
    prime: Prime = "auto",
    name: str | None = None,
    **attached: Unpack[Attached],
) -> Branches:
    """Open a nursery: ``async with furcate.open_branches(engine, exchange) as branches: branches.start_soon(...)``.

    The block waits for all its branches. Nurseries may be opened inside a branch's callback.

    Arguments:
        engine: executes the branches' turns.
        exchange: where they start.
        on_failure: with ``isolate``, a branch that fails ends alone, its error is logged and on its handle, and the
            block raises nothing of it; with ``cancel``, the first failure cancels the others and leaves the block as an
            exception group.
        max_active: how many branches run at once; None sets no limit beyond the backends' capacity.
        prime: whether the provider is asked to cache the exchange, and one branch goes first, the others waiting with
            their first turns until its answer begins: with ``auto`` where the backend's `cache` is ``shared`` and the
            exchange has about 1,024 tokens or more; True always; False never.
        name: for people who watch.
        attached: ``groups``, ``observers`` and ``budgets`` of all branches, see `Attached`.

    Raises:
        ValueError: `on_failure` or `prime` is another word, or `max_active` is less than 1.
        TypeError: an argument has the wrong type, or is none of those above.
    """
    if on_failure not in ("isolate", "cancel"):
        raise ValueError(f"on_failure is {on_failure!r}; give 'isolate' or 'cancel'")
    check_instance("engine", engine, Engine)
    check_instance("exchange", exchange, Exchange)
    if max_active is not None:
        check_whole("max_active", max_active, 1)
    if not isinstance(prime, bool) and prime != "auto":
        raise ValueError(f"prime is {prime!r}; give 'auto', True or False")
    unknown = attached.keys() - Attached.__annotations__.keys()
    if unknown:
        raise TypeError(f"open_branches() got an unexpected keyword argument {min(unknown)!r}")
    return Branches(
        engine,
        exchange,
        on_failure=on_failure,
        max_active=max_active,
        attached=_Attached(
            groups=checked_listeners(attached.get("groups", ())),
            observers=checked_listeners(attached.get("observers", ())),
            budgets=checked_budgets(attached.get("budgets", ())),
        ),
        priming=None if prime is False else Priming(prime, exchange.history),
        name=name,
    )


def _only(raised: BaseException, error: BaseException) -> bool:
    if isinstance(raised, BaseExceptionGroup):
        return len(raised.exceptions) == 1 and _only(raised.exceptions[0], error)
    return raised is error
