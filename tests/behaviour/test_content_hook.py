"""Content reaches an observer only by the hook that it offers for it."""

from __future__ import annotations

import pytest

import furcate
from furcate.testing import StubProvider, answer

pytestmark = pytest.mark.anyio


class Reader:
    def __init__(self) -> None:
        self.told: list[object] = []

    def on_event(self, event: furcate.Observation) -> None:
        self.told.append(event)

    def on_content(self, event: furcate.ContentObservation) -> None:
        self.told.append(event)


async def test_a_reader_hears_what_each_attempt_adds_and_brings(engine_for, ask) -> None:
    """A continuation tells only what it adds to the exchange, right between the observations of its attempt."""
    reader = Reader()
    async with StubProvider([answer("One."), answer("Two.")]) as stub, engine_for(stub, observers=[reader]) as engine:
        first = await engine.run(ask("Say one", capture=True))
        await engine.continue_from(first.exchange, ask("Say two"))
    kinds = [type(event).__name__ for event in reader.told]
    one_run = ["RunStarted", "AttemptStarted", "ContentSent", "ContentReceived", "AttemptFinished", "RunFinished"]
    assert kinds == one_run * 2
    sent = [event for event in reader.told if isinstance(event, furcate.ContentSent)]
    assert [(one.inherited, [m.text for m in one.messages]) for one in sent] == [(0, ["Say one"]), (2, ["Say two"])]
    received = [event.message.text for event in reader.told if isinstance(event, furcate.ContentReceived)]
    assert received == ["One.", "Two."]


async def test_what_hears_only_events_is_never_handed_content(engine_for, ask) -> None:
    """A recorder and a plain callable beside a reader hear no content, and no observation prints any."""
    heard: list[object] = []
    recorder, reader = furcate.Recorder(), Reader()
    async with (
        StubProvider(answer("PRIVATE-91")) as stub,
        engine_for(stub, observers=[recorder, heard.append, reader]) as engine,
    ):
        await engine.run(ask("SECRET-7F3A"))
    assert len(heard) == len(recorder.events) == len(reader.told) - 2
    for told in (*heard, *reader.told):
        assert "SECRET-7F3A" not in repr(told)
        assert "PRIVATE-91" not in repr(told)


async def test_a_reader_that_raises_changes_nothing(engine_for, ask, caplog: pytest.LogCaptureFixture) -> None:
    """What a reader raises is logged once, and the run ends well."""

    class Broken(Reader):
        def on_content(self, event: furcate.ContentObservation) -> None:
            raise RuntimeError("no room")

    async with StubProvider(answer("fine")) as stub, engine_for(stub, observers=[Broken()]) as engine:
        result = await engine.run(ask("go"))
    assert result.message.text == "fine"
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == ["observer Broken failed on ContentSent"]


async def test_scopes_reach_what_a_callback_starts_by_hand(engine_for, ask) -> None:
    """A nursery and a run that a callback starts by itself tell the coordinator they belong to."""
    recorder = furcate.Recorder()
    request = ask("go", capture=True)
    async with StubProvider([answer("a"), answer("b")]) as stub, engine_for(stub, observers=[recorder]) as engine:
        first = await engine.run(request)

        async def stop(turn: furcate.Turn) -> furcate.Stop:
            return furcate.Stop()

        async def by_hand(turn: furcate.Turn) -> furcate.Stop:
            await engine.run(request)
            async with furcate.open_branches(engine, turn.exchange) as branches:
                branches.start_soon(stop, additional_turns=1)
            return furcate.Stop()

        await furcate.Coordinator(engine, first.exchange, by_hand, additional_turns=0).run()
    outer, inner = recorder.of(furcate.CoordinatorStarted)
    (nursery,) = recorder.of(furcate.NurseryStarted)
    assert nursery.parent_scope_id == outer.scope_id
    assert inner.parent_scope_id == nursery.scope_id
    assert [run.scope_id for run in recorder.of(furcate.RunStarted)] == [None, outer.scope_id]
