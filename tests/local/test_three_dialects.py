"""llama.cpp's server as a judge: it speaks three of the dialects itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import furcate
from furcate.local import EmbeddedServer

pytestmark = [pytest.mark.anyio, pytest.mark.embedded]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic-messages"])
async def test_the_embedded_server_is_asked_and_answers(model: Path, dialect: str, stream: bool) -> None:
    """A question and a continuation in each dialect, streamed and whole, with usage that the server counted."""
    async with EmbeddedServer(model=model) as server:
        address = await server.address()
        backend = furcate.Backend(
            "llama", dialect=dialect, base_url=address.base_url, credential=lambda: address.api_key or "", capacity=1
        )
        settings = furcate.Settings(max_output_tokens=8)
        profile = furcate.Profile("p", "llama", "smollm2-135m-instruct", settings=settings, stream=stream)
        async with furcate.Engine(backends=[backend], profiles=[profile]) as engine:
            first = await engine.run(furcate.Request(messages="Say hello.", profile="p", capture=True))
            second = await engine.continue_from(first.exchange, furcate.Request(messages="Again.", profile="p"))
    assert first.text.strip()
    assert second.usage.output_tokens
    assert len(second.exchange.messages) == 4
