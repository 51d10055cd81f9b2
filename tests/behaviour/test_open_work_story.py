"""Provider-run work that begins in one answer and ends in a later one, through the public API."""

from __future__ import annotations

import pytest

import furcate
from furcate.storage import from_bytes, to_bytes
from furcate.testing import StubProvider, StubSearch, StubSource, StubToolCall, answer

pytestmark = pytest.mark.anyio

SEARCH = StubSearch("Rhine length", results=(StubSource("https://example.org/rhine", "The Rhine"),))


def searches(message: furcate.Message) -> list[furcate.HostedActivity]:
    return [part for part in message.parts if isinstance(part, furcate.HostedActivity)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_search_that_ends_after_a_pause_says_what_it_looked_for(engine_for, ask, stream) -> None:
    """Its end stands in another attempt than its start, and has the input and a summary all the same."""
    script = [answer("", searches=(SEARCH,), pause=True), answer("Found it.", searches=(SEARCH,))]
    async with StubProvider(script, strict=True) as stub:
        async with engine_for(stub, dialect="anthropic-messages", profile={"stream": stream}) as engine:
            result = await engine.run(ask())
    start, end = searches(result.message)
    assert (start.state, end.state) == ("started", "completed")
    assert end.input == start.input
    assert end.input["queries"] == (SEARCH.query,)
    assert end.summary == SEARCH.query


@pytest.mark.req("S0-24")
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "as bytes"])
async def test_a_later_run_ends_work_under_the_version_it_began_with(engine_for, ask, monkeypatch, kept) -> None:
    """The conversation goes on, perhaps under a release that gives fresh work another version; the old one holds."""
    tool = furcate.Tool("look", "Look it up.", {"type": "object"})
    script = [
        answer("", searches=(SEARCH,), tool_calls=[StubToolCall("look", {}, id="call_1")], pause=True),
        answer("Found it.", searches=(SEARCH,)),
    ]
    async with StubProvider(script, strict=True) as stub:
        async with engine_for(stub, dialect="anthropic-messages") as engine:
            first = await engine.run(ask(tools=[tool], capture=True))
            exchange = from_bytes(to_bytes(first.exchange), furcate.Exchange) if kept else first.exchange
            monkeypatch.setattr("furcate.dialects.anthropic_messages._hosted.VERSION", "2")
            seen = furcate.Request(
                messages=[furcate.Message.tool(furcate.ToolResult("call_1", "1,233 km"))], profile="p", tools=[tool]
            )
            second = await engine.continue_from(exchange, seen)
    [start] = searches(first.message)
    [end] = searches(second.message)
    assert (start.state, end.state) == ("started", "completed")
    assert end.id == start.id
    assert end.summary == SEARCH.query
    assert start.payload is not None
    assert end.payload is not None
    assert start.payload.version == end.payload.version == "1"
