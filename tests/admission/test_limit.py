"""The adaptive limit: up by one, down by half, never out of its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from furcate.admission import AdaptiveLimit


def test_a_server_that_is_asked_too_much_halves_the_places() -> None:
    """Each episode halves what is left, down to a single place."""
    limit = AdaptiveLimit(capacity=9, places=9)
    seen = []
    for episode in range(5):
        limit = limit.throttled(episode)
        seen.append(limit.places)
    assert seen == [4, 2, 1, 1, 1]


def test_a_place_comes_back_after_as_many_successes_as_there_are_places() -> None:
    """From one place: one success for the second, two more for the third, three more for the fourth; then no more."""
    limit = AdaptiveLimit(capacity=4, places=1)
    seen = []
    for _ in range(8):
        limit = limit.succeeded(0)
        seen.append(limit.places)
    assert seen == [2, 2, 3, 3, 3, 4, 4, 4]


def test_what_was_begun_before_the_halving_counts_no_more() -> None:
    """Of eight that were turned away together the first halves; the others, and late successes, change nothing."""
    halved = AdaptiveLimit(capacity=8, places=8).throttled(0)
    assert halved.places == 4
    for _ in range(7):
        assert halved.throttled(0) == halved
        assert halved.succeeded(0) == halved


@given(st.integers(1, 50), st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_the_limit_stays_within_its_bounds(capacity: int, ends: list[tuple[bool, int]]) -> None:
    """Whatever ends in whatever order: at least one place, never more than the capacity, and single steps up."""
    limit = AdaptiveLimit(capacity=capacity, places=capacity)
    for good, age in ends:
        episode = max(0, limit.episode - age)
        after = limit.succeeded(episode) if good else limit.throttled(episode)
        assert 1 <= after.places <= capacity
        assert after.places <= limit.places + 1
        assert good or after.places <= limit.places
        limit = after
