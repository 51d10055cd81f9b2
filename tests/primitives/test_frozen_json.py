"""JSON-like values that cannot change."""

import copy
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.primitives._json import FrozenMap, canonical, freeze, thaw, thaw_object

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_JSON: st.SearchStrategy[Any] = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)


def _immutable(value: object) -> bool:
    if isinstance(value, FrozenMap):
        return all(_immutable(item) for item in value.values())
    if isinstance(value, tuple):
        return all(_immutable(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


@given(_JSON)
def test_any_document_comes_back_as_it_was(value: Any) -> None:
    """Freezing makes every level immutable and hashable, and thawing gives an equal document."""
    frozen = freeze(value)
    assert _immutable(frozen)
    hash(frozen)
    assert thaw(frozen) == value
    assert json.dumps(thaw(frozen)) == json.dumps(value)
    assert freeze(frozen) == frozen


@given(_JSON)
def test_a_thawed_document_shares_nothing(value: Any) -> None:
    """What was thawed may be torn apart without the frozen value noticing."""
    frozen = freeze({"whole": value})
    assert isinstance(frozen, FrozenMap)
    before = json.dumps(thaw(frozen))
    _tear(thaw_object(frozen))
    assert json.dumps(thaw(frozen)) == before


def _tear(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _tear(item)
        value.clear()
    elif isinstance(value, list):
        for item in value:
            _tear(item)
        value.clear()


def test_changing_the_source_changes_nothing() -> None:
    """The frozen value holds copies at every depth."""
    source: dict[str, Any] = {"list": [1, {"deep": ["x"]}], "map": {"a": 1}}
    frozen = FrozenMap(source)
    source["list"][1]["deep"].append("y")
    source["map"].clear()
    del source["list"][0]
    assert thaw_object(frozen) == {"list": [1, {"deep": ["x"]}], "map": {"a": 1}}


def test_a_frozen_map_offers_no_change() -> None:
    """Neither items nor attributes can be set or removed."""
    frozen: Any = FrozenMap({"a": {"b": 1}})
    for target in (frozen, frozen["a"]):
        with pytest.raises(TypeError):
            target["b"] = 2
        with pytest.raises(TypeError):
            del target["b"]
        with pytest.raises(AttributeError):
            target.other = 1


def test_copies_are_the_same_object_and_a_pickle_an_equal_one() -> None:
    """What cannot change needs no copy, and survives a trip in bytes."""
    frozen = FrozenMap({"a": [1, {"b": None}]})
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    assert pickle.loads(pickle.dumps(frozen)) == frozen


def test_equality_and_hash_look_at_content_not_order() -> None:
    """Maps with the same items are equal and hash alike, and equal a plain mapping of frozen content."""
    one, other = FrozenMap({"a": 1, "b": {"c": 2}}), FrozenMap({"b": {"c": 2}, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one == {"a": 1, "b": {"c": 2}}
    assert one != FrozenMap({"a": 1})


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        ({"a": {"b": [1, object()]}}, TypeError, "$.a.b[1] is of type object; only JSON-like data is taken here"),
        ({"a": [{"b": {1, 2}}]}, TypeError, "$.a[0].b is of type set; only JSON-like data is taken here"),
        ({"a": b"bytes"}, TypeError, "$.a is of type bytes; only JSON-like data is taken here"),
        ({"a": {1: "x"}}, TypeError, "$.a has the key 1; JSON object keys are strings"),
        ({"a": [math.nan]}, ValueError, "$.a[0] is nan; JSON numbers are finite"),
        ({"a": {"b": -math.inf}}, ValueError, "$.a.b is -inf; JSON numbers are finite"),
        ([("a", 1)], TypeError, "$ is of type list; a JSON object is taken here, such as a dict"),
    ],
)
def test_what_has_no_json_form_is_refused_by_its_place(value: Any, kind: type[Exception], sentence: str) -> None:
    """The error names the whole path to what is wrong, and what is wrong with it."""
    with pytest.raises(kind) as caught:
        FrozenMap(value)
    assert str(caught.value) == sentence


@given(st.dictionaries(st.text(), _JSON, max_size=3))
def test_canonical_bytes_ignore_the_order_of_keys(value: dict[str, Any]) -> None:
    """Equal documents encode to equal bytes, which decode to the document."""
    turned = dict(reversed(value.items()))
    assert canonical(value) == canonical(turned)
    assert json.loads(canonical(value).decode("utf-8", "surrogatepass")) == value


def test_canonical_takes_a_lone_surrogate() -> None:
    """Half a character can be hashed, and differs from the whole one."""
    assert canonical("\ud83d") != canonical("\ude00")
    assert canonical("\ud83d\ude00") != canonical("\U0001f600")
