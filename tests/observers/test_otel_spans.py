"""Spans of runs and attempts: what they are called and what they say."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import furcate
from furcate.batch import open_job
from furcate.observers import OTelObserver
from furcate.observers import _otel_names as names
from furcate.observers._otel_facts import usage_attributes
from furcate.testing import StubProvider, StubSearch, answer, error

USAGE = furcate.Usage(input_tokens=11, cache_read_tokens=30, output_tokens=7, reasoning_tokens=2)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def ask(text: str = "Hello?", **given) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})


async def test_a_run_is_a_client_span_by_the_conventions(telemetry, engine_of) -> None:
    """A run's span has the conventions' name and kind, says what was asked for and what came, and is no error."""
    seen = telemetry()
    settings = furcate.Settings(
        max_output_tokens=99, temperature=0.5, top_p=1, seed=3, stop=("END",), reasoning_effort="low"
    )
    async with (
        StubProvider(answer("Hi.", usage=USAGE)) as stub,
        engine_of(stub, seen, profile={"settings": settings}) as engine,
    ):
        result = await engine.run(ask())
    span = seen.one("chat m")
    assert (span.kind, span.status.status_code, span.parent) == (SpanKind.CLIENT, StatusCode.UNSET, None)
    said = dict(span.attributes)
    assert said.pop(names.TIME_TO_FIRST_CHUNK) > 0
    assert said.pop(names.WAITED) >= 0
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.seed": 3,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.reasoning.level": "low",
        "gen_ai.response.id": result.attempts[0].response_id,
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 41,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "server.address": "127.0.0.1",
        "server.port": int(stub.base_url.rpartition(":")[2].partition("/")[0]),
        "furcate.run.id": result.run_id,
        "furcate.profile": "p",
        "furcate.backend": "b",
        "furcate.dialect": "openai-chat",
        "furcate.status": "succeeded",
        "furcate.attempts": 1,
        "furcate.repairs": 0,
        "furcate.validation": "not_requested",
        "furcate.stop_reason": "end_turn",
    }


async def test_an_attempt_is_a_child_span(telemetry, engine_of) -> None:
    """An attempt's span lies in its run's, names its purpose and its receipt's request id, and counts no tokens."""
    seen = telemetry()
    async with StubProvider(answer("Hi.", usage=USAGE)) as stub, engine_of(stub, seen) as engine:
        result = await engine.run(ask())
    run, attempt = seen.one("chat m"), seen.one("attempt generate")
    assert attempt.parent.span_id == run.context.span_id
    assert attempt.kind is SpanKind.INTERNAL
    said = attempt.attributes
    assert said["furcate.attempt.number"] == 1
    assert said["furcate.attempt.purpose"] == "generate"
    assert said["furcate.attempt.request_id"] == result.attempts[0].receipt.request_id
    assert said["furcate.attempt.body_sha256"] == result.attempts[0].body_sha256
    assert said["furcate.attempt.first_event_s"] == result.attempts[0].first_event_s
    assert said["furcate.attempt.waited_s"] == result.attempts[0].waited_s
    assert not [name for name in said if name.startswith("gen_ai.")]


async def test_retries_and_repairs_are_events_of_the_run(telemetry, engine_of) -> None:
    """Each pause, retry and repair is an event on the run's span, and each attempt has a span with its own status."""
    seen = telemetry()
    script = [error(503), answer("no JSON"), answer('{"n": 1}')]
    async with StubProvider(script) as stub, engine_of(stub, seen) as engine:
        result = await engine.run(ask(contract=furcate.Contract(SCHEMA, repairs=1)))
    assert result.value == {"n": 1}
    run = seen.one("chat m")
    assert [event.name for event in run.events] == ["furcate.pause", "furcate.retry", "furcate.repair"]
    assert dict(run.events[0].attributes)["furcate.failure.kind"] == "unavailable"
    assert [dict(event.attributes) for event in run.events[1:]] == [
        {"furcate.attempt.number": 2},
        {"furcate.attempt.number": 3},
    ]
    assert run.status.status_code is StatusCode.UNSET
    assert (run.attributes["furcate.attempts"], run.attributes["furcate.repairs"]) == (3, 1)
    assert run.attributes["furcate.validation"] == "passed"
    attempts = seen.ended("attempt")
    assert [span.name for span in attempts] == ["attempt generate", "attempt generate", "attempt repair"]
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    assert attempts[0].attributes["error.type"] == "unavailable"


async def test_a_failure_says_kind_and_reason_and_nothing_of_the_provider(telemetry, engine_of) -> None:
    """A failed run's span is an error of a known kind; what the provider wrote is nowhere on it."""
    seen = telemetry()
    async with StubProvider(error(400, message="you said SECRET-7F3A")) as stub, engine_of(stub, seen) as engine:
        with pytest.raises(furcate.ProviderError):
            await engine.run(ask("SECRET-7F3A"))
    run = seen.one("chat m")
    assert run.status.status_code is StatusCode.ERROR
    assert run.attributes["error.type"] == run.attributes["furcate.failure.kind"] == "invalid_request"
    assert run.status.description.startswith("invalid_request")
    assert run.attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert "gen_ai.usage.input_tokens" not in run.attributes
    assert "SECRET-7F3A" not in seen.everything()


async def test_unknown_tokens_stay_out(telemetry, engine_of) -> None:
    """Where the provider reports no tokens, no attribute says any."""
    seen = telemetry()
    async with StubProvider(answer("a", usage=None)) as stub, engine_of(stub, seen) as engine:
        await engine.run(ask())
    assert not [name for name in seen.one("chat m").attributes if "usage" in name]


def test_lower_bounds_are_marked() -> None:
    """A count that may be too small is named as such; the input is, where any part of it is."""
    usage = furcate.Usage(
        input_tokens=1, cache_read_tokens=2, output_tokens=3, lower_bounds={"cache_read_tokens", "output_tokens"}
    )
    said = usage_attributes(usage)
    assert said["furcate.usage.lower_bounds"] == (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_read.input_tokens",
    )


def test_a_cache_write_has_both_its_names() -> None:
    """Backends know a cache write by its name of today or by that of before; it is part of the input under each."""
    usage = furcate.Usage(input_tokens=1, cache_write_tokens=20, cache_read_tokens=300)
    assert usage_attributes(usage) == {
        "gen_ai.usage.input_tokens": 321,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.cache_write.input_tokens": 20,
        "gen_ai.usage.cache_creation.input_tokens": 20,
    }


def test_names_that_are_no_text_for_a_wire_are_made_one(telemetry) -> None:
    """Half characters and endless names, from an application or a provider, are made fit to be exported."""
    seen = telemetry()
    started = furcate.RunStarted(
        run_id="r", parent_run_id=None, prompt="\ud800", profile="p", backend="b", model="m" * 9999, dialect="other",
        session_id="s\udfff", base_url="https://x.example",
    )  # fmt: skip
    seen.observer.on_event(started)
    seen.observer.on_event(
        furcate.RunFinished(
            run_id="r",
            status="succeeded",
            duration_s=1,
            usage=furcate.Usage(),
            attempts=0,
            repairs=0,
            validation="not_requested",
        )
    )
    [span] = seen.ended("chat m")
    json.dumps(dict(span.attributes), ensure_ascii=False).encode()
    assert len(span.name) < 600
    assert span.attributes["gen_ai.provider.name"] == "other"
    assert "gen_ai.response.finish_reasons" not in span.attributes


@pytest.mark.parametrize(
    ("base_url", "dialect", "provider"),
    [
        ("https://api.openai.com/v1", "openai-responses", "openai"),
        ("https://api.anthropic.com", "anthropic-messages", "anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta", "google-generatecontent", "gcp.gemini"),
        ("https://us-central1-aiplatform.googleapis.com/v1", "google-generatecontent", "gcp.vertex_ai"),
        ("https://gateway.example/v1", "google-generatecontent", "gcp.gen_ai"),
        ("https://mine.openai.azure.com/openai/v1", "openai-chat", "azure.ai.openai"),
        ("https://api.groq.com/openai/v1", "openai-chat", "groq"),
        (None, "openai-chat", "furcate.local"),
        ("https://user:KEY-123@gateway.example:8443/v1?key=KEY-123", "openai-chat", "openai"),
        ("http://[bad", "openai-chat", "openai"),
    ],
)
def test_the_provider_is_known_by_host_and_dialect(telemetry, base_url, dialect, provider) -> None:
    """The provider's name follows from the host where that tells, else from the dialect; no key is in any of it."""
    seen = telemetry()
    seen.observer.on_event(
        furcate.RunStarted(
            run_id="r",
            parent_run_id=None,
            prompt=None,
            profile="p",
            backend="b",
            model="m",
            dialect=dialect,
            base_url=base_url,
            streamed=False,
        )
    )
    seen.observer.on_event(
        furcate.RunFinished(
            run_id="r",
            status="cancelled",
            duration_s=1,
            usage=furcate.Usage(),
            attempts=1,
            repairs=0,
            validation="not_requested",
        )
    )
    span = seen.one("chat m")
    assert span.attributes["gen_ai.provider.name"] == provider
    assert "gen_ai.request.stream" not in span.attributes
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes["furcate.status"] == "cancelled"
    assert "KEY-123" not in seen.everything()


async def test_without_a_provider_of_telemetry_nothing_is_done(engine_of) -> None:
    """Where nobody has set up the SDK, the observer keeps nothing and gives nothing to carry along."""
    observer = OTelObserver()
    async with StubProvider(answer("ok")) as stub, engine_of(stub, observer) as engine:
        result = await engine.run(ask(capture=True))
    assert not result.exchange.carrier
    assert not observer._runs


async def test_spans_that_are_not_sampled_cost_no_attempt_spans(engine_of, caplog) -> None:
    """With a sampler that takes nothing, no attempt gets a span, and continuing a run warns of nothing."""
    caplog.set_level(logging.WARNING)
    provider = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    observer = OTelObserver(tracer_provider=provider, capture_content=True)
    async with StubProvider([error(503), answer("ok"), answer("ok")]) as stub, engine_of(stub, observer) as engine:
        first = await engine.run(ask(capture=True))
        await engine.continue_from(first.exchange, ask())
    flags = int(first.exchange.carrier["traceparent"].rpartition("-")[2], 16)
    assert not flags & 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_limit_without_room_is_refused() -> None:
    """A content limit that could not even hold the form of a message is an error at once."""
    with pytest.raises(ValueError, match="content_limit"):
        OTelObserver(content_limit=10)


async def test_work_on_the_providers_side_is_told_on_the_attempt(telemetry, engine_of) -> None:
    """Each change of an activity that the provider runs is an event of its attempt, without what it is about."""
    seen = telemetry()
    searched = answer("found", searches=[StubSearch("SECRET-7F3A")])
    async with StubProvider(searched) as stub:
        async with engine_of(stub, seen, dialect="openai-responses") as engine:
            await engine.run(ask())
    events = seen.one("attempt generate").events
    assert [(event.name, dict(event.attributes)["furcate.activity.state"]) for event in events] == [
        ("furcate.activity", "started"),
        ("furcate.activity", "completed"),
    ]
    assert {dict(event.attributes)["furcate.activity.name"] for event in events} == {"web_search"}
    assert "SECRET-7F3A" not in seen.everything()


def test_names_stand_in_one_table() -> None:
    """No other file of the observers spells a name of the conventions or one of ours."""
    folder = Path(names.__file__).parent
    spelled = re.compile(r'"(gen_ai|furcate|server|error|openinference)\.[a-z_.]+"')
    for path in folder.glob("_otel*.py"):
        if path.name != "_otel_names.py":
            assert not spelled.search(path.read_text(encoding="utf-8")), path.name


@pytest.mark.field(19)
async def test_whoever_sums_all_spans_is_right(telemetry, engine_of) -> None:
    """One run of two requests in a branch in a nursery: 40 and 44 in, 7 and 9 out, are 84 and 16 and no more."""
    seen = telemetry()
    script = [
        answer("begin", usage={"prompt_tokens": 0, "completion_tokens": 0}),
        answer("no object", usage={"prompt_tokens": 40, "completion_tokens": 7}),
        answer('{"n": 1}', usage={"prompt_tokens": 44, "completion_tokens": 9}),
    ]

    async def once(turn: furcate.Turn) -> furcate.Action:
        if turn.result is not None:
            return furcate.Stop()
        return furcate.Continue(ask("Count", contract=furcate.Contract(SCHEMA, repairs=1)))

    async with StubProvider(script) as stub, engine_of(stub, seen) as engine:
        first = await engine.run(ask(capture=True))
        async with furcate.open_branches(engine, first.exchange) as branches:
            branches.start_soon(once, additional_turns=1)
    spans = [dict(span.attributes) for span in seen.ended()]
    assert len(spans) == 7  # two runs, three attempts, a branch and a nursery
    assert sum(span.get("gen_ai.usage.input_tokens", 0) for span in spans) == 84
    assert sum(span.get("gen_ai.usage.output_tokens", 0) for span in spans) == 16


async def test_what_was_paid_for_before_is_not_summed_again(telemetry, tmp_path: Path) -> None:
    """A job that goes on makes spans of runs that its journal answers, without their tokens."""
    items = tmp_path / "items.jsonl"
    items.write_text('{"id": "a"}\n')
    failing = [True]

    async def twice(item, job) -> str:
        first = await job.engine.run(ask("One?"))
        if failing.pop() if failing else False:
            raise RuntimeError("the application's own mistake")
        return first.text + (await job.engine.run(ask("Two?"))).text

    spans = []
    async with StubProvider([answer("1", usage=USAGE), answer("2", usage=USAGE)]) as stub:
        for _ in range(2):
            seen = telemetry()
            async with furcate.Engine(
                backends=[furcate.Backend("b", base_url=stub.base_url)],
                profiles=[furcate.Profile("p", "b", "m")],
                observers=[seen.observer],
            ) as engine:
                async with open_job(twice, items, engine=engine, journal=tmp_path / "job.db") as job:
                    await job.run()
                    await job.journal.retry()
            spans.append([dict(span.attributes) for span in seen.ended("chat ")])
        assert len(stub.requests) == 2
    [first], [again, second] = spans
    assert (first["gen_ai.usage.input_tokens"], second["gen_ai.usage.input_tokens"]) == (41, 41)
    assert "gen_ai.usage.input_tokens" not in again
    assert again[names.REPLAYED] == 1
    assert again["furcate.run.id"] == first["furcate.run.id"]
