"""Schemas that stand for more than they say: refused, or held against an answer in bounded time."""

from __future__ import annotations

import json

import pytest

import furcate
from furcate.primitives._errors import SchemaError
from furcate.validation import Checked, compile_contract
from furcate.validation._bounds import weigh


def check(schema: dict[str, object], value: object) -> Checked:
    return compile_contract(furcate.Contract(schema)).check(json.dumps(value))


def nested(depth: int, bottom: object) -> object:
    for _ in range(depth):
        bottom = {"a": bottom}
    return bottom


def doubling(depth: int, keyword: str, *, below: bool) -> dict[str, object]:
    """Make definitions that each name the one before twice, at the same place or one below."""

    def named(number: int) -> dict[str, object]:
        reference = {"$ref": f"#/$defs/d{number}"}
        return {"properties": {"a": reference}, "required": ["a"]} if below else reference

    definitions: dict[str, object] = {"d0": {"type": "string"}}
    for number in range(1, depth + 1):
        definitions[f"d{number}"] = {keyword: [named(number - 1), named(number - 1)]}
    return {"$defs": definitions, "$ref": f"#/$defs/d{depth}"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_unfolds_without_end_is_refused(keyword) -> None:
    """Forty definitions stand for a million million alternatives: told when the contract is compiled."""
    with pytest.raises(SchemaError, match="unfolds to more than 5,000"):
        compile_contract(furcate.Contract(doubling(40, keyword, below=False)))


def test_a_schema_that_unfolds_a_little_is_taken() -> None:
    """A few hundred alternatives are no reason to refuse."""
    assert check(doubling(7, "anyOf", below=False), "text").passed


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_alternatives_that_double_with_each_level_end(keyword) -> None:
    """A value that would be followed in a million million ways gets a fault and no more time."""
    checked = check(doubling(40, keyword, below=True), nested(40, 1))
    assert [fault.path for fault in checked.faults] == ["$"]
    assert "too many alternatives" in checked.faults[0].message


RECURSIVE = {
    "anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"const": 1},
    ]
}


def test_a_schema_that_contains_itself_twice_ends() -> None:
    """Shallow values are explained, deep ones are told as a whole."""
    assert check(RECURSIVE, nested(3, 1)).passed
    assert not check(RECURSIVE, nested(3, 2)).passed
    assert "too many alternatives" in check(RECURSIVE, nested(100, 2)).faults[0].message


def test_trees_are_checked_to_their_leaves() -> None:
    """A schema that contains itself at two places is no heavy one: its work is that of the value."""
    tree: dict[str, object] = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
        "required": ["value"],
    }
    value: dict[str, object] = {"value": "leaf"}
    for number in range(100):
        value = {"value": number, "left": {"value": 0}, "right": value}
    assert [fault.path for fault in check(tree, value).faults] == ["$" + ".right" * 100 + ".value"]


def test_references_by_anchor_and_id_count() -> None:
    """However a part is named, it is found."""
    schema = {
        "$defs": {
            "one": {"$anchor": "one", "type": "string"},
            "two": {"anyOf": [{"$ref": "#one"}, {"$ref": "#one"}]},
        },
        "$ref": "#/$defs/two",
    }
    assert weigh(furcate.Contract(schema).schema).applied == 6


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(a+)+$", "a" * 5000 + "!"),
        (r"^(a|a)*\1?$", "a" * 5000 + "!"),
        (r"^(?=(a+)+$)b", "a" * 5000 + "!"),
        (r"^(([a-z]+)\2?)+$", "a" * 5000 + "1"),
        (r"(?:x+x+)+y", "x" * 5000),
        (r"^(?:(?=(a|b))\1)*$", "ab" * 20000 + "c"),
    ],
)
def test_catastrophic_patterns_are_given_up(pattern, text) -> None:
    """Patterns that go back and forth end as a fault, whether they were decided or given up."""
    checked = check({"type": "string", "pattern": pattern}, text)
    assert not checked.passed
    assert all(len(fault.message) < 1000 for fault in checked.faults)


@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "((a{100}){100}){100}"])
def test_patterns_that_compile_to_too_much_are_refused(pattern) -> None:
    """A repetition of repetitions is told when the contract is compiled."""
    with pytest.raises(SchemaError):
        compile_contract(furcate.Contract({"type": "string", "pattern": pattern}))


def test_deep_and_wide_schemas_are_taken() -> None:
    """Ninety levels of objects and three thousand definitions are no reason to refuse."""
    deep: dict[str, object] = {"type": "string"}
    for _ in range(90):
        deep = {"properties": {"a": deep}}
    assert check(deep, nested(90, "x")).passed
    assert [fault.path for fault in check(deep, nested(90, 1)).faults] == ["$" + ".a" * 90]
    wide = {"$defs": {f"d{number}": {"enum": [number]} for number in range(3000)}, "$ref": "#/$defs/d7"}
    assert check(wide, 7).passed
