"""What a group counts: the runs that it was attached to."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

import furcate
from furcate.testing import StubProvider, answer, error, events, no_head

pytestmark = pytest.mark.anyio

USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


@pytest.mark.req("S4-104", "S4-106", "S4-107", "S4-134", "S4-098", "S4-087", "S4-097", "S4-105")
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
    heard = [type(event).__name__ for event in recorder.events]
    assert heard == ["RunStarted", "AttemptStarted", "AttemptFinished", "RunFinished"]
    assert {event.run_id for event in recorder.events} == {first.run_id}
    summary = group.summary()
    members = [run.run_id for run in summary.runs]
    assert members[:3] == [first.run_id, second.run_id, stream.run_id]
    assert members[3] == inside[0]
    assert len(members) == 5
    assert summary.usage.input_tokens.known == 50
    assert summary.usage.input_tokens.complete


@pytest.mark.req("S4-105", "S4-135")
async def test_a_group_collects_beside_an_observer_while_runs_overlap(engine_for, ask) -> None:
    """Six runs under way at once: group, request's observer and engine's observer each hear of every one of them."""
    group, recorder, whole = furcate.Group(), furcate.Recorder(), furcate.Recorder()
    together = anyio.Event()

    async def script(request):
        if request.number == 6:
            together.set()
        await together.wait()
        return answer("ok", usage=USAGE)

    async with StubProvider(script) as stub, engine_for(stub, capacity=6, observers=[whole]) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(engine.run, ask(groups=[group], observers=[recorder]))
        assert stub.most_in_flight == 6
    summary = group.summary()
    assert recorder.events == whole.events
    assert len(recorder.runs()) == 6
    assert [run.run_id for run in summary.runs] == list(recorder.runs())
    for told in recorder.runs().values():
        assert [type(event).__name__ for event in told] == [
            "RunStarted",
            "AttemptStarted",
            "AttemptFinished",
            "RunFinished",
        ]
    assert (summary.succeeded, summary.usage.input_tokens.known) == (6, 60)


@pytest.mark.req("S4-131")
async def test_facts_of_runs_come_by_observation(engine_for, ask) -> None:
    """Each run's usage, incomplete too, and why it failed are told of the run; coordinators and nurseries add none."""
    group, recorder = furcate.Group(), furcate.Recorder()

    def script(request):
        said = request.body["messages"][-1]["content"]
        return {"partly": answer("ok", usage={"prompt_tokens": 30}), "bad": error(400, "no"), "busy": error(503)}.get(
            said, answer("ok", usage=USAGE)
        )

    async with StubProvider(script) as stub, engine_for(stub, capacity=3) as engine:
        shared = await engine.run(ask(capture=True, groups=[group], observers=[recorder]))

        def saying(text: str):
            async def once(turn: furcate.Turn):
                return furcate.Continue(ask(text)) if turn.remaining else furcate.Stop()

            return once

        async with furcate.open_branches(engine, shared.exchange, groups=[group], observers=[recorder]) as branches:
            for text in ("partly", "bad", "busy"):
                branches.start_soon(saying(text), additional_turns=1, name=text)
    scopes = {event.scope_id: event.name for event in recorder.of(furcate.CoordinatorStarted)}
    names = {event.run_id: scopes.get(event.scope_id, "shared") for event in recorder.of(furcate.RunStarted)}
    told = {
        names[end.run_id]: (
            end.status,
            end.failure_kind,
            end.failure_reason,
            end.attempts,
            end.usage.input_tokens,
            end.usage.output_tokens,
        )
        for end in recorder.of(furcate.RunFinished)
    }
    assert told["shared"] == ("succeeded", None, None, 1, 10, 2)
    assert told["partly"] == ("succeeded", None, None, 1, 30, None)
    assert told["bad"][:2] == ("failed", "invalid_request")
    assert told["busy"][:2] == ("failed", "unavailable")
    assert all(told[name][2] for name in ("bad", "busy"))
    assert (told["bad"][3:], told["busy"][3:]) == ((1, None, None), (3, None, None))
    summary = group.summary()
    assert [run.run_id for run in summary.runs].count(shared.run_id) == 1
    totals = summary.usage
    assert (totals.input_tokens.known, totals.input_tokens.unknown) == (40, 2)
    assert (totals.output_tokens.known, totals.output_tokens.unknown) == (2, 3)
    for kind in (furcate.CoordinatorFinished, furcate.NurseryFinished, furcate.Coordinator, furcate.Branch):
        assert not [name for name in dir(kind) if "usage" in name or "token" in name or "total" in name]


@pytest.mark.req("S4-101", "S4-082")
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


@pytest.mark.req("S4-100")
async def test_a_group_changes_nothing_about_its_runs(engine_for, ask) -> None:
    """With a group and without, the same story sends the same bytes in the same order and ends the same way."""
    contract = furcate.Contract({"type": "object", "required": ["a"]}, repairs=1)

    async def story(*groups: furcate.Group):
        recorder, seen = furcate.Recorder(), []

        def script(request):
            first = request.body["messages"][0]["content"]
            again = sum(1 for one in stub.requests if one.body["messages"][0]["content"] == first)
            if first == "hang":
                return no_head(silent=True)
            return [error(503), answer("{}"), answer('{"a": 1}')][again - 1]

        def places(event: furcate.Observation) -> None:
            seen.append((engine.statistics()["stub"].in_use, engine.statistics()["stub"].waiting))

        async with StubProvider(script) as stub, engine_for(stub) as engine:
            given = {"contract": contract, "groups": groups, "observers": [recorder, places]}
            results = [await engine.run(ask(f"run {n}", **given)) for n in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.run, ask("hang", **given))
                await stub.wait_until(lambda s: len(s.requests) == 7)
                tasks.cancel_scope.cancel()
            await stub.wait_until(lambda s: s.disconnects == 1)
            sent = [request.raw for request in stub.requests]
        told = [
            (type(event).__name__, getattr(event, "purpose", None), getattr(event, "status", None))
            for event in recorder.events
        ]
        return sent, told, seen, [result.validation.status for result in results]

    group = furcate.Group()
    assert await story() == await story(group)
    assert (group.summary().succeeded, group.summary().cancelled) == (2, 1)


@pytest.mark.req("S4-120")
async def test_a_failed_run_contributes_what_it_reported(engine_for, ask) -> None:
    """An answer that told its usage and then broke off returns no result; its counts and its end are in the group."""
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    chunks = [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": 30, "output_tokens": 2}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "error", "error": {"type": "api_error", "message": "gone"}},
    ]
    group = furcate.Group()
    once = furcate.RetryPolicy(attempts=1)
    async with StubProvider(events(*chunks, done=False)) as stub:
        async with engine_for(stub, dialect="anthropic-messages", retry=once) as engine:
            with pytest.raises(furcate.ProviderError) as caught:
                await engine.run(ask(groups=[group]))
    summary = group.summary()
    assert [(run.run_id, run.status) for run in summary.runs] == [(caught.value.run_id, "failed")]
    assert (summary.failed, summary.succeeded, summary.attempts) == (1, 0, 1)
    assert summary.usage.input_tokens.known == caught.value.usage.input_tokens == 30
    assert summary.run_seconds_total is not None


@pytest.mark.req("S4-114", "S4-136", "S4-099")
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
    """Whoever reads about groups is warned, in the reference and in the pages that introduce them."""
    assert "do not add up" in (furcate.GroupSummary.__doc__ or "")
    assert "do not add up" in (furcate.Group.__doc__ or "")
    docs = Path(__file__).parents[2] / "docs"
    for page in ("design.md", "tutorial.md"):
        told = " ".join((docs / page).read_text("utf-8").split())
        assert re.search(r"[Tt]otals [^.]*do not add up", told), page
