"""What came of a contract: each answer that was held against it, and how the run stands by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from furcate.orchestrator._policy import CHECKED_STOPS
from furcate.primitives._observations import ValidationStatus
from furcate.primitives._result import Fault, Validation
from furcate.primitives._wire import StopReason

if TYPE_CHECKING:
    from furcate.validation import Checker


class Checks:
    """Hold answers against a contract, one after the other.

    Arguments:
        checker: the compiled contract; None where there is none.
    """

    __slots__ = ("_checker", "_rounds", "_value")

    def __init__(self, checker: Checker | None) -> None:
        self._checker = checker
        self._rounds: list[tuple[Fault, ...]] = []
        self._value: object = None

    def check(self, stop: StopReason, text: str) -> tuple[Fault, ...] | None:
        """Check an answer; None where there is nothing to check: no contract, or no whole answer."""
        if self._checker is None or stop not in CHECKED_STOPS:
            return None
        checked = self._checker.check(text)
        self._value = checked.value
        self._rounds.append(checked.faults)
        return checked.faults

    def validation(self, stop: StopReason | None) -> Validation:
        """Tell how the final answer fared.

        Arguments:
            stop: why the model stopped; None where the final attempt failed.
        """
        if self._checker is None:
            return Validation()
        if stop not in CHECKED_STOPS:
            return Validation(status="skipped", rounds=tuple(self._rounds))
        faults = self._rounds[-1]
        status: ValidationStatus = "failed" if faults else "passed"
        return Validation(status=status, faults=faults, rounds=tuple(self._rounds), value=self._value)
