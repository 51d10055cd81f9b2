"""furcate as a client of a harness that compares clients of language models: the same workloads for all, in one run.

The harness is a folder with ``run.py``, ``peers.toml`` and ``peers/``, whose ``_common.py`` says what each client does.
Copy this file into its ``peers/`` (under a name that is not the package's own), and add to its ``peers.toml``:

    [peers.furcate]
    script = "furcate_run.py"
    env = "raw"
    versions = ["furcate", "httpx2"]
    ready = "import furcate, furcate.dialects.openai_chat, httpx2; httpx2.AsyncClient"

    [peers.furcate_aiohttp]
    script = "furcate_run.py"
    variant = "aiohttp"
    env = "raw"
    versions = ["furcate", "aiohttp"]
    ready = "import furcate, furcate.dialects.openai_chat, aiohttp"

and the same with ``variant = "trio"``. Then, from the harness's folder, with an interpreter that has furcate:

    python run.py -p raw_httpx2 furcate raw_aiohttp furcate_aiohttp -r 5 \\
        --python furcate=.venv/bin/python furcate_aiohttp=.venv/bin/python

Install it there as a wheel (``pip install ".[quick]"``), which compiles it: a checkout that may not write bytecode,
as under ``PYTHONDONTWRITEBYTECODE``, is compiled at each start, and w6 would measure that.

Variants: ``httpx2`` (asyncio, the default), ``aiohttp`` (asyncio, with the extra ``quick``), ``trio`` (httpx2 on trio).
An engine is used as applications use it: runs are not captured, branches are continued from a captured exchange, and a
stream's deltas are counted one by one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio
from _common import Peer, main

import furcate


class Furcate(Peer):
    """Run the workloads through an engine with one backend."""

    async def open(self, base: str, capacity: int) -> None:
        """Open an engine on the server's URL, with room for so many requests at once."""
        self._engine = furcate.Engine(
            backends=[furcate.Backend("mock", base_url=base, capacity=capacity, api_key="x")],
            profiles=[
                furcate.Profile("whole", "mock", "gpt-4o", stream=False),
                furcate.Profile("streamed", "mock", "gpt-4o"),
            ],
            transport="aiohttp" if self.variant == "aiohttp" else "httpx2",
        )
        await self._engine.__aenter__()

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.__aexit__(None, None, None)

    async def run(self, prompt: str) -> str:
        """Run one request that is not streamed."""
        return (await self._engine.run(furcate.Request(messages=prompt, profile="whole"))).text

    async def stream(self, prompt: str) -> tuple[str, int]:
        """Run one that is, and count its deltas."""
        async with self._engine.stream(furcate.Request(messages=prompt, profile="streamed")) as stream:
            texts = [event.text async for event in stream if isinstance(event, furcate.TextDelta)]
        return "".join(texts), len(texts)

    def history(self, pairs: Iterable[tuple[str, str]]) -> furcate.Exchange:
        """Make a captured conversation."""
        return furcate.Exchange(furcate.History(_messages(pairs)), "history")

    async def turns(self, history: furcate.Exchange, prompts: Sequence[str]) -> str:
        """Continue a conversation turn by turn."""
        text = ""
        for prompt in prompts:
            result = await self._engine.continue_from(history, furcate.Request(messages=prompt, profile="whole"))
            history, text = result.exchange, result.text
        return text

    async def hold(self, history: furcate.Exchange, pairs: Iterable[tuple[str, str]]) -> furcate.Exchange:
        """Extend a conversation without a network, turn by turn as an engine does."""
        held = history.history
        for pair in pairs:
            held = held.extend(_messages([pair]))
        return furcate.Exchange(held, "held")

    def launch(self, go: Callable[[], Awaitable[dict[str, object]]]) -> dict[str, object]:
        """Run everything, on trio where the variant says so."""
        return anyio.run(go, backend="trio" if self.variant == "trio" else "asyncio")

    async def pool(self, capacity: int, job: Callable[[int], Awaitable[None]], n: int) -> None:
        """Do n jobs, so many at once."""
        waiting = iter(range(n))

        async def worker() -> None:
            for number in waiting:
                await job(number)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(capacity, n)):
                tasks.start_soon(worker)


def _messages(pairs: Iterable[tuple[str, str]]) -> list[furcate.Message]:
    return [
        message
        for user, assistant in pairs
        for message in (furcate.Message.user(user), furcate.Message.assistant(assistant))
    ]


main(Furcate)
