"""Token counts that know what they do not know."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.primitives._usage import UNKNOWN, USAGE_FIELDS, FieldTotal, Usage, total_field

_COUNTS = st.none() | st.integers(0, 1000)
_USAGES = st.builds(
    Usage,
    input_tokens=_COUNTS,
    cache_read_tokens=_COUNTS,
    output_tokens=_COUNTS,
    lower_bounds=st.sets(st.sampled_from(USAGE_FIELDS)),
)


@pytest.mark.req("S4-103")
def test_unknown_is_not_zero() -> None:
    """A count that nobody reported is None, and differs from a reported zero."""
    assert Usage() == UNKNOWN
    assert not UNKNOWN.known
    assert Usage(output_tokens=0).known
    assert Usage(output_tokens=0) != UNKNOWN
    assert Usage.total([UNKNOWN, UNKNOWN]) == UNKNOWN
    assert Usage.total([Usage(output_tokens=0)]).output_tokens == 0


def test_a_sum_of_which_a_term_is_missing_is_a_lower_bound() -> None:
    """Known terms are added, and the sum says that it may be too small."""
    total = Usage.total([Usage(input_tokens=3, output_tokens=1), Usage(input_tokens=4)])
    assert total == Usage(input_tokens=7, output_tokens=1, lower_bounds=frozenset({"output_tokens"}))


def test_a_broken_answer_s_counts_are_lower_bounds() -> None:
    """What was known is marked, what was not stays unknown."""
    bound = Usage(input_tokens=3, reasoning_tokens=0).as_lower_bound()
    assert bound == Usage(
        input_tokens=3, reasoning_tokens=0, lower_bounds=frozenset({"input_tokens", "reasoning_tokens"})
    )
    assert UNKNOWN.as_lower_bound() == UNKNOWN


@given(st.lists(_USAGES, max_size=5), st.integers(0, 5))
def test_a_total_does_not_depend_on_grouping_or_order(terms: list[Usage], place: int) -> None:
    """Adding up in any order, or part by part where the parts hold something, gives the same counts."""
    whole = Usage.total(terms)
    assert Usage.total(reversed(terms)) == whole
    left, right = terms[:place], terms[place:]
    if left and right:
        assert Usage.total([Usage.total(left), Usage.total(right)]) == whole
    for name in USAGE_FIELDS:
        known = [value for term in terms if (value := getattr(term, name)) is not None]
        assert getattr(whole, name) == (sum(known) if known else None)


@given(st.lists(_USAGES, max_size=6), st.integers(0, 3))
def test_a_field_s_total_accounts_for_every_run(usages: list[Usage], running: int) -> None:
    """Exact, bounded, unknown and running runs make up all of them; only known counts are in the sum."""
    for name in USAGE_FIELDS:
        total = total_field(name, usages, running)
        assert total.exact + total.at_least + total.unknown == len(usages)
        assert total.running == running
        assert total.known == getattr(Usage.total(usages), name)
        assert total.complete == (bool(usages) and total.exact == len(usages) and running == 0)


def test_a_total_of_nothing_is_unknown_and_not_complete() -> None:
    """Without runs there is no total."""
    assert total_field("input_tokens", [], 0) == FieldTotal(known=None, exact=0, at_least=0, unknown=0, running=0)
    assert not total_field("input_tokens", [], 0).complete


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (-1, ValueError, "input_tokens is -1; give 0 or more"),
        (1.5, TypeError, "input_tokens is 1.5; give a whole number"),
        (True, TypeError, "input_tokens is True; give a whole number"),
        ("3", TypeError, "input_tokens is '3'; give a whole number"),
    ],
)
def test_a_count_is_a_whole_number_from_zero(value: Any, kind: type[Exception], sentence: str) -> None:
    """Anything else is refused in one sentence."""
    with pytest.raises(kind) as caught:
        Usage(input_tokens=value)
    assert str(caught.value) == sentence
