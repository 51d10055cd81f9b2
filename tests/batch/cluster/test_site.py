"""A worker's side by itself: silence of the driver, cancelling ahead of time, and the end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from attrs import evolve

import furcate
from furcate.admission import Portion
from furcate.batch import Item, ItemTask, Work
from furcate.batch.cluster import _site
from furcate.batch.cluster._site import Site
from furcate.primitives._errors import WorkerLostError
from furcate.primitives._json import Plain
from furcate.primitives._telemetry import OTelSettings
from furcate.testing import Answer, StubProvider, StubRequest, answer

pytestmark = pytest.mark.anyio

PLENTY = {"b": Portion(number=1, places=8)}


async def ask(item: Any, job: Any) -> str:
    """Ask once."""
    return str((await job.engine.run(furcate.Request("say", vars=item))).text)


async def never(_: StubRequest) -> Answer:
    """Answer too late."""
    await anyio.sleep(60)
    return answer("late")


def _has_read(count: int, stub: StubProvider) -> bool:
    return stub.requests_read == count


def _has_lost(count: int, stub: StubProvider) -> bool:
    return stub.disconnects == count


def packed(word: str = "w") -> bytes:
    """Make a task as it travels."""
    value: dict[str, Plain] = {"word": word}
    return pickle.dumps(ItemTask(item=Item(id=word, line=1, value=value, digest=b"d" * 32)))


async def test_the_silence_of_the_driver_stops_the_items(
    engine_for: Callable[..., Any], parcel_for: Callable[..., Any], thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for news any more: connections close, and not only the first time that it happens."""
    monkeypatch.setattr(_site, "_LOOK_S", 0.02)
    async with StubProvider(never) as stub:
        site = Site(parcel_for(Work(engine=engine_for(stub), target=ask)))
        try:
            await thread(site.open)
            await thread(site.obey, PLENTY)
            for time in (1, 2):
                monkeypatch.setattr(_site, "SILENCE_S", 60.0)
                await thread(site.poll, 0, 0.0)
                async with anyio.create_task_group() as tasks:

                    async def work(number: int = time) -> None:
                        with pytest.raises(WorkerLostError, match="the item was stopped on its worker"):
                            await thread(site.work, number, packed())

                    tasks.start_soon(work)
                    await stub.wait_until(partial(_has_read, time))
                    monkeypatch.setattr(_site, "SILENCE_S", 0.1)
                await stub.wait_until(partial(_has_lost, time))
        finally:
            await thread(site.close)


async def test_an_item_that_was_cancelled_before_it_came_is_not_begun(
    engine_for: Callable[..., Any], parcel_for: Callable[..., Any], thread: Any
) -> None:
    """What overtakes the item on its way still stops it."""
    async with StubProvider(never) as stub:
        site = Site(parcel_for(Work(engine=engine_for(stub), target=ask)))
        try:
            await thread(site.open)
            await thread(site.obey, PLENTY)
            assert await thread(site.cancel, 7) == 0
            with pytest.raises(WorkerLostError):
                await thread(site.work, 7, packed())
        finally:
            await thread(site.close)
        assert stub.in_flight == 0


async def test_cancelling_an_item_waits_until_its_runs_have_ended(
    engine_for: Callable[..., Any], parcel_for: Callable[..., Any], thread: Any
) -> None:
    """The number that it gives is that of the last thing told, so that whoever asks has all of it."""
    async with StubProvider(never) as stub:
        site = Site(parcel_for(Work(engine=engine_for(stub), target=ask)))
        try:
            await thread(site.open)
            await thread(site.obey, PLENTY)
            async with anyio.create_task_group() as tasks:

                async def work() -> None:
                    with pytest.raises(WorkerLostError):
                        await thread(site.work, 1, packed())

                tasks.start_soon(work)
                await stub.wait_until(lambda stub: stub.requests_read == 1)
                sequence = await thread(site.cancel, 1)
            news = await thread(site.poll, 0, 0.0)
        finally:
            await thread(site.close)
    assert news.told[-1].sequence == sequence
    assert [type(one.what).__name__ for one in news.told][-2:] == ["AttemptFinished", "RunFinished"]
    assert news.running == 0


async def test_a_closed_site_takes_no_items(
    engine_for: Callable[..., Any], parcel_for: Callable[..., Any], thread: Any
) -> None:
    """Neither after it was closed, nor before it was opened; closing closes the connections of those it has."""
    async with StubProvider(never) as stub:
        site = Site(parcel_for(Work(engine=engine_for(stub), target=ask)))
        with pytest.raises(WorkerLostError, match="told to stop"):
            await thread(site.work, 1, packed())
        await thread(site.open)
        await thread(site.obey, PLENTY)
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                with pytest.raises(WorkerLostError):
                    await thread(site.work, 2, packed())

            tasks.start_soon(work)
            await stub.wait_until(lambda stub: stub.requests_read == 1)
            await thread(site.close)
        await stub.wait_until(lambda stub: stub.disconnects == 1)
        with pytest.raises(WorkerLostError, match="told to stop"):
            await thread(site.work, 3, packed())


async def test_each_item_has_a_span_that_links_to_the_job(
    engine_for: Callable[..., Any], parcel_for: Callable[..., Any], thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a worker that traces, an item is a trace of its own, linked to the span in which the job was started."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra otel")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    from furcate.observers import OTelObserver  # noqa: PLC0415

    spans = InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    @contextmanager
    def observed(_: object) -> Iterator[OTelObserver]:
        yield OTelObserver(tracer_provider=provider)

    monkeypatch.setattr(_site, "observe_by", observed)
    async with StubProvider(answer("well")) as stub:
        with provider.get_tracer("driver").start_as_current_span("job") as job:
            parcel = parcel_for(Work(engine=engine_for(stub), target=ask))
        parcel = evolve(parcel, setup=evolve(parcel.setup, otel=OTelSettings()))
        site = Site(parcel)
        try:
            await thread(site.open)
            await thread(site.obey, PLENTY)
            await thread(site.work, 1, packed("one"))
            await thread(site.work, 2, packed("two"))
        finally:
            await thread(site.close)
    provider.shutdown()
    ended = spans.get_finished_spans()
    items = [span for span in ended if "furcate.item.id" in (span.attributes or {})]
    assert [(span.attributes or {})["furcate.item.id"] for span in items] == ["one", "two"]
    for span in items:
        assert span.parent is None
        [link] = span.links
        assert link.context.span_id == job.get_span_context().span_id
        assert link.context.trace_id == job.get_span_context().trace_id
        runs = [one for one in ended if one.parent is not None and one.parent.span_id == span.context.span_id]
        assert [one.name for one in runs] == ["chat m"]
    assert len({span.context.trace_id for span in items}) == 2
