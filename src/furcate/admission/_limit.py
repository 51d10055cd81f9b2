"""How many may be busy at once, learnt from what a server can take: up by one, down by half."""

from __future__ import annotations

import attrs
from attrs import frozen


@frozen(kw_only=True)
class AdaptiveLimit:
    """Hold how many places are in use at most, between 1 and the capacity.

    One place more is tried after as many successes as there are places. A server that says it is asked too much halves
    them, once for each episode: what was begun before the latest halving says nothing about the places that are left,
    so neither its success nor its failure counts any more.

    Attributes:
        capacity: the most there can be.
        places: the most there are now.
        successes: how many there were since the latest change.
        episode: how often the places were halved.
    """

    capacity: int
    places: int
    successes: int = 0
    episode: int = 0

    def succeeded(self, episode: int) -> AdaptiveLimit:
        """Give the limit after a success.

        Args:
            episode: the limit's episode when that request was begun.
        """
        if episode != self.episode or self.places >= self.capacity:
            return self
        if self.successes + 1 < self.places:
            return attrs.evolve(self, successes=self.successes + 1)
        return attrs.evolve(self, places=self.places + 1, successes=0)

    def throttled(self, episode: int, *, usable: int | None = None) -> AdaptiveLimit:
        """Give the limit after a server said that it is asked too much.

        Args:
            episode: the limit's episode when that request was begun.
            usable: how many places there were to use, where something else than this limit may have bound them.
        """
        if episode != self.episode:
            return self
        places = self.places if usable is None else min(self.places, usable)
        return attrs.evolve(self, places=max(1, places // 2), successes=0, episode=self.episode + 1)
