"""furcate: an engine with one backend. Variants: ``httpx2``, ``aiohttp`` (both on asyncio), ``trio`` (httpx2).

Runs are not captured, branches are continued from a captured exchange, a stream's pieces are taken one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

import anyio
from clients.base import MODEL, Client, Pairs

import furcate


class Furcate(Client):
    """Run requests on an engine, and fork exchanges."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Open an engine whose backend has so many places."""
        self._engine = furcate.Engine(
            backends=[furcate.Backend("loopback", base_url=base_url, capacity=capacity, api_key="x")],
            profiles=[
                furcate.Profile("whole", "loopback", MODEL, stream=False),
                furcate.Profile("streamed", "loopback", MODEL),
            ],
            transport="aiohttp" if self.variant == "aiohttp" else "httpx2",
        )
        await self._engine.__aenter__()

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.__aexit__(None, None, None)

    async def run(self, prompt: str) -> str:
        """Run a request."""
        return (await self._engine.run(furcate.Request(messages=prompt, profile="whole"))).text

    async def stream(self, prompt: str) -> list[str]:
        """Run a request and take what comes of it."""
        async with self._engine.stream(furcate.Request(messages=prompt, profile="streamed")) as stream:
            return [event.text async for event in stream if isinstance(event, furcate.TextDelta)]

    def history(self, pairs: Pairs) -> furcate.Exchange:
        """Make an exchange."""
        return furcate.Exchange(furcate.History(_messages(pairs)), "shared")

    async def turns(self, history: furcate.Exchange, prompts: Sequence[str]) -> str:
        """Continue from the exchange, and from what came of it."""
        text = ""
        for prompt in prompts:
            result = await self._engine.continue_from(history, furcate.Request(messages=prompt, profile="whole"))
            history, text = result.exchange, result.text
        return text

    async def hold(self, history: furcate.Exchange, pairs: Pairs) -> furcate.Exchange:
        """Extend the history turn by turn, as an engine does."""
        held = history.history
        for pair in pairs:
            held = held.extend(_messages([pair]))
        return furcate.Exchange(held, "held")

    def launch(self, main: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Run on trio where the variant says so."""
        return anyio.run(main, backend="trio" if self.variant == "trio" else "asyncio")

    async def together(self, jobs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run jobs in a task group."""
        async with anyio.create_task_group() as tasks:
            for job in jobs:
                tasks.start_soon(job)


def _messages(pairs: Pairs) -> list[furcate.Message]:
    messages = []
    for said, answered in pairs:
        messages += [furcate.Message.user(said), furcate.Message.assistant(answered)]
    return messages


CLIENT = Furcate
