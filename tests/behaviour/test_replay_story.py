"""Work that is done again from a log of calls: what was answered is had again, and only the rest is asked for."""

from __future__ import annotations

from collections import defaultdict, deque
from uuid import uuid4

import anyio
import pytest

import furcate
from furcate.admission import Share
from furcate.primitives._calls import RecordedCall
from furcate.testing import StubProvider, answer, error

pytestmark = pytest.mark.anyio

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")


class Log:
    """A log of calls in memory; `again()` gives what a process that starts anew would find."""

    def __init__(self, runs=(), calls=None) -> None:
        self.runs: list[tuple[bytes, str]] = list(runs)
        self.calls: dict[tuple[str, int], RecordedCall] = dict(calls or {})
        self._known: dict[bytes, deque[str]] = defaultdict(deque)
        for key, run_id in self.runs:
            self._known[key].append(run_id)

    def again(self) -> Log:
        return Log([(key, run) for key, run in self.runs if (run, 1) in self.calls], self.calls)

    def begin(self, key: bytes) -> str:
        if self._known[key]:
            return self._known[key].popleft()
        self.runs.append((key, uuid4().hex))
        return self.runs[-1][1]

    def recall(self, run_id: str, number: int) -> RecordedCall | None:
        return self.calls.get((run_id, number))

    async def keep(self, run_id: str, number: int, call: RecordedCall) -> None:
        await anyio.lowlevel.checkpoint()
        self.calls[run_id, number] = call


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_conversation_is_had_again_without_asking(engine_for, ask, dialect, stream) -> None:
    """Two turns done again send nothing, and give the same results: run ids, exchanges, usage and receipts."""
    log = Log()

    async def work(engine, calls):
        mine = engine._for_work(Share(), calls, ())
        first = await mine.run(ask("One?", capture=True))
        second = await mine.continue_from(first.exchange, ask("Two?"))
        return first, second

    async with StubProvider([answer("First."), answer("Second.")]) as stub:
        async with engine_for(stub, dialect=dialect, profile={"stream": stream}) as engine:
            before = await work(engine, log)
            after = await work(engine, log.again())
            assert len(stub.requests) == 2
            assert engine.statistics()["stub"].in_use == 0
    for once, again in zip(before, after, strict=True):
        assert (once.run_id, once.text, once.exchange.digest) == (again.run_id, again.text, again.exchange.digest)
        assert (once.usage, once.receipts[0].outcome) == (again.usage, again.receipts[0].outcome)
        assert ([a.replayed for a in once.attempts], [a.replayed for a in again.attempts]) == ([False], [True])


@pytest.mark.field(82)
async def test_only_the_rest_is_asked_for(engine_for, ask) -> None:
    """A coordinator whose third turn failed sends only that turn when it is done again, on the same exchanges."""
    log, seen = Log(), []

    async def work(engine, calls):
        mine = engine._for_work(Share(), calls, ())
        first = await mine.run(ask("Zero?", capture=True))
        digests = []

        async def next_action(turn):
            digests.append((turn.exchange.run_id, turn.exchange.digest))
            return furcate.Continue(ask(f"Turn {turn.remaining}?")) if turn.remaining else furcate.Stop()

        coordinator = furcate.Coordinator(mine, first.exchange, next_action, additional_turns=3)
        try:
            await coordinator.run()
        finally:
            seen.append(digests)

    script = [answer("0"), answer("1"), answer("2"), error(400, "no"), answer("3")]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        with pytest.raises(furcate.ProviderError):
            await work(engine, log)
        resumed = log.again()
        # The application wants the failed turn tried again, and nothing else.
        failed = [place for place, call in resumed.calls.items() if call.failure is not None]
        for place in failed:
            del resumed.calls[place]
        await work(engine, resumed)
        assert [len(failed), len(stub.requests)] == [1, 5]
    assert seen[1][:3] == seen[0]
    assert len(seen[1]) == 4


@pytest.mark.field(80)
async def test_attempts_of_an_earlier_process_count(engine_for, ask) -> None:
    """Of three attempts two were made before the work was cut off: one more is sent, and all three have receipts."""
    log = Log()
    policy = furcate.RetryPolicy(attempts=3, first_backoff_s=0.001, max_backoff_s=0.002)
    async with StubProvider(lambda request: error(503, "busy")) as stub, engine_for(stub, retry=policy) as engine:
        mine = engine._for_work(Share(), log, ())
        with anyio.CancelScope() as scope:
            recorder = furcate.Recorder()

            def cut(event: furcate.Observation) -> None:
                recorder.on_event(event)
                if len(recorder.of(furcate.AttemptFinished)) == 2:
                    scope.cancel()

            await mine.run(ask("Busy?", observers=[cut]))
        assert scope.cancelled_caught
        assert len(stub.requests) == 2
        again = engine._for_work(Share(), log.again(), ())
        with pytest.raises(furcate.ProviderError) as caught:
            await again.run(ask("Busy?"))
        assert len(stub.requests) == 3
    assert [attempt.replayed for attempt in caught.value.attempts] == [True, True, False]
    assert len(caught.value.receipts) == 3


async def test_a_repair_that_was_cut_off_goes_on_with_a_place_of_its_own(engine_for, ask) -> None:
    """The invalid answer is read from the log without a place; its repair asks, and holds one while it does."""
    log, held = Log(), []
    contract = furcate.Contract({"type": "object"}, repairs=1)

    async def script(request):
        held.append(engine.statistics()["stub"].in_use)
        return answer("nothing" if request.number == 1 else "{}")

    async with StubProvider(script) as stub:
        async with engine_for(stub) as engine:
            first = await engine._for_work(Share(), log, ()).run(ask(contract=contract))
            partly = log.again()
            del partly.calls[first.run_id, 2]
            again = await engine._for_work(Share(), partly, ()).run(ask(contract=contract))
    assert held == [1, 1, 1]
    assert [a.replayed for a in again.attempts] == [True, False]
    assert (again.run_id, again.value) == (first.run_id, {})


async def test_equal_requests_are_told_apart_by_their_order(engine_for, ask) -> None:
    """Three samples of one request are three calls, and are had again in the order in which they began."""
    log = Log()
    async with StubProvider([answer(str(number)) for number in range(4)]) as stub, engine_for(stub) as engine:
        mine = engine._for_work(Share(), log, ())
        once = [(await mine.run(ask("Roll"))).text for _ in range(3)]
        mine = engine._for_work(Share(), log.again(), ())
        again = [(await mine.run(ask("Roll"))).text for _ in range(4)]
        assert len(stub.requests) == 4
    assert once == ["0", "1", "2"]
    assert again == ["0", "1", "2", "3"]


async def test_a_record_of_another_body_is_passed_over(engine_for, ask) -> None:
    """What was answered to another body is no answer to this one."""
    log = Log()
    async with StubProvider([answer("old"), answer("new")]) as stub, engine_for(stub) as engine:
        first = await engine._for_work(Share(), log, ()).run(ask())
        changed = log.again()
        place = (first.run_id, 1)
        changed.calls[place] = RecordedCall(body_sha256="0" * 64, status=200)
        result = await engine._for_work(Share(), changed, ()).run(ask())
    assert (result.text, len(stub.requests)) == ("new", 2)


async def test_a_stream_is_had_again_as_a_stream(engine_for, ask) -> None:
    """A consumer sees the same events of a recorded answer, and no place is held meanwhile."""
    log = Log()

    async def watched(engine):
        async with engine.stream(ask()) as stream:
            events = [event async for event in stream]
        return events, stream.result

    async with StubProvider([answer("one two three", usage="plausible")]) as stub, engine_for(stub) as engine:
        once = await watched(engine._for_work(Share(), log, ()))
        again = await watched(engine._for_work(Share(), log.again(), ()))
        assert len(stub.requests) == 1
    assert [text for text in once[0] if isinstance(text, furcate.TextDelta)]
    joined = ["".join(e.text for e in events if isinstance(e, furcate.TextDelta)) for events, _ in (once, again)]
    assert joined[0] == joined[1] == "one two three"
    assert once[1].run_id == again[1].run_id


async def test_cookies_of_an_answer_are_not_kept(engine_for, ask) -> None:
    """A cookie may be as good as a key, so none is in a record."""
    log = Log()
    async with StubProvider(answer("ok", headers={"set-cookie": "sid=SECRET"})) as stub, engine_for(stub) as engine:
        await engine._for_work(Share(), log, ()).run(ask())
    (call,) = log.calls.values()
    assert "content-type" in dict(call.headers)
    assert "set-cookie" not in dict(call.headers)


async def test_an_engine_for_one_piece_of_work_ends_with_the_one_it_came_from(engine_for, ask) -> None:
    """It is open as long as the other is, and is not entered itself."""
    async with StubProvider(answer("ok")) as stub:
        async with engine_for(stub) as engine:
            mine = engine._for_work(Share(), None, ())
            assert (await mine.run(ask())).text == "ok"
            with pytest.raises(furcate.MisuseError, match="open already"):
                await mine.__aenter__()
        with pytest.raises(furcate.MisuseError, match="not open"):
            await mine.run(ask())
