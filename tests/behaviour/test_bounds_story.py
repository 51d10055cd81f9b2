"""Bounds: what a hostile server, schema or template can take of time and memory."""

from __future__ import annotations

import gzip
import json

import pytest

import furcate
from furcate.testing import (
    Head,
    Send,
    StubProvider,
    Wire,
    answer,
    events,
    raw,
    steps,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

ONCE = furcate.RetryPolicy(attempts=1)
MIB = 2**20
STREAM = Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")))


def chat(**delta: object) -> dict[str, object]:
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]}


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


async def failure_of(engine: furcate.Engine, request: furcate.Request) -> furcate.Failure:
    with pytest.raises(furcate.ProviderError) as caught:
        await engine.run(request)
    assert len(caught.value.failure.message) < 500
    return caught.value.failure


async def test_an_event_without_end_is_given_up(engine_for, ask) -> None:
    """An event of more than 16 MiB is no part of an answer."""
    script = steps(STREAM, Send(b"data: "), *(Send(b"x" * MIB) for _ in range(18)))
    async with StubProvider(script) as stub, engine_for(stub, retry=ONCE) as engine:
        failure = await failure_of(engine, ask())
    assert (failure.kind, failure.reason) == ("provider", "event_too_large")


@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_without_end_is_given_up(engine_for, ask, status) -> None:
    """An answer in one piece may have 64 MiB, an error far less."""
    head = Head(status, (("content-type", "application/json"), ("transfer-encoding", "chunked")))
    script = steps(head, *(Send(b" " * MIB) for _ in range(66)))
    async with StubProvider(script) as stub:
        async with engine_for(stub, profile={"stream": False}, retry=ONCE) as engine:
            failure = await failure_of(engine, ask())
    assert (failure.kind, failure.reason) == ("provider", "too_large")


async def test_a_bomb_is_given_up_while_it_unfolds(engine_for, ask) -> None:
    """A few hundred kilobytes that unpack to hundreds of megabytes are not unpacked to their end."""
    bomb = gzip.compress(b" " * 80 * MIB, compresslevel=1)
    script = raw(bomb, headers={"content-encoding": "gzip"})
    async with StubProvider(script) as stub:
        async with engine_for(stub, profile={"stream": False}, retry=ONCE) as engine:
            failure = await failure_of(engine, ask())
    assert failure.reason == "too_large"


async def test_headers_without_end_are_given_up(engine_for, ask) -> None:
    """A head of more than a hundred kilobytes is no HTTP answer."""
    many = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(200))
    async with StubProvider(steps(Wire(b"HTTP/1.1 200 OK\r\n" + many))) as stub:
        async with engine_for(stub, retry=ONCE) as engine:
            failure = await failure_of(engine, ask())
    assert (failure.kind, failure.reason) == ("provider", "malformed")


async def test_parts_without_end_are_given_up(engine_for, ask) -> None:
    """Twenty thousand calls in one answer are no answer; what had arrived is kept."""
    calls = [
        {"index": number, "id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for number in range(20_000)
    ]
    chunks = [chat(tool_calls=calls[start : start + 500]) for start in range(0, len(calls), 500)]
    async with StubProvider(events(*chunks)) as stub, engine_for(stub, retry=ONCE) as engine:
        failure = await failure_of(engine, ask())
    assert (failure.kind, failure.reason) == ("provider", "too_large")
    assert "10,000 parts" in failure.message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent"])
async def test_json_of_any_depth_is_told(engine_for, ask, dialect, stream) -> None:
    """A hundred thousand brackets in an event or a body end in a typed failure."""
    script = events(deep(100_000)) if stream else raw(deep(100_000))
    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect=dialect, profile={"stream": stream}, retry=ONCE) as engine:
            failure = await failure_of(engine, ask())
    assert failure.kind == "provider"


async def test_an_answer_of_any_depth_fails_its_contract(engine_for, ask) -> None:
    """A text that nests a hundred thousand deep is no JSON that can be read."""
    async with StubProvider(answer(deep(100_000))) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=furcate.Contract({"type": "array"})))
    assert result.validation.status == "failed"


async def test_call_arguments_of_any_depth_can_be_looked_at(engine_for, ask) -> None:
    """What a model asks a tool with is text until somebody reads it; reading it tells."""
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":' + deep(100_000) + "}"},
    }
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    async with StubProvider(events(chat(tool_calls=[call]), finish)) as stub, engine_for(stub) as engine:
        result = await engine.run(ask())
    assert result.stop_reason == "tool_use"
    [part] = result.message.parts
    assert isinstance(part, furcate.ToolCall)
    assert len(part.arguments) == 200_006


def nested(depth: int) -> object:
    value: object = "bottom"
    for _ in range(depth):
        value = {"a": value}
    return value


def a_call(dialect: str, depth: int) -> str:
    """Make a whole answer whose call asks with an object that nests so deep."""
    asked = nested(depth)
    if dialect == "anthropic-messages":
        block = {"type": "server_tool_use", "id": "t1", "name": "code_execution", "input": asked}
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        return json.dumps({**said, "content": [block, {"type": "text", "text": "Hi"}], "usage": usage})
    if dialect == "google-generatecontent":
        parts = [{"toolCall": {"id": "t1", "toolType": "CUSTOM", "args": asked}}, {"text": "Hi"}]
        return json.dumps({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
    item = {"type": "mcp_call", "id": "t1", "name": "f", "server_label": "s", "arguments": json.dumps(asked)}
    text = {"type": "message", "id": "i", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": "Hi", "annotations": []}]
    said = {"id": "r", "object": "response", "model": "m", "status": "completed"}
    return json.dumps({**said, "output": [item, {**text, "content": content}]})


@pytest.mark.parametrize("depth", [50, 150, 190, 250, 400, 900])
@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic-messages", "google-generatecontent"])
async def test_what_a_call_asks_with_nests_as_it_likes(engine_for, ask, dialect, depth) -> None:
    """Either the answer is one that can be hashed, shown and sent back, or its failure is typed."""
    async with StubProvider([raw(a_call(dialect, depth)), raw(a_call(dialect, 1))]) as stub:
        async with engine_for(stub, dialect=dialect, profile={"stream": False}, retry=ONCE) as engine:
            if depth > 200 and dialect != "openai-responses":  # where it is a text that need not be read
                assert (await failure_of(engine, ask())).kind == "provider"
                return
            result = await engine.run(ask(capture=True))
            assert result.exchange.digest
            assert repr(result.exchange.details())
            await engine.continue_from(result.exchange, ask("Go on."))


@pytest.mark.parametrize("depth", [200, 100_000])
def test_values_of_any_depth_are_refused(depth) -> None:
    """Variables, tools, settings and schemas that nest too deeply are told as such."""
    value = nested(depth + 1)
    for made in (
        lambda: furcate.Request("p", vars={"v": value}),
        lambda: furcate.Tool("t", "", value),
        lambda: furcate.Settings(extra_body=value),
        lambda: furcate.Contract(value),
    ):
        with pytest.raises(ValueError, match="nests deeper than 200 levels"):
            made()
