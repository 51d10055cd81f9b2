"""One branch driven turn by turn."""

from __future__ import annotations

import contextvars

import anyio
import pytest

import furcate
from furcate.testing import StubProvider, answer, error, no_head

pytestmark = pytest.mark.anyio


async def captured(engine: furcate.Engine, ask) -> furcate.Exchange:
    return (await engine.run(ask("Begin.", capture=True))).exchange


@pytest.mark.req("S4-053", "S4-054", "S4-050", "S4-056", "S4-061", "S4-042", "S4-043")
async def test_every_response_is_delivered_once_the_last_permitted_one_too(engine_for, ask) -> None:
    """Three turns give four callbacks, each with the newest result; stopping after the last is a stop."""
    seen = []

    async def next_action(turn: furcate.Turn):
        seen.append((turn.result.text if turn.result else None, turn.remaining, len(turn.exchange.messages)))
        return furcate.Continue(ask("more")) if turn.remaining else furcate.Stop()

    async with StubProvider(lambda request: answer(f"answer {request.number}")) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)
        coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=3)
        outcome = await coordinator.run()
        assert len(stub.requests) == 4

    assert outcome is furcate.Outcome.STOPPED
    assert seen == [(None, 3, 2), ("answer 2", 2, 4), ("answer 3", 1, 6), ("answer 4", 0, 8)]
    assert coordinator.undelivered is None


@pytest.mark.req("S4-055", "S4-073", "S4-140", "S4-141")
async def test_asking_for_more_than_the_budget_exhausts_it_without_preparing_anything(engine_for, ask) -> None:
    """The request beyond the budget is not rendered, so even one that could not be is no error."""

    async def greedy(turn: furcate.Turn):
        return furcate.Continue(ask("more") if turn.remaining else furcate.Request("no such prompt"))

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), greedy, additional_turns=2)
        assert await coordinator.run() is furcate.Outcome.EXHAUSTED
        assert len(stub.requests) == 3
    assert coordinator.undelivered is None


@pytest.mark.req("S4-058", "S4-059", "S4-060")
async def test_a_budget_of_zero_still_calls_back_once(engine_for, ask) -> None:
    """Without turns the callback runs once, may call models itself, and ends by stop, exhaustion or error."""
    turns = []
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)

        async def stop(turn: furcate.Turn):
            turns.append(turn)
            await engine.run(ask("on the side"))
            return furcate.Stop()

        async def more(turn: furcate.Turn):
            return furcate.Continue(ask())

        async def fail(turn: furcate.Turn):
            raise LookupError("mine")

        def coordinate(callback):
            return furcate.Coordinator(engine, exchange, callback, additional_turns=0).run()

        assert await coordinate(stop) is furcate.Outcome.STOPPED
        assert await coordinate(more) is furcate.Outcome.EXHAUSTED
        with pytest.raises(LookupError, match="mine"):
            await coordinate(fail)
        assert len(stub.requests) == 2
    assert [(turn.exchange, turn.result, turn.remaining) for turn in turns] == [(exchange, None, 0)]


@pytest.mark.req("S4-062", "S4-063", "S4-070", "S4-071")
async def test_a_continuation_that_cannot_be_prepared_ends_the_branch(engine_for, ask) -> None:
    """The second of three fails in preparation: its error comes back, no third starts, nothing is exhausted."""
    delivered = []

    async def next_action(turn: furcate.Turn):
        delivered.append(turn.remaining)
        return furcate.Continue(ask() if turn.remaining == 3 else furcate.Request("missing"))

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=3)
        with pytest.raises(furcate.UnknownNameError):
            await coordinator.run()
        assert len(stub.requests) == 2
    assert delivered == [3, 2]
    assert coordinator.undelivered is None


@pytest.mark.req("S4-069", "S4-074")
async def test_errors_reach_the_caller_as_the_same_object(engine_for, ask) -> None:
    """What the callback raises is what run() raises, and the response it was given is not undelivered."""
    mine = LookupError("mine")

    async def next_action(turn: furcate.Turn):
        if turn.result is not None:
            raise mine
        return furcate.Continue(ask())

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=2)
        with pytest.raises(LookupError) as caught:
            await coordinator.run()
    assert caught.value is mine
    assert coordinator.undelivered is None


@pytest.mark.req("S4-069", "S4-012")
async def test_an_execution_that_fails_ends_the_branch_and_leaves_its_exchange(engine_for, ask) -> None:
    """An operational error comes back typed; the exchange it continued from still works."""

    async def next_action(turn: furcate.Turn):
        return furcate.Continue(ask())

    script = [answer("one"), error(400, "bad"), answer("two")]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)
        coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=2)
        with pytest.raises(furcate.ProviderError) as caught:
            await coordinator.run()
        assert caught.value.failure.kind == "invalid_request"
        again = await engine.continue_from(exchange, ask("again"))
    assert [message.text for message in again.exchange.messages] == ["Begin.", "one", "again", "two"]


@pytest.mark.field(1)
@pytest.mark.parametrize(("capacity", "depth"), [(2, 1), (1, 5)])
async def test_coordinators_inside_coordinators_hold_no_place(engine_for, ask, capacity, depth) -> None:
    """Callbacks that start runs and coordinators of their own, five deep, find their own place given back."""
    held = []

    async with StubProvider(answer("ok", delay_s=0.02)) as stub, engine_for(stub, capacity=capacity) as engine:
        exchange = await captured(engine, ask)

        def nested(left: int):
            async def next_action(turn: furcate.Turn):
                held.append(engine.statistics()["stub"].in_use)
                if not turn.remaining:
                    return furcate.Stop()
                result = await engine.run(ask(f"child at {left}", capture=True))
                if left > 1:
                    inner = furcate.Coordinator(engine, result.exchange, nested(left - 1), additional_turns=1)
                    assert await inner.run() is furcate.Outcome.STOPPED
                return furcate.Continue(ask("more"))

            return next_action

        with anyio.fail_after(20):
            async with furcate.open_branches(engine, exchange) as branches:
                for _ in range(capacity):
                    branches.start_soon(nested(depth), additional_turns=1)
        assert [branch.unwrap() for branch in branches] == [furcate.Outcome.STOPPED] * capacity
        assert len(stub.requests) == 1 + capacity * depth * 2
        assert stub.most_in_flight <= capacity
        assert engine.statistics()["stub"].in_use == 0
    # Of two coordinators the other one may hold a place, never the one whose callback begins.
    assert len(held) == capacity * depth * 2
    assert max(held) <= capacity - 1


@pytest.mark.req("S4-045", "S4-047", "S4-130", "S4-046", "S4-044")
@pytest.mark.field(1)
async def test_at_capacity_one_callbacks_may_call_the_same_backend(engine_for, ask) -> None:
    """Four branches whose callbacks each call the model finish; the backend never sees two requests at once."""
    async with StubProvider(answer("ok", delay_s=0.005)) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)

        async def next_action(turn: furcate.Turn):
            # Another branch may hold the only place, but never this one: its own turn is over.
            await engine.run(ask("on the side"))
            return furcate.Continue(ask("more")) if turn.remaining else furcate.Stop()

        with anyio.fail_after(20):
            async with furcate.open_branches(engine, exchange) as branches:
                for _ in range(4):
                    branches.start_soon(next_action, additional_turns=2)
        assert [branch.unwrap() for branch in branches] == [furcate.Outcome.STOPPED] * 4
        assert len(stub.requests) == 1 + 4 * (2 + 3)
        assert stub.most_in_flight == 1
        statistics = engine.statistics()["stub"]
        assert (statistics.in_use, statistics.waiting) == (0, 0)


@pytest.mark.req("S4-064", "S4-065", "S4-013")
async def test_cancelled_before_a_callback_keeps_the_completed_response(engine_for, ask) -> None:
    """A response that completed just as the branch was cancelled is undelivered; before the first callback none is."""
    calls = []

    async def next_action(turn: furcate.Turn):
        calls.append(turn.remaining)
        return furcate.Continue(ask())

    async with StubProvider(answer("precious")) as stub:
        with anyio.CancelScope() as scope:

            def cancel_at_the_end(event: furcate.Observation) -> None:
                if isinstance(event, furcate.RunFinished):
                    scope.cancel()

            async with engine_for(stub) as engine:
                exchange = await captured(engine, ask)
                late = furcate.Coordinator(
                    engine, exchange, next_action, additional_turns=5, observers=[cancel_at_the_end]
                )
                early = furcate.Coordinator(engine, exchange, next_action, additional_turns=5)
                try:
                    await late.run()
                finally:
                    with pytest.raises(anyio.get_cancelled_exc_class()):
                        await early.run()
        assert scope.cancelled_caught
    assert calls == [5]
    assert late.undelivered is not None
    assert late.undelivered.text == "precious"
    assert late.undelivered.exchange.messages[-1].text == "precious"
    assert early.undelivered is None


@pytest.mark.req("S4-068")
async def test_a_cancelled_callback_ends_as_it_sees_fit(engine_for, ask) -> None:
    """It runs in the caller's own task and context; what it shields goes on to its end, and then nothing more runs."""
    mark = contextvars.ContextVar("mark", default="none")
    told = []

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)
        task = anyio.get_current_task().id
        with anyio.CancelScope() as scope:

            async def next_action(turn: furcate.Turn):
                told.append((anyio.get_current_task().id == task, mark.get()))
                scope.cancel()
                told.append(anyio.current_effective_deadline())
                with anyio.CancelScope(shield=True):
                    told.append((await engine.run(ask("tidy up"))).text)
                    await anyio.sleep(0.001)
                told.append("tidied")
                return furcate.Continue(ask("never"))

            mark.set("the caller's")
            coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=2)
            await coordinator.run()
        assert scope.cancelled_caught
        assert [request.body["messages"][-1]["content"] for request in stub.requests] == ["Begin.", "tidy up"]
    assert told == [(True, "the caller's"), float("-inf"), "ok", "tidied"]
    assert coordinator.undelivered is None


@pytest.mark.req("S4-066")
async def test_cancelled_in_a_callback_executes_nothing_more(engine_for, ask) -> None:
    """A callback that is cancelled but returns keeps its delivery; nothing is undelivered, nothing more is executed."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)
        with anyio.CancelScope() as scope:

            async def next_action(turn: furcate.Turn):
                scope.cancel()
                return furcate.Continue(ask())

            coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=2)
            await coordinator.run()
        assert scope.cancelled_caught
        assert len(stub.requests) == 1
    assert coordinator.undelivered is None


@pytest.mark.req("S4-067")
async def test_cancelled_in_an_execution_invents_no_response(engine_for, ask) -> None:
    """Cancelling while the provider works closes the connection and leaves nothing undelivered."""

    async def next_action(turn: furcate.Turn):
        return furcate.Continue(ask())

    async with StubProvider([answer("one"), no_head(silent=True)]) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(coordinator.run)
            await stub.wait_until(lambda s: len(s.requests) == 2)
            tasks.cancel_scope.cancel()
        await stub.wait_until(lambda s: s.disconnects == 1)
        assert engine.statistics()["stub"].in_use == 0
    assert coordinator.undelivered is None


@pytest.mark.req("S4-057", "S4-088")
async def test_retries_and_repairs_cause_no_extra_callbacks(engine_for, ask) -> None:
    """A turn that needed a retry and a repair is one turn."""
    contract = furcate.Contract({"type": "object", "required": ["a"]}, repairs=1)
    turns = []

    async def next_action(turn: furcate.Turn):
        turns.append((turn.remaining, turn.result.validation.status if turn.result else None))
        return furcate.Continue(ask(contract=contract)) if turn.remaining else furcate.Stop()

    script = [answer("begin"), error(503), answer("{}"), answer('{"a": 1}')]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=1)
        await coordinator.run()
        assert len(stub.requests) == 4
    assert turns == [(1, None), (0, "passed")]


@pytest.mark.parametrize("returned", [None, "stop", furcate.Stop, 1])
async def test_a_callback_that_returns_no_action_is_told_so(engine_for, ask, returned) -> None:
    """The error names what came and what would be right, and nothing more is executed."""

    async def next_action(turn: furcate.Turn):
        return returned

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=1)
        with pytest.raises(furcate.ActionError, match=r"Continue\(request\) or furcate.Stop"):
            await coordinator.run()
        assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("budget", "raised"), [(-1, ValueError), (True, TypeError), (1.5, TypeError), (None, TypeError)]
)
async def test_budgets_are_whole_numbers(engine_for, ask, budget, raised) -> None:
    """A negative, boolean or fractional budget is an error before any callback."""

    async def next_action(turn: furcate.Turn):
        raise AssertionError("never called")

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await captured(engine, ask)
        with pytest.raises(raised, match="additional_turns"):
            furcate.Coordinator(engine, exchange, next_action, additional_turns=budget)


async def test_a_coordinator_runs_once(engine_for, ask) -> None:
    """Running it again, or from a second task, is a clear error."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:

        async def next_action(turn: furcate.Turn):
            with pytest.raises(furcate.MisuseError, match="another task"):
                await coordinator.run()
            return furcate.Stop()

        coordinator = furcate.Coordinator(engine, await captured(engine, ask), next_action, additional_turns=1)
        await coordinator.run()
        with pytest.raises(furcate.MisuseError, match="run before"):
            await coordinator.run()
