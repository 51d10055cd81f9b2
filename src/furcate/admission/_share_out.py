"""Share one backend among the workers of a job, so that together they never do more than one could alone.

A driver owns the `ShareOut`; each worker's gate keeps to the latest `Portion` that has reached it, and says by a `Need`
how it stands and which portion that is. Messages may take any time, as long as those of one worker arrive in order, in
each direction; with a worker that dies, those on their way are lost.

Why the places in use never exceed the capacity. A worker that obeys a portion lets nobody in unless fewer hold a place
than the portion has; so what is in use there may rise to the portion's places and not above, and what is above them
already can only fall. The driver does not know when a worker hears of a portion. But it knows the latest one of which
the worker has said that it obeys it, and that it now obeys either that or one that it was told later. Hence at any
moment no more are in use than the largest of: what the worker said was in use when it said what it obeys, the places of
that portion, and the places of each portion told since. This bound, its places *taken*, is all that the driver counts
with. It raises no portion above it unless what is taken by all, those who left included, stays within the capacity; a
raised portion is taken from the moment of being told, before anybody obeys it. A lowered portion frees nothing by being
told; only a worker's word that it obeys it, and has no more in use, does. So the sum of what is taken is within the
capacity at each step, and the sum of what is in use is not above it. A worker that died keeps what it had taken for as
long as the server may take to notice. Two things are outside of this: a worker that already has requests in flight when
it joins, which count from its first word on, and one that is thought dead and goes on; it has to end by itself within
the grace that its leaving was given.

Why no more is begun than the allowance of the whole job lets begin. What a worker may have begun is a count since it
joined, and the same bound holds for it: the largest count among the portions that it may obey. The difference between
that and what it said to have begun may be begun without the driver hearing of it. So it stays in the allowance, which
together with it never holds more than a minute's worth, and is given to nobody else: neither while the worker has it,
nor while it is being taken back, before the worker has said that it obeys the smaller count. Whatever a worker begins
was in the allowance of the whole at that time. What a dead worker may have begun counts as begun. As in a gate that
shares with nobody, a repair goes out at once, and a request may use more than was estimated: then the allowance falls
below nothing, and whatever comes later waits.

Why nobody waits for ever. Places go round among those that want more than their even part, a turn each. Allowances go
first to the worker that has begun nothing for longest among those that have a place; what others hold and cannot begin
anything with is taken back for it, and it is not overtaken. Its turn at a place does not end before it could begin.

A worker whose server asks it to slow down uses less of its portion; what it leaves unused is not given to the others,
who would only ask the same server for it.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from furcate.admission._portion import Need, Portion
from furcate.admission._share_bucket import Bucket, Claim
from furcate.admission._share_places import Member, PlaceShares
from furcate.primitives._checks import check_whole

TURN_S = 5.0
"""How long a place that does not go round stays with one worker while others wait for it, in seconds."""
CALM_S = 1.0
"""For how long a worker has to do with less before a place or two are taken back, in seconds."""


class ShareOut:
    """Decide how much of one backend each worker of a job may use.

    It has no clock: every moment is in seconds on the caller's, and none is earlier than one told before.

    Args:
        capacity: how many requests may be in flight, over all workers.
        requests_per_minute: how many requests all of them may begin in a minute; None sets no limit.
        tokens_per_minute: how many tokens all of them may use in a minute; None sets no limit.
        turn_s: how long a place that does not go round stays with one worker while others wait for it, in seconds.
        calm_s: for how long a worker has to do with less before a place or two are taken back, in seconds.

    Raises:
        TypeError: a number is no whole number.
        ValueError: a number is less than 1, or a time is negative.
    """

    def __init__(
        self,
        capacity: int,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        turn_s: float = TURN_S,
        calm_s: float = CALM_S,
    ) -> None:
        check_whole("capacity", capacity, 1)
        for name, time_s in (("turn_s", turn_s), ("calm_s", calm_s)):
            if not time_s >= 0:
                raise ValueError(f"{name} is {time_s}; give 0 seconds or more")
        self._capacity = capacity
        self._places = PlaceShares(capacity, turn_s=turn_s, calm_s=calm_s)
        self._requests = _bucket("requests_per_minute", requests_per_minute, whole=True)
        self._tokens = _bucket("tokens_per_minute", tokens_per_minute, whole=False)
        self._buckets = tuple(bucket for bucket in (self._requests, self._tokens) if bucket is not None)
        # Whoever has begun nothing for longest comes first.
        self._members: OrderedDict[str, Member] = OrderedDict()
        self._gone: list[tuple[float, int]] = []
        self._number = 0
        self._paused_until_s = -inf
        # Whether something was told since the portions were last looked at.
        self._stale = False

    @property
    def workers(self) -> tuple[str, ...]:
        """Who shares the backend now."""
        return tuple(self._members)

    @property
    def taken(self) -> int:
        """How many requests may be in flight at this moment, at most, over all workers and those that have left."""
        return self._taken_by_gone() + sum(member.taken for member in self._members.values())

    def join(self, worker: str) -> None:
        """Let a worker take part; it gets a portion by the next `portions`, if one without places.

        The worker obeys `Portion.nothing` from that moment, so that what it counts begins with 0.

        Raises:
            ValueError: it takes part already.
        """
        if worker in self._members:
            raise ValueError(f"worker {worker!r} has joined already; let it leave first, or give this one its own name")
        self._members[worker] = Member(joined=self._number)
        for bucket in self._buckets:
            bucket.join(worker)
        self._stale = True

    def leave(self, worker: str, *, now_s: float, grace_s: float = 0.0) -> None:
        """Let a worker take part no longer: it has ended, or it has died.

        Arguments:
            worker: its name; it may be given to another worker at once.
            now_s: the moment.
            grace_s: for how long the server may still be busy with what it had in flight, in seconds; its places are
                free, and what it may have begun counts as begun, after that. For one that has nothing in flight, and
                has said so while it obeyed a portion without places, it may be 0.

        Raises:
            ValueError: it does not take part.
        """
        member = self._members.pop(worker, None)
        if member is None:
            raise ValueError(f"worker {worker!r} has not joined, or has left already")
        self._gone.append((now_s + grace_s, member.taken))
        for bucket in self._buckets:
            bucket.leave(worker, now_s + grace_s)
        self._stale = True

    def report(self, worker: str, need: Need, *, now_s: float) -> None:
        """Take in what a worker says of itself.

        Ignored is what comes from nobody who takes part, as the last words of one that has left, and what was said
        before something that is known already.

        Raises:
            ValueError: it claims to obey a portion that nobody was given.
        """
        member = self._members.get(worker)
        if need.obeyed > self._number:
            raise ValueError(f"worker {worker!r} obeys portion {need.obeyed}, but the latest given was {self._number}")
        if member is None or need.obeyed < member.need.obeyed or 0 < need.obeyed <= member.joined:
            return
        before, member.need = member.need, need
        if need.pauses > before.pauses and need.paused_s > 0:
            self._paused_until_s = max(self._paused_until_s, now_s + need.paused_s)
        if need == before:
            return
        if need.requests > before.requests:
            self._members.move_to_end(worker)
        member.handed.obeyed(need.obeyed)
        if self._requests is not None:
            self._requests.report(worker, need.obeyed, used=need.requests, returned=0.0, now_s=now_s)
        if self._tokens is not None:
            used, returned = need.tokens, need.tokens_returned
            self._tokens.report(worker, need.obeyed, used=used, returned=returned, now_s=now_s)
        self._stale = True

    def portions(self, *, now_s: float) -> dict[str, Portion]:
        """Give the portion of each worker whose portion is another than it was told.

        Each has to be sent, and those for one worker in the order in which they were given.
        """
        if not self._stale and now_s < self.next_up(now_s):
            return {}
        self._stale = False
        self._gone = [(until_s, places) for until_s, places in self._gone if until_s > now_s]
        self._places.share(self._members.values(), gone=self._taken_by_gone(), now_s=now_s)
        self._share_allowances(now_s)
        return {
            worker: self._tell(worker, member, now_s)
            for worker, member in self._members.items()
            if self._changed(worker, member, now_s)
        }

    def next_up(self, now_s: float) -> float:
        """Give the moment from which `portions` may have something although nobody reports; inf where there is none."""
        if self._stale:
            return now_s
        moments = [self._places.next_up_s, *(bucket.next_up_s for bucket in self._buckets)]
        return min(*moments, *(until_s for until_s, _ in self._gone), inf)

    def _taken_by_gone(self) -> int:
        return sum(places for _, places in self._gone)

    def _share_allowances(self, now_s: float) -> None:
        ready = {
            worker
            for worker, member in self._members.items()
            if member.room
            and (self._requests is None or self._requests.covers(worker, 1))
            and (self._tokens is None or self._tokens.covers(worker, member.need.tokens_next))
        }
        if self._requests is not None:
            ones = [_claim(worker, it, worker in ready, tokens=False) for worker, it in self._members.items()]
            self._requests.share(ones, now_s=now_s)
        if self._tokens is not None:
            ones = [_claim(worker, it, worker in ready, tokens=True) for worker, it in self._members.items()]
            self._tokens.share(ones, now_s=now_s)

    def _changed(self, worker: str, member: Member, now_s: float) -> bool:
        return (
            not member.greeted
            or member.places != member.handed.latest
            or member.paused_until_s < self._paused_until_s > now_s
            or any(bucket.changed(worker) for bucket in self._buckets)
        )

    def _tell(self, worker: str, member: Member, now_s: float) -> Portion:
        self._number += 1
        member.greeted = True
        member.paused_until_s = self._paused_until_s
        member.handed.tell(self._number, member.places)
        return Portion(
            number=self._number,
            places=member.places,
            requests=None if self._requests is None else round(self._requests.told(worker, self._number)),
            tokens=None if self._tokens is None else self._tokens.told(worker, self._number),
            paused_s=max(0.0, self._paused_until_s - now_s),
        )


def _claim(worker: str, member: Member, ready: bool, *, tokens: bool) -> Claim:
    need = member.need
    total = max(need.tokens_waiting, need.tokens_next) if tokens else float(need.waiting)
    return Claim(
        worker=worker,
        head=None if not need.waiting else need.tokens_next if tokens else 1.0,
        total=total,
        room=member.room,
        soon=member.room * total / max(1, need.waiting),
        placed=member.places > 0 or need.in_use > 0,
        ready=ready,
    )


def _bucket(name: str, per_minute: int | None, *, whole: bool) -> Bucket | None:
    if per_minute is None:
        return None
    check_whole(name, per_minute, 1)
    return Bucket(per_minute, whole=whole)
