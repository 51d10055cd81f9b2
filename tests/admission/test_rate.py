"""A minute's allowance: used at once or bit by bit, and back with time."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import Allowance


def test_an_allowance_comes_back_all_the_time() -> None:
    """Half of what was used in one go is back after half a minute, all of it after a whole one, and no more later."""
    used = Allowance.full(60).take(60)
    assert not used.suffices(1)
    assert used.due_s(1) == 1
    assert [used.at(moment).left for moment in (0, 1, 30, 60, 600)] == [0, 1, 30, 60, 60]


def test_what_suffices_is_due_at_once() -> None:
    """Nobody waits for what is there."""
    assert Allowance.full(10).due_s(10) == -inf


def test_an_amount_beyond_the_whole_needs_the_whole() -> None:
    """What can never be there all at once goes out when all that can be is there, and leaves a debt."""
    full = Allowance.full(100)
    assert full.suffices(250)
    after = full.take(250)
    assert after.left == -150
    assert after.due_s(250) == pytest.approx(150)


def test_what_is_given_back_fills_no_further_than_the_whole() -> None:
    """An estimate that was too high is returned, without making more than a minute's worth."""
    assert Allowance.full(100).take(80).take(-50).left == 70
    assert Allowance.full(100).take(10).take(-50).left == 100


def test_time_does_not_run_backwards() -> None:
    """A moment before the latest one changes nothing."""
    used = Allowance.full(60, 100.0).take(30)
    assert used.at(50.0) == used


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 2)), max_size=30),
    st.floats(0, 1e9),
)
def test_what_is_due_is_there_when_it_is_due(per_minute: int, uses: list[tuple[float, float]], start_s: float) -> None:
    """Waiting until the moment that is named is always enough, whatever was used before and however large the clock."""
    allowance = Allowance.full(per_minute, start_s)
    for pause_s, part in uses:
        amount = part * per_minute
        allowance = allowance.at(allowance.at_s + pause_s)
        due_s = allowance.due_s(amount)
        allowance = allowance.at(max(due_s, allowance.at_s))
        assert allowance.suffices(amount)
        allowance = allowance.take(amount)
        assert allowance.left <= per_minute
