"""Metrics of runs: durations, tokens, waiting, and places in use."""

from __future__ import annotations

import anyio
import pytest

import furcate
from furcate.observers import _otel_names as names
from furcate.testing import StubProvider, answer, error

USAGE = furcate.Usage(input_tokens=11, cache_read_tokens=30, output_tokens=7)


def ask(text: str = "Hello?", **given) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})


async def test_runs_are_measured_by_the_conventions(telemetry, engine_of) -> None:
    """Durations, first chunks and tokens stand in the conventions' instruments, with their attributes."""
    seen = telemetry()
    async with StubProvider(answer("Hi.", usage=USAGE)) as stub, engine_of(stub, seen) as engine:
        for _ in range(2):
            await engine.run(ask())
    measured = seen.metrics()
    [duration] = measured["gen_ai.client.inference.duration"]
    assert (duration.count, tuple(duration.explicit_bounds)) == (2, names.SECONDS_BOUNDARIES)
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "server.address": "127.0.0.1",
        "server.port": duration.attributes["server.port"],
    }
    assert measured["gen_ai.client.inference.time_to_first_chunk"][0].count == 2
    [per_run] = measured["gen_ai.client.inference.operation.input_tokens"]
    assert (per_run.count, per_run.sum, tuple(per_run.explicit_bounds)) == (2, 82, names.TOKEN_BOUNDARIES)
    used = {name: points for name, points in measured.items() if ".usage." in name}
    assert {name: [point.value for point in points] for name, points in used.items()} == {
        "gen_ai.client.inference.usage.input_tokens": [82],
        "gen_ai.client.inference.usage.output_tokens": [14],
        "gen_ai.client.inference.usage.cache_read.input_tokens": [60],
    }
    assert {point.attributes["gen_ai.token.modality"] for points in used.values() for point in points} == {"unknown"}


async def test_failures_are_measured_apart(telemetry, engine_of) -> None:
    """A failed run is measured with its kind of error, and counts no tokens that nobody reported."""
    seen = telemetry()
    async with StubProvider(error(400)) as stub, engine_of(stub, seen) as engine:
        with pytest.raises(furcate.ProviderError):
            await engine.run(ask())
    measured = seen.metrics()
    [duration] = measured["gen_ai.client.inference.duration"]
    assert duration.attributes["error.type"] == "invalid_request"
    assert not [name for name in measured if "tokens" in name]


async def test_waiting_and_places_are_measured(telemetry, engine_of) -> None:
    """Places in use go up and down with the runs that hold them, and each wait for one is measured."""
    seen = telemetry()
    most = 0

    def watch(event: furcate.Observation) -> None:
        nonlocal most
        if isinstance(event, furcate.AttemptStarted):
            [point] = seen.metrics()["furcate.client.leases.in_use"]
            most = max(most, point.value)

    script = [error(503), *(answer("ok") for _ in range(6))]
    async with StubProvider(script) as stub, engine_of(stub, seen, watch, capacity=2) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(engine.run, ask())
    measured = seen.metrics()
    [places] = measured["furcate.client.leases.in_use"]
    assert (places.value, dict(places.attributes)) == (0, {"furcate.backend": "b"})
    assert most == 2
    # One of the six runs paused, and so waited twice.
    [waits] = measured["furcate.client.queue.wait"]
    assert waits.count == 7


async def test_a_repair_waits_for_no_place(telemetry, engine_of) -> None:
    """A repair keeps its run's place: one wait is measured, and one place is in use."""
    seen = telemetry()
    contract = furcate.Contract({"type": "integer"}, repairs=1)
    async with StubProvider([answer("none"), answer("1")]) as stub, engine_of(stub, seen) as engine:
        await engine.run(ask(contract=contract))
    measured = seen.metrics()
    assert measured["furcate.client.queue.wait"][0].count == 1
    assert measured["furcate.client.leases.in_use"][0].value == 0


async def test_whole_answers_have_no_first_chunk(telemetry, engine_of) -> None:
    """A run whose answer is not streamed measures no time to a first chunk."""
    seen = telemetry()
    async with StubProvider(answer("ok")) as stub, engine_of(stub, seen, profile={"stream": False}) as engine:
        await engine.run(ask())
    assert "gen_ai.client.inference.time_to_first_chunk" not in seen.metrics()
    assert "gen_ai.response.time_to_first_chunk" not in seen.one("chat m").attributes
