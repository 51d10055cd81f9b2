"""A key in the configuration: used where no variable is set, and never told."""

from __future__ import annotations

import logging

import pytest

import furcate
from furcate.testing import StubProvider, error

pytestmark = pytest.mark.anyio

INLINE, SET = "sk-inline-0123456789abcdef", "sk-variable-0123456789abcdef"
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")


@pytest.mark.req("S1-68")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_inline_key_serves_until_a_variable_is_set(engine_for, ask, monkeypatch, caplog, dialect) -> None:
    """Either key reaches the provider alone: no text form, observation, error or log has it, though the server does."""
    caplog.set_level(logging.DEBUG, logger="furcate")
    recorder = furcate.Recorder()
    refused = error(401, f"wrong key {INLINE} or {SET}")
    shown = []
    async with StubProvider([refused, refused]) as stub:
        given = {"api_key": INLINE, "api_key_env": "STUB_KEY", "dialect": dialect, "observers": [recorder]}
        async with engine_for(stub, **given) as engine:
            for variable in (None, SET):
                if variable is not None:
                    monkeypatch.setenv("STUB_KEY", variable)
                with pytest.raises(furcate.ProviderError) as caught:
                    await engine.run(ask())
                key = variable or INLINE
                shown.append((key, [str(caught.value), repr(caught.value), repr(caught.value.receipts)]))
            shown.append((INLINE, [repr(engine), repr(furcate.Backend("b", api_key=INLINE))]))
        sent = [" ".join(request.headers.values()) for request in stub.requests]
    assert INLINE in sent[0]
    assert SET in sent[1]
    assert INLINE not in sent[1]
    told = [repr(event) for event in recorder.events] + [record.getMessage() for record in caplog.records]
    for key, texts in shown:
        assert not any(key in text for text in texts)
    assert not any(INLINE in text or SET in text for text in told)
