"""Leases under any arrivals, cancellations and releases."""

from __future__ import annotations

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import AdmissionStatistics, Gate

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@attrs.frozen
class Visit:
    """Say what one visitor of a gate does.

    Attributes:
        arrives_s: when it asks, counted from the beginning.
        stays_s: how long it holds its place.
        gives_up_s: how long after arriving it is cancelled; None for never.
        releases_early: whether it gives its place back by hand, and then once more.
        front: whether it asks as a retry does.
    """

    arrives_s: int
    stays_s: int
    gives_up_s: int | None
    releases_early: bool
    front: bool


# So few different times that much falls into one step.
VISITS = st.lists(
    st.builds(Visit, st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 3), st.booleans(), st.booleans()),
    max_size=12,
)


class Watch:
    """Check at each step that places are neither lost nor given twice."""

    def __init__(self, capacity: int) -> None:
        self.gate = Gate(capacity)
        self.capacity = capacity
        self.holding = 0
        self.asked: list[int] = []
        self.served: list[int] = []
        self.cancelled: set[int] = set()

    def look(self) -> None:
        statistics = self.gate.statistics()
        assert self.holding <= statistics.in_use <= self.capacity
        assert not statistics.waiting or statistics.in_use == self.capacity, "no place is free while one waits"

    async def visit(self, number: int, visit: Visit) -> None:
        await anyio.sleep(visit.arrives_s)
        with anyio.CancelScope() as scope:
            if visit.gives_up_s is not None:
                scope.deadline = anyio.current_time() + visit.gives_up_s
            self.asked.append(number)
            async with self.gate.lease(front=visit.front) as lease:
                self.served.append(number)
                self.holding += 1
                self.look()
                try:
                    await anyio.sleep(visit.stays_s)
                finally:
                    self.holding -= 1
                    if visit.releases_early:
                        lease.release()
                        self.look()
                        lease.release()
            self.look()
        if scope.cancelled_caught:
            self.cancelled.add(number)
        self.look()


@given(st.integers(1, 4), VISITS)
async def test_places_are_neither_lost_nor_given_twice(capacity: int, visits: list[Visit]) -> None:
    """Whoever comes, leaves, gives up or gives back, and when: nobody is stranded, and all places come back."""
    watch = Watch(capacity)
    async with anyio.create_task_group() as tasks:
        for number, visit in enumerate(visits):
            tasks.start_soon(watch.visit, number, visit)
    assert watch.gate.statistics() == AdmissionStatistics(capacity=capacity, in_use=0, waiting=0)
    assert sorted(watch.asked) == list(range(len(visits)))
    assert len(watch.served) == len(set(watch.served))
    assert set(watch.served) | watch.cancelled == set(range(len(visits)))
    assert all(visits[number].gives_up_s is not None for number in watch.cancelled)


@given(VISITS)
async def test_nobody_is_overtaken_but_by_retries(visits: list[Visit]) -> None:
    """On a single place, each kind is served in the order in which it asked, whoever else was cancelled."""
    # Of several places that are granted in one step, trio wakes the new holders in any order.
    watch = Watch(1)
    async with anyio.create_task_group() as tasks:
        for number, visit in enumerate(visits):
            tasks.start_soon(watch.visit, number, visit)
    for front in (True, False):
        served = [number for number in watch.served if visits[number].front is front]
        assert served == [number for number in watch.asked if number in served]
