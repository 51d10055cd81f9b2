"""Texts and JSON."""

from __future__ import annotations

from hypothesis import strategies as st

from furcate.primitives._json import Plain


def words(most: int = 12) -> st.SearchStrategy[str]:
    """Give texts of any whole characters: empty ones, line breaks, controls and emoji are among them.

    Args:
        most: the length of the longest, in characters.
    """
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=most)


def json_values(most: int = 12) -> st.SearchStrategy[Plain]:
    """Give JSON values as fresh plain data; whole numbers may be of any size.

    Args:
        most: how many scalars a value holds at most.
    """
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.integers(-(2**80), 2**80)
        | st.floats(allow_nan=False, allow_infinity=False)
        | words()
    )
    return st.recursive(scalars, _around, max_leaves=most)


def json_objects(most: int = 12) -> st.SearchStrategy[dict[str, Plain]]:
    """Give JSON objects as fresh dicts.

    Args:
        most: how many scalars a member holds at most.
    """
    return st.dictionaries(words(), json_values(most), max_size=3)


def _around(inner: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    return st.lists(inner, max_size=3) | st.dictionaries(words(), inner, max_size=3)
