"""Who holds a place, who waits, and who is next: decisions without waiting."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from attrs import frozen

from furcate.primitives._checks import check_whole

TicketT = TypeVar("TicketT", bound=Hashable)


@frozen(kw_only=True)
class AdmissionStatistics:
    """Count the places of a backend at one moment.

    Attributes:
        capacity: how many places there are.
        in_use: how many are held.
        waiting: how many wait for one.
    """

    capacity: int
    in_use: int
    waiting: int


class Ledger(Generic[TicketT]):
    """Keep the places of one backend: first come, first served, and those who return go before those who are new.

    A ticket is any hashable value; it is in the ledger from `ask` until `release` or `withdraw`. Each method tells
    which tickets got a place by it, so that whoever waits with them can be woken. At all times at most `capacity`
    tickets hold a place, and no place is free while a ticket waits.

    Raises:
        TypeError: the capacity is no whole number.
        ValueError: the capacity is less than 1.
    """

    def __init__(self, capacity: int) -> None:
        check_whole("capacity", capacity, 1)
        self._capacity = capacity
        self._holders: set[TicketT] = set()
        # Ordered dicts, since a ticket leaves from the middle as easily as from the head, however long the queue.
        self._returning: OrderedDict[TicketT, None] = OrderedDict()
        self._arriving: OrderedDict[TicketT, None] = OrderedDict()

    def ask(self, ticket: TicketT, *, front: bool = False) -> tuple[TicketT, ...]:
        """Ask for a place; it is granted at once where one is free.

        Args:
            ticket: who asks.
            front: whether to queue before all who asked without it, for one who had a place and gave it back to
                wait for something else. Those at the front keep their order among themselves.

        Raises:
            ValueError: the ticket already holds a place or waits for one.
        """
        if ticket in self._holders or ticket in self._returning or ticket in self._arriving:
            raise ValueError(f"ticket {ticket!r} already holds a place or waits for one; ask with a new ticket")
        queue = self._returning if front else self._arriving
        queue[ticket] = None
        return self._grant()

    def release(self, ticket: TicketT) -> tuple[TicketT, ...]:
        """Give a place back.

        Raises:
            ValueError: the ticket holds no place.
        """
        if ticket not in self._holders:
            raise ValueError(f"ticket {ticket!r} holds no place; only a place that is held can be given back")
        self._holders.discard(ticket)
        return self._grant()

    def withdraw(self, ticket: TicketT) -> tuple[TicketT, ...]:
        """Take a ticket out, whether it still waits or was granted a place that it will not use.

        Raises:
            ValueError: the ticket is not in the ledger.
        """
        if ticket in self._holders:
            return self.release(ticket)
        for queue in (self._returning, self._arriving):
            if ticket in queue:
                del queue[ticket]
                return ()
        raise ValueError(f"ticket {ticket!r} neither holds a place nor waits for one; withdraw a ticket that asked")

    def statistics(self) -> AdmissionStatistics:
        """Count places and waiters."""
        return AdmissionStatistics(
            capacity=self._capacity,
            in_use=len(self._holders),
            waiting=len(self._returning) + len(self._arriving),
        )

    def _grant(self) -> tuple[TicketT, ...]:
        granted: list[TicketT] = []
        while len(self._holders) < self._capacity and (queue := self._returning or self._arriving):
            ticket, _ = queue.popitem(last=False)
            self._holders.add(ticket)
            granted.append(ticket)
        return tuple(granted)
