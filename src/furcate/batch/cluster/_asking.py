"""Questions to workers, which outlive those who asked: a cluster cannot be told to ask no longer, and complains."""

from __future__ import annotations

# For clients that live on asyncio.
import asyncio  # noqa: TID251
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LAST_WORDS_S = 3.0
"""How long whoever leaves waits for answers, in seconds."""


class Asking:
    """Keep questions until they are answered."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Any]] = set()

    async def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer. Cancelled, it is awaited no more, and taken when it comes."""
        asking = asyncio.ensure_future(question)
        self._open.add(asking)
        asking.add_done_callback(self._take)
        return await asyncio.shield(asking)

    async def settle(self, within_s: float) -> None:
        """Wait for all answers, for so many seconds."""
        if self._open:
            await asyncio.wait(self._open, timeout=within_s)

    def _take(self, asking: asyncio.Task[Any]) -> None:
        self._open.discard(asking)
        if not asking.cancelled():
            # asyncio would complain of an error that nobody looked at.
            asking.exception()
