"""pydantic-ai: an agent without tools on its openai-chat model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clients.base import MODEL, Client, Pairs
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class PydanticAi(Client):
    """Hand on the messages of one run to the next."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Make an agent."""
        self._agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=base_url, api_key="x")))

    async def run(self, prompt: str) -> str:
        """Run the agent."""
        result: Any = await self._agent.run(prompt)
        return str(result.output)

    async def stream(self, prompt: str) -> list[str]:
        """Run it and see the text grow, piece by piece."""
        async with self._agent.run_stream(prompt) as streamed:
            return [text async for text in streamed.stream_text(delta=True, debounce_by=None)]

    def history(self, pairs: Pairs) -> list[Any]:
        """Make the agent's messages."""
        messages: list[Any] = []
        for said, answered in pairs:
            messages.append(ModelRequest(parts=[UserPromptPart(content=said)]))
            messages.append(ModelResponse(parts=[TextPart(content=answered)], model_name=MODEL))
        return messages

    async def turns(self, history: list[Any], prompts: Sequence[str]) -> str:
        """Run the agent on all messages so far."""
        text = ""
        for prompt in prompts:
            result = await self._agent.run(prompt, message_history=history)
            history, text = result.all_messages(), result.output
        return text

    async def hold(self, history: list[Any], pairs: Pairs) -> list[Any]:
        """Copy the list and extend it."""
        return history + self.history(pairs)


CLIENT = PydanticAi
