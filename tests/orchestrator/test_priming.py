"""Who reads a shared beginning first, and when the others start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
import attrs
import pytest

import furcate
from furcate.orchestrator._config import check_resources
from furcate.orchestrator._plan import Plan, make_plan
from furcate.orchestrator._priming import Opening, Primer, estimated_size, marked, opening_of, priming
from furcate.primitives._budget import BudgetSpent
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._wire import Failure
from furcate.testing import Cut, sweep

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

LONG = "word " * 1200
FAILED = furcate.ProviderError(
    Failure(kind="provider", reason="broken", message="it broke"),
    run_id="r",
    attempts=(),
    usage=furcate.Usage(),
    partial=None,
)

PlanOf = Callable[..., Plan]


def exchange_of(text: str = LONG) -> furcate.Exchange:
    return furcate.Exchange(History((Message.user(text), Message.assistant("Yes."))), "opening")


@pytest.fixture
def plan_of() -> PlanOf:
    """Make the plan of a run that continues an exchange, or that has messages of its own."""

    def make(exchange: furcate.Exchange | None, *, messages="Go on.", model="m", tools=(), **backend) -> Plan:
        resources = check_resources(
            [furcate.Backend("b", **{"dialect": "anthropic-messages", "base_url": "http://127.0.0.1:9/v1", **backend})],
            [furcate.Profile("p", "b", model, tools=tools)],
            [],
            where="here",
        )
        return make_plan(resources, furcate.Request(messages=messages, profile="p"), exchange)

    return make


class FakeRun:
    """A run whose answer begins, ends or fails when it is told to, in seconds after its start."""

    def __init__(self, plan: Plan, *, begins_s: float | None = 1.0, ends_s: float = 5.0, error=None) -> None:
        self._plan = plan
        self._begins_s = begins_s
        self._ends_s = ends_s
        self._error = error
        self.began: Callable[[], None] = lambda: None
        self.started_s: float | None = None
        self.recorded = False

    async def complete(self):
        self.started_s = anyio.current_time()
        begins_s = self._ends_s if self._begins_s is None else self._begins_s
        await anyio.sleep(begins_s)
        if self._begins_s is not None:
            self.began()
        await anyio.sleep(max(0.0, self._ends_s - begins_s))
        if self._error is not None:
            raise self._error
        return self


async def complete_all(primer: Primer, runs: list[FakeRun], **how) -> list[float | None]:
    """Complete runs side by side; give the seconds at which they started."""
    began_s = anyio.current_time()

    async def one(run: FakeRun) -> None:
        with suppress(furcate.FurcateError):
            await primer.complete(run)

    with priming(**how):
        async with anyio.create_task_group() as tasks:
            for run in runs:
                tasks.start_soon(one, run)
    return sorted(run.started_s - began_s for run in runs)


async def test_the_others_start_when_the_first_answer_begins(plan_of) -> None:
    """One starts at once, and the rest as soon as its answer begins, not when it ends."""
    exchange = exchange_of()
    runs = [FakeRun(plan_of(exchange)) for _ in range(5)]
    assert await complete_all(Primer(), runs, beginning=exchange.history) == [0, 1, 1, 1, 1]


async def test_two_hundred_wait_for_one(plan_of) -> None:
    """However many there are, one goes first."""
    exchange = exchange_of()
    plan = plan_of(exchange)
    assert await complete_all(Primer(), [FakeRun(plan) for _ in range(200)], beginning=exchange.history) == [
        0,
        *[1] * 199,
    ]


async def test_the_others_start_when_the_first_fails(plan_of) -> None:
    """A backend that fails one is no reason to line the others up."""
    exchange = exchange_of()
    runs = [FakeRun(plan_of(exchange), begins_s=None, ends_s=3, error=FAILED) for _ in range(4)]
    assert await complete_all(Primer(), runs, beginning=exchange.history) == [0, 3, 3, 3]


async def test_an_answer_without_content_counts_as_a_reading(plan_of) -> None:
    """A run that ends well without a word has made the provider read all the same."""
    exchange = exchange_of()
    runs = [FakeRun(plan_of(exchange), begins_s=None, ends_s=2) for _ in range(3)]
    assert await complete_all(Primer(), runs, beginning=exchange.history) == [0, 2, 2]


async def test_one_that_was_answered_before_waits_for_nobody(plan_of) -> None:
    """What is had again from a log is not read by the provider: it neither waits nor goes first."""
    exchange = exchange_of()
    first, again = FakeRun(plan_of(exchange), begins_s=5), FakeRun(plan_of(exchange), begins_s=1)
    again.recorded = True
    primer = Primer()
    with priming(beginning=exchange.history):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(primer.complete, first)
            tasks.start_soon(later, 1, primer, again)
    assert again.started_s - first.started_s == 1


async def test_one_that_never_sent_hands_its_turn_on(plan_of) -> None:
    """What ends a run before it reached the backend tells nothing of the backend: the next one goes first."""
    exchange = exchange_of()
    spent = BudgetSpent(runs=1, running=0, tokens=1, reserved_tokens=0, unknown_answers=0)
    refused = furcate.BudgetExceededError("runs", 1, spent)
    first = FakeRun(plan_of(exchange), begins_s=None, ends_s=2, error=refused)
    others = [FakeRun(plan_of(exchange), begins_s=4) for _ in range(3)]
    primer = Primer()
    with priming(beginning=exchange.history):
        async with anyio.create_task_group() as tasks:
            for run in others:
                # The first one runs in this task, so that it is there before the others.
                tasks.start_soon(later, 1, primer, run)
            with pytest.raises(furcate.BudgetExceededError):
                await primer.complete(first)
    assert sorted(run.started_s - first.started_s for run in others) == [2, 6, 6]


async def later(pause_s: float, primer: Primer, run: FakeRun) -> None:
    await anyio.sleep(pause_s)
    await primer.complete(run)


async def test_a_cancelled_first_one_hands_its_turn_on(plan_of) -> None:
    """Where the first is cancelled, one of the others reads, and the rest wait for that one."""
    exchange = exchange_of()
    primer, scope = Primer(), anyio.CancelScope()
    first = FakeRun(plan_of(exchange), begins_s=50)
    others = [FakeRun(plan_of(exchange), begins_s=4) for _ in range(3)]

    async def cancelled() -> None:
        with scope:
            await primer.complete(first)

    with priming(beginning=exchange.history):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled)
            await anyio.sleep(1)
            for run in others:
                tasks.start_soon(primer.complete, run)
            await anyio.sleep(1)
            assert [run.started_s for run in others] == [None] * 3
            scope.cancel()
    assert sorted(run.started_s - first.started_s for run in others) == [2, 6, 6]


async def test_nobody_waits_longer_than_is_patient(plan_of) -> None:
    """A first one that says nothing for an hour holds the others up for the patience of the primer."""
    exchange = exchange_of()
    runs = [FakeRun(plan_of(exchange), begins_s=3600, ends_s=3600) for _ in range(3)]
    assert await complete_all(Primer(patience_s=60), runs, beginning=exchange.history) == [0, 60, 60]


async def test_whoever_is_answered_first_lets_the_others_go(plan_of) -> None:
    """An answer that begins elsewhere, after somebody lost patience, makes the beginning known as well."""
    exchange = exchange_of()
    primer = Primer(patience_s=10)
    silent = FakeRun(plan_of(exchange), begins_s=1000, ends_s=1000)
    impatient, late = FakeRun(plan_of(exchange), begins_s=1), FakeRun(plan_of(exchange))
    with priming(beginning=exchange.history):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(primer.complete, silent)
            await anyio.sleep(1)
            tasks.start_soon(primer.complete, impatient)
            await anyio.sleep(8)
            tasks.start_soon(primer.complete, late)
    assert impatient.started_s - silent.started_s == 11
    assert late.started_s - silent.started_s == 12


async def test_what_is_known_is_not_waited_for_until_it_is_old(plan_of) -> None:
    """A later run starts at once while the provider still has the beginning, and reads it first where it has not."""
    exchange = exchange_of()
    primer = Primer(lifetime_s=300)

    def two() -> list[FakeRun]:
        return [FakeRun(plan_of(exchange), begins_s=1, ends_s=1) for _ in range(2)]

    assert await complete_all(primer, two(), beginning=exchange.history) == [0, 1]
    await anyio.sleep(299)
    assert await complete_all(primer, two(), beginning=exchange.history) == [0, 0]
    await anyio.sleep(299)  # the use in between has prolonged it
    assert await complete_all(primer, two(), beginning=exchange.history) == [0, 0]
    await anyio.sleep(301)
    assert await complete_all(primer, two(), beginning=exchange.history) == [0, 1]


async def test_waiting_ends_with_cancellation(plan_of) -> None:
    """A run that waits is not begun, and cancelling it disturbs neither the first nor the others."""
    exchange = exchange_of()
    primer = Primer()
    first, waiting, other = (FakeRun(plan_of(exchange), begins_s=9) for _ in range(3))
    with priming(beginning=exchange.history):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(primer.complete, first)
            await anyio.sleep(1)
            tasks.start_soon(primer.complete, other)
            with anyio.move_on_after(3) as scope:
                await primer.complete(waiting)
            assert scope.cancelled_caught
    assert waiting.started_s is None
    assert other.started_s - first.started_s == 9


@pytest.mark.parametrize(
    ("backend", "text", "prime", "starts"),
    [
        ({}, LONG, "auto", [0, 1, 1]),
        ({}, "short", "auto", [0, 0, 0]),
        ({}, "short", True, [0, 1, 1]),
        ({}, LONG, False, [0, 0, 0]),
        ({"cache": "none"}, LONG, "auto", [0, 0, 0]),
        ({"cache": "per-slot"}, LONG, "auto", [0, 0, 0]),
        ({"cache": "per-slot"}, LONG, True, [0, 1, 1]),
        ({"kind": "embedded", "dialect": "openai-chat", "base_url": None}, LONG, "auto", [0, 0, 0]),
    ],
)
async def test_one_goes_first_where_that_pays(plan_of, backend, text, prime, starts) -> None:
    """What a backend's cache serves, and the size, decide; True and False do so against them."""
    exchange = exchange_of(text)
    runs = [FakeRun(plan_of(exchange, **backend)) for _ in range(3)]
    assert await complete_all(Primer(), runs, prime=prime, beginning=exchange.history) == starts


async def test_other_beginnings_are_other_readings(plan_of) -> None:
    """Neither another conversation, nor another model, nor other tools in front of the same one are waited for."""
    exchange, other = exchange_of(), exchange_of(LONG + "else")
    tool = furcate.Tool("look_up", parameters={"type": "object"})
    runs = [
        FakeRun(plan_of(exchange)),
        FakeRun(plan_of(exchange, model="n")),
        FakeRun(plan_of(exchange, tools=[tool])),
        FakeRun(plan_of(other)),  # which does not continue what is shared
        FakeRun(plan_of(exchange, tools=[tool])),
    ]
    assert await complete_all(Primer(), runs, beginning=exchange.history) == [0, 0, 0, 0, 1]


async def test_items_share_what_stands_up_to_their_first_hint(plan_of) -> None:
    """Without a common exchange, the first cache hint of each run says what it shares with others."""
    opening = Message.system(LONG, cache=CacheHint())

    def item(text: str, *more: Message) -> FakeRun:
        return FakeRun(plan_of(None, messages=[opening, *more, Message.user(text)]))

    runs = [item("one"), item("two"), item("three", Message.user("a text of its own", cache=CacheHint()))]
    assert await complete_all(Primer(), runs) == [0, 1, 1]
    unhinted = [FakeRun(plan_of(None, messages=[Message.system(LONG), Message.user(text)])) for text in "ab"]
    assert await complete_all(Primer(), unhinted) == [0, 0]


async def test_a_primer_keeps_a_bounded_number_of_beginnings(plan_of) -> None:
    """A job of any number of items that begin differently does not fill the memory."""
    primer = Primer()
    for number in range(1500):
        exchange = exchange_of(f"{number}")
        with priming(True, exchange.history):
            await primer.complete(FakeRun(plan_of(exchange), begins_s=0, ends_s=0))
    assert len(primer._readings) <= 1024


async def test_the_end_of_what_is_shared_is_marked_in_the_call(plan_of) -> None:
    """A plan says how many messages others have too, where that pays, and not to servers that may refuse the key."""
    exchange = exchange_of()
    with priming(beginning=exchange.history):
        assert marked(plan_of(exchange)).call.shared == 2
        assert marked(plan_of(exchange_of("short"))).call.shared == 0
        assert marked(plan_of(exchange, cache="none")).call.shared == 0
        assert marked(plan_of(exchange, dialect="openai-chat")).call.shared == 0
        assert marked(plan_of(exchange, dialect="openai-chat", base_url=None)).call.shared == 2
        assert marked(plan_of(exchange, dialect="openai-responses")).call.shared == 2
    assert marked(plan_of(exchange)).call.shared == 0


async def test_an_opening_is_equal_for_equal_beginnings(plan_of) -> None:
    """What tells readings apart is a value, and the request itself has no part in it."""
    exchange = exchange_of()
    with priming(beginning=exchange.history):
        one, other = opening_of(plan_of(exchange)), opening_of(plan_of(exchange, messages="Something else."))
    assert isinstance(one, Opening)
    assert one == other
    assert hash(one) == hash(other)
    assert attrs.asdict(one)["digest"] == exchange.history.digest


async def test_sizes_are_estimated_from_what_is_sent() -> None:
    """Four bytes of text are a token, whoever says them; a picture is worth a thousand."""
    result = furcate.ToolResult("c1", "r" * 400)
    call = furcate.ToolCall("c1", "f", '{"a": "' + "x" * 391 + '"}')
    history = History(
        (
            Message.user("é" * 200, furcate.Media("image/png", b"x" * 99)),
            Message("assistant", (furcate.Text("t" * 400), call)),
            Message.tool(result),
        )
    )
    assert 1400 <= estimated_size(history) <= 1420


@pytest.mark.parametrize("moment", ["waiting", "woken"])
@pytest.mark.parametrize("native", [False, True])
async def test_no_cancellation_leaves_anybody_waiting(plan_of, anyio_backend_name, moment, native) -> None:
    """Whatever is cancelled at whatever moment, nothing is being read afterwards, and the next run need not wait."""
    if native and anyio_backend_name == "trio":
        pytest.skip("trio has one way to cancel")
    exchange = exchange_of()
    plan = plan_of(exchange)
    primer = Primer()

    async def story() -> None:
        # One branch of the first three fails, and one that comes later finds the beginning known.
        failing = FakeRun(plan, begins_s=None, ends_s=0.5, error=FAILED)
        await complete_all(primer, [failing, FakeRun(plan), FakeRun(plan, begins_s=2)], beginning=exchange.history)
        await complete_all(primer, [FakeRun(plan)], beginning=exchange.history)

    async def check(_: Cut[None]) -> None:
        assert all(reading.known_s is not None for reading in primer._readings.values())
        assert all(reading.over.is_set() for reading in primer._readings.values())
        run = FakeRun(plan)
        began_s = anyio.current_time()
        with priming(beginning=exchange.history):
            await primer.complete(run)
        assert run.started_s == began_s
        primer.forget()

    await sweep(story, check, moment=moment, native=native)
