"""How much may be used in a minute: an allowance that refills all the time."""

from __future__ import annotations

from math import inf

import attrs
from attrs import frozen

_SLACK = 1e-6
"""The part of an allowance by which it may be short and still be enough: sums of fractions never quite meet."""


@frozen(kw_only=True)
class Allowance:
    """Hold what is left of a minute's allowance at one moment; full, it holds a whole minute's worth.

    Attributes:
        per_minute: how much comes back in 60 seconds, and the most there can be.
        left: how much there is; less than nothing where more was used than had been thought.
        at_s: the moment, in seconds on whatever clock the caller keeps to.
    """

    per_minute: float
    left: float
    at_s: float = 0.0

    @classmethod
    def full(cls, per_minute: float, at_s: float = 0.0) -> Allowance:
        """Give a whole minute's allowance."""
        return cls(per_minute=per_minute, left=per_minute, at_s=at_s)

    def at(self, now_s: float) -> Allowance:
        """Give the allowance at a later moment; an earlier one changes nothing."""
        if now_s <= self.at_s:
            return self
        refilled = self.left + (now_s - self.at_s) * self.per_minute / 60
        return Allowance(per_minute=self.per_minute, left=min(self.per_minute, refilled), at_s=now_s)

    def take(self, amount: float) -> Allowance:
        """Use an amount, or give one back where it is negative. It may be more than is left."""
        left = min(self.per_minute, self.left - amount)
        return Allowance(per_minute=self.per_minute, left=left, at_s=self.at_s)

    def amend(self, difference: float) -> Allowance:
        """Note by how much more was used than had been taken, or less where it is negative."""
        return self.take(difference)

    def rebased(self, now_s: float) -> Allowance:
        """Give the allowance as it is, at a moment on another clock."""
        return attrs.evolve(self, at_s=now_s)

    def suffices(self, amount: float) -> bool:
        """Tell whether an amount is left. One that is larger than the whole needs the whole, not more."""
        return self.left >= min(amount, self.per_minute) - self.per_minute * _SLACK

    def due_s(self, amount: float) -> float:
        """Give the moment from which an amount suffices if nobody takes any: now, or later."""
        if self.suffices(amount):
            return -inf
        return self.at_s + (min(amount, self.per_minute) - self.left) * 60 / self.per_minute
