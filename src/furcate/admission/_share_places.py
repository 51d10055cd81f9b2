"""Who gets how many of a backend's places, among workers that want more of them than there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import floor, inf

from attrs import Factory, define

from furcate.admission._portion import Need
from furcate.admission._share_level import Handed, fair_level

_PATIENCE_S = 120.0
"""How long a turn may last in which nothing is begun: an allowance fills up from nothing in half of that."""


@define(eq=False)
class Member:
    """Hold what is known of a worker.

    Attributes:
        joined: the number of the latest portion that anybody had been given before it joined.
        need: what it said last.
        handed: the places that it was told of.
        places: those that it should have from now on.
        raised_s: when it was last given more of them.
        begun_then: how many requests it had begun at that time, as far as was known.
        above_since_s: since when it has more places than it needs; None where it has not.
        paused_until_s: the end of the pause that it was told of.
        greeted: whether it was given a portion at all.
    """

    joined: int
    need: Need = Factory(Need)
    handed: Handed = Factory(Handed)
    places: int = 0
    raised_s: float = -inf
    begun_then: int = 0
    above_since_s: float | None = None
    paused_until_s: float = -inf
    greeted: bool = False

    @property
    def taken(self) -> int:
        """How many requests it may have in flight at this moment, at most, whatever it has heard."""
        return max(self.need.in_use, int(self.handed.most))

    @property
    def wanted(self) -> int:
        """How many places it could use."""
        return self.need.in_use + self.need.waiting

    @property
    def room(self) -> int:
        """How many of those who wait there are places for."""
        return min(self.need.waiting, max(0, self.places - self.need.in_use))


class PlaceShares:
    """Share places out so that nobody who wants more has fewer than another, as nearly as whole numbers allow.

    Args:
        capacity: how many places there are.
        turn_s: how long a place that does not go round stays with one worker while others wait for it, in seconds;
            as many times longer as it has places beside it.
        calm_s: for how long a worker has to do with less before a place or two are taken back, in seconds.

    Attributes:
        next_up_s: the moment from which the shares may be others although nobody told anything; inf if there is none.
    """

    def __init__(self, capacity: int, *, turn_s: float, calm_s: float) -> None:
        self._capacity = capacity
        self._turn_s = turn_s
        self._calm_s = calm_s
        self.next_up_s = inf

    def share(self, members: Collection[Member], *, gone: int, now_s: float) -> None:
        """Set the places of each member, as far as there are any that nobody can still be using.

        Arguments:
            members: those to share among.
            gone: how many places are kept for workers that have left.
            now_s: the moment.
        """
        self.next_up_s = inf
        there_are = max(0, self._capacity - gone)
        wanted = [min(self._capacity, member.wanted) for member in members]
        level = fair_level(wanted, there_are)
        scarce = level < inf
        base = floor(level + 1e-9) if scarce else self._capacity
        targets = {member: min(want, base) for member, want in zip(members, wanted, strict=True)}
        over = there_are - sum(targets.values())
        if scarce:
            for member in self._turns([m for m in members if m.wanted > base], over, base, now_s=now_s):
                targets[member] += 1
        # A quarter of what nobody needs, so that an idle worker can begin at once; it may keep as much again. The rest
        # is at hand for whoever needs it next.
        spare = 0 if scarce else over // (4 * max(1, len(members)))
        self._raise(members, targets, spare=spare, gone=gone, now_s=now_s)
        awaited = scarce or any(member.places < targets[member] for member in members)
        for member in members:
            self._lower(member, targets[member], spare, awaited=awaited, now_s=now_s)

    def _turns(self, keen: Sequence[Member], places: int, base: int, *, now_s: float) -> Sequence[Member]:
        """Choose who has a place more than the others: all in turn, the one first who was not given any for longest."""
        turn_s = self._turn_s * (base + 1)
        keeping, ended, coming = [], [], []
        for member in keen:
            if member.places <= base:
                coming.append(member)
            elif now_s >= _end_s(member, turn_s):
                ended.append(member)
            else:
                keeping.append(member)
        for those, newest_first in ((keeping, True), (coming, False), (ended, True)):
            those.sort(key=lambda member: member.raised_s, reverse=newest_first)
        if len(keeping) + len(coming) > places and keeping:
            self.next_up_s = min(_end_s(member, turn_s) for member in keeping)
        return [*keeping, *coming, *ended][:places]

    def _raise(
        self, members: Collection[Member], targets: dict[Member, int], *, spare: int, gone: int, now_s: float
    ) -> None:
        free = max(0, self._capacity - gone - sum(member.taken for member in members))
        longest_first = sorted(members, key=lambda member: member.raised_s)
        # Nobody gets anything to spare before all have what they need.
        for beside in (0, spare) if spare else (0,):
            for member in longest_first:
                # What it may be using anyway costs nothing.
                counted = max(member.taken, member.places)
                places = min(targets[member] + beside, counted + free)
                if places > member.places and member.places <= targets[member]:
                    free -= max(0, places - counted)
                    member.places = places
                    member.raised_s, member.begun_then = now_s, member.need.requests

    def _lower(self, member: Member, target: int, spare: int, *, awaited: bool, now_s: float) -> None:
        above = member.places - target - spare
        if above <= spare:
            member.above_since_s = None
            return
        if member.above_since_s is None:
            member.above_since_s = now_s
        due_s = member.above_since_s + self._calm_s
        # Small swings of what a worker needs pass by; where others wait, what is clearly too much goes at once.
        if now_s >= due_s or (awaited and (above > member.places // 8 or not member.wanted)):
            member.places = target + spare
            member.above_since_s = None
        else:
            self.next_up_s = min(self.next_up_s, due_s)


def _end_s(member: Member, turn_s: float) -> float:
    # Whoever could not begin anything had no turn yet.
    used = member.need.requests > member.begun_then
    return member.raised_s + turn_s + (0.0 if used else _PATIENCE_S)
