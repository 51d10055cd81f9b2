"""A request rendered and encoded ahead of its execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from furcate.orchestrator._plan import Plan, describe_plan
from furcate.primitives._errors import MisuseError
from furcate.primitives._json import Plain
from furcate.primitives._result import Result


class Prepared:
    """Hold a prepared execution, to be run once or discarded.

    Preparing calls nobody, takes no place and tells no observer. `details` may be read at any time.
    """

    def __init__(self, plan: Plan, execute: Callable[[Plan], Awaitable[Result]]) -> None:
        self._plan = plan
        self._execute = execute
        self._spent: str | None = None

    def details(self) -> dict[str, Plain]:
        """Give what would be executed as fresh plain data: messages, profile, model, schema, tools; no credentials."""
        return describe_plan(self._plan)

    async def run(self) -> Result:
        """Execute what was prepared.

        Raises:
            MisuseError: it was run or discarded before.
            BudgetExceededError: one of its budgets is used up; nothing was sent.
            ProviderError: no attempt gave a completed answer. The handle is spent all the same, as it is after
                cancellation.
        """
        self._check()
        # An engine that is closed says so here, and the handle is good for later.
        running = self._execute(self._plan)
        self._spent = "run"
        return await running

    def discard(self) -> None:
        """Give the preparation up; nothing was started, so nothing is told.

        Raises:
            MisuseError: it was run or discarded before.
        """
        self._check()
        self._spent = "discarded"

    def _check(self) -> None:
        if self._spent is not None:
            raise MisuseError(f"this prepared request was {self._spent} before; prepare it again")
