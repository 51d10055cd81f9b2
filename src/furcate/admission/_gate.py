"""Waiting for a place: the ledger's decisions, met by tasks that may be cancelled at any point."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType

import anyio
import anyio.lowlevel

from furcate.admission._ledger import AdmissionStatistics, Ledger


class _Ticket:
    __slots__ = ("granted",)

    def __init__(self) -> None:
        self.granted = anyio.Event()


class Gate:
    """Admit at most `capacity` holders at a time, in the order in which they came.

    Nothing in it belongs to an event loop while no lease is held or awaited, so one gate serves consecutive loops
    of either kind; it serves one loop at a time.

    Raises:
        TypeError: the capacity is no whole number.
        ValueError: the capacity is less than 1.
    """

    def __init__(self, capacity: int) -> None:
        self._ledger: Ledger[_Ticket] = Ledger(capacity)

    def lease(self, *, front: bool = False) -> AbstractAsyncContextManager[Lease]:
        """Make the context manager that waits for a place and holds it.

        Entering is always a checkpoint, even where a place is free. Leaving is none; it gives the place back unless
        that was done before. Cancellation while waiting leaves the queue as if nobody had asked, and a place that
        was granted in the very step of the cancellation passes to the next in the queue.

        Args:
            front: whether to queue before all who asked without it, as a retry does. Retries keep their order
                among themselves.
        """
        return _Admission(self, front)

    def statistics(self) -> AdmissionStatistics:
        """Count places and waiters."""
        return self._ledger.statistics()

    async def _admit(self, front: bool) -> Lease:
        began_s = anyio.current_time()
        ticket = _Ticket()
        try:
            if self._ledger.ask(ticket, front=front):
                await anyio.lowlevel.checkpoint()
            else:
                await ticket.granted.wait()
        except BaseException:
            # The ledger knows whether the ticket still waits or was granted before its task could wake.
            _wake(self._ledger.withdraw(ticket))
            raise
        return Lease(self, ticket, anyio.current_time() - began_s)

    def _release(self, ticket: _Ticket) -> None:
        _wake(self._ledger.release(ticket))


class Lease:
    """Hold one place of a backend's capacity until `release`, or until the block that gave it is left.

    Attributes:
        waited_s: how long its holder waited for it, in seconds.
    """

    __slots__ = ("_gate", "_ticket", "waited_s")

    def __init__(self, gate: Gate, ticket: _Ticket, waited_s: float) -> None:
        self._gate = gate
        self._ticket: _Ticket | None = ticket
        self.waited_s = waited_s

    @property
    def held(self) -> bool:
        """Whether the place has not been given back yet."""
        return self._ticket is not None

    def release(self) -> None:
        """Give the place back; the longest waiting is granted it in the same step. Again, it does nothing."""
        if self._ticket is not None:
            ticket, self._ticket = self._ticket, None
            self._gate._release(ticket)


class _Admission(AbstractAsyncContextManager[Lease]):
    # A class rather than an async generator: one that is dropped half-way leaves nothing to a finaliser.

    __slots__ = ("_front", "_gate", "_lease", "_used")

    def __init__(self, gate: Gate, front: bool) -> None:
        self._gate = gate
        self._front = front
        self._lease: Lease | None = None
        self._used = False

    async def __aenter__(self) -> Lease:
        if self._used:
            raise RuntimeError("this lease was entered before; call gate.lease() for each time")
        self._used = True
        self._lease = await self._gate._admit(self._front)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.release()


def _wake(tickets: tuple[_Ticket, ...]) -> None:
    for ticket in tickets:
        ticket.granted.set()
