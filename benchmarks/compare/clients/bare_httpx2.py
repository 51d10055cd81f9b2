"""httpx2 with nothing around it: what a client costs at least that works on both event loops."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from clients.base import MODEL, ListClient


class BareHttpx2(ListClient):
    """Post dictionaries, and read lines of a stream."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Make a client with so many connections."""
        self._url = f"{base_url}/chat/completions"
        limits = httpx2.Limits(max_connections=capacity, max_keepalive_connections=capacity)
        self._client = httpx2.AsyncClient(limits=limits, timeout=60, headers={"authorization": "Bearer x"})

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def ask(self, messages: list[Any]) -> tuple[str, Any]:
        """Send messages as they are."""
        response = await self._client.post(self._url, json={"model": MODEL, "messages": messages})
        text = response.json()["choices"][0]["message"]["content"]
        return text, self.assistant(text)

    async def stream(self, prompt: str) -> list[str]:
        """Read line by line."""
        body = {"model": MODEL, "messages": [self.user(prompt)], "stream": True}
        pieces: list[str] = []
        async with self._client.stream("POST", self._url, json=body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                deltas = (choice["delta"] for choice in json.loads(line[6:])["choices"])
                pieces += [delta["content"] for delta in deltas if delta.get("content")]
        return pieces


CLIENT = BareHttpx2
