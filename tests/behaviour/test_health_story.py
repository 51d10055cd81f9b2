"""A backend's health through the public API: wait hints, pauses, limits and allowances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import pytest
from anyio.lowlevel import checkpoint

import furcate
from furcate.testing import StubProvider, answer, error, error_in_stream, no_head

pytestmark = pytest.mark.anyio

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
LATER = "Wed, 21 Oct 2026 07:28:03 GMT"
GEMINI = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "later",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}],
    }
}

HINTS = [
    pytest.param(dialect, script, wait_s, id=f"{dialect}-{name}")
    for dialect in DIALECTS
    for name, script, wait_s in (
        ("seconds", error(429, body={}, headers={"retry-after": "2"}), 2.0),
        ("date", error(429, headers={"date": DATE, "retry-after": LATER}), 3.0),
        ("milliseconds", error(429, headers={"retry-after-ms": "1500"}), 1.5),
        ("garbage", error(429, body={}, headers={"retry-after": "soon"}), None),
        ("body", error(429, body=GEMINI), 2.5),
    )
    if name != "body" or dialect == "google-generatecontent"
]


@pytest.mark.field(62)
@pytest.mark.parametrize(("dialect", "script", "wait_s"), HINTS)
async def test_every_form_of_a_wait_hint_is_waited_for(engine_for, ask, dialect, script, wait_s) -> None:
    """The run waits as long as it was told and up to a second more, and the backend waits with it; garbage is none."""
    recorder = furcate.Recorder()
    async with StubProvider(script) as stub:
        settings = {"settings": furcate.Settings(max_output_tokens=10)}
        engine = engine_for(stub, observers=[recorder], dialect=dialect, profile=settings)
        async with engine:
            with anyio.CancelScope() as scope:

                def leave(event: furcate.Observation) -> None:
                    if isinstance(event, furcate.AttemptsPaused):
                        scope.cancel()

                await engine.run(ask(observers=[leave]))
            assert len(stub.requests) == 1
            left_s = engine.statistics()["stub"].paused_s
    [waits] = recorder.of(furcate.AttemptsPaused)
    pauses = [(pause.backend, pause.wait_s, pause.failure_kind) for pause in recorder.of(furcate.BackendPaused)]
    if wait_s is None:
        assert waits.wait_s <= 0.002, "the backoff of the policy"
        assert (pauses, left_s) == ([], 0.0)
    else:
        assert wait_s <= waits.wait_s <= wait_s + 1
        assert pauses == [("stub", wait_s, "rate_limited")]
        assert 0 < left_s <= wait_s


@pytest.mark.field(62)
async def test_the_next_attempt_comes_no_sooner_than_it_was_told(engine_for, ask) -> None:
    """Told to wait a fifth of a second, the next request is on its way after that, and is answered."""
    script = [error(429, headers={"retry-after-ms": "200"}), answer("ok")]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        assert (await engine.run(ask())).text == "ok"
        first, second = stub.requests
    assert second.at - first.at >= 0.2


@pytest.mark.field(62)
async def test_a_hint_beyond_the_policys_time_fails_at_once(engine_for, ask) -> None:
    """A daily quota is not waited for: the run fails with the hint, and so does one that comes upon the pause."""
    async with StubProvider(error(429, headers={"retry-after": "7200"})) as stub, engine_for(stub) as engine:
        with pytest.raises(furcate.ProviderError, match=r"asks to wait 7,200 s, beyond retry_for_s = 600 s"):
            await engine.run(ask())
        with pytest.raises(furcate.ProviderError, match="'stub' asked to be left alone for") as e:
            await engine.run(ask())
        with anyio.fail_after(60), pytest.raises(furcate.ProviderError, match="beyond the deadline in"):
            await engine.run(ask())
        assert len(stub.requests) == 1
    assert "beyond retry_for_s = 600 s" in str(e.value)
    failure = e.value.failure
    assert (failure.kind, failure.reason, failure.sent) == ("rate_limited", "backend_paused", False)
    assert 7000 < failure.wait_s <= 7200
    assert e.value.attempts == ()


async def test_a_hint_pauses_the_backend_for_everybody(engine_for, ask) -> None:
    """Whoever comes while one was told to wait is not sent before that either, also where that one gave up."""
    recorder = furcate.Recorder()
    refused = anyio.Event()
    retry = furcate.RetryPolicy(attempts=1)

    def script(request):
        return error(503, headers={"retry-after-ms": "800"}) if request.number == 1 else answer("ok")

    def watch(event: furcate.Observation) -> None:
        if isinstance(event, furcate.BackendPaused):
            refused.set()

    async with (
        StubProvider(script) as stub,
        engine_for(stub, observers=[recorder, watch], capacity=4, retry=retry) as engine,
    ):
        async with anyio.create_task_group() as tasks:

            async def gives_up() -> None:
                with pytest.raises(furcate.ProviderError):
                    await engine.run(ask())

            tasks.start_soon(gives_up)
            await refused.wait()
            for _ in range(3):
                tasks.start_soon(engine.run, ask())
            while engine.statistics()["stub"].waiting < 3:
                await checkpoint()
            statistics = engine.statistics()["stub"]
            assert statistics.in_use == 0, "nobody holds a place while waiting out a pause"
            assert 0 < statistics.paused_s <= 0.8
        first, *others = stub.requests
    assert len(others) == 3
    assert all(other.at - first.at >= 0.8 for other in others)
    assert [pause.wait_s for pause in recorder.of(furcate.BackendPaused)] == [0.8]


@pytest.mark.parametrize(
    "turned_away",
    [error(429), error(529), error_in_stream("", "Overloaded", code=529, kind="overloaded_error")],
    ids=["429", "529", "in the stream"],
)
async def test_a_server_that_is_asked_too_much_is_asked_less(engine_for, ask, turned_away) -> None:
    """Eight turned away together halve the places once; successes bring them back one by one, up to the capacity."""
    recorder = furcate.Recorder()
    together = anyio.Event()

    async def script(request):
        if request.number > 8:
            return answer("ok")
        if request.number == 8:
            together.set()
        await together.wait()
        return turned_away

    async with StubProvider(script) as stub, engine_for(stub, capacity=8, observers=[recorder]) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(engine.run, ask())
        assert engine.statistics()["stub"].limit == 5, "four successes brought one back"
        for _ in range(14):
            await engine.run(ask())
        assert engine.statistics()["stub"].limit == 8
    changes = [(change.before, change.limit) for change in recorder.of(furcate.BackendLimited)]
    assert changes == [(8, 4), (4, 5), (5, 6), (6, 7), (7, 8)]


async def test_the_limit_can_be_fixed(engine_for, ask) -> None:
    """Without adaptation nothing is lowered, and nothing is told."""
    recorder = furcate.Recorder()
    async with (
        StubProvider([error(429), answer("ok")]) as stub,
        engine_for(stub, capacity=8, adaptive=False, observers=[recorder]) as engine,
    ):
        await engine.run(ask())
        assert engine.statistics()["stub"].limit == 8
    assert recorder.of(furcate.BackendLimited) == ()


async def test_a_used_up_quota_is_no_reason_to_ask_less(engine_for, ask) -> None:
    """An account without credit is refused at any pace."""
    async with (
        StubProvider(error(429, "no credit", code="insufficient_quota")) as stub,
        engine_for(stub, capacity=8) as engine,
    ):
        with pytest.raises(furcate.ProviderError):
            await engine.run(ask())
        assert engine.statistics()["stub"].limit == 8
        assert len(stub.requests) == 1


async def test_requests_of_a_minute_are_bounded(engine_for, ask) -> None:
    """Two may be sent; the third waits without a place, and a repair is not held up but counts."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    async with (
        StubProvider([answer("no"), answer("{}")]) as stub,
        engine_for(stub, capacity=4, requests_per_minute=2) as engine,
    ):
        await engine.run(ask(contract=contract))
        with anyio.move_on_after(0.05) as scope:
            await engine.run(ask())
        assert scope.cancelled_caught
        assert len(stub.requests) == 2
        statistics = engine.statistics()["stub"]
        assert (statistics.in_use, statistics.waiting) == (0, 0)
        assert 0 <= statistics.requests_left < 1
    assert statistics.tokens_left is None


@pytest.mark.field(62)
async def test_a_date_without_a_date_beside_it_is_counted_from_its_arrival(engine_for, ask) -> None:
    """A server that names the moment but not its own time is believed by the clock of this machine."""
    later = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True)
    async with StubProvider(error(429, headers={"retry-after": later})) as stub, engine_for(stub) as engine:
        with pytest.raises(furcate.ProviderError) as caught, anyio.fail_after(60):
            await engine.run(ask())
    assert len(stub.requests) == 1
    assert 7000 < caught.value.failure.wait_s <= 7201


async def test_tokens_are_estimated_before_and_corrected_after(engine_for, ask) -> None:
    """A request takes its body's quarter and its largest output; afterwards it has taken what was reported."""
    left: list[float] = []
    script = answer("ok", usage={"prompt_tokens": 1500, "completion_tokens": 500})

    def watch(event: furcate.Observation) -> None:
        if isinstance(event, (furcate.AttemptStarted, furcate.RunFinished)):
            left.append(engine.statistics()["stub"].tokens_left)

    settings = furcate.Settings(max_output_tokens=5000)
    async with (
        StubProvider(script) as stub,
        engine_for(stub, tokens_per_minute=10000, observers=[watch]) as engine,
    ):
        await engine.run(ask("x" * 4000, settings=settings))
    before, after = left
    assert 3800 < before < 4200
    # What a minute brings back while a slow machine thinks it over is less than what was corrected.
    assert 8000 <= after < 10000


async def test_a_request_larger_than_the_minute_is_sent_all_the_same(engine_for, ask) -> None:
    """What is more than a whole minute's tokens goes out when all of them are there, instead of never."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub, tokens_per_minute=10) as engine:
        assert (await engine.run(ask())).text == "ok"


async def test_unknown_usage_leaves_the_estimate(engine_for, ask) -> None:
    """Where nothing is reported the estimate stands; a refused connection gives it back."""
    async with (
        StubProvider(answer("ok", usage="omitted")) as stub,
        engine_for(stub, tokens_per_minute=10000) as engine,
    ):
        await engine.run(ask())
        assert engine.statistics()["stub"].tokens_left < 9100
    async with engine_for("http://127.0.0.1:1/v1", tokens_per_minute=10000) as engine:
        with pytest.raises(furcate.ProviderError):
            await engine.run(ask())
        assert engine.statistics()["stub"].tokens_left == 10000


@pytest.mark.field(68)
@pytest.mark.parametrize(("safe", "sent"), [(False, 1), (True, 3)])
async def test_a_server_that_is_always_silent_is_not_asked_for_ever(engine_for, ask, monkeypatch, safe, sent) -> None:
    """Each may have been paid for: asked once, or where repeating is safe three times, spaced by backoff; then stop."""
    monkeypatch.setattr("random.random", lambda: 1.0)
    recorder = furcate.Recorder()
    given = {
        "limits": furcate.TimeLimits(first_event_s=0.4, idle_s=0.4),
        "retry": furcate.RetryPolicy(attempts=3, first_backoff_s=0.05, max_backoff_s=1),
        "profile": {"repeat_safe": safe},
        "observers": [recorder],
    }
    async with StubProvider(no_head(silent=True)) as stub, engine_for(stub, **given) as engine:
        with pytest.raises(furcate.ProviderError) as caught:
            await engine.run(ask())
        assert len(stub.requests) == sent
    assert caught.value.failure.reason == "first_event_timeout"
    assert [pause.wait_s for pause in recorder.of(furcate.AttemptsPaused)] == [0.05, 0.1][: sent - 1]
