"""Traces and metrics over the wire, as a receiver of OTLP that is not ours reads them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import furcate
from furcate.testing import StubProvider, answer, error

pytest.importorskip("oteltap", reason="the extra 'test' brings oteltap")

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from oteltap.oteltap_core import OtelTapCore, OtelTapFlags

USAGE = furcate.Usage(input_tokens=11, cache_read_tokens=30, output_tokens=7)


def ask(text: str = "Hello?", **given) -> furcate.Request:
    return furcate.Request(**{"messages": text, "profile": "p", **given})


class Tap:
    """A receiver, and what it has received."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        status, self._handle = OtelTapCore.oteltap_start_receiving_http_protobuf(
            port, OtelTapFlags.NONE, None, None, None
        )
        assert status == 0
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        OtelTapCore.oteltap_stop_receiving(self._handle)

    def _all(self, poll: Callable[[int, int], tuple[int, bytes | None]]) -> Iterator[bytes]:
        while (found := poll(self._handle, 50))[1] is not None:
            yield found[1]

    def spans(self) -> list[Span]:
        return [Span.FromString(data) for data in self._all(OtelTapCore.oteltap_poll_trace)]

    def metrics(self) -> list[Metric]:
        return [Metric.FromString(data) for data in self._all(OtelTapCore.oteltap_poll_metric)]


@pytest.fixture
def tap() -> Iterator[Tap]:
    made = Tap()
    yield made
    made.close()


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


async def test_a_nursery_arrives_whole(tap, engine_of, caplog) -> None:
    """Parents, links, tokens, names and status of a nursery's spans come out at the other end as they went in."""
    caplog.set_level(logging.WARNING)
    script = [answer("begin", usage=USAGE), *(answer("turn", usage=USAGE) for _ in range(4)), error(400)]
    results: list[furcate.Result] = []

    async def go_on(turn: furcate.Turn):
        results.extend([turn.result] if turn.result is not None else [])
        return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

    group = furcate.Group()
    with furcate.observe_otel(endpoint=tap.url, service_name="tapped") as observer:
        async with StubProvider(script) as stub, engine_of(stub, observer) as engine:
            first = await engine.run(ask(capture=True, groups=[group]))
            async with furcate.open_branches(engine, first.exchange, name="n", groups=[group]) as branches:
                for name in ("a", "b"):
                    branches.start_soon(go_on, additional_turns=2, name=name)
            with pytest.raises(furcate.ProviderError):
                await engine.run(ask(groups=[group]))
    spans = {span.span_id: span for span in tap.spans()}
    runs = {attributes(span)["furcate.run.id"]: span for span in spans.values() if span.name == "chat m"}
    assert len(runs) == 6
    assert len(spans) == 6 + 6 + 3
    source = runs[first.run_id]
    [nursery] = [span for span in spans.values() if span.name == "invoke_workflow n"]
    for name in ("a", "b"):
        [branch] = [span for span in spans.values() if span.name == f"invoke_workflow {name}"]
        assert branch.parent_span_id == nursery.span_id
        turns = sorted(
            (span for span in runs.values() if span.parent_span_id == branch.span_id),
            key=lambda span: span.start_time_unix_nano,
        )
        before = [source, *turns]
        assert [span.links[0].span_id for span in turns] == [span.span_id for span in before[:-1]]
        assert [span.links[0].trace_id for span in turns] == [span.trace_id for span in before[:-1]]
    counted = [attributes(span) for span in runs.values()]
    for name, known in (
        ("gen_ai.usage.output_tokens", group.summary().usage.output_tokens.known),
        ("gen_ai.usage.cache_read.input_tokens", group.summary().usage.cache_read_tokens.known),
    ):
        assert sum(said.get(name, 0) for said in counted) == known
    assert not [span for span in spans.values() if span.name != "chat m" and "usage" in str(attributes(span))]
    failed = [span for span in runs.values() if span.status.code == Status.STATUS_CODE_ERROR]
    assert [attributes(span)["furcate.status"] for span in failed] == ["failed"]
    names = {metric.name for metric in tap.metrics()}
    assert {"gen_ai.client.inference.duration", "furcate.client.queue.wait", "furcate.client.leases.in_use"} <= names
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("opentelemetry")]


async def test_half_characters_do_not_hold_up_a_batch(tap, engine_of, caplog) -> None:
    """Names and content that no wire can carry as they are arrive with question marks, and so does the rest."""
    caplog.set_level(logging.WARNING)
    with furcate.observe_otel(endpoint=tap.url, metrics=False, capture_content=True) as observer:
        async with StubProvider(answer("fine \ud83d")) as stub, engine_of(stub, observer) as engine:
            first = await engine.run(ask(capture=True))

            async def stop(turn: furcate.Turn):
                return furcate.Stop()

            await furcate.Coordinator(engine, first.exchange, stop, additional_turns=0, name="a\udc00b").run()
    names = {span.name for span in tap.spans()}
    assert names == {"chat m", "attempt generate", "invoke_workflow a?b"}
    assert not [
        record.getMessage() for record in caplog.records if record.name.startswith(("opentelemetry", "furcate"))
    ]
