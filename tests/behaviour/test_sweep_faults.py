"""Stories in which servers misbehave, cancelled at each of their checkpoints."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest

import furcate
from furcate.testing import (
    FAULTS,
    Answer,
    Cut,
    Faults,
    Head,
    Hold,
    Reset,
    Send,
    StubProvider,
    StubRequest,
    StubSearch,
    answer,
    error,
    error_in_stream,
    no_head,
    raw,
    refusing,
    steps,
    sweep,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

GOOD = '{"a": 1}'
STILL_THERE = "Still there?"
SAID = "the answer that breaks off"
CONTRACT = furcate.Contract({"type": "object", "required": ["a"]}, repairs=1)
CHUNKED = Head(200, (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")))
LATER = error(429, headers={"retry-after-ms": "3"})
BEGUN = Send(b'data: {"choices":[{"index":0,"delta":{"content":"{"}}]}\n\n')
HALF = raw('{"choices": [', disconnect_after=1, headers={"content-length": "99"})
SEARCH = StubSearch("Rhine length")

REASONS = (
    *("cut_off", "no_answer", "malformed", "timeout", "overloaded", "rate_limited", "server_error", "conflict"),
    *("idle_timeout", "first_event_timeout", "stale_connection"),
)

STARTS_AND_ENDS = {
    furcate.RunStarted: (furcate.RunFinished, "run_id"),
    furcate.AttemptStarted: (furcate.AttemptFinished, "request_id"),
    furcate.CoordinatorStarted: (furcate.CoordinatorFinished, "scope_id"),
    furcate.NurseryStarted: (furcate.NurseryFinished, "scope_id"),
}

# Stalls are met on profiles of their own, so that a slow machine's pauses are never taken for one.
HASTY = furcate.TimeLimits(idle_s=0.01)
IMPATIENT = furcate.TimeLimits(first_event_s=0.01, idle_s=0.01)


def sockets() -> int:
    """Count the sockets of this process, those of its servers included; 0 where the system does not show them."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return 0
    return sum(os.readlink(entry).startswith("socket:") for entry in list(folder.iterdir()) if entry.is_symlink())


class Stage:
    """Play a story again and again on one engine and one server, and look after each time whether anything is left.

    Arguments:
        scenes: by a word in a request, what the server does with the first requests that hold it last, each time that
            the story is played; whatever comes after is answered well. Or else a script for all of them.
        reasons: for what reasons the attempts of the story fail when it is left alone; None where chance decides.
        ends: for what reasons its runs fail.
        tells: observations that the story makes when it is left alone.
        runs: how many runs a story cancels at most.
        budget: makes the budget of all its requests.
    """

    def __init__(
        self,
        scenes: Mapping[str, Sequence[Answer] | Faults] | None = None,
        *,
        reasons: Sequence[str] | None = (),
        ends: Sequence[str] = (),
        tells: Sequence[type[furcate.Observation]] = (),
        runs: int = 1,
        budget: Callable[[], furcate.Budget] = furcate.Budget,
    ) -> None:
        self._scenes = scenes or {}
        self._reasons = reasons
        self._ends = ends
        self._tells = tells
        self._runs = runs
        self._budget_of = budget
        self._most_sockets = 0
        self.stub = StubProvider(self._script, remember=False)
        self.engine: furcate.Engine
        self.exchange: furcate.Exchange
        self._begin()

    def _begin(self) -> None:
        self.recorder = furcate.Recorder()
        self.group = furcate.Group()
        self.budget = self._budget_of()
        self._torn = 0
        self._played: Counter[str] = Counter()
        self._read_before = self.stub.requests_read

    async def _script(self, request: StubRequest) -> Answer:
        # The latest of these words tells what is asked for: those before it are of turns that are over.
        word = max((STILL_THERE, *self._scenes), key=request.raw.decode().rfind)
        if word == STILL_THERE:
            return answer(GOOD)
        scene = self._scenes.get(word, ())
        if isinstance(scene, Faults):
            return await scene(request)
        if self._played[word] < len(scene):
            self._played[word] += 1
            return scene[self._played[word] - 1]
        return answer(GOOD, at={1: Hold(self._hold)})

    async def _hold(self) -> None:
        """Say nothing more once a run was cancelled: only its leaving then ends a request."""
        if any(event.status == "cancelled" for event in self.recorder.of(furcate.RunFinished)):
            await anyio.sleep_forever()

    def hear(self, event: furcate.Observation) -> None:
        """Take an observation, and a snapshot of the group at that very moment."""
        self.recorder.on_event(event)
        summary = self.group.summary()
        # What an observer raises changes nothing, so this is looked at later.
        self._torn += summary.ended + summary.running != len(summary.runs)

    def ask(self, text: str, *, profile: str = "plain", **given) -> furcate.Request:
        return furcate.Request(messages=text, profile=profile, groups=[self.group], budgets=[self.budget], **given)

    async def run(self, text: str, **given) -> furcate.Result:
        return await self.engine.run(self.ask(text, **given))

    async def fail(self, text: str, **given) -> None:
        """Run a request that must fail, and for no other reason than the story's, wherever it is cancelled."""
        with pytest.raises(furcate.ProviderError) as caught:
            await self.run(text, **given)
        self.expect(caught.value)

    def expect(self, error: furcate.ProviderError) -> None:
        """Look at whether a failure is one of the story's own, and not one that cancellation was taken for."""
        assert error.failure.reason in self._ends, str(error)

    async def coordinate(self, *texts: str) -> None:
        left = list(texts)

        async def next_action(turn: furcate.Turn) -> furcate.Continue | furcate.Stop:
            return furcate.Continue(self.ask(left.pop(0))) if left else furcate.Stop()

        await furcate.Coordinator(self.engine, self.exchange, next_action, additional_turns=len(texts)).run()

    async def swept(self, story: Callable[[], Awaitable[object]], *, capacity: int = 1, **how) -> None:
        """Sweep a story; it must end by itself where it is left alone."""
        open_before = sockets()
        backend = {
            "capacity": capacity,
            "retry": furcate.RetryPolicy(attempts=3, first_backoff_s=0.0001, max_backoff_s=0.0001),
        }
        with refusing() as nowhere:
            async with self.stub:
                at = self.stub.base_url
                backends = [
                    furcate.Backend("stub", base_url=at, **backend),
                    furcate.Backend("hasty", base_url=at, limits=HASTY, **backend),
                    furcate.Backend("impatient", base_url=at, limits=IMPATIENT, **backend),
                    furcate.Backend("messages", dialect="anthropic-messages", base_url=at, **backend),
                    furcate.Backend("nobody", base_url=nowhere, **backend),
                ]
                profiles = [
                    furcate.Profile("plain", "stub", "m"),
                    furcate.Profile("whole", "stub", "m", stream=False),
                    furcate.Profile("careless", "stub", "m", repeat_safe=True),
                    furcate.Profile("hasty", "hasty", "m"),
                    furcate.Profile("impatient", "impatient", "m"),
                    furcate.Profile("messages", "messages", "m", settings=furcate.Settings(max_output_tokens=50)),
                    furcate.Profile("nobody", "nobody", "m"),
                ]
                async with furcate.Engine(backends=backends, profiles=profiles, observers=[self.hear]) as self.engine:
                    self.exchange = (await self.run(STILL_THERE, capture=True)).exchange
                    # Every place may leave one idle connection behind, which has two ends here.
                    self._most_sockets = sockets() + 2 * (capacity - 1)
                    self._begin()
                    report = await sweep(self._whole(story, native=how.get("native", False)), self.check, **how)
            # Closing a socket is the loop's business, and takes asyncio a further turn.
            await anyio.wait_all_tasks_blocked()
        assert report.cuts[0].status == "completed"
        assert report.cancelled > report.checkpoints / how.get("every", 1) / 2
        assert sockets() <= open_before

    def _whole(self, story: Callable[[], Awaitable[object]], *, native: bool) -> Callable[[], Awaitable[None]]:
        """Look at how cancellation leaves a story."""

        async def play() -> None:
            # A task group, anyio's own, may take back one request too many where it is cancelled as its tasks begin.
            task = asyncio.current_task() if native and self._runs == 1 else None
            try:
                await story()
            except BaseException:
                # Whoever cancels a task by itself counts on being the only one who does.
                assert task is None or task.cancelling() == 1
                raise

        return play

    async def check(self, cut: Cut[object]) -> None:
        """Look at everything that must not be left behind, and run a plain request."""
        for name, statistics in self.engine.statistics().items():
            assert (statistics.in_use, statistics.waiting) == (0, 0), f"every lease of {name} is back"
        self._check_ends(cut)
        self._check_accounts()
        with anyio.fail_after(10):
            await self.stub.wait_until(lambda stub: stub.in_flight == 0)
        self._begin()
        assert (await self.engine.run(furcate.Request(messages=STILL_THERE, profile="plain"))).text == GOOD
        with anyio.fail_after(10):
            while sockets() > self._most_sockets:
                await anyio.lowlevel.checkpoint()
        self._begin()

    def _check_ends(self, cut: Cut[object]) -> None:
        for start, (end, name) in STARTS_AND_ENDS.items():
            started = Counter(getattr(event, name) for event in self.recorder.of(start))
            assert started == Counter(getattr(event, name) for event in self.recorder.of(end)), start.__name__
            assert set(started.values()) <= {1}
        ended = self.recorder.of(furcate.RunFinished)
        failed = [event.failure_reason for event in ended if event.status == "failed"]
        assert set(failed) <= set(self._ends)
        assert sum(event.status == "cancelled" for event in ended) <= self._runs
        if cut.checkpoint is None and self._reasons is not None:
            attempts = self.recorder.of(furcate.AttemptFinished)
            assert [event.failure_reason for event in attempts if event.status == "failed"] == list(self._reasons)
            assert failed == list(self._ends)
            assert all(self.recorder.of(kind) for kind in self._tells)

    def _check_accounts(self) -> None:
        """Count again what the group and the budget say, from the attempts."""
        summary, spent = self.group.summary(), self.budget.spent()
        attempts = self.recorder.of(furcate.AttemptFinished)
        statuses = Counter(event.status for event in self.recorder.of(furcate.RunFinished))
        assert self._torn == 0, "every snapshot adds up"
        assert summary.running == 0
        assert (summary.succeeded, summary.failed, summary.cancelled) == tuple(
            statuses[status] for status in ("succeeded", "failed", "cancelled")
        )
        assert len(summary.runs) == statuses.total()
        assert summary.attempts == len(attempts)
        assert summary.repairs == sum(event.purpose == "repair" for event in attempts)
        assert (summary.usage.output_tokens.known or 0) == sum(event.usage.output_tokens or 0 for event in attempts)
        assert (spent.runs, spent.running) == (len({event.run_id for event in attempts}), 0)
        assert spent.reserved_tokens == 0
        assert self.stub.requests_read - self._read_before <= len(attempts), "the server saw nothing that nobody sent"


WAYS = [(loop, moment, False) for loop in ("asyncio", "trio") for moment in ("waiting", "woken")]
WAYS += [("asyncio", moment, True) for moment in ("waiting", "woken")]


@pytest.fixture(params=WAYS, ids=lambda way: "-".join((*way[:2], "native")) if way[2] else "-".join(way[:2]))
def way(request: pytest.FixtureRequest) -> tuple[str, str, bool]:
    """Choose the loop, whether to cancel as a task waits or as it wakes, and by a scope or the task's own cancel()."""
    return request.param


@pytest.fixture
def anyio_backend(way) -> tuple[str, dict[str, object]]:
    """Leave out asyncio's debug mode, which takes longer than all the rest."""
    return way[0], {}


@pytest.fixture
def how(way, request: pytest.FixtureRequest) -> dict[str, object]:
    """Take every third or fourth checkpoint, as the test's name has it: the ways of a story together meet more."""
    return {"moment": way[1], "native": way[2], "every": Random(request.node.name).choice((3, 4))}


@pytest.fixture
def seldom(how) -> dict[str, object]:
    """Take fewer in stories that are long, or many."""
    return {**how, "every": how["every"] + 2}


def cut_off(**said) -> Answer:
    """Begin an answer and break the connection."""
    return answer(SAID, disconnect_after=3, **said)


RECOVERED = {
    "told to wait": ([error(429, headers={"retry-after": "0.003"})], ["rate_limited"]),
    "told to wait twice": ([error(529, headers={"retry-after-ms": "1"}), error(503)], ["overloaded", "overloaded"]),
    "stale": ([no_head()], ["stale_connection"]),
    "stale by a reset": ([steps(Reset())], ["stale_connection"]),
    "overloaded": ([error_in_stream("", "later", code=529, kind="overloaded_error")], ["overloaded"]),
}


@pytest.mark.parametrize("name", RECOVERED)
async def test_a_run_that_recovers(how, name) -> None:
    """A run that is told to wait, whose connection is stale, or whose provider is overloaded, and that is repeated."""
    scenes, reasons = RECOVERED[name]
    stage = Stage({"Go": scenes}, reasons=reasons)
    await stage.swept(lambda: stage.run("Go"), **how)


async def test_a_cut_answer_that_may_be_repeated(how) -> None:
    """A run whose answer breaks off, on a profile that says that repeating is safe."""
    stage = Stage({"Go": [cut_off()]}, reasons=["cut_off"])
    await stage.swept(lambda: stage.run("Go", profile="careless"), **how)


LOST = {
    "cut": ("plain", [cut_off()], "cut_off", 1),
    "reset": ("plain", [steps(CHUNKED, BEGUN, Reset())], "cut_off", 1),
    "whole and cut": ("whole", [HALF], "cut_off", 1),
    "silent": ("hasty", [answer(SAID, silence_after=3)], "idle_timeout", 1),
    "silent at once": ("impatient", [no_head(silent=True)], "first_event_timeout", 1),
    "never well": ("plain", [error(503)] * 3, "overloaded", 3),
    "refused": ("nobody", [], "connection_refused", 3),
}


@pytest.mark.parametrize("name", LOST)
async def test_a_run_that_fails(how, name) -> None:
    """A run whose answer breaks off or falls silent, that is refused each time, or that nobody listens to."""
    profile, scenes, reason, attempts = LOST[name]
    stage = Stage({"Go": scenes}, reasons=[reason] * attempts, ends=[reason])
    await stage.swept(lambda: stage.fail("Go", profile=profile), **how)


async def test_a_repair_that_is_reset(how) -> None:
    """A run whose first answer breaks its contract, and whose second one breaks off."""
    scenes = [answer("{}"), steps(CHUNKED, BEGUN, Reset())]
    stage = Stage({"Go": scenes}, reasons=["cut_off"], ends=["cut_off"])
    await stage.swept(lambda: stage.fail("Go", contract=CONTRACT), **how)


async def test_a_repair_that_is_watched_and_cut(seldom) -> None:
    """The same, read by a consumer that has seen the first answer."""
    stage = Stage({"Go": [answer("{}"), cut_off()]}, reasons=["cut_off"], ends=["cut_off"])

    async def story() -> None:
        async with stage.engine.stream(stage.ask("Go", contract=CONTRACT)) as stream:
            with pytest.raises(furcate.ProviderError, match=r"broke off|broke in the middle"):
                async for _ in stream:
                    await anyio.lowlevel.checkpoint()
            assert stream.partial is not None

    await stage.swept(story, **seldom)


async def test_a_pause_that_is_resumed_and_cut(seldom) -> None:
    """An answer that its provider sets aside, and whose rest breaks off."""
    scenes = [answer("Let me look.", searches=(SEARCH,), pause=True), cut_off(searches=(SEARCH,))]
    stage = Stage({"Go": scenes}, reasons=["cut_off"], ends=["cut_off"])
    await stage.swept(lambda: stage.fail("Go", profile="messages"), **seldom)


async def test_a_coordinator_with_a_fault_in_each_turn(seldom) -> None:
    """Three turns, each of which meets another fault and recovers."""
    scenes = {"one": [LATER], "two": [no_head()], "three": [error(503)]}
    stage = Stage(scenes, reasons=["rate_limited", "stale_connection", "overloaded"])
    await stage.swept(lambda: stage.coordinate("one", "two", "three"), **seldom)


async def test_branches_behind_one_pause(seldom) -> None:
    """Three branches at capacity 1, the second of which has the backend paused for all."""
    stage = Stage(
        {"two": [LATER]},
        reasons=["rate_limited"],
        tells=[furcate.BackendPaused],
        runs=3,
    )

    async def story() -> None:
        async with furcate.open_branches(stage.engine, stage.exchange) as branches:
            for name in ("one", "two", "three"):
                branches.start_soon(_once(stage.ask(name)), additional_turns=1, name=name)

    await stage.swept(story, **seldom)


def _once(request: furcate.Request) -> Callable[[furcate.Turn], Awaitable[furcate.Continue | furcate.Stop]]:
    async def next_action(turn: furcate.Turn) -> furcate.Continue | furcate.Stop:
        return furcate.Continue(request) if turn.result is None else furcate.Stop()

    return next_action


async def test_a_budget_that_runs_out(seldom) -> None:
    """Three turns on a budget of two, the first of which is sent twice."""
    stage = Stage({"one": [error(503)]}, reasons=["overloaded"], ends=["budget"], budget=lambda: furcate.Budget(runs=2))

    async def story() -> None:
        with pytest.raises(furcate.BudgetExceededError):
            await stage.coordinate("one", "two", "three")

    await stage.swept(story, **seldom)


async def test_a_dripping_stream_that_is_left(seldom) -> None:
    """A consumer that leaves while the server has more to say, word by word."""
    stage = Stage({"Go": [answer("word " * 60, delta_delay_s=0.0002)]})

    async def story() -> None:
        words = 0
        async with stage.engine.stream(stage.ask("Go")) as stream:
            async for event in stream:
                words += isinstance(event, furcate.TextDelta)
                if words == 2:
                    break
        assert stream.partial is not None

    await stage.swept(story, **seldom)


async def test_all_faults_at_once(seldom) -> None:
    """Many runs at the same time, each of which meets another fault, and the like again where it is repeated."""
    faults = {f"Meet {kind}": Faults(5, script=answer(GOOD), share=1, kinds=[kind], wait_s=0.001) for kind in FAULTS}
    stage = Stage(faults, reasons=None, ends=REASONS, runs=len(faults))

    async def meet(word: str) -> None:
        try:
            await stage.run(word, profile="impatient" if word == "Meet stall" else "plain")
        except furcate.ProviderError as failed:
            stage.expect(failed)

    async def story() -> None:
        async with anyio.create_task_group() as tasks:
            for word in faults:
                tasks.start_soon(meet, word)

    await stage.swept(story, capacity=len(faults), **{**seldom, "every": 8 * seldom["every"]})
