"""Who holds a place, who waits, and who is next: decisions without waiting."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

import attrs
from attrs import field, frozen

from furcate.admission._limit import AdaptiveLimit
from furcate.admission._portion import Need, Portion, Standing
from furcate.admission._purse import Purse
from furcate.admission._queue import Queue, Share
from furcate.admission._rate import Allowance
from furcate.primitives._checks import check_whole

TicketT = TypeVar("TicketT", bound=Hashable)


@frozen(kw_only=True)
class AdmissionStatistics:
    """Tell how a backend stands at one moment.

    Attributes:
        capacity: how many places there are.
        in_use: how many are held.
        waiting: how many wait for one, or for a pause or an allowance that holds them up.
        limit: how many places may be held now, from 1 to the capacity, or 0 where other workers have all of them; just
            lowered, it may be less than are held.
        paused_s: for how long nobody is admitted, in seconds; 0 where nothing holds the backend up.
        requests_left: what is left of the requests for a minute; None without such a limit.
        tokens_left: what is left of the tokens for a minute, below 0 where more was used than had been estimated; None
            without such a limit.
    """

    capacity: int
    in_use: int
    waiting: int
    limit: int = field()
    paused_s: float = 0.0
    requests_left: float | None = None
    tokens_left: float | None = None

    @limit.default
    def _limit(self) -> int:
        return self.capacity


@frozen
class _Held:
    """Hold what a place was given for: the limit's episode at that time, and the tokens estimated."""

    episode: int
    tokens: float


class Ledger(Generic[TicketT]):
    """Keep the places of one backend: first come, first served, and those who return go before those who are new.

    Where requests belong to shares of the work, those that have begun take turns and go before those that have not.

    A ticket is any hashable value; it is in the ledger from `ask` until `release` or `withdraw`. Each method that can
    let somebody in tells which tickets got a place by it, so that whoever waits with them can be woken. At all times at
    most `capacity` tickets hold a place, and no place is free while a ticket waits, unless a pause, a lowered limit or
    a used-up allowance holds up the first of the queue, and with it all others: nobody is overtaken for being small.

    Every moment is in seconds on the caller's clock; an earlier one than was told before counts as that.

    Args:
        capacity: how many places there are.
        adaptive: whether the places in use follow what the server can take.
        requests_per_minute: how many requests may begin in a minute; None sets no limit.
        tokens_per_minute: how many tokens may be used in a minute; None sets no limit.

    Raises:
        TypeError: a number is no whole number.
        ValueError: a number is less than 1.
    """

    def __init__(
        self,
        capacity: int,
        *,
        adaptive: bool = True,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> None:
        check_whole("capacity", capacity, 1)
        self._adaptive = adaptive
        self._limit = AdaptiveLimit(capacity=capacity, places=capacity)
        self._per_minute = (requests_per_minute, tokens_per_minute)
        self._requests: Allowance | Purse | None = _allowance("requests_per_minute", requests_per_minute)
        self._tokens: Allowance | Purse | None = _allowance("tokens_per_minute", tokens_per_minute)
        # The number of the portion that is kept to, and its places; None, and all, where no other worker shares.
        self._obeyed: int | None = None
        self._lent = capacity
        # What the server itself asked for; the pause may be longer, since other workers were told of one.
        self._hinted_until_s = -inf
        self._hints = 0
        self._now_s = -inf
        self._paused_until_s = -inf
        self._holders: dict[TicketT, _Held] = {}
        self._returning: Queue[TicketT] = Queue()
        self._arriving: Queue[TicketT] = Queue()

    def ask(
        self,
        ticket: TicketT,
        *,
        front: bool = False,
        tokens: float = 0,
        share: Share | None = None,
        now_s: float = 0.0,
    ) -> tuple[TicketT, ...]:
        """Ask for a place; it is granted at once where one is free.

        Args:
            ticket: who asks.
            front: whether to queue before all who asked without it, for one who had a place and gave it back to
                wait for something else. Those at the front keep their order among themselves.
            tokens: how many tokens it will probably use.
            share: the piece of work that it belongs to, if any; those that have begun go before those that have not.
            now_s: the moment.

        Raises:
            ValueError: the ticket already holds a place or waits for one.
        """
        if ticket in self._holders or ticket in self._returning or ticket in self._arriving:
            raise ValueError(f"ticket {ticket!r} already holds a place or waits for one; ask with a new ticket")
        if front:
            self._returning.push(ticket, tokens)
        else:
            self._arriving.push(ticket, tokens, share)
        return self.grant(now_s)

    def release(self, ticket: TicketT, *, now_s: float = 0.0) -> tuple[TicketT, ...]:
        """Give a place back.

        Raises:
            ValueError: the ticket holds no place.
        """
        self._held(ticket)
        del self._holders[ticket]
        return self.grant(now_s)

    def withdraw(self, ticket: TicketT, *, now_s: float = 0.0) -> tuple[TicketT, ...]:
        """Take a ticket out, whether it still waits or was granted a place that it will not use.

        What an unused place had taken of the allowances is there again.

        Raises:
            ValueError: the ticket is not in the ledger.
        """
        held = self._holders.get(ticket)
        if held is not None:
            self._take(-1, -held.tokens)
            return self.release(ticket, now_s=now_s)
        for queue in (self._returning, self._arriving):
            if ticket in queue:
                queue.remove(ticket)
                # It may have been the first, for whom the allowance did not suffice.
                return self.grant(now_s)
        raise ValueError(f"ticket {ticket!r} neither holds a place nor waits for one; withdraw a ticket that asked")

    def succeeded(self, ticket: TicketT, *, now_s: float = 0.0) -> tuple[TicketT, ...]:
        """Note that the server answered a holder; there may be a place more for it.

        Raises:
            ValueError: the ticket holds no place.
        """
        held = self._held(ticket)
        if self._adaptive:
            self._limit = self._limit.succeeded(held.episode)
        return self.grant(now_s)

    def throttled(self, ticket: TicketT) -> None:
        """Note that the server turned a holder away since it is asked too much; whoever holds a place keeps it.

        Raises:
            ValueError: the ticket holds no place.
        """
        held = self._held(ticket)
        if self._adaptive:
            # A limit that the portion never let anybody reach says nothing: what was in use was too much.
            self._limit = self._limit.throttled(held.episode, usable=max(len(self._holders), self.limit))

    def begin_again(self, ticket: TicketT, *, tokens: float = 0) -> None:
        """Note that a holder sends a further request. It goes out at once, and the allowances may fall below zero.

        Raises:
            ValueError: the ticket holds no place.
        """
        self._held(ticket)
        self._holders[ticket] = _Held(self._limit.episode, tokens)
        self._take(1, tokens)

    def correct(self, ticket: TicketT, tokens: float, *, now_s: float = 0.0) -> tuple[TicketT, ...]:
        """Put what a holder's request really used in the place of what had been estimated.

        Args:
            ticket: the holder.
            tokens: how many tokens it used.
            now_s: the moment.

        Raises:
            ValueError: the ticket holds no place.
        """
        held = self._held(ticket)
        if self._tokens is None:
            return ()  # nobody counts them
        self._tokens = self._tokens.amend(tokens - held.tokens)
        self._holders[ticket] = attrs.evolve(held, tokens=tokens)
        return self.grant(now_s)

    def pause(self, until_s: float) -> bool:
        """Admit nobody before a moment; an earlier one than was set before changes nothing.

        Returns:
            Whether it is later than what held so far.
        """
        longer = until_s > self._paused_until_s
        if longer:
            self._paused_until_s = self._hinted_until_s = until_s
            self._hints += 1
        return longer

    def obey(self, portion: Portion | None, *, now_s: float = 0.0) -> tuple[TicketT, ...]:
        """Keep to a portion, since other workers use the backend too; whoever holds a place keeps it.

        What was begun and used is counted anew from a portion with number 0, which `Portion.nothing` gives, and from
        the first one where there was no such. A number that is not higher than the one obeyed changes nothing.

        Arguments:
            portion: what may be done. None ends the sharing: all places are there again, and allowances begin empty,
                since the others may have used them up.
            now_s: the moment.
        """
        self._advance(now_s)
        if portion is None:
            self._leave()
        elif self._obeyed is None or portion.number == 0:
            self._join()
        elif portion.number <= self._obeyed:
            return ()
        if portion is not None:
            self._obeyed, self._lent = portion.number, portion.places
            if isinstance(self._requests, Purse) and isinstance(self._tokens, Purse):
                self._requests = self._requests.given(portion.requests)
                self._tokens = self._tokens.given(portion.tokens)
            if portion.paused_s > 0:
                self._paused_until_s = max(self._paused_until_s, self._now_s + portion.paused_s)
        return self.grant(now_s)

    def need(self, now_s: float) -> Need:
        """Tell what those who share the backend with others have to know of this worker."""
        self._advance(now_s)
        need = Need(
            obeyed=self._obeyed or 0,
            in_use=len(self._holders),
            waiting=len(self._returning) + len(self._arriving),
            paused_s=max(0.0, self._hinted_until_s - self._now_s),
            pauses=self._hints,
        )
        if not (isinstance(self._requests, Purse) and isinstance(self._tokens, Purse)):
            return need
        head = (self._returning or self._arriving).head()
        begun, tokens = round(self._requests.used), self._tokens.used
        # A look at all who wait would take long where they are many; what has begun was much like them.
        ahead = 0.0 if head is None else head[1] + (need.waiting - 1) * (tokens / begun if begun else head[1])
        return attrs.evolve(
            need,
            requests=begun,
            tokens=tokens,
            tokens_returned=self._tokens.returned,
            tokens_next=0.0 if head is None else head[1],
            tokens_waiting=ahead,
        )

    @property
    def standing(self) -> Standing:
        """What others who share the backend should hear of at once."""
        following = self.next_up()
        queued = bool(self._returning or self._arriving)
        return Standing(
            pauses=self._hints,
            queued=queued,
            short=following is not None and following[1] == inf,
            above=max(0, len(self._holders) - self._lent),
            idle=not queued and not self._holders,
        )

    def rebase(self, now_s: float) -> None:
        """Go on with another clock: what was to be waited for at the latest moment of the old one is still to be."""
        if self._now_s > -inf:
            self._paused_until_s += now_s - self._now_s
            self._hinted_until_s += now_s - self._now_s
        self._requests, self._tokens = (one and one.rebased(now_s) for one in (self._requests, self._tokens))
        self._now_s = now_s

    def grant(self, now_s: float) -> tuple[TicketT, ...]:
        """Let in whoever may come in at a moment."""
        self._advance(now_s)
        granted: list[TicketT] = []
        while (
            len(self._holders) < self.limit
            and (head := (queue := self._returning or self._arriving).head()) is not None
            and self._held_up_s(head[1]) <= self._now_s
        ):
            ticket, tokens = queue.pop(), head[1]
            self._holders[ticket] = _Held(self._limit.episode, tokens)
            self._take(1, tokens)
            granted.append(ticket)
        return tuple(granted)

    def next_up(self) -> tuple[TicketT, float] | None:
        """Give the first of the queue and the moment that it waits for; None where it waits for a place, or nobody."""
        if len(self._holders) >= self.limit:
            return None
        head = (self._returning or self._arriving).head()
        return (head[0], self._held_up_s(head[1])) if head is not None else None

    @property
    def limit(self) -> int:
        """How many places may be held now."""
        return self._limit.places if self._obeyed is None else min(self._limit.places, self._lent)

    @property
    def was_paused(self) -> bool:
        """Whether it ever was."""
        return self._paused_until_s > -inf

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters how many tokens are used."""
        return self._tokens is not None

    def paused_s(self, now_s: float) -> float:
        """Tell for how long nobody is admitted, in seconds; 0 where nothing holds the backend up."""
        return max(0.0, self._paused_until_s - max(self._now_s, now_s))

    def statistics(self, *, now_s: float = 0.0) -> AdmissionStatistics:
        """Count places and waiters, and tell what holds them up."""
        self._advance(now_s)
        return AdmissionStatistics(
            capacity=self._limit.capacity,
            in_use=len(self._holders),
            waiting=len(self._returning) + len(self._arriving),
            limit=self.limit,
            paused_s=self.paused_s(now_s),
            requests_left=_left(self._requests),
            tokens_left=_left(self._tokens),
        )

    def _join(self) -> None:
        requests, tokens = self._per_minute
        self._requests = Purse(per_minute=inf if requests is None else requests)
        self._tokens = Purse(per_minute=inf if tokens is None else tokens)
        # What was begun before is on nobody's account here: where it comes to be known, it counts in full.
        self._holders = {ticket: attrs.evolve(held, tokens=0) for ticket, held in self._holders.items()}

    def _leave(self) -> None:
        if self._obeyed is None:
            return
        requests, tokens = self._per_minute
        self._requests = None if requests is None else Allowance(per_minute=requests, left=0.0, at_s=self._now_s)
        self._tokens = None if tokens is None else Allowance(per_minute=tokens, left=0.0, at_s=self._now_s)
        self._obeyed, self._lent = None, self._limit.capacity

    def _held(self, ticket: TicketT) -> _Held:
        held = self._holders.get(ticket)
        if held is None:
            raise ValueError(f"ticket {ticket!r} holds no place; only a place that is held can be given back or used")
        return held

    def _advance(self, now_s: float) -> None:
        self._now_s = max(self._now_s, now_s)
        if self._requests is not None:
            self._requests = self._requests.at(self._now_s)
        if self._tokens is not None:
            self._tokens = self._tokens.at(self._now_s)

    def _held_up_s(self, tokens: float) -> float:
        waits = [self._paused_until_s]
        if self._requests is not None:
            waits.append(self._requests.due_s(1))
        if self._tokens is not None:
            waits.append(self._tokens.due_s(tokens))
        return max(waits)

    def _take(self, requests: float, tokens: float) -> None:
        if self._requests is not None:
            self._requests = self._requests.take(requests)
        if self._tokens is not None:
            self._tokens = self._tokens.take(tokens)


def _left(allowance: Allowance | Purse | None) -> float | None:
    return None if allowance is None or allowance.left == inf else allowance.left


def _allowance(name: str, per_minute: int | None) -> Allowance | None:
    if per_minute is None:
        return None
    check_whole(name, per_minute, 1)
    return Allowance.full(per_minute, -inf)
