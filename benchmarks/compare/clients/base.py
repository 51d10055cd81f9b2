"""What a client does for the workloads: the same few methods for all, so that the same is measured of all."""

from __future__ import annotations

import asyncio  # noqa: TID251 - most clients know no other loop, and their environments have no anyio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

MODEL = "gpt-4o"
"""A name that all libraries know, and call by its chat completions."""

Pairs = Sequence[tuple[str, str]]
"""Turns of a conversation: what the user said, and what the assistant answered."""


class Client:
    """Do what the workloads ask for, by one library, as its documentation would have it done.

    Arguments:
        variant: which of the ways that the file knows.

    Attributes:
        most_branches: how many branches the library can be asked to hold in reasonable time.
    """

    most_branches = 10_000

    def __init__(self, variant: str = "") -> None:
        self.variant = variant

    async def open(self, base_url: str, capacity: int) -> None:
        """Make what requests need, for so many of them at once."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of it."""

    async def run(self, prompt: str) -> str:
        """Run one request that is not streamed, and give the text of the answer."""
        raise NotImplementedError

    async def stream(self, prompt: str) -> list[str]:
        """Run one request that is streamed, and give the pieces of its text as they came."""
        raise NotImplementedError

    def history(self, pairs: Pairs) -> Any:
        """Give a conversation of the turns in the form that the library continues from."""
        raise NotImplementedError

    async def turns(self, history: Any, prompts: Sequence[str]) -> str:
        """Fork the conversation, take a turn for each prompt, and give the text of the last answer."""
        raise NotImplementedError

    async def hold(self, history: Any, pairs: Pairs) -> Any:
        """Fork the conversation, extend the fork by the turns without a network, and give what keeps it alive."""
        raise NotImplementedError

    def launch(self, main: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Run an async function on the client's event loop."""

        async def whole() -> dict[str, Any]:
            return await main()

        return asyncio.run(whole())

    async def together(self, jobs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run jobs at once, and wait for all of them."""
        await asyncio.gather(*(job() for job in jobs))


class ListClient(Client):
    """Do it with a library for which a conversation is a list of messages that its user keeps and copies."""

    def user(self, text: str) -> Any:
        """Give a user's message."""
        return {"role": "user", "content": text}

    def assistant(self, text: str) -> Any:
        """Give an assistant's message, as the library gives it to its users."""
        return {"role": "assistant", "content": text}

    async def ask(self, messages: list[Any]) -> tuple[str, Any]:
        """Send messages, and give the text of the answer and the message to keep of it."""
        raise NotImplementedError

    async def run(self, prompt: str) -> str:
        """Ask with one message."""
        text, _ = await self.ask([self.user(prompt)])
        return text

    def history(self, pairs: Pairs) -> list[Any]:
        """Make a list of messages."""
        return [message for said, answered in pairs for message in (self.user(said), self.assistant(answered))]

    async def turns(self, history: list[Any], prompts: Sequence[str]) -> str:
        """Copy the list and let it grow."""
        messages, text = history.copy(), ""
        for prompt in prompts:
            messages.append(self.user(prompt))
            text, answered = await self.ask(messages)
            messages.append(answered)
        return text

    async def hold(self, history: list[Any], pairs: Pairs) -> list[Any]:
        """Copy the list and extend it."""
        return history + self.history(pairs)
