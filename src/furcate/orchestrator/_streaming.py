"""An answer watched while it arrives."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

import anyio

from furcate.orchestrator._execute import Run
from furcate.primitives._errors import MisuseError
from furcate.primitives._message import Message
from furcate.primitives._result import Result
from furcate.primitives._stream import StreamEvent


class Stream:
    """Give the events of an answer: ``async with engine.stream(request) as stream: async for event in stream: ...``.

    The run begins with the first event that is asked for. It holds its place of the backend's capacity until the events
    have ended, so that calling the same backend while reading waits for itself at capacity 1. Leaving the block early
    closes the connection and ends the run as cancelled; what had arrived is in `partial`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events = run.events()
        self._state: Literal["new", "entered", "left"] = "new"
        self._owner: int | None = None
        self._elsewhere: anyio.CancelScope | None = None
        self._read_elsewhere = anyio.Event()

    async def __aenter__(self) -> Stream:
        if self._state != "new":
            raise MisuseError("a stream is entered once; call engine.stream() again for another execution")
        self._state = "entered"
        self._owner = anyio.get_current_task().id
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "left"
        if self._elsewhere is not None:
            # Another task waits for an event. It is woken and ends the run, which must not outlive this block.
            self._elsewhere.cancel()
            with anyio.CancelScope(shield=True):
                await self._read_elsewhere.wait()
        try:
            await self._events.aclose()
        except RuntimeError as clash:
            if "already running" in str(clash):
                raise MisuseError(
                    "a stream is closed while the task that entered it reads it; leave it there"
                ) from clash
            raise

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> StreamEvent:
        """Give the next event.

        Raises:
            ProviderError: the run failed.
            BudgetExceededError: one of its budgets is used up; nothing was sent.
            MisuseError: the stream is outside its block, or another task is reading it.
        """
        if self._state != "entered":
            raise MisuseError("read a stream inside 'async with engine.stream(...) as stream'")
        try:
            # Whose task this is matters where it has to wait; asking for that costs more than all else here.
            if self._run.at_hand or anyio.get_current_task().id == self._owner:
                return await anext(self._events)
            return await self._next_elsewhere()
        except RuntimeError as error:
            if "already running" in str(error):
                raise MisuseError("two tasks read one stream; read it in one, and hand events on") from error
            raise

    async def _next_elsewhere(self) -> StreamEvent:
        """Give the next event to a task that did not enter the block, so that leaving the block can wake it."""
        if self._elsewhere is not None:
            raise MisuseError("two tasks read one stream; read it in one, and hand events on")
        with anyio.CancelScope() as self._elsewhere:
            try:
                return await anext(self._events)
            finally:
                self._elsewhere = None
                self._read_elsewhere.set()
                if self._state == "entered":
                    self._read_elsewhere = anyio.Event()
        raise MisuseError("the stream's block was left while this task was reading it")

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def result(self) -> Result:
        """The result, once the events have ended.

        Raises:
            MisuseError: they have not, or the run did not complete.
        """
        if self._run.result is None:
            raise MisuseError("the stream has no result: read its events to their end first")
        return self._run.result

    @property
    def partial(self) -> Message | None:
        """What has arrived so far: the message cut off where the answer stands, None before any content."""
        return self._run.partial
