"""What a run takes from and gives back to the budgets that it is attached to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from attrs import frozen


@frozen(kw_only=True)
class BudgetSpent:
    """Tell what was taken from a budget at one moment.

    Attributes:
        runs: runs that have begun; one that ended before anything was sent is taken back.
        running: how many of them have not ended.
        tokens: what the ended runs used, in tokens.
        reserved_tokens: what those that are running are estimated to use.
        unknown_answers: how many answers of ended runs did not report their usage, or not all of it.
    """

    runs: int
    running: int
    tokens: int
    reserved_tokens: int
    unknown_answers: int


class Reservation(Protocol):
    """Hold what a budget has set aside for one run that goes on."""

    def settle(self, *, sent: bool, tokens: int, unsure: Iterable[int]) -> None:
        """End it with what the run used; again, nothing happens.

        Arguments:
            sent: whether the run sent anything.
            tokens: what answers that reported all their usage used, in tokens.
            unsure: for each other answer, what is known of its usage.
        """


@runtime_checkable
class Spending(Protocol):
    """Decide whether a further run may begin."""

    def reserve(self, tokens: int, /) -> Reservation:
        """Set aside what one run will probably use.

        Arguments:
            tokens: the estimate.

        Raises:
            BudgetExceededError: there is nothing left to set aside.
        """


def checked_budgets(budgets: Iterable[Spending]) -> tuple[Spending, ...]:
    """Check budgets when they are given.

    Raises:
        TypeError: one of them is none.
    """
    if not budgets and isinstance(budgets, (tuple, list)):
        return ()
    if isinstance(budgets, Spending):
        raise TypeError("budgets are given as a list or tuple, even a single one")
    found = tuple(budgets)
    for budget in found:
        _check_budget(budget)
    return found


def _check_budget(budget: object) -> None:
    if isinstance(budget, type) or not isinstance(budget, Spending):
        name = budget.__name__ if isinstance(budget, type) else type(budget).__name__
        raise TypeError(f"budgets holds a {name}; give furcate.Budget values, as furcate.Budget(runs=10)")
