"""Budgets: what is set aside, what is used, and when nothing more begins."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import Budget
from furcate.primitives._budget import BudgetSpent, checked_budgets
from furcate.primitives._errors import BudgetExceededError


def test_runs_are_counted_from_their_beginning() -> None:
    """Six may begin, whether or not they have ended; the seventh is told what was reached."""
    budget = Budget(runs=6)
    running = [budget.reserve(10) for _ in range(6)]
    with pytest.raises(BudgetExceededError) as caught:
        budget.reserve(10)
    assert str(caught.value) == "the budget of 6 runs is used up; nothing was sent"
    assert (caught.value.limit, caught.value.allowed, caught.value.spent.runs) == ("runs", 6, 6)
    for reservation in running:
        reservation.settle(sent=True, tokens=5, unsure=())
    with pytest.raises(BudgetExceededError):
        budget.reserve(10)
    assert budget.spent() == BudgetSpent(runs=6, running=0, tokens=30, reserved_tokens=0, unknown_answers=0)


def test_a_run_that_sent_nothing_is_given_back() -> None:
    """Cancelled in the queue, it cost nothing, so another may begin in its place."""
    budget = Budget(runs=1)
    budget.reserve(10).settle(sent=False, tokens=0, unsure=())
    budget.reserve(10)


def test_running_runs_count_with_their_estimate() -> None:
    """What has not ended yet counts as what it is expected to use, and with what it used afterwards."""
    budget = Budget(tokens=100)
    first = budget.reserve(60)
    second = budget.reserve(60)
    with pytest.raises(BudgetExceededError, match="0 were used and 120 are set aside for running ones"):
        budget.reserve(1)
    first.settle(sent=True, tokens=20, unsure=())
    third = budget.reserve(500)
    for reservation in (second, third):
        reservation.settle(sent=True, tokens=40, unsure=())
    with pytest.raises(BudgetExceededError, match="the budget of 100 tokens is used up: 100 were used; nothing was"):
        budget.reserve(1)


def test_settling_twice_counts_once() -> None:
    """A run ends once, however often that is told."""
    budget = Budget()
    reservation = budget.reserve(10)
    for _ in range(2):
        reservation.settle(sent=True, tokens=7, unsure=[3])
    assert budget.spent() == BudgetSpent(runs=1, running=0, tokens=10, reserved_tokens=0, unknown_answers=1)


@pytest.mark.parametrize(
    ("unknown", "tokens", "refuses"), [("ignore", 17, False), ("refuse", 17, True), (5, 22, False), (100, 205, True)]
)
def test_unknown_usage_counts_as_was_chosen(unknown, tokens: int, refuses: bool) -> None:
    """Two answers that did not report all: as what is known of them, as the end of it all, or as a number at least."""
    budget = Budget(tokens=200, unknown=unknown)
    budget.reserve(1).settle(sent=True, tokens=5, unsure=[12, 0])
    assert budget.spent().tokens == tokens
    assert budget.spent().unknown_answers == 2
    if refuses:
        with pytest.raises(BudgetExceededError, match="nothing was sent"):
            budget.reserve(1)
    else:
        budget.reserve(1)


def test_a_budget_of_runs_does_not_mind_unknown_usage() -> None:
    """Where no tokens are bounded, refusing for unknown ones would help nobody."""
    budget = Budget(runs=2, unknown="refuse")
    budget.reserve(1).settle(sent=True, tokens=0, unsure=[0])
    budget.reserve(1)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"runs": 0}, ValueError, "runs is 0; give 1 or more"),
        ({"tokens": 1.5}, TypeError, "tokens is 1.5; give a whole number"),
        ({"unknown": "zero"}, ValueError, "unknown is 'zero'; give 'ignore', 'refuse' or a number of tokens"),
        ({"unknown": -1}, ValueError, "unknown is -1; give 0 or more"),
        ({"unknown": None}, TypeError, "unknown is None; give a whole number"),
    ],
)
def test_a_wrong_budget_is_refused(given, kind: type[Exception], sentence: str) -> None:
    """One sentence says what is wrong and what would be right."""
    with pytest.raises(kind) as caught:
        Budget(**given)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Budget(), "budgets are given as a list or tuple, even a single one"),
        ([5], "budgets holds a int; give furcate.Budget values, as furcate.Budget(runs=10)"),
        ([Budget], "budgets holds a Budget; give furcate.Budget values, as furcate.Budget(runs=10)"),
    ],
)
def test_what_is_no_budget_is_refused(given, sentence: str) -> None:
    """A single budget, something else, and the class in place of an object of it."""
    with pytest.raises(TypeError) as caught:
        checked_budgets(given)
    assert str(caught.value) == sentence


def test_threads_do_not_overshoot_together() -> None:
    """Four threads that take what they can take exactly what there is."""
    budget = Budget(runs=1000)
    taken: list[int] = []

    def take() -> None:
        number = 0
        try:
            while True:
                budget.reserve(1)
                number += 1
        except BudgetExceededError:
            taken.append(number)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 1000


@given(
    st.integers(1, 10),
    st.integers(1, 300),
    st.lists(st.tuples(st.sampled_from(["reserve", "reserve", "settle"]), st.integers(0, 100)), max_size=60),
)
def test_nothing_begins_once_it_is_used_up(runs: int, tokens: int, moves: list[tuple[str, int]]) -> None:
    """Whatever begins and ends: never more runs than allowed, and a run begins just if something is left."""
    budget = Budget(runs=runs, tokens=tokens)
    running: list[tuple[object, int]] = []
    used = begun = 0
    for move, number in moves:
        if move == "settle" and running:
            reservation, _ = running.pop(number % len(running))
            reservation.settle(sent=bool(number), tokens=number, unsure=())
            used += number
            begun -= not number
        elif move == "reserve":
            left = begun < runs and used + sum(estimate for _, estimate in running) < tokens
            try:
                running.append((budget.reserve(number), number))
                begun += 1
                assert left
            except BudgetExceededError:
                assert not left
    spent = budget.spent()
    assert (spent.runs, spent.running, spent.tokens) == (begun, len(running), used)
    assert spent.reserved_tokens == sum(estimate for _, estimate in running)
