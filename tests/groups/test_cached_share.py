"""How much of its input a group had from a cache."""

from __future__ import annotations

import pytest

from furcate.groups import Group
from furcate.primitives._observations import RunFinished
from furcate.primitives._usage import Usage


def told(*usages: Usage) -> Group:
    group = Group("angles")
    for number, usage in enumerate(usages):
        group.on_event(
            RunFinished(
                run_id=f"{number}",
                status="succeeded",
                duration_s=1.0,
                usage=usage,
                attempts=1,
                repairs=0,
                validation="not_requested",
            )
        )
    return group


@pytest.mark.parametrize(
    ("usages", "share"),
    [
        ((), None),
        ((Usage(input_tokens=10),), None),
        ((Usage(input_tokens=10, cache_read_tokens=0),), 0.0),
        ((Usage(input_tokens=10, cache_read_tokens=30),), 0.75),
        ((Usage(input_tokens=10, cache_read_tokens=60, cache_write_tokens=50),), 0.5),
        ((Usage(input_tokens=5, cache_read_tokens=95), Usage(input_tokens=100)), 0.475),
        ((Usage(cache_read_tokens=0),), None),
    ],
)
def test_the_share_is_of_all_known_input(usages, share) -> None:
    """Plain input, what was read from a cache and what was written to one make the whole."""
    assert told(*usages).summary().cached_share == share


def test_the_text_tells_the_share() -> None:
    """A person sees at once what the cache was worth, and what of it is not known."""
    group = told(Usage(input_tokens=5, cache_read_tokens=95), Usage(input_tokens=100))
    assert "  cache read 95 tokens (48% of all input, 1 run unknown)" in str(group.summary()).splitlines()
    assert "%" not in str(told(Usage(input_tokens=5, cache_read_tokens=0)).summary())
