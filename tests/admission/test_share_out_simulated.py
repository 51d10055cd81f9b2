"""Many workers that share a backend, with messages that are late and workers that die: what never happens, and what
always does in the end."""

from __future__ import annotations

import random
from collections import deque
from math import inf

import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.admission import Allowance, Ledger, Need, Portion, ShareOut

_GRACE_S = 3.0


@frozen
class _Item:
    """A request: its name, the tokens it is estimated at and those it uses, and how long it takes."""

    number: int
    estimate: float
    used: float
    takes_s: float
    repairs: int = 0


@define(eq=False)
class _Worker:
    """A process with its ledger, and the messages on their way to it and from it."""

    name: str
    ledger: Ledger[int]
    inbox: deque[tuple[float, Portion]] = field(factory=deque)
    outbox: deque[tuple[float, Need]] = field(factory=deque)
    work: dict[int, _Item] = field(factory=dict)
    running: dict[int, float] = field(factory=dict)
    said: Need | None = None
    returned: float = 0.0


@frozen(kw_only=True)
class _Setting:
    """What is tried."""

    seed: int
    capacity: int
    workers: int
    items: int
    latency_s: float = 0.3
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    deaths: int = 0
    pauses: int = 0
    repairs: bool = False


class _World:
    """Run workers and a driver in virtual time, and look at each step at what the server sees."""

    def __init__(self, setting: _Setting) -> None:
        self.setting = setting
        self.random = random.Random(setting.seed)
        self.now_s = 0.0
        self.share = ShareOut(
            setting.capacity,
            requests_per_minute=setting.requests_per_minute,
            tokens_per_minute=setting.tokens_per_minute,
            turn_s=1.0,
            calm_s=0.2,
        )
        self.requests = _full(setting.requests_per_minute)
        self.tokens = _full(setting.tokens_per_minute)
        self.workers: dict[str, _Worker] = {}
        self.ghosts: list[float] = []  # when the server notices that a dead worker's requests are nobody's
        self.names = 0
        self.done: set[int] = set()
        self.dead: list[tuple[float, _Worker]] = []  # and when the driver notices
        self.most = 0

    def join(self) -> _Worker:
        self.names += 1
        setting = self.setting
        ledger: Ledger[int] = Ledger(
            setting.capacity,
            requests_per_minute=setting.requests_per_minute,
            tokens_per_minute=setting.tokens_per_minute,
        )
        worker = _Worker(f"w{self.names}", ledger)
        ledger.obey(Portion.nothing(), now_s=self.now_s)
        self.workers[worker.name] = worker
        self.share.join(worker.name)
        return worker

    def give(self, item: _Item) -> None:
        worker = self.random.choice(list(self.workers.values()))
        worker.work[item.number] = item
        self._begin(worker, worker.ledger.ask(item.number, tokens=item.estimate, now_s=self.now_s))

    def die(self) -> None:
        worker = self.workers.pop(self.random.choice(list(self.workers)))
        self.ghosts += [self.now_s + self.random.uniform(0, _GRACE_S) for _ in worker.running]
        self.dead.append((self.now_s + self.random.uniform(0, 1), worker))
        if not self.workers:
            self.join()

    def pause(self) -> None:
        self.random.choice(list(self.workers.values())).ledger.pause(self.now_s + self.random.uniform(0.5, 3))

    def step(self, by_s: float) -> None:
        self.now_s += by_s
        self.ghosts = [at_s for at_s in self.ghosts if at_s > self.now_s]
        self._bury()
        for worker in list(self.workers.values()):
            self._run(worker)
            self._listen(worker)
            self._speak(worker)
        for name, portion in self.share.portions(now_s=self.now_s).items():
            if name in self.workers:
                self._post(self.workers[name].inbox, portion)
        assert self.share.taken <= self.setting.capacity

    def _bury(self) -> None:
        for at_s, worker in list(self.dead):
            if at_s <= self.now_s:
                self.dead.remove((at_s, worker))
                self.share.leave(worker.name, now_s=self.now_s, grace_s=_GRACE_S)
                for item in worker.work.values():
                    self.give(item)

    def _run(self, worker: _Worker) -> None:
        for number, end_s in list(worker.running.items()):
            if end_s > self.now_s:
                continue
            del worker.running[number]
            item = worker.work.pop(number)
            self.done.add(number)
            for _ in range(item.repairs):
                worker.ledger.begin_again(number, tokens=item.estimate)
            self._begin(worker, worker.ledger.correct(number, item.used, now_s=self.now_s))
            self._begin(worker, worker.ledger.release(number, now_s=self.now_s))
        self._begin(worker, worker.ledger.grant(self.now_s))

    def _listen(self, worker: _Worker) -> None:
        while worker.inbox and worker.inbox[0][0] <= self.now_s:
            self._begin(worker, worker.ledger.obey(worker.inbox.popleft()[1], now_s=self.now_s))

    def _speak(self, worker: _Worker) -> None:
        need = worker.ledger.need(self.now_s)
        if need != worker.said:
            worker.said = need
            self._post(worker.outbox, need)
        while worker.outbox and worker.outbox[0][0] <= self.now_s:
            _, need = worker.outbox.popleft()
            # What an estimate was too high comes back once the driver hears of it.
            if self.tokens is not None:
                self.tokens = self.tokens.at(self.now_s).take(worker.returned - need.tokens_returned)
            worker.returned = need.tokens_returned
            self.share.report(worker.name, need, now_s=self.now_s)

    def _post(self, box: deque, message: object) -> None:
        due_s = self.now_s + self.random.uniform(0, self.setting.latency_s)
        box.append((max(due_s, box[-1][0] if box else 0.0), message))

    def _begin(self, worker: _Worker, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            item = worker.work[number]
            worker.running[number] = self.now_s + item.takes_s
            if self.requests is not None:
                self.requests = self.requests.at(self.now_s)
                assert self.requests.suffices(1), "more requests began than one worker alone could have begun"
                self.requests = self.requests.take(1)
            if self.tokens is not None:
                self.tokens = self.tokens.at(self.now_s)
                assert self.tokens.suffices(item.estimate), "more tokens were used than one worker alone could have"
                self.tokens = self.tokens.take(item.estimate)
            in_flight = len(self.ghosts) + sum(len(one.running) for one in self.workers.values())
            self.most = max(self.most, in_flight)
            assert in_flight <= self.setting.capacity, "more are in flight than the server has places"


def _full(per_minute: int | None) -> Allowance | None:
    return None if per_minute is None else Allowance.full(per_minute, -inf)


def _run(setting: _Setting) -> _World:
    """Do all items, while workers come and die and servers ask to be left alone."""
    world = _World(setting)
    rng = world.random
    for _ in range(setting.workers):
        world.join()
    most = setting.tokens_per_minute or 1000
    items = deque(
        _Item(
            number, size, size if setting.repairs else rng.uniform(0.2, 1) * size, rng.choice([0.01, 0.5, 4]), repairs
        )
        for number in range(setting.items)
        # A few need all that a minute has, or more.
        for size in [rng.choice([1, 5, 30, 100, 101]) / 100 * most if rng.random() < 0.2 else most / 50]
        for repairs in [setting.repairs and rng.random() < 0.2]
    )
    deaths, pauses = setting.deaths, setting.pauses
    # Two hours are much more than any of these needs.
    while len(world.done) < setting.items:
        assert world.now_s < 7200, f"{len(world.done)} of {setting.items} are done: somebody waits for ever"
        if items and rng.random() < 0.3:
            for _ in range(min(len(items), rng.randint(1, 10))):
                world.give(items.popleft())
        if deaths and rng.random() < 0.05:
            deaths -= 1
            world.die()
            if rng.random() < 0.7:
                world.join()
        if pauses and rng.random() < 0.05:
            pauses -= 1
            world.pause()
        world.step(rng.choice([0.01, 0.05, 0.1]) if rng.random() < 0.95 else 1.0)
    return world


_LIMITS = pytest.mark.parametrize(
    ("requests_per_minute", "tokens_per_minute"),
    [(None, None), (60, None), (None, 600), (30, 500)],
    ids=["places", "requests", "tokens", "both"],
)
_PLACES = pytest.mark.parametrize(
    ("capacity", "workers"), [(1, 5), (3, 2), (5, 8), (20, 7)], ids=["one", "few", "scarce", "many"]
)


@_LIMITS
@_PLACES
@pytest.mark.parametrize("seed", [2, 3])
def test_a_job_on_many_workers_does_no_more_than_one_worker_might_and_ends(
    capacity: int, workers: int, requests_per_minute: int | None, tokens_per_minute: int | None, seed: int
) -> None:
    """However late messages are, whoever dies or pauses, no bound is passed at any step and everything is done."""
    setting = _Setting(
        seed=seed,
        capacity=capacity,
        workers=workers,
        items=60,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        deaths=4,
        pauses=3,
        repairs=seed == 3,
    )
    world = _run(setting)
    assert len(world.done) == 60


def test_two_that_hold_what_the_other_lacks_both_go_on() -> None:
    """One request and five hundred tokens a minute: whoever holds the one never waits for ever for the other."""
    setting = _Setting(seed=5, capacity=1, workers=5, items=12, requests_per_minute=1, tokens_per_minute=500, deaths=2)
    assert len(_run(setting).done) == 12


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    capacity=st.integers(1, 12),
    workers=st.integers(1, 9),
    requests_per_minute=st.none() | st.integers(1, 200),
    tokens_per_minute=st.none() | st.integers(50, 5000),
    latency_s=st.sampled_from([0.0, 0.05, 2.0]),
    deaths=st.integers(0, 5),
    pauses=st.integers(0, 4),
    repairs=st.booleans(),
)
def test_no_setting_passes_a_bound_or_gets_stuck(**drawn: object) -> None:
    """Whatever the numbers of places, workers and allowances are."""
    setting = _Setting(items=12, **drawn)
    assert len(_run(setting).done) == 12
