"""Telemetry of whole stories: nothing leaks, nothing grows without bound, nothing is lost among thousands."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import furcate
from furcate.observers import ConsoleObserver, OTelObserver
from furcate.testing import StubProvider, StubRequest, answer, error

SECRET, PRIVATE = "SECRET-7F3A", "PRIVATE-91"
LIMIT = 2_000
TURNS = 50
RUNS = 5_000
WHOLE = {"stream": False}  # the quickest way to an answer


class Kept:
    """An observer, and the spans that it made."""

    def __init__(self, **given: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = OTelObserver(tracer_provider=self.provider, **given)

    def spans(self, beginning: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(beginning)]


@pytest.fixture
def kept() -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(**given: Any) -> Kept:
        made.append(Kept(**given))
        return made[-1]

    yield make
    for one in made:
        one.provider.shutdown()


async def tell_secrets(engine: furcate.Engine) -> None:
    """Run what passes after a repair, and what the provider refuses in words that repeat the prompt."""
    contract = furcate.Contract({"type": "object"}, repairs=1)
    request = furcate.Request(
        messages=[furcate.Message.system(SECRET), furcate.Message.user(SECRET)], profile="p", contract=contract
    )
    assert (await engine.run(request)).validation.status == "passed"
    with pytest.raises(furcate.ProviderError):
        await engine.run(furcate.Request(messages=SECRET, profile="p"))


def secret_script() -> list[Any]:
    return [answer(PRIVATE), answer(json.dumps({"a": PRIVATE})), error(400, f"you said {SECRET}")]


@pytest.mark.field(58)
async def test_content_stays_where_it_is_by_default(engine_for, kept, caplog, capsys) -> None:
    """By default neither prompt nor answer is in a span, an event, a status, a log or what a console shows."""
    caplog.set_level(logging.DEBUG)
    seen = kept()
    async with StubProvider(secret_script()) as stub:
        async with engine_for(stub, observers=[seen.observer, ConsoleObserver()]) as engine:
            await tell_secrets(engine)
    assert len(seen.spans("chat ")) == 2
    shown = "".join(span.to_json() for span in seen.spans()) + caplog.text + "".join(capsys.readouterr())
    assert SECRET not in shown
    assert PRIVATE not in shown


@pytest.mark.field(58)
async def test_content_is_there_where_it_is_asked_for(engine_for, kept) -> None:
    """With capture on, prompt, repair and answer are on the run's span and on no other, cut at the limit."""
    seen = kept(capture_content=True, content_limit=LIMIT)
    async with StubProvider([*secret_script(), answer(PRIVATE * 999)]) as stub:
        async with engine_for(stub, observers=[seen.observer]) as engine:
            await tell_secrets(engine)
            await engine.run(furcate.Request(messages=SECRET * 999, profile="p"))
    repaired, refused, long = seen.spans("chat ")
    assert json.loads(repaired.attributes["gen_ai.system_instructions"]) == [{"type": "text", "content": SECRET}]
    said = json.loads(repaired.attributes["gen_ai.input.messages"])
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert said[1]["parts"] == [{"type": "text", "content": PRIVATE}]
    [got] = json.loads(repaired.attributes["gen_ai.output.messages"])
    assert json.loads(got["parts"][0]["content"]) == {"a": PRIVATE}
    assert SECRET in refused.attributes["gen_ai.input.messages"]
    assert "gen_ai.output.messages" not in refused.attributes
    assert SECRET not in (refused.status.description or "")
    texts = [long.attributes["gen_ai.input.messages"], long.attributes["gen_ai.output.messages"]]
    assert LIMIT * 0.9 < sum(map(len, texts)) <= LIMIT
    assert all("[cut]" in json.loads(text)[0]["parts"][0]["content"] for text in texts)
    assert long.attributes["furcate.content.cut"] is True
    assert "furcate.content.cut" not in repaired.attributes
    others = "".join(span.to_json() for span in seen.spans("attempt"))
    assert SECRET not in others
    assert PRIVATE not in others


@pytest.mark.field(61)
async def test_content_grows_with_the_turns_and_not_with_their_square(engine_for, ask, kept) -> None:
    """Over 50 turns of 4 kB, each span is under the limit and says what its turn adds, once; nothing else is sent."""
    seen = kept(capture_content=True, content_limit=16_000)
    texts = [f"turn {number}: " + "x" * 4_000 for number in range(TURNS + 1)]
    asked: list[str] = []

    def script(request: StubRequest) -> Any:
        asked.append(request.body["messages"][-1]["content"])
        return answer(f"answer to {asked[-1]}")

    async with StubProvider(script) as stub, engine_for(stub, observers=[seen.observer]) as engine:
        first = await engine.run(ask(texts[0], capture=True))

        async def go_on(turn: furcate.Turn):
            return furcate.Continue(ask(texts[TURNS + 1 - turn.remaining])) if turn.remaining else furcate.Stop()

        await furcate.Coordinator(engine, first.exchange, go_on, additional_turns=TURNS).run()
    runs = seen.spans("chat ")
    assert len(runs) == TURNS + 1
    sizes = [
        len(span.attributes["gen_ai.input.messages"]) + len(span.attributes["gen_ai.output.messages"]) for span in runs
    ]
    assert max(sizes) < 9_000
    assert sum(sizes) < (TURNS + 1) * 9_000
    for number, span in enumerate(runs):
        [message] = json.loads(span.attributes["gen_ai.input.messages"])
        assert message["parts"][0]["content"] == texts[number] == asked[number]
        assert span.attributes["furcate.content.inherited_messages"] == 2 * number
    everything = "".join(span.to_json() for span in seen.spans())
    assert Counter(text for text in texts if everything.count(json.dumps(text)[1:-1]) == 2) == Counter(texts)


class Bare:
    """Run on both loops without their debugging, which would take longer than all the rest."""

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
        """Give the loop."""
        return request.param, {}


class TestMany(Bare):
    """Thousands of runs at once."""

    @pytest.mark.timeout(900)
    async def test_thousands_of_runs_lose_no_span(self, engine_for, ask, kept, caplog) -> None:
        """5,000 concurrent runs give 5,000 ended spans, each under its own branch, with no warning at all."""
        caplog.set_level(logging.WARNING)
        seen = kept()
        async with StubProvider(answer("ok"), remember=False) as stub:
            async with engine_for(stub, observers=[seen.observer], capacity=32, profile=WHOLE) as engine:
                exchange = (await engine.run(ask(capture=True))).exchange
                begun = anyio.Event()
                waiting = 0

                async def go_on(turn: furcate.Turn):
                    nonlocal waiting
                    if not turn.remaining:
                        return furcate.Stop()
                    waiting += 1
                    if waiting == RUNS:
                        begun.set()
                    await begun.wait()
                    return furcate.Continue(ask())

                async with furcate.open_branches(engine, exchange) as branches:
                    for number in range(RUNS):
                        branches.start_soon(go_on, additional_turns=1, name=f"b{number}")
        (nursery,) = seen.spans("invoke_workflow")[-1:]
        scopes = {span.context.span_id: span for span in seen.spans("invoke_workflow b")}
        runs = [span for span in seen.spans("chat ") if span.parent is not None]
        assert len(scopes) == len(runs) == RUNS
        assert {span.parent.span_id for span in runs} == set(scopes)
        assert {span.parent.span_id for span in scopes.values()} == {nursery.context.span_id}
        for span in runs:
            assert span.attributes["furcate.scope.id"] == scopes[span.parent.span_id].attributes["furcate.scope.id"]
        attempts = Counter(span.parent.span_id for span in seen.spans("attempt"))
        assert {attempts[span.context.span_id] for span in runs} == {1}
        assert not [r.getMessage() for r in caplog.records if r.name.startswith(("opentelemetry", "furcate"))]
