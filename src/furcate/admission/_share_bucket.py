"""Who gets how much of an allowance: all that workers hold and have not used is still part of the one allowance."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf

from attrs import Factory, define, frozen

from furcate.admission._rate import Allowance
from furcate.admission._share_level import Handed, fair_level

_ENOUGH = 1e-6
"""The part of a minute's allowance by which it may be short: sums of fractions never quite meet."""


@frozen(kw_only=True)
class Claim:
    """Say what a worker wants of an allowance.

    Attributes:
        worker: its name.
        head: what its first waiting request needs; None where nobody waits.
        total: what all of them need.
        room: how many of them there is a place for.
        soon: what those need.
        placed: whether it has any place, held or free.
        ready: whether it can begin a request with what it has, of every allowance.
    """

    worker: str
    head: float | None
    total: float
    room: int
    soon: float
    placed: bool
    ready: bool


@define(eq=False)
class _Account:
    """Hold what a worker was given and used, since it joined.

    Attributes:
        handed: how much it was told that it may use altogether.
        next: how much it may use from now on.
        used: what it says it used.
        returned: by how much it says that this was too much.
    """

    handed: Handed = Factory(Handed)
    next: float = 0.0
    used: float = 0.0
    returned: float = 0.0

    @property
    def ceiling(self) -> float:
        """What it may have used by now, at most, whatever it has heard; what goes beyond was used without asking."""
        return max(self.handed.most, self.used)


class Bucket:
    """Hand out an allowance, and take back what is not needed where it is.

    Args:
        per_minute: how much may be used in a minute.
        whole: whether it is counted in whole numbers.

    Attributes:
        next_up_s: the moment from which there is enough for whoever is next; inf where nobody lacks anything.
    """

    def __init__(self, per_minute: int, *, whole: bool) -> None:
        # What workers hold is left in it until they say that it is used, so that together it never holds more than a
        # minute's worth: an allowance that filled up again beside full purses would let twice as much begin at once.
        self._allowance = Allowance.full(per_minute, -inf)
        self._whole = whole
        self._slack = per_minute * _ENOUGH
        self._accounts: dict[str, _Account] = {}
        self._gone: list[tuple[float, float]] = []
        self.next_up_s = inf

    def join(self, worker: str) -> None:
        """Open an account, with nothing in it."""
        self._accounts[worker] = _Account()

    def leave(self, worker: str, until_s: float) -> None:
        """Close an account; what was in it is kept until a moment, and counts as used from then on."""
        account = self._accounts.pop(worker)
        self._gone.append((until_s, account.ceiling - account.used))

    def report(self, worker: str, number: int, *, used: float, returned: float, now_s: float) -> None:
        """Note what a worker says: the portion that it keeps to, and what it has used and returned altogether."""
        self._settle(now_s)
        account = self._accounts[worker]
        account.handed.obeyed(number)
        back = max(0.0, returned - account.returned)
        # In this order, since what comes back to a full allowance is lost.
        if back:
            self._allowance = self._allowance.take(-back)
            account.returned = returned
        if used != account.used:
            self._allowance = self._allowance.take(used - account.used)
            account.used = used

    def told(self, worker: str, number: int) -> float:
        """Note that a worker is told its part by the portion with a number; give how much it may use altogether."""
        account = self._accounts[worker]
        account.handed.tell(number, account.next)
        return account.next

    def changed(self, worker: str) -> bool:
        """Tell whether a worker is to have another part than it was told."""
        account = self._accounts[worker]
        return account.next != account.handed.latest

    def covers(self, worker: str, amount: float) -> bool:
        """Tell whether a worker has enough for a request."""
        account = self._accounts[worker]
        return account.handed.latest - account.used >= self._least(amount) - self._slack

    def share(self, claims: Sequence[Claim], *, now_s: float) -> None:
        """Set what each worker may use.

        Arguments:
            claims: one for each worker, the one first that has not begun anything for longest. It is not overtaken by
                others that need less.
            now_s: the moment.
        """
        self._settle(now_s)
        self.next_up_s = inf
        gone = sum(amount for _, amount in self._gone)
        loose = self._allowance.left - gone - sum(a.ceiling - a.used for a in self._accounts.values())
        fair = fair_level([claim.total for claim in claims], max(0.0, self._allowance.left - gone))
        for place, claim in enumerate(claims):
            if claim.head is None or not claim.placed:
                continue
            loose, lack = self._fill(self._accounts[claim.worker], claim, fair=fair, loose=loose)
            if lack > 0 and claim.room:
                self.next_up_s = now_s + lack * 60 / self._allowance.per_minute
                self._take_back(claims[:place], claims[place + 1 :], lack)
                return
        self._spare(claims, loose)

    def _fill(self, account: _Account, claim: Claim, *, fair: float, loose: float) -> tuple[float, float]:
        """Give a worker its part; tell what is loose afterwards, and what it lacks for its first request."""
        assert claim.head is not None
        least = self._least(claim.head)
        goal = max(least, min(claim.total, fair))
        have = account.handed.latest - account.used
        enough = have >= least - self._slack
        # A little more is not worth a message.
        if enough and goal < 2 * have:
            return loose, 0.0
        if loose < 0:
            return loose, 0.0 if enough else least - loose
        upto = min(account.used + goal, account.ceiling + loose)
        if upto - account.used < least - self._slack:
            return loose, least - (upto - account.used)
        if self._whole:
            upto = floor(upto + self._slack)
        got = upto - account.used
        if enough and got < 1.25 * have:
            return loose, 0.0
        account.next = max(upto, account.used + least)
        return loose - max(0.0, account.next - account.ceiling), 0.0

    def _take_back(self, before: Sequence[Claim], after: Sequence[Claim], lack: float) -> None:
        """Take back what a worker lacks from those that come after it, and from those that can begin nothing now."""
        # Of two that hold what the other lacks, one keeps it: the one that comes first, whichever allowance it is.
        others = [*(claim for claim in before if not claim.room), *after]
        for claim in (*before, *after):
            account = self._accounts[claim.worker]
            lack -= account.ceiling - max(account.handed.latest, account.used)  # is on its way
        found = sorted(((self._idle_part(claim), claim.worker) for claim in others), reverse=True)
        for part, worker in found:
            if lack <= self._slack or part <= 0:
                return
            account = self._accounts[worker]
            taken = min(part, ceil(lack) if self._whole else lack)
            account.next -= taken
            lack -= taken

    def _idle_part(self, claim: Claim) -> float:
        account = self._accounts[claim.worker]
        if account.next != account.handed.latest:
            return 0.0
        have = account.handed.latest - account.used
        kept = min(have, max(claim.soon, self._least(claim.head or 0.0))) if claim.ready else 0.0
        part = have - kept
        return floor(part) if self._whole else part

    def _spare(self, claims: Sequence[Claim], loose: float) -> None:
        """Where there is plenty, let each worker with a place have something before it asks."""
        each = (loose - self._allowance.left / 2) / max(1, len(claims))
        if self._whole:
            each = floor(each)
        for claim in claims if each > 0 else ():
            account = self._accounts[claim.worker]
            if claim.placed and account.next - account.used < each / 2:
                account.next = account.used + each

    def _least(self, amount: float) -> float:
        # One that needs more than there can be needs all that there can be.
        return min(amount, self._allowance.per_minute)

    def _settle(self, now_s: float) -> None:
        self._allowance = self._allowance.at(now_s)
        if not self._gone:
            return
        used = sum(amount for until_s, amount in self._gone if until_s <= now_s)
        if used:
            self._allowance = self._allowance.take(used)
        self._gone = [(until_s, amount) for until_s, amount in self._gone if until_s > now_s]
