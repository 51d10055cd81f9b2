"""Who is next among those who wait: a share of the work that has begun goes before one that has not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

TicketT = TypeVar("TicketT", bound=Hashable)


class Share:
    """Stand for a piece of work whose requests wait together, such as one item of a batch job.

    Attributes:
        begun: whether any of its requests was ever let in.
    """

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False


class Queue(Generic[TicketT]):
    """Keep those who wait for a place.

    Shares that have begun take turns, a request each; those that have not come after them, in the order in which they
    asked. So many pieces of work are not all begun and none finished. Requests of no share are a share of their own,
    which counts as begun; among themselves, requests of one share keep their order.
    """

    def __init__(self) -> None:
        self._nobodys = Share()
        self._nobodys.begun = True
        # Ordered dicts, since a ticket leaves from the middle as easily as from the head, however long the queue.
        self._begun: OrderedDict[Share, OrderedDict[TicketT, float]] = OrderedDict()
        self._fresh: OrderedDict[Share, OrderedDict[TicketT, float]] = OrderedDict()
        self._shares: dict[TicketT, Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def __contains__(self, ticket: object) -> bool:
        return ticket in self._shares

    def push(self, ticket: TicketT, tokens: float, share: Share | None = None) -> None:
        """Take in one who waits, and the tokens that it will probably use."""
        share = share or self._nobodys
        if share.begun and share in self._fresh:
            # It has begun at another backend meanwhile; what waits here already goes along, in front.
            self._begun[share] = self._fresh.pop(share)
        rank = self._begun if share.begun else self._fresh
        rank.setdefault(share, OrderedDict())[ticket] = tokens
        self._shares[ticket] = share

    def head(self) -> tuple[TicketT, float] | None:
        """Give the next one and its tokens; None where nobody waits."""
        rank = self._begun or self._fresh
        return next(iter(next(iter(rank.values())).items())) if rank else None

    def pop(self) -> TicketT:
        """Take out the next one; its share has begun by that.

        Raises:
            IndexError: nobody waits.
        """
        rank = self._begun or self._fresh
        if not rank:
            raise IndexError("nobody waits")
        share, tickets = rank.popitem(last=False)
        ticket, _ = tickets.popitem(last=False)
        del self._shares[ticket]
        share.begun = True
        if tickets:
            self._begun[share] = tickets  # at the end: the other shares have their turn first
        return ticket

    def remove(self, ticket: TicketT) -> None:
        """Take out one who does not want to wait any more.

        Raises:
            KeyError: it does not wait.
        """
        share = self._shares.pop(ticket)
        rank = self._begun if share in self._begun else self._fresh
        del rank[share][ticket]
        if not rank[share]:
            del rank[share]
