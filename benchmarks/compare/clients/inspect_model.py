"""inspect_ai: a model's generate, as solvers call it, outside of an evaluation."""

from __future__ import annotations

from typing import Any

from clients.base import MODEL, ListClient
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, get_model


class InspectModel(ListClient):
    """Keep chat messages in a list."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Get a model that allows so many connections."""
        config = GenerateConfig(max_connections=capacity)
        self._model = get_model(f"openai/{MODEL}", base_url=base_url, api_key="x", config=config)

    def user(self, text: str) -> Any:
        """Give a user's message."""
        return ChatMessageUser(content=text)

    def assistant(self, text: str) -> Any:
        """Give an assistant's message."""
        return ChatMessageAssistant(content=text, model=MODEL, source="generate")

    async def ask(self, messages: list[Any]) -> tuple[str, Any]:
        """Generate."""
        output = await self._model.generate(messages)
        return output.completion, output.message

    async def stream(self, prompt: str) -> list[str]:
        """Generate, and be told of each piece."""
        pieces: list[str] = []

        async def heard(event: Any) -> None:
            if event.type == "text":
                pieces.append(event.text)

        await self._model.generate([self.user(prompt)], on_stream=heard)
        return pieces


CLIENT = InspectModel
