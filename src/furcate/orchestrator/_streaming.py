"""An answer watched while it arrives."""

from __future__ import annotations

from types import TracebackType

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
        self._entered = False

    async def __aenter__(self) -> Stream:
        if self._entered:
            raise MisuseError("a stream is entered once; call engine.stream() again for another execution")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._events.aclose()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> StreamEvent:
        """Give the next event.

        Raises:
            ProviderError: the run failed.
            MisuseError: the stream is outside its block, or another task is reading it.
        """
        if not self._entered:
            raise MisuseError("read a stream inside 'async with engine.stream(...) as stream'")
        try:
            return await anext(self._events)
        except RuntimeError as error:
            if "already running" in str(error):
                raise MisuseError("two tasks read one stream; read it in one, and hand events on") from error
            raise

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
