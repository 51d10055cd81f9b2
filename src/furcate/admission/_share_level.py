"""What sharing out needs to know of numbers: the fair level, and what a worker may still believe to be its."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf


def fair_level(wanted: Iterable[float], there_is: float) -> float:
    """Give the height up to which all who want something can have it: who wants less gets that, the others this much.

    Returns:
        The level; inf where there is enough for all.
    """
    left, heights = there_is, sorted(wanted)
    for place, height in enumerate(heights):
        level = left / (len(heights) - place)
        if height > level:
            return max(0.0, level)
        left -= height
    return inf


class Handed:
    """Remember what a worker was told, until it is known to have heard something later.

    Messages to a worker arrive in order, but when is not known. So it keeps to what it has said that it obeys, or to
    anything that it was told since.
    """

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: deque[tuple[int, float]] = deque([(0, 0)])

    @property
    def latest(self) -> float:
        """What it was told last."""
        return self._told[-1][1]

    @property
    def most(self) -> float:
        """The most that it may keep to now."""
        # Mostly it has heard all that it was told.
        return self._told[0][1] if len(self._told) == 1 else max(amount for _, amount in self._told)

    def tell(self, number: int, amount: float) -> None:
        """Note what it is told by the portion with a number, which is higher than those before."""
        if amount != self.latest:
            self._told.append((number, amount))

    def obeyed(self, number: int) -> None:
        """Note that it has heard the portion with a number, and so keeps to nothing that was told before."""
        while len(self._told) > 1 and self._told[1][0] <= number:
            self._told.popleft()
