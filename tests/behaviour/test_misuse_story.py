"""What is given or done wrongly: each has its error, says whose fault it is, and leaves the engine usable."""

from __future__ import annotations

import anyio
import pytest

import furcate
from furcate.testing import StubProvider, answer, events

pytestmark = pytest.mark.anyio


async def test_a_carrier_that_is_none_changes_nothing(engine_for, ask, caplog) -> None:
    """What an observer offers to travel along is checked before it reaches the exchange; the run is as it was."""

    class Odd:
        def on_event(self, event: furcate.Observation) -> None:
            pass

        def carrier(self, run_id: str):
            return {"traceparent": b"bytes"}

    async with StubProvider(answer("ok")) as stub, engine_for(stub, observers=[Odd()]) as engine:
        result = await engine.run(ask(capture=True))
    assert dict(result.exchange.carrier) == {}
    assert "a carrier maps str to str" in caplog.text


@pytest.mark.field(5)
async def test_leaving_a_stream_that_another_task_reads_ends_the_run(engine_for, ask) -> None:
    """The reader is woken with a clear error, the connection closed, the place back, and one end told: cancelled."""
    recorder = furcate.Recorder()
    seen = []
    script = answer(deltas=["one ", "two"], silence_after=2)
    async with StubProvider(script) as stub, engine_for(stub, observers=[recorder]) as engine:
        async with anyio.create_task_group() as tasks:
            got = anyio.Event()

            async def read(stream: furcate.Stream) -> None:
                with pytest.raises(furcate.MisuseError, match="left while this task was reading"):
                    async for event in stream:
                        if isinstance(event, furcate.TextDelta):
                            seen.append(event.text)
                            got.set()

            async with engine.stream(ask()) as stream:
                tasks.start_soon(read, stream)
                await got.wait()
                await anyio.wait_all_tasks_blocked()
            assert engine.statistics()["stub"].in_use == 0
            assert [e.status for e in recorder.events if isinstance(e, furcate.RunFinished)] == ["cancelled"]
        with pytest.raises(furcate.MisuseError, match="inside"):
            await anext(stream)
    assert seen == ["one "]


async def test_an_answer_that_cannot_be_sent_back_is_kept(engine_for, ask) -> None:
    """Where its repair cannot be written, a paid answer is an ordinary result with its faults."""
    parts = [{"type": "text", "text": "no object"}, {"type": "hologram", "hologram": 1}]
    chunk = {"choices": [{"index": 0, "delta": {"content": parts}, "finish_reason": "stop"}]}
    contract = furcate.Contract({"type": "object"}, repairs=2)
    async with StubProvider(events(chunk)) as stub, engine_for(stub, unknown_content="carry") as engine:
        result = await engine.run(ask(contract=contract))
        assert len(stub.requests) == 1
    assert result.validation.status == "failed"
    assert result.text == "no object"


async def test_numbers_of_any_size_are_data(engine_for, ask) -> None:
    """Whole numbers beyond 64 bits in variables, schemas and extra members go out as they are."""
    big = 2**70
    settings = furcate.Settings(extra_body={"n": big})
    contract = furcate.Contract({"type": "integer", "maximum": big})
    async with StubProvider(answer("1")) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(vars={"n": big}, settings=settings, contract=contract, capture=True))
        assert stub.requests[0].body["n"] == big
    assert result.value == 1


@pytest.mark.parametrize("wrong", [None, "text", {"messages": []}])
async def test_what_is_no_request_or_exchange_is_told_so(engine_for, ask, wrong) -> None:
    """Each door says what it was given and what it takes, before anything is opened."""

    async def never(turn: furcate.Turn):
        raise AssertionError("never called")

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
        with pytest.raises(TypeError, match=r"request is of type .*; give a furcate\.Request"):
            await engine.run(wrong)
        with pytest.raises(TypeError, match=r"request is of type .*; give a furcate\.Request"):
            engine.prepare(wrong)
        with pytest.raises(TypeError, match=r"exchange is of type .*; give a furcate\.Exchange"):
            await engine.continue_from(wrong, ask())
        with pytest.raises(TypeError, match=r"exchange is of type .*; give a furcate\.Exchange"):
            furcate.Coordinator(engine, wrong, never, additional_turns=1)
        with pytest.raises(TypeError, match=r"engine is of type .*; give a furcate\.Engine"):
            furcate.Coordinator(wrong, exchange, never, additional_turns=1)
        with pytest.raises(TypeError, match=r"exchange is of type .*; give a furcate\.Exchange"):
            furcate.open_branches(engine, wrong)
        with pytest.raises(TypeError, match=r"Continue's request is of type .*; give a furcate\.Request"):
            furcate.Continue(wrong)
        assert (await engine.run(ask())).text == "ok"
        assert len(stub.requests) == 2


async def test_a_closed_engine_spends_no_prepared_handle(engine_for, ask) -> None:
    """A handle that could not run is good for later."""
    async with StubProvider(answer("ok")) as stub:
        engine = engine_for(stub)
        async with engine:
            prepared = engine.prepare(ask())
        with pytest.raises(furcate.MisuseError, match="not open"):
            await prepared.run()
        async with engine:
            assert (await prepared.run()).text == "ok"


def test_an_engine_serves_one_loop_at_a_time(engine_for, ask) -> None:
    """Using it from a second loop while it is open is a clear error and no silent wait."""
    with StubProvider.in_thread(answer("ok")) as stub:
        engine = engine_for(stub)

        async def other() -> None:
            await engine.run(ask())

        async def main() -> None:
            async with engine:
                with pytest.raises(furcate.MisuseError, match="another event loop"):
                    await anyio.to_thread.run_sync(lambda: anyio.run(other))

        anyio.run(main)


@pytest.mark.parametrize(
    ("messages", "error", "said"),
    [
        ([furcate.Message.tool(furcate.ToolResult("x", "1"))], furcate.ToolTurnError, "no call of that id"),
        (
            [
                furcate.Message.tool(furcate.ToolResult("c", "1")),
                furcate.Message.assistant(furcate.ToolCall("c", "f")),
            ],
            furcate.ToolTurnError,
            "no call of that id",
        ),
        (
            [
                furcate.Message.assistant(furcate.ToolCall("c", "f")),
                furcate.Message.tool(furcate.ToolResult("c", "1"), furcate.ToolResult("c", "2")),
            ],
            furcate.ToolTurnError,
            "no call of that id",
        ),
        (
            [furcate.Message.assistant(furcate.ToolCall("c", "f"), furcate.ToolCall("c", "g"))],
            furcate.ToolTurnError,
            "two calls",
        ),
        (
            [
                furcate.Message.assistant(furcate.ToolCall("c", "f")),
                furcate.Message.user("wait"),
                furcate.Message.tool(furcate.ToolResult("c", "1")),
            ],
            furcate.UnansweredToolCallError,
            "c",
        ),
    ],
)
async def test_tool_results_fit_their_calls(engine_for, ask, messages, error, said) -> None:
    """What every provider would refuse is a typed error that names the call, before any request."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        with pytest.raises(error, match=said):
            await engine.run(ask(messages=[furcate.Message.user("hi"), *messages]))
        assert not stub.requests


@pytest.mark.parametrize(
    ("given", "raised"),
    [
        ({"temperature": "hot"}, TypeError),
        ({"temperature": float("nan")}, ValueError),
        ({"top_p": -1.0}, ValueError),
        ({"reasoning_effort": 5}, TypeError),
        ({"seed": 1.5}, TypeError),
        ({"max_output_tokens": 0}, ValueError),
    ],
)
def test_settings_say_which_of_them_is_wrong(given, raised) -> None:
    """The field is named where the value is made."""
    with pytest.raises(raised, match=next(iter(given))):
        furcate.Settings(**given)
