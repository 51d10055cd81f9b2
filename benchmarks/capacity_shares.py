"""Simulate how the capacity of one backend is shared among very many workers, in virtual time and without a network.

    python benchmarks/capacity_shares.py
    python benchmarks/capacity_shares.py --capacity 100 --poll 0.02
    python benchmarks/capacity_shares.py --picture docs/pictures/capacity-shares.svg

200 workers do 100,000 items of one request each; every worker has up to 16 of them at a time, which is more than its
share of the places. The ledgers and the driver's share-out are the real ones; requests take times that are drawn, and
messages go by polling, as between processes. The story: three quarters of the workers are there from the beginning, a
quarter joins later; some have nothing to do for a while; some die, which the driver notices after two seconds; and
once the server asks one of the workers to be left alone for ten seconds. Told are

- how much of the capacity was in use while there was work for it, and the most that was in flight;
- how evenly the workers were served while they had more to do than places: Jain's index of the time for which each had
  places, over windows of ten seconds and over all, and of those who were there from beginning to end, how many items
  the quickest finished for each one of the slowest;
- how long it takes until a change has come through: from joining to the first request, from running out of work to
  having given the last place up, from a wait hint until nobody begins anything.

The same seed gives the same figures anywhere. The status is 1 where more was ever in flight than there are places.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from statistics import median

from attrs import define, field, frozen

from furcate.admission import Ledger, Need, Portion, ShareOut

_WINDOW_S = 10.0
_SAMPLE_S = 0.5
_NOTICED_S = 2.0
_GRACE_S = 5.0
_PAUSE_S = 10.0


@frozen(kw_only=True)
class Plan:
    """Say what is tried.

    Attributes:
        workers: how many there are.
        items: how many there are to do.
        capacity: places of the backend.
        requests_per_minute: how many requests may begin in a minute; None sets no limit.
        service_s: how long a request takes, in seconds, on average.
        poll_s: how often a worker, and the driver, look whether there is something to say, in seconds.
        transit_s: how long a message is on its way at least, in seconds; at most three times as long.
        window: how many items a worker has at a time.
        seed: of everything that is drawn.
    """

    workers: int = 200
    items: int = 100_000
    capacity: int = 500
    requests_per_minute: int | None = None
    service_s: float = 2.0
    poll_s: float = 0.05
    transit_s: float = 0.005
    window: int = 16
    seed: int = 1

    @property
    def length_s(self) -> float:
        """How long it would take at best, in seconds: what the story's moments are parts of."""
        quickest = self.items * self.service_s / self.capacity
        return max(quickest, 0.0 if self.requests_per_minute is None else self.items * 60 / self.requests_per_minute)


@define(eq=False)
class Worker:
    """Stand for a process with its gate."""

    name: str
    ledger: Ledger[int]
    group: str
    joined_s: float
    running: set[int] = field(factory=set)
    waiting: set[int] = field(factory=set)
    resting: bool = False
    dead: bool = False
    told: int = 0
    places: dict[int, int] = field(factory=dict)
    awaited: bool = False
    first_s: float | None = None
    rested_s: float | None = None
    heard_s: float = 0.0
    said_s: float = 0.0
    finished: int = 0


@define
class Figures:
    """Hold what was seen; times in seconds."""

    finished: int = 0
    in_flight: int = 0
    most: int = 0
    total_s: float = 0.0
    busy: float = 0.0
    possible: float = 0.0
    to_first: list[float] = field(factory=list)
    to_give_up: list[float] = field(factory=list)
    to_stop_s: float = 0.0
    messages: int = 0
    windows: list[float] = field(factory=list)
    overall: float = 0.0
    quickest: float = 0.0
    curve: list[tuple[float, int]] = field(factory=list)
    groups: dict[str, list[tuple[float, float]]] = field(factory=lambda: defaultdict(list))
    events: list[tuple[float, str]] = field(factory=list)

    def lines(self, plan: Plan) -> Iterable[str]:
        """Give the figures as lines of text."""
        yield f"items finished                                {self.finished:,} in {self.total_s:.0f} s"
        yield f"in flight, at most                            {self.most} of {plan.capacity}"
        yield f"capacity in use while there was work          {self.busy / self.possible:.1%}"
        windows = f"{median(self.windows):.3f}, {min(self.windows):.3f}" if self.windows else "it was over before one"
        yield f"Jain's index, windows of {_WINDOW_S:.0f} s: median, least  {windows}"
        yield f"Jain's index, over all                        {self.overall:.4f}"
        yield f"items of the quickest worker for the slowest  {self.quickest:.3f}"
        yield f"joining to the first request: median, most    {_span(self.to_first)}"
        yield f"out of work to places given up: median, most  {_span(self.to_give_up)}"
        yield f"wait hint until nobody begins any more        {self.to_stop_s * 1000:.0f} ms"
        yield f"messages a worker and second, both ways       {self.messages / plan.workers / self.total_s:.2f}"


def _span(times: Sequence[float]) -> str:
    return f"{median(times) * 1000:.0f} ms, {max(times) * 1000:.0f} ms" if times else "nobody did"


def jain(amounts: Sequence[float]) -> float:
    """Give Jain's index of fairness: 1 where all amounts are equal, 1/n where one has everything."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 1.0


class Simulation:
    """Run the story once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.figures = Figures()
        self.random = random.Random(plan.seed)
        self.now_s = 0.0
        self.workers: dict[str, Worker] = {}
        self._share = ShareOut(plan.capacity, requests_per_minute=plan.requests_per_minute)
        self._pool = deque(range(plan.items))
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._due_s: dict[tuple[str, str], float] = {}
        self._paused_s = (float("inf"), float("inf"))
        self._held: dict[str, float] = defaultdict(float)  # place-seconds in this window
        self._had: dict[str, float] = defaultdict(float)  # and in all
        self._unfair: set[str] = set()  # who had not always more to do than places, in this window
        self._never_short: set[str] = set()

    def run(self) -> Figures:
        """Do all items."""
        plan, length_s = self.plan, self.plan.length_s
        early = plan.workers * 3 // 4
        self._at(0.0, lambda: self._join(early, "from the start"))
        self._at(0.15 * length_s, lambda: self._join(plan.workers - early, "joined later"))
        self._at(0.3 * length_s, lambda: self._rest(plan.workers // 4, 0.15 * length_s))
        self._at(0.6 * length_s, lambda: self._die(plan.workers // 10))
        self._at(0.65 * length_s, lambda: self._join(plan.workers // 10, "joined later"))
        self._at(0.75 * length_s, self._hint)
        self._at(0.0, self._drive)
        self._at(_SAMPLE_S, self._sample)
        self._at(_WINDOW_S, self._close_window)
        while self.figures.finished < plan.items:
            moment, _, do = heapq.heappop(self._events)
            self._advance(moment)
            do()
        self.figures.total_s = self.now_s
        self._sum_up()
        return self.figures

    def _at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), do))

    def _advance(self, moment: float) -> None:
        by_s = moment - self.now_s
        if self._pool and self.now_s > 1.0 and not self._paused_s[0] <= self.now_s < self._paused_s[1] + 1.0:
            self.figures.possible += by_s * self.plan.capacity
            self.figures.busy += by_s * self.figures.in_flight
        self.now_s = moment

    # What happens to workers.

    def _join(self, number: int, group: str) -> None:
        for _ in range(number):
            worker = Worker(
                f"w{len(self.workers)}",
                Ledger(self.plan.capacity, requests_per_minute=self.plan.requests_per_minute),
                group,
                self.now_s,
            )
            worker.ledger.obey(Portion.nothing(), now_s=self.now_s)
            self.workers[worker.name] = worker
            self._share.join(worker.name)
            self._never_short.add(worker.name)
            self._unfair.add(worker.name)
            self._refill(worker)
        self._mark(f"{number} join" if self.now_s else "")

    def _rest(self, number: int, for_s: float) -> None:
        resting = [worker for worker in self.workers.values() if worker.group == "from the start"][:number]
        for worker in resting:
            worker.group, worker.resting = "without work for a while", True
            for item in tuple(worker.waiting):
                worker.waiting.discard(item)
                self._pool.append(item)
                self._begin(worker, worker.ledger.withdraw(item, now_s=self.now_s))
            self._never_short.discard(worker.name)
            self._check_rest(worker)
            self._say(worker)

        def wake() -> None:
            for worker in resting:
                worker.resting, worker.rested_s = False, None
                self._unfair.add(worker.name)
                self._refill(worker)
            self._mark("and go on")

        self._mark(f"{number} out of work")
        self._at(self.now_s + for_s, wake)

    def _die(self, number: int) -> None:
        steady = [worker for worker in self.workers.values() if worker.group == "from the start"]
        dying = steady[len(steady) - number :]
        for worker in dying:
            worker.dead = True
            self._never_short.discard(worker.name)
            # The server works on for as long as it takes to notice; it counts as in flight until then.
            for _ in worker.running:
                self._at(self.now_s + self.random.uniform(0.0, _GRACE_S), self._server_notices)

        def notice() -> None:
            for worker in dying:
                self._share.leave(worker.name, now_s=self.now_s, grace_s=_GRACE_S)
                self._pool.extend((*worker.running, *worker.waiting))
            for worker in self.workers.values():
                self._refill(worker)

        self._mark(f"{number} die")
        self._at(self.now_s + _NOTICED_S, notice)

    def _server_notices(self) -> None:
        self.figures.in_flight -= 1

    def _hint(self) -> None:
        worker = next(worker for worker in self.workers.values() if not worker.dead and worker.running)
        self._paused_s = (self.now_s, self.now_s + _PAUSE_S)
        worker.ledger.pause(self.now_s + _PAUSE_S)
        self._mark("wait hint")
        self._say(worker)

    # What a worker does.

    def _refill(self, worker: Worker) -> None:
        while self._pool and not worker.dead and not worker.resting:
            if len(worker.running) + len(worker.waiting) >= self.plan.window:
                break
            item = self._pool.popleft()
            worker.waiting.add(item)
            self._begin(worker, worker.ledger.ask(item, now_s=self.now_s))
        self._wants_to_say(worker)

    def _begin(self, worker: Worker, items: tuple[int, ...]) -> None:
        for item in items:
            worker.waiting.discard(item)
            worker.running.add(item)
            if worker.first_s is None:
                worker.first_s = self.now_s
                if worker.joined_s:
                    self.figures.to_first.append(self.now_s - worker.joined_s)
            if self._paused_s[0] < self.now_s < self._paused_s[1]:
                self.figures.to_stop_s = max(self.figures.to_stop_s, self.now_s - self._paused_s[0])
            self.figures.in_flight += 1
            self.figures.most = max(self.figures.most, self.figures.in_flight)
            takes_s = self.plan.service_s * self.random.lognormvariate(-0.18, 0.6)
            self._at(self.now_s + takes_s, lambda item=item, takes_s=takes_s: self._end(worker, item, takes_s))

    def _end(self, worker: Worker, item: int, took_s: float) -> None:
        if worker.dead:
            return
        self.figures.in_flight -= 1
        self.figures.finished += 1
        worker.finished += 1
        self._held[worker.name] += took_s
        self._had[worker.name] += took_s
        worker.running.discard(item)
        before = worker.ledger.standing
        self._begin(worker, worker.ledger.release(item, now_s=self.now_s))
        self._refill(worker)
        if not worker.waiting:
            self._unfair.add(worker.name)
        self._check_rest(worker)
        if worker.ledger.standing.is_news_after(before):
            self._say(worker)

    def _check_rest(self, worker: Worker) -> None:
        if worker.resting and not worker.running and worker.rested_s is None:
            worker.rested_s = self.now_s

    def _wants_to_say(self, worker: Worker) -> None:
        if worker.awaited or worker.dead:
            return
        worker.awaited = True

        def poll() -> None:
            worker.awaited = False
            self._say(worker)

        self._at(self.now_s + self.random.uniform(0.0, self.plan.poll_s), poll)

    def _say(self, worker: Worker) -> None:
        if not worker.dead:
            need = worker.ledger.need(self.now_s)
            self._send(worker, "driver", lambda: self._driver_hears(worker, need))

    def _hear(self, worker: Worker, portion: Portion) -> None:
        if worker.dead:
            return
        worker.told = portion.places
        self._begin(worker, worker.ledger.obey(portion, now_s=self.now_s))
        if portion.paused_s:
            self._at(self.now_s + portion.paused_s + 1e-6, lambda: self._begin(worker, worker.ledger.grant(self.now_s)))
        self._refill(worker)
        self._say(worker)

    # What the driver does.

    def _driver_hears(self, worker: Worker, need: Need) -> None:
        self._share.report(worker.name, need, now_s=self.now_s)
        gave_up = not need.in_use and worker.places.get(need.obeyed) == 0
        if worker.rested_s is not None and gave_up and worker.rested_s > 0:
            self.figures.to_give_up.append(self.now_s - worker.rested_s)
            worker.rested_s = -1.0

    def _drive(self) -> None:
        for name, portion in self._share.portions(now_s=self.now_s).items():
            worker = self.workers[name]
            worker.places = {number: n for number, n in worker.places.items() if number > portion.number - 50_000}
            worker.places[portion.number] = portion.places
            self._send(worker, "worker", lambda worker=worker, portion=portion: self._hear(worker, portion))
        self._at(self.now_s + self.plan.poll_s, self._drive)

    def _send(self, worker: Worker, whither: str, arrive: Callable[[], None]) -> None:
        self.figures.messages += 1
        key = (worker.name, whither)
        due_s = self.now_s + self.plan.transit_s * self.random.uniform(1.0, 3.0)
        self._due_s[key] = max(due_s, self._due_s.get(key, 0.0))
        self._at(self._due_s[key], arrive)

    # What is looked at.

    def _mark(self, words: str) -> None:
        if words:
            self.figures.events.append((self.now_s, words))

    def _sample(self) -> None:
        self.figures.curve.append((self.now_s, self.figures.in_flight))
        groups: dict[str, list[int]] = defaultdict(list)
        for worker in self.workers.values():
            if not worker.dead:
                groups[worker.group].append(worker.told)
        for name, places in groups.items():
            self.figures.groups[name].append((self.now_s, sum(places) / len(places)))
        self._at(self.now_s + _SAMPLE_S, self._sample)

    def _close_window(self) -> None:
        alike = [w.name for w in self.workers.values() if not w.dead and not w.resting and w.name not in self._unfair]
        if self._pool and len(alike) > 1:
            self.figures.windows.append(jain([self._held[name] for name in alike]))
        self._held.clear()
        self._unfair = {worker.name for worker in self.workers.values() if not worker.waiting}
        self._at(self.now_s + _WINDOW_S, self._close_window)

    def _sum_up(self) -> None:
        steady = [w for w in self.workers.values() if w.name in self._never_short and not w.joined_s]
        self.figures.overall = jain([self._had[worker.name] for worker in steady])
        done = [worker.finished for worker in steady]
        self.figures.quickest = max(done) / max(1, min(done))


class Picture:
    """Draw the curves of a run as an SVG of two panels above one another.

    Args:
        plan: what was tried.
        figures: what was seen.
    """

    _WIDTH, _HEIGHT, _LEFT, _RIGHT = 960, 620, 70, 20
    _COLOURS = ("#1f6fb4", "#c8541b", "#2d8659", "#7a4fa3")

    def __init__(self, plan: Plan, figures: Figures) -> None:
        self._plan = plan
        self._figures = figures
        self._parts: list[str] = []
        self._words: list[str] = []

    def svg(self) -> str:
        """Give the picture."""
        plan, figures = self._plan, self._figures
        self._text(
            self._WIDTH / 2, 24, f"{plan.workers} workers share {plan.capacity} places", size=17, anchor="middle"
        )
        what = (
            f"{plan.items:,} requests of {plan.service_s:g} s on average; a look for messages every {plan.poll_s:g} s"
        )
        self._text(self._WIDTH / 2, 43, what, size=12, anchor="middle", colour="#555")
        high = plan.capacity * 1.1
        self._panel(90, 220, high, "requests in flight", plan.capacity / 5)
        self._line([(0.0, plan.capacity), (figures.total_s, plan.capacity)], 90, 220, high, "#999", dashes="6 4")
        self._line(figures.curve, 90, 220, high, self._COLOURS[0])
        self._legend(90, [("in flight", self._COLOURS[0], ""), ("capacity", "#999", "6 4")])
        top = max(value for curve in figures.groups.values() for _, value in curve) * 1.15
        step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if top / step <= 8)
        self._panel(365, 200, top, "places of a worker, on average", step)
        for (_, curve), colour in zip(figures.groups.items(), self._COLOURS, strict=False):
            self._line(curve, 365, 200, top, colour)
        names = [(name, colour, "") for name, colour in zip(figures.groups, self._COLOURS, strict=False)]
        self._legend(365, names)
        self._text(self._WIDTH / 2, 608, "seconds since the start", size=12, anchor="middle")
        size = f"0 0 {self._WIDTH} {self._HEIGHT}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif">'
        ground = f'<rect width="{self._WIDTH}" height="{self._HEIGHT}" fill="white"/>'
        return "\n".join((head, ground, *self._parts, *self._words, "</svg>\n"))

    def _x(self, moment: float) -> float:
        return self._LEFT + (self._WIDTH - self._LEFT - self._RIGHT) * moment / self._figures.total_s

    def _panel(self, top: float, height: float, most: float, title: str, step: float) -> None:
        right, bottom = self._WIDTH - self._RIGHT, top + height
        for number in range(int(most / step) + 1):
            y = bottom - height * number * step / most
            self._parts.append(f'<path d="M{self._LEFT} {y:.1f}H{right}" stroke="#e4e4e4"/>')
            self._text(self._LEFT - 8, y + 4, f"{number * step:g}", size=11, anchor="end")
        every = next(
            every for every in (10, 20, 50, 100, 200, 500, 1000, 10_000) if self._figures.total_s / every <= 10
        )
        for number in range(int(self._figures.total_s / every) + 1):
            x = self._x(number * every)
            self._parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="#333"/>')
            self._text(x, bottom + 18, f"{number * every}", size=11, anchor="middle")
        for moment, words in self._figures.events:
            x = self._x(moment)
            self._parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="#bbb" stroke-dasharray="2 3"/>')
            if top < 200:
                self._text(x + 3, bottom - 8 - 14 * (self._figures.events.index((moment, words)) % 2), words, size=11)
        self._parts.append(f'<path d="M{self._LEFT} {top}V{bottom}H{right}" stroke="#333" fill="none"/>')
        turned = f'transform="translate(20 {top + height / 2}) rotate(-90)" text-anchor="middle"'
        self._parts.append(f'<text {turned} font-size="12">{title}</text>')

    def _line(
        self,
        curve: Sequence[tuple[float, float]],
        top: float,
        height: float,
        most: float,
        colour: str,
        *,
        dashes: str = "",
    ) -> None:
        points = " ".join(f"{self._x(at):.1f},{top + height - height * value / most:.1f}" for at, value in curve)
        pen = f'fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}"'
        self._parts.append(f'<polyline points="{points}" {pen}/>')

    def _legend(self, top: float, names: Sequence[tuple[str, str, str]]) -> None:
        x = float(self._LEFT)
        for name, colour, dashes in names:
            y = top - 14
            self._parts.append(
                f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/>'
            )
            self._text(x + 30, y + 4, name, size=12)
            x += 60 + 7 * len(name)

    def _text(self, x: float, y: float, words: str, *, size: int, anchor: str = "start", colour: str = "#222") -> None:
        # A white rim keeps words readable where a curve runs below them.
        pen = f'font-size="{size}" text-anchor="{anchor}" fill="{colour}" stroke="white" stroke-width="3"'
        self._words.append(f'<text x="{x:.1f}" y="{y:.1f}" {pen} paint-order="stroke">{words}</text>')


def main() -> int:
    """Simulate as the command line says, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--capacity", type=int, default=500)
    parser.add_argument("--requests-per-minute", type=int, default=None)
    parser.add_argument("--service", type=float, default=2.0, help="seconds that a request takes, on average")
    parser.add_argument("--poll", type=float, default=0.05, help="seconds between two looks for messages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path, default=None, help="an SVG to write")
    given = parser.parse_args()
    plan = Plan(
        workers=given.workers,
        items=given.items,
        capacity=given.capacity,
        requests_per_minute=given.requests_per_minute,
        service_s=given.service,
        poll_s=given.poll,
        seed=given.seed,
    )
    figures = Simulation(plan).run()
    sys.stdout.write("\n".join(figures.lines(plan)) + "\n")
    if given.picture is not None:
        given.picture.write_text(Picture(plan, figures).svg(), encoding="utf-8")
    return int(figures.most > plan.capacity)


if __name__ == "__main__":
    sys.exit(main())
