"""The openai SDK's chat completions."""

from __future__ import annotations

from typing import Any

import openai
from clients.base import MODEL, ListClient
from openai.types.chat import ChatCompletionMessage


class OpenAi(ListClient):
    """Keep the message objects that the SDK answers with."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Make a client; by itself it allows a thousand connections."""
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="x")

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    def assistant(self, text: str) -> Any:
        """Give what the SDK gives."""
        return ChatCompletionMessage(role="assistant", content=text, refusal=None, annotations=[])

    async def ask(self, messages: list[Any]) -> tuple[str, Any]:
        """Create a completion."""
        completion = await self._client.chat.completions.create(model=MODEL, messages=messages)
        message = completion.choices[0].message
        return message.content or "", message

    async def stream(self, prompt: str) -> list[str]:
        """Read the chunks of a completion."""
        chunks = await self._client.chat.completions.create(model=MODEL, messages=[self.user(prompt)], stream=True)
        return [choice.delta.content async for chunk in chunks for choice in chunk.choices if choice.delta.content]


CLIENT = OpenAi
