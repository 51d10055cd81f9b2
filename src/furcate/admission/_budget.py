"""A budget: how much the runs may use that an application chose to pay from one purse."""

from __future__ import annotations

# A budget may be shared by engines in several threads, and looked at from others.
import threading  # noqa: TID251
from collections.abc import Iterable
from typing import Literal, TypeAlias

from furcate.primitives._budget import BudgetSpent
from furcate.primitives._checks import check_whole
from furcate.primitives._errors import BudgetExceededError

WhenUnknown: TypeAlias = Literal["ignore", "refuse"] | int
"""What an answer counts as that did not report its usage."""


class Budget:
    """Bound what all runs together may use that it is attached to.

    Give it in the ``budgets`` of a request, a coordinator or a nursery. A run that finds the budget used up is refused
    with `BudgetExceededError` before anything is sent; it is told as a run that failed for reason ``budget``. A run
    that was let begin is never cut short: its retries and repairs are part of it.

    A running run counts with what it is estimated to use, so many that begin at once do not overshoot together. The
    last one may: a run is let begin while anything is left. It may be shared by any number of engines and threads, and
    needs no closing.

    Args:
        runs: how many runs may send something; None sets no limit.
        tokens: how many tokens, of input and output, cached or not; None sets no limit.
        unknown: what an answer counts as that did not report its usage, reported it in part, or reported zero although
            it brought output. With ``ignore``, as what is known of it; with ``refuse``, nothing more begins after it
            where `tokens` is set; a number is how many tokens are assumed at least.

    Raises:
        TypeError: a limit is no whole number, or `unknown` is something else.
        ValueError: a limit is less than 1, or `unknown` is another word or a negative number.
    """

    def __init__(self, runs: int | None = None, tokens: int | None = None, *, unknown: WhenUnknown = "ignore") -> None:
        for name, limit in (("runs", runs), ("tokens", tokens)):
            if limit is not None:
                check_whole(name, limit, 1)
        if isinstance(unknown, str):
            if unknown not in ("ignore", "refuse"):
                raise ValueError(f"unknown is {unknown!r}; give 'ignore', 'refuse' or a number of tokens")
        else:
            check_whole("unknown", unknown, 0)
        self._runs = runs
        self._tokens = tokens
        self._unknown = unknown
        self._lock = threading.Lock()
        self._spent = BudgetSpent(runs=0, running=0, tokens=0, reserved_tokens=0, unknown_answers=0)

    def __repr__(self) -> str:
        limits = [f"{name}={limit}" for name, limit in (("runs", self._runs), ("tokens", self._tokens)) if limit]
        return f"<Budget {', '.join(limits) or 'without limits'}: {self._spent}>"

    def spent(self) -> BudgetSpent:
        """Tell what was taken from it so far; may be asked for at any time and from any thread."""
        with self._lock:
            return self._spent

    def reserve(self, tokens: int, /) -> SetAside:
        """Set aside what one run will probably use; who runs requests by an engine need not call this.

        Arguments:
            tokens: the estimate.

        Raises:
            BudgetExceededError: the budget is used up; nothing was set aside.
        """
        with self._lock:
            self._refuse()
            self._add(runs=1, running=1, reserved_tokens=tokens)
        return SetAside(self, tokens)

    def _refuse(self) -> None:
        spent = self._spent
        if self._runs is not None and spent.runs >= self._runs:
            raise BudgetExceededError("runs", self._runs, spent)
        if self._tokens is None:
            return
        if spent.tokens + spent.reserved_tokens >= self._tokens:
            raise BudgetExceededError("tokens", self._tokens, spent)
        if self._unknown == "refuse" and spent.unknown_answers:
            raise BudgetExceededError("unknown", self._tokens, spent)

    def _settle(self, reserved: int, *, sent: bool, tokens: int, unsure: tuple[int, ...]) -> None:
        assumed = self._unknown if isinstance(self._unknown, int) else 0
        used = tokens + sum(max(known, assumed) for known in unsure)
        with self._lock:
            self._add(
                runs=0 if sent else -1,
                running=-1,
                tokens=used,
                reserved_tokens=-reserved,
                unknown_answers=len(unsure),
            )

    def _add(self, *, runs: int, running: int, reserved_tokens: int, tokens: int = 0, unknown_answers: int = 0) -> None:
        spent = self._spent
        self._spent = BudgetSpent(
            runs=spent.runs + runs,
            running=spent.running + running,
            tokens=spent.tokens + tokens,
            reserved_tokens=spent.reserved_tokens + reserved_tokens,
            unknown_answers=spent.unknown_answers + unknown_answers,
        )


class SetAside:
    """Hold what was set aside for one run, until it is settled."""

    __slots__ = ("_budget", "_open", "_tokens")

    def __init__(self, budget: Budget, tokens: int) -> None:
        self._budget = budget
        self._tokens = tokens
        self._open = True

    def settle(self, *, sent: bool, tokens: int, unsure: Iterable[int]) -> None:
        """Put what the run used in the place of the estimate; again, it does nothing.

        Arguments:
            sent: whether the run sent anything.
            tokens: what answers that reported all their usage used.
            unsure: for each other answer, what is known of its usage.
        """
        if self._open:
            self._open = False
            self._budget._settle(self._tokens, sent=sent, tokens=tokens, unsure=tuple(unsure))
