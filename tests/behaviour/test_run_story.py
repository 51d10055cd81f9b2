"""One run: attempts, lease, time limits, streams, and what observers hear."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest

import furcate
from furcate.testing import (
    StubProvider,
    answer,
    error,
    error_in_stream,
    events,
    html_error,
    no_head,
    raw,
)

pytestmark = pytest.mark.anyio

FAST = furcate.TimeLimits(first_event_s=0.2, idle_s=0.2)


async def failure_of(engine: furcate.Engine, request: furcate.Request) -> furcate.ProviderError:
    with pytest.raises(furcate.ProviderError) as caught:
        await engine.run(request)
    return caught.value


@pytest.mark.req("S4-080", "S4-093")
async def test_observers_hear_a_run_in_order_and_nothing_of_its_content(engine_for, ask) -> None:
    """Start, attempts, end; engine's and request's observers hear the same; content is in none of it."""
    engines, requests, called = furcate.Recorder(), furcate.Recorder(), []
    script = [error(503, "SECRET-ECHO"), answer("PRIVATE-ANSWER")]
    async with StubProvider(script) as stub, engine_for(stub, observers=[engines, called.append]) as engine:
        result = await engine.run(ask("SECRET-PROMPT", observers=[requests]))
    names = [type(event).__name__ for event in engines.events]
    assert names == [
        "RunStarted",
        "AttemptStarted",
        "AttemptFinished",
        "AttemptsPaused",
        "AttemptStarted",
        "AttemptFinished",
        "RunFinished",
    ]
    assert list(engines.events) == list(requests.events) == called
    last = engines.events[-1]
    assert (last.status, last.attempts, last.repairs) == ("succeeded", 2, 0)
    assert last.usage == result.usage
    told = repr(engines.events)
    assert not [word for word in ("SECRET-PROMPT", "PRIVATE-ANSWER", "SECRET-ECHO") if word in told]


@pytest.mark.field(60)
async def test_a_slow_and_a_broken_observer_take_nothing_from_a_healthy_one(engine_for, ask, caplog) -> None:
    """One raises each time, one blocks for a while: the third hears all in order, once the others have been told."""
    order = []

    def broken(event: furcate.Observation) -> None:
        order.append("broken")
        raise ValueError("broken observer")

    def slow(event: furcate.Observation) -> None:
        time.sleep(0.02)
        order.append("slow")

    def healthy(event: furcate.Observation) -> None:
        order.append(type(event).__name__)

    script = [error(503), answer("ok")]
    async with StubProvider(script) as stub, engine_for(stub, observers=[broken, slow, healthy]) as engine:
        result = await engine.run(ask())
        assert engine.statistics()["stub"].in_use == 0
    assert result.text == "ok"
    told = [
        "RunStarted",
        "AttemptStarted",
        "AttemptFinished",
        "AttemptsPaused",
        "AttemptStarted",
        "AttemptFinished",
        "RunFinished",
    ]
    assert order == [word for name in told for word in ("broken", "slow", name)]
    levels = [record.levelname for record in caplog.records if "broken" in record.getMessage()]
    assert levels.count("ERROR") == 1


@pytest.mark.field(60)
async def test_an_observer_that_raises_changes_nothing(engine_for, ask, caplog) -> None:
    """The run and the other observers never notice; the log has it once."""

    def broken(event: furcate.Observation) -> None:
        raise ValueError("broken observer")

    recorder = furcate.Recorder()
    async with StubProvider(answer("ok")) as stub, engine_for(stub, observers=[broken, recorder]) as engine:
        result = await engine.run(ask())
    assert result.text == "ok"
    assert isinstance(recorder.events[-1], furcate.RunFinished)
    assert [record.levelname for record in caplog.records if "broken" in record.getMessage()] == ["ERROR"]


@pytest.mark.field(65)
async def test_attempts_are_bounded_and_all_told(engine_for, ask) -> None:
    """Three attempts mean three requests, nowhere multiplied."""
    async with StubProvider(error(503, "busy")) as stub, engine_for(stub) as engine:
        failed = await failure_of(engine, ask())
        assert len(stub.requests) == 3
    assert [attempt.failure.kind for attempt in failed.attempts] == ["unavailable"] * 3
    assert failed.failure.status == 503
    assert not failed.usage.known


@pytest.mark.field(2)
async def test_no_place_is_held_while_a_retry_waits(engine_for, ask, monkeypatch) -> None:
    """At capacity 1 another run is served during the backoff; each of four attempts has a lease of its own."""
    monkeypatch.setattr("random.random", lambda: 1.0)
    waiting = anyio.Event()
    recorder = furcate.Recorder()

    def watch(event: furcate.Observation) -> None:
        if isinstance(event, furcate.AttemptsPaused):
            waiting.set()

    def script(request):
        if request.body["messages"][0]["content"] == "other":
            return answer("served")
        refused = sum(1 for earlier in stub.requests if earlier.body["messages"][0]["content"] == "first")
        return error(503) if refused <= 3 else answer("at last")

    slow = furcate.RetryPolicy(attempts=4, first_backoff_s=0.2, max_backoff_s=0.2)
    async with StubProvider(script) as stub, engine_for(stub, retry=slow) as engine:
        order = []

        async def retried() -> None:
            result = await engine.run(ask("first", observers=[watch, recorder]))
            assert [attempt.status for attempt in result.attempts] == ["failed"] * 3 + ["succeeded"]
            assert [attempt.failure.status for attempt in result.attempts[:3]] == [503] * 3
            assert len({receipt.request_id for receipt in result.receipts}) == 4
            order.append(result.text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retried)
            await waiting.wait()
            assert engine.statistics()["stub"].in_use == 0
            order.append((await engine.run(ask("other"))).text)
        assert order == ["served", "at last"]
        assert engine.statistics()["stub"].in_use == 0
    assert [event.wait_s for event in recorder.of(furcate.AttemptsPaused)] == [0.2] * 3
    assert len(recorder.of(furcate.AttemptStarted)) == 4


@pytest.mark.req("S4-048")
async def test_a_repair_keeps_its_place(engine_for, ask) -> None:
    """Nobody gets between an answer and its repair, and the repair waits for no admission."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    recorder = furcate.Recorder()

    def script(request):
        return answer("{}" if len(request.body["messages"]) > 1 else "no object")

    async with StubProvider(script) as stub, engine_for(stub) as engine:
        async with anyio.create_task_group() as tasks:
            for n in range(3):
                tasks.start_soon(engine.run, ask(f"run {n}", contract=contract, observers=[recorder]))
        first_words = [request.body["messages"][0]["content"] for request in stub.requests]
    assert first_words[0::2] == first_words[1::2]
    purposes = [(e.purpose, e.waited_s) for e in recorder.events if isinstance(e, furcate.AttemptStarted)]
    assert [purpose for purpose, _ in purposes] == ["generate", "repair"] * 3
    assert all(waited_s == 0.0 for purpose, waited_s in purposes if purpose == "repair")


@pytest.mark.req("S4-045")
async def test_the_place_is_back_before_the_end_is_told(engine_for, ask) -> None:
    """At RunFinished the run holds nothing any more."""
    seen = []

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:

        def look(event: furcate.Observation) -> None:
            seen.append((type(event).__name__, engine.statistics()["stub"].in_use))

        await engine.run(ask(observers=[look]))
    assert seen == [("RunStarted", 0), ("AttemptStarted", 1), ("AttemptFinished", 1), ("RunFinished", 0)]


@pytest.mark.field(22)
@pytest.mark.req("S4-083")
async def test_a_runs_usage_is_the_sum_of_its_attempts(engine_for, ask) -> None:
    """Repairs count: 100/20 and 130/25 make 230/45, in the run, its end and its group, and nowhere 460/90."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    script = [
        answer("no", usage={"prompt_tokens": 100, "completion_tokens": 20}),
        answer("{}", usage={"prompt_tokens": 130, "completion_tokens": 25}),
    ]
    recorder, group = furcate.Recorder(), furcate.Group()
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=contract, observers=[recorder], groups=[group]))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (230, 45)
    assert [event.usage.input_tokens for event in recorder.of(furcate.AttemptFinished)] == [100, 130]
    totals = group.summary().usage
    assert (totals.input_tokens.known, totals.output_tokens.known) == (230, 45)
    assert (totals.input_tokens.exact, totals.input_tokens.unknown) == (1, 0)
    assert [(a.purpose, a.usage.input_tokens) for a in result.attempts] == [("generate", 100), ("repair", 130)]
    assert recorder.events[-1].usage == result.usage
    assert (recorder.events[-1].attempts, recorder.events[-1].repairs) == (2, 1)


@pytest.mark.field(18)
@pytest.mark.parametrize(
    ("usage", "expected"),
    [("omitted", None), (None, None), ({"prompt_tokens": 0, "completion_tokens": 0}, 0)],
)
async def test_missing_usage_is_unknown_and_zero_is_zero(engine_for, ask, usage, expected) -> None:
    """What the provider did not report is no zero."""
    async with StubProvider(answer("ok", usage=usage)) as stub, engine_for(stub) as engine:
        result = await engine.run(ask())
    assert (result.usage.input_tokens, result.usage.output_tokens) == (expected, expected)


@pytest.mark.field(35)
async def test_a_cut_off_answer_is_not_repaired(engine_for, ask) -> None:
    """One request; the result says that the token limit was hit and that nothing was checked."""
    contract = furcate.Contract({"type": "object"}, repairs=3)
    async with StubProvider(answer('{"items":["a","b', finish_reason="length")) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=contract))
        assert len(stub.requests) == 1
    assert result.stop_reason == "max_output_tokens"
    assert result.validation.status == "skipped"
    assert result.text == '{"items":["a","b'


@pytest.mark.field(36)
async def test_a_refusal_is_not_repaired(engine_for, ask) -> None:
    """One request; the refusal's text is kept, and it is no validation fault."""
    contract = furcate.Contract({"type": "object"}, repairs=3)
    async with StubProvider(answer(refusal="I will not.")) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=contract))
        assert len(stub.requests) == 1
    assert (result.stop_reason, result.message.refusal) == ("refusal", "I will not.")
    assert result.validation.status == "skipped"


@pytest.mark.field(37)
async def test_an_empty_answer_is_never_sent_back(engine_for, ask) -> None:
    """A repair of an answer without text shows the faults alone: no empty assistant turn goes out."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    async with StubProvider([answer(""), answer("{}")]) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=contract))
        repair = stub.requests[1].body["messages"]
    assert result.validation.status == "passed"
    assert [message["role"] for message in repair] == ["user", "user"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        (error(401, "Incorrect API key provided"), "authentication", "HTTP 401"),
        (error(400, "bad request"), "invalid_request", "bad request"),
        (html_error(), "provider", "HTML"),
        (html_error(200), "provider", "HTML"),
        (raw('{"choices": [{"mess'), "provider", ""),
        (raw("plainly no JSON"), "provider", ""),
    ],
)
async def test_what_is_no_answer_is_told_in_one_sentence(engine_for, ask, stream, script, kind, said) -> None:
    """Statuses, pages and broken bodies end in a typed failure of a single line."""
    retry = furcate.RetryPolicy(attempts=1)
    async with StubProvider(script) as stub, engine_for(stub, profile={"stream": stream}, retry=retry) as engine:
        failed = await failure_of(engine, ask())
        assert len(stub.requests) == 1
    assert failed.failure.kind == kind
    assert said in str(failed)
    assert "\n" not in str(failed)


async def test_a_body_that_ends_in_the_middle_is_no_answer(engine_for, ask) -> None:
    """The connection breaks after some text: typed, the text kept as partial and marked as cut off."""
    script = answer("one two three four", disconnect_after=3)
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        failed = await failure_of(engine, ask())
        assert len(stub.requests) == 1
    assert failed.failure.reason == "cut_off"
    assert failed.partial is not None
    assert failed.partial.text.startswith("one")
    assert not failed.partial.parts[0].attribution_complete


@pytest.mark.field(64)
async def test_an_error_in_the_stream_is_no_answer(engine_for, ask) -> None:
    """An error object after two pieces, and an end without an end marker, both fail with what had arrived."""
    chunk = {"choices": [{"index": 0, "delta": {"content": "half"}}]}
    for script in (error_in_stream("half an answer", "went wrong"), events(chunk, done=False)):
        once = furcate.RetryPolicy(attempts=1)
        async with StubProvider(script) as stub, engine_for(stub, retry=once) as engine:
            failed = await failure_of(engine, ask())
        assert failed.failure.kind == "provider"
        assert failed.partial is not None
        assert failed.partial.text.startswith("half")


@pytest.mark.field(66)
async def test_a_lost_answer_is_not_paid_for_twice(engine_for, ask) -> None:
    """A request that was read and not answered goes out once, or again where the profile calls that safe."""
    async with StubProvider(no_head()) as stub, engine_for(stub) as engine:
        failed = await failure_of(engine, ask())
        assert len(stub.requests) == 1
    assert failed.failure.reason == "no_answer"
    assert len(failed.attempts) == 1
    # It may well have been worked on and paid for: nothing is known of that, which is not zero.
    unknown = furcate.Usage()
    assert failed.attempts[0].usage == failed.usage == unknown
    assert unknown.input_tokens is unknown.output_tokens is None
    async with (
        StubProvider([no_head(), answer("ok")]) as stub,
        engine_for(stub, profile={"repeat_safe": True}) as engine,
    ):
        assert (await engine.run(ask())).text == "ok"


async def test_a_refused_connection_is_tried_again(engine_for, ask) -> None:
    """Nobody saw the request, so it may go out as often as the policy says."""
    async with engine_for("http://127.0.0.1:1/v1") as engine:
        failed = await failure_of(engine, ask())
    assert failed.failure.reason == "connection_refused"
    assert len(failed.attempts) == 3
    assert "127.0.0.1:1" in str(failed)


@pytest.mark.field(67)
async def test_silence_ends_an_attempt(engine_for, ask) -> None:
    """A stream that falls silent fails as idle with its partial text; one that never began fails as such."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": f"{n} "}}]} for n in range(3)]
    async with StubProvider(events(*chunks, silence_after=3)) as stub, engine_for(stub, limits=FAST) as engine:
        failed = await failure_of(engine, ask())
        await stub.wait_until(lambda s: s.disconnects == 1)
    assert (failed.failure.kind, failed.failure.reason) == ("timeout", "idle_timeout")
    assert failed.partial is not None
    assert failed.partial.text == "0 1 2 "
    async with StubProvider(no_head(silent=True)) as stub, engine_for(stub, limits=FAST) as engine:
        failed = await failure_of(engine, ask())
    assert failed.failure.reason == "first_event_timeout"


@pytest.mark.field(62)
async def test_a_hint_beyond_the_deadline_fails_at_once(engine_for, ask) -> None:
    """Waiting an hour inside a minute helps nobody: the error shows the hint."""
    async with StubProvider(error(429, headers={"retry-after": "3600"})) as stub, engine_for(stub) as engine:
        with anyio.fail_after(60):
            failed = await failure_of(engine, ask())
        assert len(stub.requests) == 1
    assert failed.failure.wait_s == 3600
    assert "3,600 s" in str(failed)


WAITS = {
    "seconds": error(429, headers={"retry-after": "0.2"}),
    "date": error(
        429, headers={"date": "Fri, 02 Jan 2026 10:00:00 GMT", "retry-after": "Fri, 02 Jan 2026 10:00:01 GMT"}
    ),
    "milliseconds": error(429, headers={"retry-after-ms": "200"}),
    "body": error(
        429,
        body={
            "error": {
                "code": 429,
                "message": "slow down",
                "status": "RESOURCE_EXHAUSTED",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.2s"}],
            }
        },
    ),
    "garbage": error(429, headers={"retry-after": "soon"}),
}


@pytest.mark.field(62)
@pytest.mark.parametrize(
    ("hint", "wait_s"),
    [("seconds", 0.2), ("date", 1.0), ("milliseconds", 0.2), ("body", 0.2), ("garbage", None)],
)
async def test_a_hint_is_waited_for(engine_for, ask, hint, wait_s) -> None:
    """The next attempt comes no sooner than the server asked, in whichever form; what is no hint is backed off from."""
    recorder = furcate.Recorder()
    dialect = "google-generatecontent" if hint == "body" else "openai-chat"
    async with StubProvider([WAITS[hint], answer("ok")]) as stub:
        async with engine_for(stub, dialect=dialect, observers=[recorder]) as engine:
            result = await engine.run(ask())
        first, second = (request.at for request in stub.requests)
    assert result.attempts[0].failure.wait_s == wait_s
    (pause,) = recorder.of(furcate.AttemptsPaused)
    if wait_s is None:
        assert pause.wait_s <= 0.002
    else:
        assert pause.wait_s >= wait_s
        assert second - first >= wait_s


@pytest.mark.field(6)
async def test_leaving_a_stream_early_closes_it(engine_for, ask) -> None:
    """Nothing is drained; what had arrived is there; the run is told as cancelled once; usage is unknown."""
    recorder = furcate.Recorder()
    script = answer(deltas=["one ", "two ", "three"], silence_after=2)
    async with StubProvider(script) as stub, engine_for(stub, observers=[recorder]) as engine:
        with anyio.fail_after(10):
            async with engine.stream(ask(capture=True)) as stream:
                async for event in stream:
                    if isinstance(event, furcate.TextDelta):
                        break
            await stub.wait_until(lambda s: s.disconnects == 1)
        assert engine.statistics()["stub"].in_use == 0
    assert stream.partial is not None
    assert stream.partial.text == "one "
    with pytest.raises(furcate.MisuseError, match="no result"):
        stream.result  # noqa: B018 - reading it is what raises
    ends = [event for event in recorder.events if isinstance(event, furcate.RunFinished)]
    assert [end.status for end in ends] == ["cancelled"]
    assert not ends[0].usage.known


@pytest.mark.field(5)
async def test_a_stream_may_be_closed_by_another_task(engine_for, ask) -> None:
    """Handing a stream on and closing it elsewhere is no scope error: connection closed, place back, one end told."""
    recorder = furcate.Recorder()
    script = answer(deltas=["one ", "two"], silence_after=2)
    async with StubProvider(script) as stub, engine_for(stub, observers=[recorder]) as engine:
        stream = engine.stream(ask())
        await stream.__aenter__()
        while not isinstance(await anext(stream), furcate.TextDelta):
            pass
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.__aexit__, None, None, None)
        with anyio.fail_after(10):
            await stub.wait_until(lambda s: s.disconnects == 1)
        assert engine.statistics()["stub"].in_use == 0
    assert [e.status for e in recorder.events if isinstance(e, furcate.RunFinished)] == ["cancelled"]


async def test_a_stream_gives_the_answer_as_it_arrives(engine_for, ask) -> None:
    """The pieces join to the result's text, and the result is the one that a plain run gives."""
    async with StubProvider(answer(deltas=["Hel", "lo."])) as stub, engine_for(stub) as engine:
        async with engine.stream(ask(capture=True)) as stream:
            pieces = [event.text async for event in stream if isinstance(event, furcate.TextDelta)]
        plain = await engine.run(ask(capture=True))
    assert pieces == ["Hel", "lo."]
    assert stream.result.text == plain.text == "Hello."
    assert stream.result.exchange.digest == plain.exchange.digest


@pytest.mark.field(47)
async def test_streamed_and_whole_answers_are_the_same(engine_for, ask) -> None:
    """The same answer in either form gives the same message, usage and digest."""
    results = []
    for stream in (True, False):
        script = answer("Hello there.", reasoning="Let me think.")
        async with StubProvider(script) as stub, engine_for(stub, profile={"stream": stream}) as engine:
            results.append(await engine.run(ask(capture=True)))
            assert stub.requests[0].streaming is stream
    streamed, whole = results
    assert streamed.message == whole.message
    assert streamed.usage == whole.usage
    assert streamed.exchange.digest == whole.exchange.digest


async def test_a_repair_is_told_to_whoever_watches(engine_for, ask) -> None:
    """Between the superseded text and the new one stands AttemptRestarted."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    async with StubProvider([answer("no"), answer("{}")]) as stub, engine_for(stub) as engine:
        async with engine.stream(ask(contract=contract)) as stream:
            kinds = [type(event).__name__ async for event in stream]
    assert kinds.count("AttemptRestarted") == 1
    first, second = [n for n, kind in enumerate(kinds) if kind == "TextDelta"]
    assert first < kinds.index("AttemptRestarted") < second
    assert stream.result.text == "{}"


@pytest.mark.field(63)
async def test_an_overload_in_the_stream_is_retried_only_before_content(engine_for, ask) -> None:
    """Without a piece shown it is tried again; after one, whoever watches gets the error and the partial text."""
    overload = {"error": {"message": "Overloaded", "type": "overloaded_error", "code": 529}}
    piece = {"choices": [{"index": 0, "delta": {"content": "half "}}]}
    async with StubProvider([events(overload, done=False), answer("ok")]) as stub, engine_for(stub) as engine:
        async with engine.stream(ask()) as stream:
            async for _ in stream:
                pass
        assert stream.result.text == "ok"
    async with StubProvider([events(piece, overload, done=False), answer("ok")]) as stub, engine_for(stub) as engine:
        async with engine.stream(ask()) as stream:
            with pytest.raises(furcate.ProviderError) as caught:
                async for _ in stream:
                    pass
        assert len(stub.requests) == 1
    assert caught.value.failure.retryable
    assert caught.value.partial is not None
    assert caught.value.partial.text == "half "


@pytest.mark.field(10)
async def test_a_timeout_around_a_run_is_a_timeout(engine_for, ask) -> None:
    """Cancellation passes through untouched and closes the connection; the run is told as cancelled."""
    recorder = furcate.Recorder()
    async with StubProvider(no_head(silent=True)) as stub, engine_for(stub, observers=[recorder]) as engine:
        async with anyio.create_task_group() as tasks:

            async def soon(scope: anyio.CancelScope) -> None:
                # Counted from when the request is there: making a first connection may take longer than that.
                await stub.wait_until(lambda s: s.in_flight == 1)
                scope.deadline = anyio.current_time() + 0.1

            with pytest.raises(TimeoutError), anyio.fail_after(30) as scope:
                tasks.start_soon(soon, scope)
                await engine.run(ask())
        with anyio.fail_after(10):
            await stub.wait_until(lambda s: s.disconnects == 1)
        assert engine.statistics()["stub"].in_use == 0
    assert [e.status for e in recorder.events if isinstance(e, furcate.RunFinished)] == ["cancelled"]


@pytest.mark.field(10)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("way", ["timeout", "wait_for"])
async def test_asyncios_own_timeouts_are_timeouts(engine_for, ask, way) -> None:
    """asyncio's scope and its wait end a run as anyio's does: nothing swallowed, nothing left, connection closed."""
    recorder = furcate.Recorder()

    def late(request):
        # The time is up once the server has the request: making a first connection may take longer than that.
        if way == "timeout":
            scope.reschedule(asyncio.get_running_loop().time())
        return no_head(silent=True)

    async with StubProvider(late) as stub, engine_for(stub, observers=[recorder]) as engine:
        with pytest.raises(TimeoutError):
            if way == "timeout":
                async with asyncio.timeout(30) as scope:
                    await engine.run(ask())
            else:
                await asyncio.wait_for(engine.run(ask()), 0.3)
        # A wait has a fixed end, which may come before a slow machine has sent anything.
        with anyio.fail_after(10):
            await stub.wait_until(lambda s: s.disconnects == len(s.requests))
        assert engine.statistics()["stub"].in_use == 0
    assert [e.status for e in recorder.events if isinstance(e, furcate.RunFinished)] == ["cancelled"]


@pytest.mark.field(9)
async def test_cancelled_in_its_callback_a_branch_was_cancelled(engine_for, ask) -> None:
    """Branch, coordinator and counts agree that it was cancelled; the cancellation goes on to who asked for it."""
    recorder, group = furcate.Recorder(), furcate.Group()
    inside = anyio.Event()

    async def waits(turn: furcate.Turn):
        if turn.result is None:
            return furcate.Continue(ask())
        inside.set()
        await anyio.sleep_forever()

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
        async with anyio.create_task_group() as tasks:

            async def branch() -> None:
                async with furcate.open_branches(engine, exchange, observers=[recorder], groups=[group]) as opened:
                    branches.append(opened.start_soon(waits, additional_turns=2))
                pytest.fail("the cancellation was swallowed")

            branches: list[furcate.Branch] = []
            tasks.start_soon(branch)
            await inside.wait()
            assert engine.statistics()["stub"].in_use == 0
            tasks.cancel_scope.cancel()
        assert tasks.cancel_scope.cancelled_caught
        assert len(stub.requests) == 2
    (handle,) = branches
    assert (handle.status, handle.undelivered) == ("cancelled", None)
    assert [event.status for event in recorder.of(furcate.CoordinatorFinished)] == ["cancelled"]
    assert [event.status for event in recorder.of(furcate.NurseryFinished)] == ["cancelled"]
    # The run itself had ended well before.
    assert [event.status for event in recorder.of(furcate.RunFinished)] == ["succeeded"]
    assert (group.summary().succeeded, group.summary().running) == (1, 0)


@pytest.mark.field(9)
async def test_cancelled_is_cancelled_wherever_it_struck(engine_for, ask) -> None:
    """Queued, in flight or in backoff: one terminal observation each, and it says cancelled."""
    recorder = furcate.Recorder()

    def script(request):
        if request.body["messages"][0]["content"] == "backoff":
            return error(503)
        return no_head(silent=True)

    long = furcate.RetryPolicy(first_backoff_s=1e6, max_backoff_s=1e6, retry_for_s=None)
    async with StubProvider(script) as stub, engine_for(stub, observers=[recorder], retry=long) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run, ask("backoff"))
            await stub.wait_until(lambda s: len(s.requests) == 1 and s.in_flight == 0)
            tasks.start_soon(engine.run, ask("in flight"))
            await stub.wait_until(lambda s: len(s.requests) == 2)
            tasks.start_soon(engine.run, ask("queued"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert engine.statistics()["stub"].in_use == 0
        assert engine.statistics()["stub"].waiting == 0
    started = [e for e in recorder.events if isinstance(e, furcate.RunStarted)]
    ended = [e for e in recorder.events if isinstance(e, furcate.RunFinished)]
    assert len(started) == 3
    assert [end.status for end in ended] == ["cancelled"] * 3


@pytest.mark.field(12)
def test_an_engine_serves_one_event_loop_after_the_other(engine_for, ask) -> None:
    """The same engine, entered anew, works on a second loop and on one of the other kind."""
    with StubProvider.in_thread(answer("ok")) as stub:
        engine = engine_for(stub)

        async def once() -> str:
            async with engine:
                return (await engine.run(ask())).text

        texts = [anyio.run(once, backend=backend) for backend in ("asyncio", "asyncio", "trio", "asyncio")]
    assert texts == ["ok"] * 4


async def test_an_engine_works_inside_its_block_only(engine_for, ask) -> None:
    """Outside it says so, and entering it twice does too."""
    async with StubProvider(answer("ok")) as stub:
        engine = engine_for(stub)
        with pytest.raises(furcate.MisuseError, match="async with engine"):
            await engine.run(ask())
        async with engine:
            with pytest.raises(furcate.MisuseError, match="open already"):
                await engine.__aenter__()
        with pytest.raises(furcate.MisuseError):
            await engine.run(ask())


async def test_a_request_without_anything_to_send_is_told_so(engine_for) -> None:
    """Neither prompt nor messages: nobody is called."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        with pytest.raises(furcate.RequestError, match="neither a prompt nor messages"):
            await engine.run(furcate.Request(profile="p"))
        with pytest.raises(furcate.UnknownNameError, match="no prompt named"):
            await engine.run(furcate.Request("What is the capital of France?", profile="p"))
        assert not stub.requests


@pytest.mark.parametrize(
    "said", ["Failed to initialize samplers: failed to parse grammar", "JSON schema error at #: x"]
)
async def test_a_schema_that_the_server_refuses_is_checked_here_instead(engine_for, ask, said) -> None:
    """The call goes out again without its schema, on the same lease; the answer is held against it all the same."""
    contract = furcate.Contract({"type": "array", "minItems": 5000}, repairs=0)
    recorder = furcate.Recorder()
    async with StubProvider([error(400, said), answer("[]")]) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=contract, observers=[recorder]))
        formats = ["response_format" in request.body for request in stub.requests]
    assert formats == [True, False]
    assert result.validation.status == "failed"
    assert [attempt.status for attempt in result.attempts] == ["failed", "succeeded"]
    assert result.usage.known
    assert not [event for event in recorder.events if isinstance(event, furcate.AttemptsPaused)]


@pytest.mark.field(11)
@pytest.mark.parametrize("leave", ["break", "cancel"])
async def test_a_slow_observers_record_is_whole(engine_for, ask, tmp_path, leave) -> None:
    """Leaving or cancelling right after the last piece: the end is told once, and what an observer writes is whole."""
    path = tmp_path / "ends.txt"

    def write(event: furcate.Observation) -> None:
        if isinstance(event, furcate.RunFinished):
            with path.open("a") as file:
                for piece in ("one ", "whole ", f"record: {event.status}\n"):
                    time.sleep(0.02)
                    file.write(piece)

    async with StubProvider(answer(deltas=["last"])) as stub, engine_for(stub, observers=[write]) as engine:
        with anyio.CancelScope() as scope:
            async with engine.stream(ask()) as stream:
                async for event in stream:
                    if isinstance(event, furcate.TextDelta):
                        if leave == "break":
                            break
                        scope.cancel()
        assert engine.statistics()["stub"].in_use == 0
    assert path.read_text() == "one whole record: cancelled\n"
