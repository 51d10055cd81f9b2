"""Servers that do not answer as servers should: nobody waits for ever, and nothing steady is cut off."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import SocketAttribute

import furcate
from furcate.testing import Head, Silence, StubProvider, answer, events, html_error, no_head, steps

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

# Long enough for the first connection of an engine on a busy machine.
SHORT = furcate.TimeLimits(first_event_s=0.5, idle_s=0.5)
STREAM = Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")))
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")


async def failure_of(engine: furcate.Engine, request: furcate.Request) -> furcate.ProviderError:
    with pytest.raises(furcate.ProviderError) as caught:
        await engine.run(request)
    return caught.value


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_keep_alive_comments_are_no_progress(engine_for, ask, dialect) -> None:
    """A stream of comments alone has not begun, however many there are."""
    script = steps(STREAM, Silence(comment_every_s=0.02))
    async with StubProvider(script) as stub, engine_for(stub, limits=SHORT, dialect=dialect) as engine:
        with anyio.fail_after(10):
            failed = await failure_of(engine, ask(settings=furcate.Settings(max_output_tokens=9)))
            await stub.wait_until(lambda s: s.disconnects == len(s.requests) == 1)
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "first_event_timeout")
    assert failed.partial is None


@pytest.mark.field(67)
async def test_comments_after_content_are_no_progress_either(engine_for, ask) -> None:
    """Three pieces, then comments: the answer has fallen silent, and what had arrived is kept."""
    pieces = [{"choices": [{"index": 0, "delta": {"content": f"{n} "}}]} for n in range(3)]
    script = events(*pieces, done=False, at={3: Silence(comment_every_s=0.02)})
    limits = furcate.TimeLimits(idle_s=0.15)
    async with StubProvider(script) as stub, engine_for(stub, limits=limits) as engine:
        with anyio.fail_after(10):
            failed = await failure_of(engine, ask())
            await stub.wait_until(lambda s: s.disconnects == len(s.requests) == 1)
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "idle_timeout")
    assert failed.partial.text == "0 1 2 "
    assert not failed.usage.known


@pytest.mark.parametrize("comments", [False, True])
async def test_a_slow_but_steady_stream_is_fine(engine_for, ask, comments) -> None:
    """A stream that takes longer than any limit of silence is complete as long as each piece comes in time."""
    words = [f"{n} " for n in range(12)]
    limits = furcate.TimeLimits(idle_s=0.5)
    async with (
        StubProvider(answer(deltas=words, delta_delay_s=0.05, comments=comments)) as stub,
        engine_for(stub, limits=limits) as engine,
    ):
        result = await engine.run(ask())
    assert result.text == "".join(words)
    assert result.attempts[0].duration_s > limits.idle_s


async def test_a_total_limit_ends_a_steady_stream(engine_for, ask) -> None:
    """Whoever sets a limit for the whole gets it, with what had arrived."""
    words = [f"{n} " for n in range(100)]
    limits = furcate.TimeLimits(total_s=1)
    script = answer(deltas=words, delta_delay_s=0.05)
    async with StubProvider(script) as stub, engine_for(stub, limits=limits) as engine:
        failed = await failure_of(engine, ask())
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "total_timeout")
    assert failed.partial.text.startswith("0 ")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_reads_and_never_answers(engine_for, ask, stream) -> None:
    """The request was sent, so it is not repeated; its connection is closed."""
    async with (
        StubProvider(no_head(silent=True)) as stub,
        engine_for(stub, limits=SHORT, profile={"stream": stream}) as engine,
    ):
        failed = await failure_of(engine, ask())
        with anyio.fail_after(10):
            await stub.wait_until(lambda s: s.disconnects == len(s.requests) == 1)
        assert len(stub.requests) == 1
        assert engine.statistics()["stub"].in_use == 0
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "first_event_timeout")


async def test_a_server_that_accepts_and_never_reads(engine_for, ask) -> None:
    """A listener whose backlog takes connections nobody serves: a large request goes nowhere, and that ends too."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener:
        port = listener.extra(SocketAttribute.local_port)
        async with engine_for(f"http://127.0.0.1:{port}/v1", limits=SHORT) as engine:
            with anyio.fail_after(10):
                failed = await failure_of(engine, ask("x" * 20_000_000))
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "first_event_timeout")
    assert len(failed.attempts) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_proxys_page_is_no_answer(engine_for, ask, dialect, stream) -> None:
    """With status 200 it is told as a page and not repeated; with 502 it is repeated and told as a page, too."""
    profile = {"stream": stream, "settings": furcate.Settings(max_output_tokens=9)}
    for status, sent in ((200, 1), (502, 3)):
        async with (
            StubProvider(html_error(status)) as stub,
            engine_for(stub, profile=profile, dialect=dialect) as engine,
        ):
            failed = await failure_of(engine, ask())
            assert len(stub.requests) == sent
        assert failed.failure.kind == "provider"
        assert "HTML page" in str(failed)
        assert "Bad Gateway" not in str(failed)
