"""From the job's event loop, which may be trio, to the one on which a cluster's client runs, and back."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import anyio
import anyio.lowlevel
from anyio import CapacityLimiter, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

T = TypeVar("T")


class Bridge:
    """Have coroutines run on an asyncio loop in a thread of its own; made by `open_bridge`."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run a coroutine function there, and give what it returns, or raise what it raises.

        Cancelled, it has that cancelled too, and does not wait for it to end.
        """
        done = anyio.Event()
        wake = _waker(done)
        future: Future[T] = self._portal.start_task_soon(function, *args)
        future.add_done_callback(lambda _: wake())
        try:
            await done.wait()
        except BaseException:
            # In the loop's own thread: from here it might be cancelled in the moment in which it ends.
            with suppress(RuntimeError):
                self._portal.start_task_soon(future.cancel)
            raise
        return future.result()


@asynccontextmanager
async def open_bridge() -> AsyncIterator[Bridge]:
    """Start the thread; leaving ends it."""
    manager = start_blocking_portal("asyncio")
    limiter = CapacityLimiter(math.inf)
    portal = await to_thread.run_sync(manager.__enter__, limiter=limiter)
    try:
        yield Bridge(portal)
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(manager.__exit__, None, None, None, limiter=limiter)


def _waker(event: anyio.Event) -> Callable[[], object]:
    """Give what sets an event from another thread, without waiting for the loop that the event belongs to."""
    token = anyio.lowlevel.current_token().native_token
    # The only thing in which the two loops' tokens are alike is that they have such a method.
    soon: Callable[[Callable[[], object]], object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe  # type: ignore[attr-defined]
    return lambda: soon(event.set)
