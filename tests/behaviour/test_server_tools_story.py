"""Tools that providers run, told through engines: who runs them, what is kept of them, what is not."""

from __future__ import annotations

import json
from functools import partial

import pytest

import furcate
from furcate.dialects import Assembler
from furcate.orchestrator import _attempt
from furcate.testing import StubProvider, StubSearch, StubSource, StubToolCall, answer

pytestmark = pytest.mark.anyio

SPOKEN = ("openai-responses", "anthropic-messages", "google-generatecontent")
PAGE = StubSource("https://example.org/rhine", "The Rhine")
SEARCH = StubSearch("Rhine length", results=(PAGE,))


@pytest.mark.req("S1-12", "S1-23")
@pytest.mark.parametrize("dialect", SPOKEN)
async def test_the_provider_alone_searches(engine_for, ask, dialect) -> None:
    """One request makes a search: nobody is asked, runs it here or answers it, and no tool of ours is offered."""
    async with StubProvider(answer("1,233 km.", searches=(SEARCH,)), strict=True) as stub:
        async with engine_for(stub, dialect=dialect, profile={"server_tools": ["web_search"]}) as engine:
            result = await engine.run(ask("How long is the Rhine?"))
        assert len(stub.requests) == 1
        tools = stub.requests[0].body["tools"]
    assert len(tools) == 1
    assert "search" in json.dumps(tools)
    assert not any("function" in json.dumps(tool).lower() for tool in tools)
    assert result.message.tool_calls == ()
    assert [attempt.purpose for attempt in result.attempts] == ["generate"]
    assert not any("search" in name.lower() for name in furcate.__all__)


async def test_observers_hear_of_work_and_not_of_what_it_is_about(engine_for, ask) -> None:
    """Starts and ends of a search are told while the attempt is out, by name and state, without its query."""
    recorder = furcate.Recorder()
    async with StubProvider(answer("1,233 km.", searches=(SEARCH,))) as stub:
        async with engine_for(stub, dialect="anthropic-messages", observers=[recorder]) as engine:
            result = await engine.run(ask())
    told = recorder.runs()[result.run_id]
    kinds = [type(event).__name__ for event in told]
    assert kinds == [
        "RunStarted", "AttemptStarted", "ActivityChanged", "ActivityChanged", "AttemptFinished", "RunFinished",
    ]  # fmt: skip
    begun, ended = recorder.of(furcate.ActivityChanged)
    assert (begun.state, ended.state, begun.name) == ("started", "completed", "web_search")
    assert (begun.activity_id, begun.scope) == (ended.activity_id, ended.scope)
    assert SEARCH.query not in repr(told)


@pytest.mark.req("S0-52")
@pytest.mark.parametrize("dialect", SPOKEN)
async def test_what_is_captured_holds_no_accounts(engine_for, ask, dialect) -> None:
    """Tokens, counts of searches and the provider's id of its answer are with the result; the exchange has none."""
    async with StubProvider(answer("1,233 km.", searches=(SEARCH,))) as stub:
        async with engine_for(stub, dialect=dialect) as engine:
            result = await engine.run(ask(capture=True))
    described = json.dumps(result.exchange.details())
    (attempt,) = result.attempts
    assert result.usage.known
    assert attempt.response_id
    for hidden in ("token", "usage", "requests", attempt.response_id):
        assert hidden not in described


@pytest.mark.req("S1-34")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("asked", ["search", "call"])
async def test_calls_that_ask_with_too_much_end_the_attempt(engine_for, ask, monkeypatch, asked, stream) -> None:
    """A query and arguments beyond the same limit fail the run alike, and the partial answer holds neither."""
    monkeypatch.setattr(_attempt, "Assembler", partial(Assembler, max_call_length=40))
    long = "Rhine " * 10
    said = {"searches": (StubSearch(long),)} if asked == "search" else {"tool_calls": (StubToolCall("f", {"q": long}),)}
    async with StubProvider(answer("1,233 km.", **said)) as stub:
        async with engine_for(stub, dialect="anthropic-messages", profile={"stream": stream}) as engine:
            with pytest.raises(furcate.ProviderError) as caught:
                await engine.run(ask(tools=[furcate.Tool("f")]))
        assert len(stub.requests) == 1
    assert (caught.value.failure.kind, caught.value.failure.reason) == ("provider", "too_large")
    partial_message = caught.value.partial
    assert partial_message is None or long.strip() not in json.dumps([repr(part) for part in partial_message.parts])
