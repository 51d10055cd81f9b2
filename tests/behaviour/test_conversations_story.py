"""Longer stories: loops written by hand, lineages, roots, and many answers on few connections."""

from __future__ import annotations

import gc
import time
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest

import furcate
from furcate.testing import StubProvider, StubToolCall, answer, error

pytestmark = pytest.mark.anyio


@pytest.mark.req("S4-052")
async def test_a_loop_written_by_hand_makes_the_same_history(engine_for, ask) -> None:
    """Two continuations by hand and by a coordinator end in exchanges of equal digest."""
    async with StubProvider(lambda request: answer(f"to {request.body['messages'][-1]['content']}")) as stub:
        async with engine_for(stub) as engine:
            start = (await engine.run(ask("begin", capture=True))).exchange
            by_hand = start
            for text in ("one", "two"):
                by_hand = (await engine.continue_from(by_hand, ask(text))).exchange
            texts, last = ["one", "two"], []

            async def next_action(turn: furcate.Turn):
                last.append(turn.exchange)
                return furcate.Continue(ask(texts.pop(0))) if texts else furcate.Stop()

            await furcate.Coordinator(engine, start, next_action, additional_turns=2).run()
    assert last[-1].digest == by_hand.digest
    assert last[-1].run_id != by_hand.run_id


@pytest.mark.req("S4-080", "S4-081", "S4-082")
@pytest.mark.field(21)
async def test_each_exchange_costs_what_its_own_run_cost(engine_for, ask) -> None:
    """Three chained runs of 30, 31 and 33 tokens report just that; 94 is what a group of the lineage says."""
    costs = iter((30, 31, 33))
    script = lambda request: answer("ok", usage={"prompt_tokens": next(costs), "completion_tokens": 0})  # noqa: E731
    group = furcate.Group()
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        results = [await engine.run(ask(capture=True, groups=[group]))]
        for _ in range(2):
            results.append(await engine.continue_from(results[-1].exchange, ask(groups=[group])))
    assert [result.usage.input_tokens for result in results] == [30, 31, 33]
    assert group.summary().usage.input_tokens.known == 94


@pytest.mark.field(30)
@pytest.mark.parametrize(
    ("dialect", "raised", "said"),
    [
        ("openai-responses", furcate.ProviderError, "invalid_request: HTTP 400: Missing required parameter: 'input'"),
        ("anthropic-messages", furcate.ProviderError, "invalid_request: HTTP 400: messages: "),
        ("google-generatecontent", furcate.RequestError, "add a user message"),
    ],
)
async def test_system_text_alone_is_refused_clearly(engine_for, ask, dialect, raised, said) -> None:
    """A provider that wants more than system text is told of in a typed error; what was answered is forked at will."""

    async def once(turn: furcate.Turn):
        return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

    async with StubProvider(answer("ok"), strict=True) as stub, engine_for(stub, dialect=dialect) as engine:
        with pytest.raises(raised, match=said):
            await engine.run(ask(messages=[furcate.Message.system("Be brief.")], capture=True))
        root = await engine.run(ask(capture=True))
        for width in (0, 1, 3):
            async with furcate.open_branches(engine, root.exchange) as branches:
                for _ in range(width):
                    branches.start_soon(once, additional_turns=1)
            assert [branch.unwrap() for branch in branches] == [furcate.Outcome.STOPPED] * width


@pytest.mark.field(30)
async def test_forking_needs_something_to_fork(engine_for, ask) -> None:
    """An exchange ends with the assistant; system text alone is a request like any; no fork at all is no error."""
    with pytest.raises(ValueError, match="ends in an assistant message"):
        furcate.Exchange(furcate.History(), "r")
    with pytest.raises(ValueError, match="ends in an assistant message"):
        furcate.Exchange(furcate.History([furcate.Message.system("Be brief.")]), "r")
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        only_system = await engine.run(ask(messages=[furcate.Message.system("Be brief.")], capture=True))
        async with furcate.open_branches(engine, only_system.exchange) as none:
            pass
        assert list(none) == []

        async def once(turn: furcate.Turn):
            return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

        async with furcate.open_branches(engine, only_system.exchange) as branches:
            for _ in range(3):
                branches.start_soon(once, additional_turns=1)
        assert [branch.unwrap() for branch in branches] == [furcate.Outcome.STOPPED] * 3
        assert len(stub.requests) == 4


async def test_an_exchange_made_by_hand_is_one_like_any(engine_for, ask) -> None:
    """A conversation from elsewhere is continued as if it had been captured."""
    told = [furcate.Message.user("Who are you?"), furcate.Message.assistant("A gardener.")]
    elsewhere = furcate.Exchange(furcate.History(told), "imported")
    async with StubProvider(answer("Roses.")) as stub, engine_for(stub) as engine:
        result = await engine.continue_from(elsewhere, ask("What do you grow?"))
        sent = [message["content"] for message in stub.requests[0].body["messages"]]
    assert sent == ["Who are you?", "A gardener.", "What do you grow?"]
    assert result.exchange.parent_run_id == "imported"


@pytest.mark.field(14)
async def test_answers_that_end_by_their_marker_leave_nothing_behind(engine_for, ask) -> None:
    """A hundred streams, read to the end marker and not to the connection's end, share a few connections quietly."""
    gc.freeze()  # only what the runs made is looked through each time
    try:
        async with StubProvider(answer("ok")) as stub, engine_for(stub, capacity=4) as engine:

            async def one() -> None:
                await engine.run(ask())
                gc.collect(1)

            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(one)
            gc.collect()
            assert len(stub.requests) == 100
            assert stub.connections <= 8
            assert stub.disconnects == 0
    finally:
        gc.unfreeze()


@pytest.mark.req("S4-110")
async def test_many_runs_and_snapshots_at_once_agree(engine_for, ask) -> None:
    """Snapshots that other threads take while a hundred runs come and go always add up; the last one has them all."""
    group = furcate.Group()
    sizes, torn = [], []
    over = False

    def look() -> None:
        last = 0
        while True:
            summary = group.summary()
            counted = summary.usage.input_tokens
            if summary.ended + summary.running != len(summary.runs) or len(summary.runs) < last:
                torn.append(summary)
            if counted.exact + counted.unknown != summary.ended:
                torn.append(summary)
            last = len(summary.runs)
            if over:
                sizes.append(last)
                return
            time.sleep(0.005)  # or two busy threads would keep the event loop from its work

    script = lambda request: error(400) if request.number % 10 == 0 else answer("ok")  # noqa: E731
    async with StubProvider(script) as stub, engine_for(stub, capacity=16) as engine:

        async def one() -> None:
            with suppress(furcate.ProviderError):
                await engine.run(ask(groups=[group]))

        async with anyio.create_task_group() as lookers:
            for _ in range(2):
                lookers.start_soon(anyio.to_thread.run_sync, look)
            try:
                async with anyio.create_task_group() as tasks:
                    for _ in range(100):
                        tasks.start_soon(one)
            finally:
                over = True
    summary = group.summary()
    assert not torn
    assert sizes == [100, 100]
    assert (summary.succeeded, summary.failed, summary.running) == (90, 10, 0)


async def test_a_tool_loop_is_a_callback(engine_for, ask) -> None:
    """Calls are answered by the next request, turn by turn, until the model answers in words."""
    tool = furcate.Tool("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})

    def script(request):
        if request.body["messages"][-1]["role"] == "tool":
            return answer(f"The sum is {request.body['messages'][-1]['content']}.")
        return answer(tool_calls=[StubToolCall("add", '{"a": 1}', "c1"), StubToolCall("add", '{"a": 2}', "c2")])

    async def agent(turn: furcate.Turn):
        if turn.exchange.messages[-1].tool_calls:
            calls = turn.exchange.messages[-1].tool_calls
            results = [furcate.ToolResult(call.id, str(call.parsed()["a"] + 1)) for call in calls]
            return furcate.Continue(ask(messages=[furcate.Message.tool(*results)], tools=[tool]))
        return furcate.Stop()

    async with StubProvider(script) as stub, engine_for(stub) as engine:
        first = await engine.run(ask("add", tools=[tool], capture=True))
        outcome = await furcate.Coordinator(engine, first.exchange, agent, additional_turns=5).run()
        roles = [message["role"] for message in stub.requests[-1].body["messages"]]
        assert len(stub.requests) == 2
    assert outcome is furcate.Outcome.STOPPED
    assert roles == ["user", "assistant", "tool", "tool"]
