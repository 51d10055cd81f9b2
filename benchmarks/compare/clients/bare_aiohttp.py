"""aiohttp and orjson, with nothing around them: what a quick client costs at least on asyncio."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
from clients.base import MODEL, ListClient


class BareAiohttp(ListClient):
    """Post dictionaries, and read lines of a stream."""

    async def open(self, base_url: str, capacity: int) -> None:
        """Make a session with so many connections."""
        self._url = f"{base_url}/chat/completions"
        headers = {"authorization": "Bearer x", "content-type": "application/json"}
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=capacity), headers=headers)

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def ask(self, messages: list[Any]) -> tuple[str, Any]:
        """Send messages as they are."""
        body = orjson.dumps({"model": MODEL, "messages": messages})
        async with self._session.post(self._url, data=body) as response:
            answered = orjson.loads(await response.read())
        text = answered["choices"][0]["message"]["content"]
        return text, self.assistant(text)

    async def stream(self, prompt: str) -> list[str]:
        """Read line by line."""
        body = orjson.dumps({"model": MODEL, "messages": [self.user(prompt)], "stream": True})
        pieces: list[str] = []
        async with self._session.post(self._url, data=body) as response:
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                deltas = (choice["delta"] for choice in orjson.loads(line[6:])["choices"])
                pieces += [delta["content"] for delta in deltas if delta.get("content")]
        return pieces


CLIENT = BareAiohttp
