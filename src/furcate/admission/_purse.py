"""What a worker may use of an allowance that it shares with others: as much as it was given, no more by waiting."""

from __future__ import annotations

from math import inf

import attrs
from attrs import frozen

_SLACK = 1e-3
"""By how many tokens a purse may be short and still be enough: sums of fractions never quite meet."""


@frozen(kw_only=True)
class Purse:
    """Hold what was given and what was used, both counted from the moment of joining; time adds nothing to it.

    It stands where an `Allowance` stands in a gate that shares with nobody.

    Attributes:
        per_minute: the most that the allowance of all can hold, which is enough for any request.
        may: how much may be used altogether.
        used: how much is; more than `may` where a request did not wait, or used more than had been thought.
        returned: by how much it had been thought too high. It is not used here but told, since the allowance of all may
            be full meanwhile, which no worker knows.
    """

    per_minute: float = inf
    may: float = 0.0
    used: float = 0.0
    returned: float = 0.0

    @property
    def left(self) -> float:
        """How much there is; less than nothing where more was used than may be."""
        return self.may - self.used

    def at(self, _now_s: float) -> Purse:
        """Give the purse at a later moment: the same."""
        return self

    def rebased(self, _now_s: float) -> Purse:
        """Give the purse on another clock: the same."""
        return self

    def given(self, may: float | None) -> Purse:
        """Give the purse after word of how much may be used altogether; None is as much as one likes."""
        return attrs.evolve(self, may=inf if may is None else may)

    def take(self, amount: float) -> Purse:
        """Use an amount; a negative one was taken, but not used at all."""
        return attrs.evolve(self, used=max(0.0, self.used + amount))

    def amend(self, difference: float) -> Purse:
        """Note by how much more was used than had been taken, or less where it is negative."""
        if difference < 0:
            return attrs.evolve(self, returned=self.returned - difference)
        return attrs.evolve(self, used=self.used + difference)

    def due_s(self, amount: float) -> float:
        """Give the moment from which an amount suffices: now, or not before another portion comes."""
        return -inf if self.left >= min(amount, self.per_minute) - _SLACK else inf
