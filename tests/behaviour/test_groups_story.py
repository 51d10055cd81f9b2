"""What a group counts: the runs that it was attached to."""

from __future__ import annotations

import pytest

import furcate
from furcate.testing import StubProvider, answer, error

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


@pytest.mark.req("S4-104", "S4-106", "S4-107", "S4-134", "S4-098", "S4-087", "S4-097", "S4-135", "S4-105")
async def test_membership_is_by_attaching(engine_for, ask) -> None:
    """Ordinary, prepared, streamed, coordinated and nested runs join where attached, and one not attached does not."""
    group, recorder = furcate.Group(), furcate.Recorder()
    async with StubProvider(answer("ok", usage=USAGE)) as stub, engine_for(stub) as engine:
        first = await engine.run(ask(capture=True, groups=[group], observers=[recorder]))
        prepared = engine.prepare(ask(groups=[group]))
        second = await prepared.run()
        async with engine.stream(ask(groups=[group])) as stream:
            async for _ in stream:
                pass
        inside = []

        async def next_action(turn: furcate.Turn):
            await engine.run(ask("nested, not attached"))
            if turn.remaining:
                inside.append((await engine.run(ask("nested, attached", groups=[group]))).run_id)
                return furcate.Continue(ask("turn"))
            return furcate.Stop()

        coordinator = furcate.Coordinator(engine, first.exchange, next_action, additional_turns=1, groups=[group])
        await coordinator.run()
        assert len(stub.requests) == 7
    summary = group.summary()
    members = [run.run_id for run in summary.runs]
    assert members[:3] == [first.run_id, second.run_id, stream.run_id]
    assert members[3] == inside[0]
    assert len(members) == 5
    assert summary.usage.input_tokens.known == 50
    assert summary.usage.input_tokens.complete
    assert isinstance(recorder.events[-1], furcate.RunFinished)


@pytest.mark.req("S4-101", "S4-082", "S4-131")
async def test_the_shared_beginning_is_counted_once(engine_for, ask) -> None:
    """A, continued by B and C: a group of all three counts each once, whatever history was sent again."""
    group = furcate.Group()
    spent = iter([{"prompt_tokens": n, "completion_tokens": 1} for n in (100, 130, 140)])
    async with StubProvider(lambda request: answer("ok", usage=next(spent))) as stub, engine_for(stub) as engine:
        a = await engine.run(ask(capture=True, groups=[group]))
        b = await engine.continue_from(a.exchange, ask(groups=[group]))
        c = await engine.continue_from(a.exchange, ask(groups=[group]))
    summary = group.summary()
    assert [run.run_id for run in summary.runs] == [a.run_id, b.run_id, c.run_id]
    assert [run.parent_run_id for run in summary.runs] == [None, a.run_id, a.run_id]
    assert [r.usage.input_tokens for r in (a, b, c)] == [100, 130, 140]
    assert summary.usage.input_tokens.known == 370


@pytest.mark.req("S4-114", "S4-136", "S4-120", "S4-100", "S4-099")
async def test_groups_overlap_and_take_failures_in(engine_for, ask) -> None:
    """A run counts once in each of its groups, however often attached; a failed one contributes what is known."""
    one, two = furcate.Group(), furcate.Group()
    script = [answer("ok", usage=USAGE), error(400, "bad"), answer("ok", usage=None)]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        await engine.run(ask(groups=[one, two, one]))
        with pytest.raises(furcate.ProviderError):
            await engine.run(ask(groups=[one]))
        await engine.run(ask(groups=[one]))
    first, second = one.summary(), two.summary()
    assert (first.succeeded, first.failed, first.running) == (2, 1, 0)
    assert (second.succeeded, second.failed) == (1, 0)
    output = first.usage.output_tokens
    assert (output.known, output.exact, output.unknown, output.complete) == (2, 1, 2, False)
    assert second.usage.output_tokens.complete


@pytest.mark.req("S4-109", "S4-111", "S4-112", "S4-119")
async def test_a_snapshot_tells_who_has_not_ended(engine_for, ask) -> None:
    """While a run is under way it is a member without an end: no zero, no success, no completeness."""
    group = furcate.Group()
    snapshots = []

    def look(event: furcate.Observation) -> None:
        snapshots.append(group.summary())

    async with StubProvider(answer("ok", usage=USAGE)) as stub, engine_for(stub) as engine:
        await engine.run(ask(groups=[group], observers=[look]))
    started, ended = snapshots[0], snapshots[-1]
    assert (started.running, started.succeeded) == (1, 0)
    assert started.usage.input_tokens.known is None
    assert not started.usage.input_tokens.complete
    # The group heard the end before the observer did.
    assert (ended.running, ended.succeeded) == (0, 1)
    assert ended.usage.input_tokens.complete


@pytest.mark.field(17)
async def test_an_answer_left_early_is_an_unknown_beside_the_known(engine_for, ask) -> None:
    """A stream that was left has no usage: the sum shows what is known and that one run is unknown."""
    group = furcate.Group()
    async with StubProvider([answer("ok", usage=USAGE), answer("a b c", usage=USAGE)]) as stub:
        async with engine_for(stub) as engine:
            await engine.run(ask(groups=[group]))
            async with engine.stream(ask(groups=[group])) as stream:
                async for event in stream:
                    if isinstance(event, furcate.TextDelta):
                        break
    total = group.summary().usage.input_tokens
    assert (total.known, total.unknown) == (10, 1)
    assert "1 run unknown" in str(group.summary())


@pytest.mark.field(20)
async def test_concurrent_runs_keep_their_usage_apart(engine_for, ask) -> None:
    """Four branches side by side each report their own tokens, and the group their sum."""
    group = furcate.Group()
    results = []
    async with StubProvider(answer("ok", usage={"prompt_tokens": 9, "completion_tokens": 3})) as stub:
        async with engine_for(stub, capacity=4) as engine:
            exchange = (await engine.run(ask(capture=True))).exchange

            async def once(turn: furcate.Turn):
                if turn.result is not None:
                    results.append(turn.result)
                return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

            async with furcate.open_branches(engine, exchange, groups=[group]) as branches:
                for _ in range(4):
                    branches.start_soon(once, additional_turns=1)
    assert [(r.usage.input_tokens, r.usage.output_tokens) for r in results] == [(9, 3)] * 4
    assert group.summary().usage.input_tokens.known == 36
    assert group.summary().usage.output_tokens.known == 12


@pytest.mark.req("S4-113")
def test_a_group_promises_no_end_that_was_not_told() -> None:
    """A run whose end is never heard stays a running member for ever; nothing waits for it and nothing is made up."""
    group = furcate.Group()
    group.on_event(
        furcate.RunStarted(
            run_id="r", parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
        )
    )
    summary = group.summary()
    assert (summary.running, summary.ended) == (1, 0)
    assert summary.run_seconds_total is None
    assert summary.usage.output_tokens.known is None


@pytest.mark.req("S4-115")
def test_the_documentation_says_that_overlapping_totals_do_not_add_up() -> None:
    """Whoever reads the summary's documentation is warned."""
    assert "do not add up" in (furcate.GroupSummary.__doc__ or "")
