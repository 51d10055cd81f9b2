"""Requests of all dialects, as the stub sees them, without a wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from furcate.testing import StubDialect, StubRequest

Asking = Callable[..., StubRequest]

_BODIES: dict[StubDialect, dict[str, Any]] = {
    "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "two words"}]},
    "openai-responses": {"model": "m", "input": "two words", "include": ["reasoning.encrypted_content"]},
    "anthropic-messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "two words"}]},
    "google-generatecontent": {"contents": [{"role": "user", "parts": [{"text": "two words"}]}]},
}
_PATHS: dict[StubDialect, str] = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
}


@pytest.fixture
def asking() -> Asking:
    """Make a request of a dialect; further keywords go into its body, and raw bytes take the place of it."""

    def make(
        dialect: StubDialect, *, stream: bool = False, number: int = 1, raw: bytes = b"", **more: Any
    ) -> StubRequest:
        body = {**_BODIES[dialect], **more}
        path = _PATHS.get(dialect, "")
        if not path:
            path = "/v1beta/models/m:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
        elif stream:
            body["stream"] = True
            if dialect == "openai-chat":
                body["stream_options"] = {"include_usage": True}
        written = raw or json.dumps(body).encode()
        return StubRequest(
            number=number,
            connection=1,
            method="POST",
            path=path,
            headers={"anthropic-version": "2023-06-01"} if dialect == "anthropic-messages" else {},
            body=json.loads(written),
            raw=written,
            at=0.0,
        )

    return make
