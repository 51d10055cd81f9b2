"""Waiting for a place: the ledger's decisions, met by tasks that may be cancelled at any point."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from types import TracebackType

import anyio
import anyio.lowlevel

from furcate.admission._ledger import AdmissionStatistics, Ledger
from furcate.admission._portion import Need, Portion, Standing
from furcate.admission._queue import Share


class _Ticket:
    """Stand for one who waits.

    Attributes:
        granted: whether it was let in.
        turned: set when it should look again: it was let in, or it is to keep the time for the queue; None until it
            has to wait.
        until_s: the moment that its holder waits for, beside `turned`.
    """

    __slots__ = ("granted", "turned", "until_s")

    def __init__(self) -> None:
        self.granted = False
        self.turned: anyio.Event | None = None
        self.until_s = inf

    def turn(self) -> None:
        """Have its holder look again."""
        if self.turned is not None:
            self.turned.set()


class Gate:
    """Admit at most `capacity` holders at a time, in the order in which they came.

    Nothing in it belongs to an event loop while no lease is held or awaited, so one gate serves consecutive loops
    of either kind; it serves one loop at a time.

    Arguments:
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
        self._ledger: Ledger[_Ticket] = Ledger(
            capacity,
            adaptive=adaptive,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        self._loop: anyio.lowlevel.EventLoopToken | None = None
        self._tell: Callable[[], None] | None = None
        self._told = Standing()

    def lease(
        self, *, front: bool = False, tokens: float = 0, share: Share | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Make the context manager that waits for a place and holds it.

        Entering is always a checkpoint, even where a place is free. Leaving is none; it gives the place back unless
        that was done before. Cancellation while waiting leaves the queue as if nobody had asked, and a place that
        was granted in the very step of the cancellation passes to the next in the queue.

        Args:
            front: whether to queue before all who asked without it, as a retry does. Retries keep their order
                among themselves.
            tokens: how many tokens the request will probably use.
            share: the piece of work that it belongs to, if any; those that have begun take turns, and go before those
                that have not.
        """
        return _Admission(self, front=front, tokens=tokens, share=share)

    def no_place(self) -> AbstractAsyncContextManager[Lease]:
        """Make the context manager of a lease that holds no place, for what asks nobody."""
        return nullcontext(Lease(self, None, 0.0))

    def pause(self, until_s: float) -> bool:
        """Admit nobody before a moment. Whoever holds a place keeps it, and the queue keeps its order.

        Args:
            until_s: the moment on the event loop's clock; an earlier one than was set before changes nothing.

        Returns:
            Whether it is later than what held so far.
        """
        self._keep_to_this_clock()
        longer = self._ledger.pause(until_s)
        self._wake(())
        return longer

    def obey(self, portion: Portion | None) -> None:
        """Keep to a portion of the backend, since other workers use it too; whoever holds a place keeps it.

        A worker obeys `Portion.nothing` when it joins, before it admits anybody, and then each portion as it comes.
        None ends that: all places are there again.

        Raises:
            RuntimeError: no event loop runs here.
        """
        self._keep_to_this_clock()
        self._wake(self._ledger.obey(portion, now_s=anyio.current_time()))

    def need(self) -> Need:
        """Tell what those who share the backend with others have to know of this worker.

        Outside its event loop, times are those of the latest moment that the gate knows of.
        """
        return self._ledger.need(_now_s() if _loop() == self._loop else -inf)

    def watch(self, tell: Callable[[], None] | None) -> None:
        """Say who is told when `need` has something that others should not have to wait for.

        That is a wait hint of the server, somebody who waits where nobody did or for want of an allowance, a place
        above the portion that came back, and the end of all work. It is told once for each.

        Arguments:
            tell: called in the step in which it happens: it must be quick, raise nothing, and leave the gate alone.
                None ends that.
        """
        self._tell, self._told = tell, self._ledger.standing

    @property
    def limit(self) -> int:
        """How many places may be held now, from 1 to the capacity, or 0 where other workers have all of them."""
        return self._ledger.limit

    @property
    def paused_s(self) -> float:
        """For how long nobody is admitted, in seconds; 0 where nothing holds the backend up."""
        if not self._ledger.was_paused:
            return 0.0
        return self._ledger.paused_s(_now_s() if _loop() == self._loop else -inf)

    def statistics(self) -> AdmissionStatistics:
        """Count places and waiters, and tell what holds them up.

        Outside its event loop, times and allowances are those of the latest moment that the gate knows of.
        """
        return self._ledger.statistics(now_s=_now_s() if _loop() == self._loop else -inf)

    async def _admit(self, front: bool, tokens: float, share: Share | None) -> Lease:
        self._keep_to_this_clock()
        began_s = anyio.current_time()
        ticket = _Ticket()
        try:
            self._wake(self._ledger.ask(ticket, front=front, tokens=tokens, share=share, now_s=began_s), looking=ticket)
            if ticket.granted:
                await anyio.lowlevel.checkpoint()
            while not ticket.granted:
                await self._turn(ticket)
        except BaseException:
            # The ledger knows whether the ticket still waits or was granted before its task could wake.
            self._wake(self._ledger.withdraw(ticket, now_s=_now_s()))
            raise
        return Lease(self, ticket, anyio.current_time() - began_s)

    async def _turn(self, ticket: _Ticket) -> None:
        """Wait until the ticket is let in, or is the first of the queue and its moment has come."""
        ticket.turned = anyio.Event()
        with anyio.CancelScope(deadline=ticket.until_s):
            await ticket.turned.wait()
        if ticket.granted:
            return
        ticket.until_s = inf
        self._wake(self._ledger.grant(anyio.current_time()), looking=ticket)

    def _wake(self, tickets: tuple[_Ticket, ...], *, looking: _Ticket | None = None) -> None:
        """Tell who was let in, and who is now the first of the queue; `looking` is about to see for itself."""
        for ticket in tickets:
            ticket.granted = True
            ticket.turn()
        if self._tell is not None:
            before, self._told = self._told, self._ledger.standing
            if self._told.is_news_after(before):
                self._tell()
        # Only the first of the queue keeps an eye on the clock: a thousand timers would all ring for one place.
        following = self._ledger.next_up()
        if following is None:
            return
        first, until_s = following
        if first.until_s == until_s:
            return
        first.until_s = until_s
        if first is not looking:
            first.turn()

    def _keep_to_this_clock(self) -> None:
        loop = _loop()
        if loop != self._loop:
            self._ledger.rebase(anyio.current_time())
            self._loop = loop


class Lease:
    """Hold one place of a backend's capacity until `release`, or until the block that gave it is left.

    Attributes:
        waited_s: how long its holder waited for it, in seconds.
    """

    __slots__ = ("_gate", "_ticket", "waited_s")

    def __init__(self, gate: Gate, ticket: _Ticket | None, waited_s: float) -> None:
        self._gate = gate
        self._ticket = ticket
        self.waited_s = waited_s

    @property
    def held(self) -> bool:
        """Whether the place has not been given back yet."""
        return self._ticket is not None

    def succeeded(self) -> None:
        """Note that the server answered."""
        if self._ticket is not None:
            self._gate._wake(self._gate._ledger.succeeded(self._ticket, now_s=_now_s()))

    def throttled(self) -> None:
        """Note that the server said it is asked too much."""
        if self._ticket is not None:
            self._gate._ledger.throttled(self._ticket)

    def begin_again(self, *, tokens: float = 0) -> None:
        """Note that a further request is sent on this place, at once, whatever is left of the allowances.

        Args:
            tokens: how many tokens it will probably use.
        """
        if self._ticket is not None:
            self._gate._ledger.begin_again(self._ticket, tokens=tokens)

    def correct(self, tokens: float) -> None:
        """Put what the latest request used, in tokens, in the place of what had been estimated."""
        if self._ticket is not None and self._gate._ledger.counts_tokens:
            self._gate._wake(self._gate._ledger.correct(self._ticket, tokens, now_s=_now_s()))

    def release(self) -> None:
        """Give the place back; the longest waiting is granted it in the same step. Again, it does nothing."""
        if self._ticket is not None:
            ticket, self._ticket = self._ticket, None
            self._gate._wake(self._gate._ledger.release(ticket, now_s=_now_s()))


class _Admission(AbstractAsyncContextManager[Lease]):
    # A class rather than an async generator: one that is dropped half-way leaves nothing to a finaliser.

    __slots__ = ("_front", "_gate", "_lease", "_share", "_tokens", "_used")

    def __init__(self, gate: Gate, *, front: bool, tokens: float, share: Share | None) -> None:
        self._gate = gate
        self._front = front
        self._tokens = tokens
        self._share = share
        self._lease: Lease | None = None
        self._used = False

    async def __aenter__(self) -> Lease:
        if self._used:
            raise RuntimeError("this lease was entered before; call gate.lease() for each time")
        self._used = True
        self._lease = await self._gate._admit(self._front, self._tokens, self._share)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.release()


def _loop() -> anyio.lowlevel.EventLoopToken | None:
    try:
        return anyio.lowlevel.current_token()
    except anyio.NoEventLoopError:
        return None


def _now_s() -> float:
    """Give the moment on the event loop's clock; outside a loop, one that is earlier than any that was told."""
    try:
        return anyio.current_time()
    except anyio.NoEventLoopError:
        return -inf
