"""Running a command on an event loop, with Ctrl-C in mind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import anyio
import anyio.abc

from furcate.cli._told import INTERRUPTED

_SHOW_CURSOR = b"\x1b[?25h\n"


class Interruption:
    """Cancel what a command is working on at the first SIGINT, SIGTERM or SIGHUP.

    Attributes:
        signalled: whether a signal came.
        instead: called at a signal in place of cancelling, where there is something gentler to do; tells whether there
            was.
    """

    def __init__(self) -> None:
        self._scopes: list[anyio.CancelScope] = []
        self.signalled = False
        self.instead: Callable[[], bool] | None = None

    def scope(self) -> anyio.CancelScope:
        """Make a scope that a signal cancels, to be entered around work and not around what tidies up after it."""
        scope = anyio.CancelScope()
        if self.signalled:
            scope.cancel()
        self._scopes.append(scope)
        return scope

    def interrupt(self) -> None:
        """Cancel the work as a signal does."""
        self.signalled = True
        if self.instead is not None and self.instead():
            return
        for scope in self._scopes:
            scope.cancel()

    @property
    def caught(self) -> bool:
        """Whether a signal ended work before its own end."""
        return self.signalled and any(scope.cancelled_caught for scope in self._scopes)


Command = Callable[[Interruption], Awaitable[int]]


def run_on(loop: str, command: Command, *, heeded: int = 1) -> int:
    """Run a command to its end and give its exit status: 130 where a signal ended its work.

    The first signal cancels the work, and the command tidies up; the one after those that are heeded leaves at once,
    even where the event loop is stuck in somebody's callback.

    Arguments:
        loop: ``asyncio`` or ``trio``.
        command: an async callable that takes an `Interruption` and gives an exit status.
        heeded: how many signals the command heeds.
    """
    return anyio.run(_watched, command, heeded, backend=loop)


async def _watched(command: Command, most: int) -> int:
    interruption = Interruption()
    if sys.platform == "win32":  # event loops there take no signals; Ctrl-C is a KeyboardInterrupt
        return await command(interruption)
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch, interruption, most)
        status = await command(interruption)
        tasks.cancel_scope.cancel()
    return INTERRUPTED if interruption.caught else status


async def _watch(
    interruption: Interruption, most: int, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    heeded = _heeded()
    with anyio.open_signal_receiver(*heeded) as signals:
        _count_signals(heeded, most)
        task_status.started()
        async for number in signals:
            # A terminal that goes away may say so more than once.
            if number != signal.SIGHUP or not interruption.signalled:
                interruption.interrupt()


def _heeded() -> tuple[signal.Signals, ...]:
    """Give the signals that end work; a terminal that goes away is not among them under nohup."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


def _count_signals(heeded: tuple[signal.Signals, ...], most: int) -> None:
    """Put a counter in front of the event loop's handlers; the loop restores what was there before them."""
    seen = 0

    def handler_before(number: int) -> Callable[[int, FrameType | None], None]:
        loops_own = signal.getsignal(number)

        def handle(received: int, frame: FrameType | None) -> None:
            nonlocal seen
            seen += received != signal.SIGHUP
            if seen > most:
                leave_at_once()
            if callable(loops_own):
                loops_own(received, frame)

        return handle

    for number in heeded:
        signal.signal(number, handler_before(number))


def leave_at_once() -> None:
    """End the process without tidying up, but for the terminal's cursor, which a live display may have hidden."""
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTED)
