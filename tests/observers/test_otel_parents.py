"""What is the parent of what, and what links to what, when branches run side by side."""

from __future__ import annotations

import contextvars
import json
import logging

import anyio
import pytest
from opentelemetry import context, trace

import furcate
from furcate.primitives._json import FrozenMap
from furcate.testing import StubProvider, answer

OK = answer("ok")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture):
    """Fail a test that the telemetry library warns in."""
    caplog.set_level(logging.WARNING)
    yield
    assert not [
        record.getMessage() for record in caplog.records if record.name.startswith(("opentelemetry", "furcate"))
    ]


def ask(text: str = "Hello?", **given) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})


def parent_id(span) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def linked(span) -> list[int]:
    return [link.context.span_id for link in span.links]


@pytest.mark.field(56)
async def test_one_trace_for_a_group_and_a_link_for_a_later_fork(telemetry, engine_of) -> None:
    """Runs of an application's span are its children in one trace; a fork afterwards is a trace of its own, linked."""
    seen = telemetry()
    exchanges: list[furcate.Exchange] = []
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:

        async def converse() -> None:
            first = await engine.run(ask(capture=True))
            exchanges.append((await engine.continue_from(first.exchange, ask())).exchange)

        with seen.tracer.start_as_current_span("group"):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(converse)
        fork = await engine.continue_from(exchanges[0], ask())
    group = seen.one("group")
    runs = {span.attributes["furcate.run.id"]: span for span in seen.ended("chat ")}
    forked = runs.pop(fork.run_id)
    assert len(runs) == 6
    assert {span.context.trace_id for span in runs.values()} == {group.context.trace_id}
    assert {parent_id(span) for span in runs.values()} == {group.context.span_id}
    source = runs[exchanges[0].run_id]
    assert forked.parent is None
    assert forked.context.trace_id != group.context.trace_id
    assert linked(forked) == [source.context.span_id]
    assert forked.attributes["furcate.parent.run.id"] == exchanges[0].run_id
    assert forked.attributes["furcate.parent.trace_id"] == trace.format_trace_id(group.context.trace_id)
    assert forked.attributes["furcate.parent.span_id"] == trace.format_span_id(source.context.span_id)


@pytest.mark.field(57)
async def test_no_span_is_lost_when_many_runs_end_together(telemetry, engine_of) -> None:
    """200 runs at once give 200 ended spans, all children of the span around them."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen, capacity=50) as engine:
        with seen.tracer.start_as_current_span("group"):
            async with anyio.create_task_group() as tasks:
                for _ in range(200):
                    tasks.start_soon(engine.run, ask())
    runs = seen.ended("chat ")
    assert len(runs) == len({span.attributes["furcate.run.id"] for span in runs}) == 200
    assert {parent_id(span) for span in runs} == {seen.one("group").context.span_id}
    assert not seen.observer._runs


async def test_nurseries_and_coordinators_lie_in_each_other(telemetry, engine_of) -> None:
    """A nursery in a branch of a nursery: every span lies in the one around it, and sibling branches do not mix."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen, capacity=4) as engine:
        first = await engine.run(ask(capture=True))

        async def leaf(turn: furcate.Turn):
            return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

        async def inner(turn: furcate.Turn):
            if turn.remaining == 1:
                async with furcate.open_branches(engine, turn.exchange, name="inside") as branches:
                    for name in ("x", "y"):
                        branches.start_soon(leaf, additional_turns=1, name=name)
                return furcate.Continue(ask())
            return furcate.Stop()

        async with furcate.open_branches(engine, first.exchange, name="outside") as branches:
            for name in ("a", "b", "c"):
                branches.start_soon(inner, additional_turns=1, name=name)
        after = await engine.run(ask())
    spans = {span.context.span_id: span for span in seen.ended()}

    def path(span) -> tuple[str, ...]:
        names = []
        while span is not None:
            names.append(span.name.removeprefix("invoke_workflow "))
            span = spans.get(parent_id(span))
        return tuple(reversed(names))

    paths = sorted(path(span) for span in seen.ended("chat ") if span.parent is not None)
    wanted = [("outside", name, "chat m") for name in "abc"]
    wanted += [("outside", name, "inside", leaf_name, "chat m") for name in "abc" for leaf_name in "xy"]
    assert paths == sorted(wanted)
    assert seen.run(after).parent is None
    nursery = seen.one("invoke_workflow outside")
    assert linked(nursery) == [seen.run(first).context.span_id]
    assert nursery.attributes["furcate.scope.kind"] == "nursery"
    assert nursery.attributes["furcate.nursery.branches"] == 3
    assert nursery.attributes["furcate.status"] == "succeeded"
    assert nursery.attributes["gen_ai.operation.name"] == "invoke_workflow"
    branch = seen.one("invoke_workflow a")
    assert branch.attributes["gen_ai.agent.name"] == "a"
    assert branch.attributes["furcate.scope.kind"] == "coordinator"
    assert branch.attributes["furcate.coordinator.outcome"] == "stopped"
    assert branch.attributes["furcate.coordinator.turns"] == 1
    assert branch.attributes["furcate.coordinator.additional_turns"] == 1


async def test_each_turn_links_to_the_one_before(telemetry, engine_of) -> None:
    """The runs of a coordinator are siblings in its span, each linked to the run that it continues."""
    seen = telemetry()
    results: list[furcate.Result] = []
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))

        async def go_on(turn: furcate.Turn):
            results.extend([turn.result] if turn.result else [])
            return furcate.Continue(ask())

        outcome = await furcate.Coordinator(engine, first.exchange, go_on, additional_turns=3).run()
    assert outcome is furcate.Outcome.EXHAUSTED
    coordinator = seen.one("invoke_workflow")
    chain = [seen.run(result) for result in (first, *results)]
    assert {parent_id(span) for span in chain[1:]} == {coordinator.context.span_id}
    assert [linked(span) for span in chain[1:]] == [[span.context.span_id] for span in chain[:-1]]


async def test_the_applications_own_spans_take_part(telemetry, engine_of) -> None:
    """A coordinator lies in the application's span around it; spans of its callback lie in it; runs lie in those."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))

        async def choose(turn: furcate.Turn):
            with seen.tracer.start_as_current_span("thinking"):
                await engine.run(ask("a question beside"))
            return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

        with seen.tracer.start_as_current_span("request") as around:
            await furcate.Coordinator(engine, first.exchange, choose, additional_turns=1, name="c").run()
            assert trace.get_current_span() is around
    coordinator = seen.one("invoke_workflow c")
    assert parent_id(coordinator) == seen.one("request").context.span_id
    thinking = seen.ended("thinking")
    assert {parent_id(span) for span in thinking} == {coordinator.context.span_id}
    beside = [span for span in seen.ended("chat ") if not span.links and span.parent is not None]
    assert {parent_id(span) for span in beside} == {span.context.span_id for span in thinking}
    [turn] = [span for span in seen.ended("chat ") if span.links]
    assert parent_id(turn) == coordinator.context.span_id


async def test_a_branch_started_from_another_branch_belongs_to_the_nursery(telemetry, engine_of) -> None:
    """A callback that starts a sibling does not become its parent, nor does one that lets a waiting branch begin."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))
        async with furcate.open_branches(engine, first.exchange, max_active=1, name="n") as branches:

            async def stop(turn: furcate.Turn):
                return furcate.Stop()

            async def start_another(turn: furcate.Turn):
                with seen.tracer.start_as_current_span("deciding"):
                    branches.start_soon(stop, additional_turns=0, name="second")
                return furcate.Stop()

            branches.start_soon(start_another, additional_turns=0, name="first")
            branches.start_soon(stop, additional_turns=0, name="waiting")
    nursery = seen.one("invoke_workflow n").context.span_id
    for name in ("first", "second", "waiting"):
        assert parent_id(seen.one(f"invoke_workflow {name}")) == nursery


async def test_a_run_finds_its_coordinator_where_the_context_was_lost(telemetry, engine_of) -> None:
    """A callback that runs under an empty context loses neither its coordinator nor what comes after."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))

        async def forget(turn: furcate.Turn):
            context.attach(context.Context())
            return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

        with seen.tracer.start_as_current_span("request"):
            await furcate.Coordinator(engine, first.exchange, forget, additional_turns=1, name="c").run()
    [turn] = [span for span in seen.ended("chat ") if span.links]
    assert parent_id(turn) == seen.one("invoke_workflow c").context.span_id


async def test_a_stream_left_early_or_closed_elsewhere_ends_its_span(telemetry, engine_of) -> None:
    """A stream that its consumer leaves, or that another task closes, ends its span once, under its first parent."""
    seen = telemetry()
    async with StubProvider(answer("one two three four")) as stub, engine_of(stub, seen) as engine:
        with seen.tracer.start_as_current_span("reader"):
            async with engine.stream(ask()) as stream:
                async for event in stream:
                    if isinstance(event, furcate.TextDelta):
                        break
        opened = engine.stream(ask())
        with seen.tracer.start_as_current_span("opener"):
            await opened.__aenter__()
            async for event in opened:
                if isinstance(event, furcate.TextDelta):
                    break

        async def close() -> None:
            with seen.tracer.start_as_current_span("closer") as closer:
                await opened.__aexit__(None, None, None)
                assert trace.get_current_span() is closer

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
    early, elsewhere = seen.ended("chat ")
    assert parent_id(early) == seen.one("reader").context.span_id
    assert parent_id(elsewhere) == seen.one("opener").context.span_id
    assert [span.attributes["furcate.status"] for span in (early, elsewhere)] == ["cancelled", "cancelled"]
    assert not seen.observer._runs


def test_a_coordinator_that_ends_elsewhere_leaves_others_contexts_alone(telemetry) -> None:
    """A coordinator that is told to have ended in another context ends its span and changes no current span there."""
    seen = telemetry()
    begun = furcate.CoordinatorStarted(
        scope_id="s", parent_scope_id=None, parent_run_id="r", name="dropped", additional_turns=0
    )
    contextvars.copy_context().run(seen.observer.on_event, begun)
    with seen.tracer.start_as_current_span("mine") as mine:
        seen.observer.on_event(furcate.CoordinatorFinished(scope_id="s", status="cancelled", outcome=None))
        assert trace.get_current_span() is mine
    assert seen.one("invoke_workflow dropped").attributes["furcate.status"] == "cancelled"


async def test_a_link_reaches_over_engines_and_processes(telemetry, engine_of) -> None:
    """An exchange carries the trace of its run: another engine's observer links to it, whatever it knows itself."""
    here, there = telemetry(), telemetry()
    async with StubProvider(OK) as stub:
        async with engine_of(stub, here) as engine:
            first = await engine.run(ask(capture=True))
        travelled = furcate.Exchange(
            first.exchange.history,
            first.run_id,
            None,
            FrozenMap(json.loads(json.dumps(dict(first.exchange.carrier)))),
        )
        async with engine_of(stub, there) as engine:
            await engine.continue_from(travelled, ask())
    source, [continued] = here.run(first), there.ended("chat ")
    [link] = continued.links
    assert (link.context.trace_id, link.context.span_id) == (source.context.trace_id, source.context.span_id)
    assert link.context.is_remote
    assert dict(link.attributes) == {"furcate.link": "continues", "furcate.run.id": first.run_id}


async def test_a_link_is_found_by_the_runs_id_where_the_carrier_was_lost(telemetry, engine_of) -> None:
    """An exchange without its carrier links all the same where this observer saw its run; a bad one does no harm."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))
        for carrier in ({}, {"traceparent": "nonsense"}, {"traceparent": "00-0-0-00", "tracestate": "\n"}):
            bare = furcate.Exchange(first.exchange.history, first.run_id, None, carrier)
            result = await engine.continue_from(bare, ask())
            assert linked(seen.run(result)) == [seen.run(first).context.span_id]
        stranger = furcate.Exchange(first.exchange.history, "unheard-of")
        result = await engine.continue_from(stranger, ask())
    assert not seen.run(result).links
    assert seen.run(result).attributes["furcate.parent.run.id"] == "unheard-of"


async def test_failures_are_told_where_they_happen(telemetry, engine_of, caplog) -> None:
    """A branch whose callback raises is an error by the class of what was raised; its nursery is none."""
    seen = telemetry()
    async with StubProvider(OK) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))

        async def fail(turn: furcate.Turn):
            raise LookupError("SECRET-7F3A")

        async with furcate.open_branches(engine, first.exchange, name="n") as branches:
            branches.start_soon(fail, additional_turns=0, name="a")
        with pytest.raises(ExceptionGroup):
            async with furcate.open_branches(engine, first.exchange, name="strict", on_failure="cancel") as branches:
                branches.start_soon(fail, additional_turns=0, name="b")
    caplog.clear()
    failed = seen.one("invoke_workflow a")
    assert failed.attributes["error.type"] == failed.status.description == "LookupError"
    assert seen.one("invoke_workflow n").status.is_unset
    assert not seen.one("invoke_workflow strict").status.is_ok
    assert not seen.one("invoke_workflow strict").status.is_unset
    assert "SECRET-7F3A" not in seen.everything()
