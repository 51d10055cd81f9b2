"""Budgets through the public API: refused before sending, never overshot together."""

from __future__ import annotations

import logging

import anyio
import pytest
from anyio.lowlevel import checkpoint

import furcate
from furcate.testing import Hold, StubProvider, answer, error, no_head

pytestmark = pytest.mark.anyio


@pytest.mark.field(23)
async def test_concurrent_runs_do_not_overshoot_together(engine_for, ask) -> None:
    """Of nine runs at once on a budget of six, six reach the server and three are refused, typed, before sending."""
    budget = furcate.Budget(runs=6)
    group = furcate.Group()
    refused: list[furcate.BudgetExceededError] = []
    async with StubProvider(answer("ok")) as stub, engine_for(stub, capacity=9) as engine:

        async def run() -> None:
            try:
                await engine.run(ask(budgets=[budget], groups=[group]))
            except furcate.BudgetExceededError as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(9):
                tasks.start_soon(run)
        assert len(stub.requests) == 6
    assert [(error.limit, error.allowed) for error in refused] == [("runs", 6)] * 3
    summary = group.summary()
    assert (summary.succeeded, summary.failed, summary.running, summary.attempts) == (6, 3, 0, 6)
    assert (budget.spent().runs, budget.spent().running) == (6, 0)


async def test_a_refused_run_is_told_as_one_that_failed(engine_for, ask) -> None:
    """A start and an end with nothing between, and the reason says that it was the budget."""
    recorder = furcate.Recorder()
    budget = furcate.Budget(runs=1)
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        await engine.run(ask(budgets=[budget]))
        for start in (engine.run, lambda request: engine.prepare(request).run()):
            with pytest.raises(furcate.BudgetExceededError, match="the budget of 1 runs is used up; nothing was sent"):
                await start(ask(budgets=[budget], observers=[recorder]))
        async with engine.stream(ask(budgets=[budget], observers=[recorder])) as stream:
            with pytest.raises(furcate.BudgetExceededError):
                await anext(stream)
        assert len(stub.requests) == 1
    assert [type(event).__name__ for event in recorder.events] == ["RunStarted", "RunFinished"] * 3
    for end in recorder.of(furcate.RunFinished):
        assert (end.status, end.attempts, end.failure_kind, end.failure_reason) == ("failed", 0, None, "budget")


@pytest.mark.field(25)
@pytest.mark.parametrize(
    ("unknown", "served"), [("ignore", 50), ("refuse", 1), (20, 5)], ids=["ignored", "refused", "assumed"]
)
async def test_a_server_that_counts_nothing_is_noticed(engine_for, ask, caplog, unknown, served) -> None:
    """Zeros beside text: known zero in the totals, one warning, and in a token budget what the user chose."""
    tokens = furcate.Budget(tokens=100, unknown=unknown)
    runs = furcate.Budget(runs=50)
    group = furcate.Group()
    script = answer("Some text.", usage={"prompt_tokens": 0, "completion_tokens": 0})
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        for _ in range(served):
            await engine.run(ask(budgets=[tokens, runs], groups=[group]))
        with pytest.raises(furcate.BudgetExceededError) as caught:
            await engine.run(ask(budgets=[runs, tokens], groups=[group]))
        assert len(stub.requests) == served
    assert caught.value.limit == {"ignore": "runs", "refuse": "unknown", 20: "tokens"}[unknown]
    assert group.summary().usage.output_tokens.known == 0
    assert runs.spent().runs == served
    warnings = [one.getMessage() for one in caplog.records if (one.name, one.levelno) == ("furcate", logging.WARNING)]
    assert [warning[:50] for warning in warnings] == ["backend stub reported zero tokens with output; its"]


async def test_tokens_that_were_used_end_a_budget(engine_for, ask) -> None:
    """Input and output count; once they reach the budget nothing more is sent, on another engine neither."""
    budget = furcate.Budget(tokens=250)
    script = answer("ok", usage={"prompt_tokens": 80, "completion_tokens": 20})
    async with StubProvider(script) as stub, engine_for(stub) as one, engine_for(stub) as other:
        for engine in (one, other, one):
            await engine.run(ask(budgets=[budget]))
        for engine in (one, other):
            with pytest.raises(furcate.BudgetExceededError, match="300 were used"):
                await engine.run(ask(budgets=[budget]))
        assert len(stub.requests) == 3


async def test_running_runs_count_with_what_they_may_use(engine_for, ask) -> None:
    """While one runs that may use all that is left, a second is refused; once it has used little, another may begin."""
    budget = furcate.Budget(tokens=100)
    go_on = anyio.Event()
    settings = furcate.Settings(max_output_tokens=100)
    script = answer("ok", usage={"prompt_tokens": 5, "completion_tokens": 5}, at={0: Hold(go_on.wait)})
    async with StubProvider(script) as stub, engine_for(stub, capacity=2) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ask(budgets=[budget], settings=settings))
            await stub.wait_until(lambda s: s.in_flight == 1)
            with pytest.raises(furcate.BudgetExceededError, match="set aside for running ones"):
                await engine.run(ask(budgets=[budget], settings=settings))
            go_on.set()
        await engine.run(ask(budgets=[budget], settings=settings))
    assert (budget.spent().tokens, budget.spent().reserved_tokens) == (20, 0)


async def test_a_run_that_was_begun_is_finished(engine_for, ask) -> None:
    """Retries and repairs belong to their run: the budget refuses runs, not the end of one."""
    budget = furcate.Budget(runs=1, tokens=1)
    contract = furcate.Contract({"type": "object"}, repairs=1)
    async with StubProvider([error(503), answer("no"), answer("{}")]) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(budgets=[budget], contract=contract))
        assert len(stub.requests) == 3
    assert result.validation.status == "passed"
    usage = result.usage
    assert budget.spent().tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0)


async def test_what_was_cancelled_before_it_was_sent_is_given_back(engine_for, ask) -> None:
    """A run that never left the queue has used nothing; one that was under way has used what nobody knows."""
    budget = furcate.Budget(runs=5)
    async with StubProvider(no_head(silent=True)) as stub, engine_for(stub) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(engine.run, ask(budgets=[budget]))
            await stub.wait_until(lambda s: s.in_flight == 1)
            while engine.statistics()["stub"].waiting < 2:
                await checkpoint()
            assert (budget.spent().runs, budget.spent().running) == (3, 3)
            tasks.cancel_scope.cancel()
    spent = budget.spent()
    assert (spent.runs, spent.running, spent.reserved_tokens, spent.unknown_answers) == (1, 0, 0, 1)


async def test_a_branch_ends_with_its_budget(engine_for, ask) -> None:
    """Four branches of three turns on a budget of five runs: five are sent, and each branch ends by itself."""
    shared, own = furcate.Budget(runs=5), furcate.Budget(runs=1)

    async def go_on(turn: furcate.Turn) -> furcate.Continue | furcate.Stop:
        return furcate.Continue(ask("More?", budgets=[shared])) if turn.remaining else furcate.Stop()

    async with StubProvider(answer("ok")) as stub, engine_for(stub, capacity=4) as engine:
        begun = await engine.run(ask(capture=True))
        async with furcate.open_branches(engine, begun.exchange, budgets=[shared]) as branches:
            for number in range(4):
                branches.start_soon(go_on, additional_turns=3, budgets=[own] if number == 0 else ())
        assert len(stub.requests) == 6
        coordinator = furcate.Coordinator(engine, begun.exchange, go_on, additional_turns=1, budgets=[own])
        with pytest.raises(furcate.BudgetExceededError):
            await coordinator.run()
        assert len(stub.requests) == 6
    assert shared.spent().runs == 5
    assert own.spent().runs == 1
    assert [type(branch.error) for branch in branches] == [furcate.BudgetExceededError] * 4
