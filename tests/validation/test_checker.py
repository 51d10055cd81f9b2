"""Answers against contracts: what passes, what each failure is called, and where it is said to be."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import attrs
import pytest

from furcate.primitives._contract import Contract
from furcate.primitives._errors import SchemaError
from furcate.primitives._json import FrozenMap, Json
from furcate.primitives._result import Fault
from furcate.validation import compile_contract

RATING: dict[str, Json] = {
    "type": "object",
    "properties": {
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "note": {"type": ["string", "null"]},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
        },
    },
    "required": ["rating"],
    "additionalProperties": False,
}


def faults(contract: Contract, text: str) -> list[str]:
    return [str(fault) for fault in compile_contract(contract).check(text).faults]


def test_a_fitting_answer_passes_as_frozen_json() -> None:
    """The value of an answer that fits is frozen."""
    checked = compile_contract(Contract(RATING)).check('{"rating": 3, "items": [{"title": "a"}]}')
    assert checked.passed
    assert checked.value == FrozenMap({"rating": 3, "items": [{"title": "a"}]})
    assert isinstance(checked.value, FrozenMap)


@pytest.mark.parametrize(
    "text",
    [
        '  {"rating": 3}\n',
        '```json\n{"rating": 3}\n```',
        '```\n{"rating": 3}\n```\n',
        '```JSON \r\n{"rating": 3}\r\n```',
    ],
)
def test_white_space_and_one_fence_do_not_matter(text: str) -> None:
    """White space and one code fence around the answer are taken off."""
    assert compile_contract(Contract(RATING)).check(text).passed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON: the answer is empty"),
        ("```json\n\n```", "no JSON: the answer is empty"),
        ('{"rating": 3', "no JSON: expecting ',' delimiter at line 1, column 13"),
        ('{\n "rating" 3}', "no JSON: expecting ':' delimiter at line 2, column 11"),
        ('Sure: {"rating": 3}', "no JSON: expecting value at line 1, column 1"),
        ('{"rating": NaN}', "no JSON: NaN is no JSON number"),
        ('{"rating": -Infinity}', "no JSON: -Infinity is no JSON number"),
        ('{"rating": 1e999}', "no JSON that can be read: the number 1e999 is too large"),
        ("9" * 5000, "no JSON that can be read: it holds a whole number with too many digits"),
        ("[" * 100_000, "no JSON that can be read: it nests too deeply"),
    ],
)
def test_no_json_is_a_fault_of_the_whole(text: str, said: str) -> None:
    """A text that is no JSON gives one fault that says why and where in the text."""
    assert faults(Contract(RATING), text) == [f"$: {said}"]


def test_half_a_surrogate_pair_is_a_fault() -> None:
    """A string that is no text is a fault, not a crash."""
    assert faults(Contract({"type": "string"}), '"\\ud800"') == [
        "$: a string holds one half of a surrogate pair, which is no character"
    ]


def test_every_schema_fault_is_named_by_its_path() -> None:
    """All that breaks the schema is told, each by its path; a bound that a wire schema may drop is checked here."""
    text = json.dumps({"rating": 9, "note": 5, "items": [{"title": "a"}, {}, {"title": 7}], "more": 1})
    assert set(faults(Contract(RATING), text)) == {
        "$.rating: 9 is greater than the maximum of 5",
        '$.note: 5 is not of types "null", "string"',
        '$.items[1]: "title" is a required property',
        '$.items[2].title: 7 is not of type "string"',
        "$: Additional properties are not allowed ('more' was unexpected)",
    }


def test_keys_that_are_no_words_are_quoted_in_paths() -> None:
    """A key with a dot or a space cannot be mistaken for a way through two objects."""
    schema = {"properties": {"a.b": {"properties": {"c d": {"type": "integer"}}}}}
    assert faults(Contract(schema), '{"a.b": {"c d": "x"}}') == ['$["a.b"]["c d"]: "x" is not of type "integer"']


@pytest.mark.field(40)
def test_a_fault_never_holds_the_whole_answer() -> None:
    """Objects and lists are named, long strings are cut."""
    big = {"text": "x" * 5000}
    contract = Contract({"properties": {"a": {"type": "string"}, "b": {"pattern": "^y"}, "c": {"enum": ["p", "q"]}}})
    said = faults(contract, json.dumps({"a": big, "b": "x" * 5000, "c": [big]}))
    assert '$.a: this object is not of type "string"' in said
    assert '$.c: this list is not one of "p" or "q"' in said
    assert all(len(line) < 400 and "x" * 100 not in line for line in said)


def test_the_number_of_faults_is_bounded() -> None:
    """A thousand faults become twenty and a line that says there are more."""
    found = compile_contract(Contract({"type": "array", "items": {"type": "string"}})).check(json.dumps([1] * 1000))
    assert len(found.faults) == 21
    assert found.faults[-1] == Fault("$", "and further faults")


def test_an_optional_object_tells_what_is_wrong_inside() -> None:
    """Where one alternative of a union has the right type, its faults are told with their own paths."""
    schema: dict[str, Json] = {
        "properties": {"k": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["a"]}]}}
    }
    assert faults(Contract(schema), '{"k": {}}') == ['$.k: "a" is a required property']
    assert faults(Contract(schema), '{"k": 5}') == [
        '$.k: fits none of 2 alternatives: 5 is not of type "null"; or 5 is not of type "object"'
    ]


def test_formats_are_checked() -> None:
    """A format in the schema is enforced."""
    assert faults(Contract({"type": "string", "format": "date"}), '"tomorrow"') == ['$: "tomorrow" is not a "date"']


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "no JSON Schema: $.type"),
        ({"properties": {"a": {"type": 5}}}, "no JSON Schema: $.properties.a.type"),
        ({"pattern": "("}, "no JSON Schema: $.pattern"),
        ({"$ref": "#/$defs/gone"}, "no JSON Schema: Pointer '/$defs/gone' does not exist"),
        ({"$ref": "http://127.0.0.1:9/s.json"}, "refers to 'http://127.0.0.1:9/s.json', which is not followed"),
        ({"$ref": "file:///etc/hostname"}, "refers to 'file:///etc/hostname', which is not followed"),
        ({"$ref": "other.json"}, "refers to 'other.json', which is not followed"),
        ({"$schema": "http://example.test/my-schema"}, "Unknown meta-schema"),
    ],
)
def test_a_schema_that_is_none_is_refused_when_it_is_compiled(schema: dict[str, Json], said: str) -> None:
    """Neither a broken schema nor one that needs another document gets as far as an answer."""
    with pytest.raises(SchemaError, match="contract 'verdict': ") as caught:
        compile_contract(Contract(schema, name="verdict"))
    assert said in str(caught.value)


def test_equal_looking_schemas_are_not_mixed_up() -> None:
    """``true`` and ``1`` are equal in Python, and different constants in a schema."""
    one, true = Contract({"const": 1}), Contract({"const": True})
    assert compile_contract(one).check("1").passed
    assert not compile_contract(true).check("1").passed


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Part:
    title: str
    weight: float = 1.0


@dataclass
class Box:
    size: int


@attrs.frozen
class Report:
    title: str
    done: bool
    count: int = attrs.field()
    share: float = attrs.field()
    parts: tuple[Part, ...] = ()
    colour: Colour = Colour.RED
    level: Literal["low", 1] = "low"
    pair: tuple[int, str] | None = None
    holder: Part | Box | None = None
    tags: frozenset[str] = frozenset()
    totals: dict[str, int] = attrs.field(factory=dict)
    words: Sequence[str] = ()

    @count.validator
    def _check(self, _attribute: object, value: int) -> None:
        if value < 0:
            raise ValueError("count is negative; count from 0")


GOOD = {"title": "t", "done": True, "count": 2, "share": 0.5}


def test_a_class_gives_an_instance() -> None:
    """An answer to a contract of a class becomes an instance, nested ones included."""
    more = {
        "parts": [{"title": "p"}],
        "colour": "blue",
        "level": 1,
        "pair": [1, "x"],
        "holder": {"size": 3},
        "tags": ["a"],
        "totals": {"a": 1},
        "words": ["w"],
    }
    checked = compile_contract(Contract.of(Report)).check(json.dumps({**GOOD, **more}))
    assert checked.value == Report(
        "t", True, 2, 0.5, (Part("p"),), Colour.BLUE, 1, (1, "x"), Box(3), frozenset("a"), {"a": 1}, ("w",)
    )


OPEN: dict[str, Json] = {"type": "object"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"done": "no"}, '$.done: "no" is not true or false'),
        ({"done": 1}, "$.done: 1 is not true or false"),
        ({"count": 2.9}, "$.count: 2.9 is not a whole number"),
        ({"count": True}, "$.count: true is not a whole number"),
        ({"title": 5}, "$.title: 5 is not a string"),
        ({"share": "0.5"}, '$.share: "0.5" is not a number'),
        ({"parts": "abc"}, '$.parts: "abc" is not a list'),
        ({"parts": [{"title": "p"}, {"weight": 1}]}, "$.parts[1].title: is required, but missing"),
        ({"parts": [{"title": "p", "weight": None}]}, "$.parts[0].weight: null is not a number"),
        ({"parts": [7]}, "$.parts[0]: 7 is not an object"),
        ({"colour": "green"}, '$.colour: "green" is none of "red", "blue"'),
        ({"level": True}, '$.level: true is none of "low", 1'),
        ({"pair": [1]}, "$.pair: this list has 1 items; 2 are wanted"),
        ({"pair": [1, 2]}, "$.pair[1]: 2 is not a string"),
        ({"holder": {"size": "x"}}, '$.holder.size: "x" is not a whole number'),
        ({"holder": 5}, "$.holder: 5 fits none of Part, Box, NoneType"),
        ({"tags": {"a": 1}}, "$.tags: this object is not a list"),
        ({"totals": {"a": "b"}}, '$.totals.a: "b" is not a whole number'),
        ({"count": -1}, "$: count is negative; count from 0"),
    ],
)
@pytest.mark.field(40)
def test_structuring_converts_nothing(change: dict[str, object], said: str) -> None:
    """A value of another type is a fault with its path, even where the schema let it through."""
    contract = Contract(OPEN, structure=Report)
    assert faults(contract, json.dumps({**GOOD, **change})) == [said]


def test_a_whole_number_serves_as_a_float() -> None:
    """2 is taken where a float is wanted."""
    checked = compile_contract(Contract.of(Part)).check('{"title": "p", "weight": 2}')
    assert checked.value == Part("p", 2.0)
    assert isinstance(checked.value, Part)
    assert type(checked.value.weight) is float


def test_a_missing_field_of_the_whole_is_named() -> None:
    """A required field that the schema does not ask for is still named by its path."""
    assert faults(Contract(OPEN, structure=Part), "{}") == ["$.title: is required, but missing"]


@attrs.frozen
class Tree:
    name: str
    below: tuple[Tree, ...] = ()


def test_a_class_may_hold_itself() -> None:
    """Recursive classes are made, and their faults have the whole path."""
    checker = compile_contract(Contract.of(Tree))
    assert checker.check('{"name": "a", "below": [{"name": "b"}]}').value == Tree("a", (Tree("b"),))
    [fault] = checker.check('{"name": "a", "below": [{"name": "b", "below": [{"name": 1}]}]}').faults
    assert fault.path == "$.below[0].below[0].name"


def test_a_class_without_json_form_is_refused_when_it_is_compiled() -> None:
    """A class with a field that JSON cannot carry is the application's mistake, told before any answer."""

    class Opaque: ...

    @attrs.frozen
    class Holder:
        thing: Opaque

    Holder.__annotations__["thing"] = Opaque
    with pytest.raises(SchemaError, match="Holder cannot be made from JSON"):
        compile_contract(Contract(OPEN, structure=Holder))


class PolicyBreach(Exception):
    def __init__(self, message: str, path: object) -> None:
        super().__init__(message)
        self.path = path


def objecting(error: BaseException) -> Contract:
    def check(_value: object) -> None:
        raise error

    return Contract(RATING, check=check)


@pytest.mark.field(40)
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("the title is taken"), ["$: the title is taken"]),
        (PolicyBreach("too vague", "items[0].title"), ["$.items[0].title: too vague"]),
        (PolicyBreach("too vague", "$.note"), ["$.note: too vague"]),
        (PolicyBreach("too vague", "[0]"), ["$[0]: too vague"]),
        (PolicyBreach("too vague", ["items", 0, "a b"]), ['$.items[0]["a b"]: too vague']),
        (PolicyBreach("too vague", 7), ["$: too vague"]),
        (AssertionError(), ["$: AssertionError"]),
        (KeyError("total"), ["$: KeyError: 'total'"]),
        (json.JSONDecodeError("Expecting value", "x", 0), ["$: Expecting value: line 1 column 1 (char 0)"]),
        (ExceptionGroup("all", [ValueError("one"), PolicyBreach("two", "note")]), ["$: one", "$.note: two"]),
        (ValueError("x" * 5000), ["$: " + "x" * 297 + "..."]),
    ],
)
def test_whatever_the_check_raises_is_a_fault(error: Exception, said: list[str]) -> None:
    """Any exception of the application's check becomes a fault with its message, and its path where it has one."""
    assert faults(objecting(error), '{"rating": 3}') == said


def test_the_check_may_be_cancelled() -> None:
    """What is no Exception passes through: cancellation and Ctrl-C are not the answer's fault."""
    with pytest.raises(KeyboardInterrupt):
        faults(objecting(KeyboardInterrupt()), '{"rating": 3}')


def test_the_check_sees_plain_data_and_cannot_change_the_value() -> None:
    """The check gets data of its own; what it does to them does not reach the value."""
    seen = []

    def check(value: object) -> None:
        assert isinstance(value, dict)
        seen.append(dict(value))
        value["rating"] = 99

    checked = compile_contract(Contract(RATING, check=check)).check('{"rating": 3}')
    assert seen == [{"rating": 3}]
    assert checked.value == {"rating": 3}


def test_the_check_sees_the_instance() -> None:
    """With a class, the check gets the instance."""
    seen: list[object] = []
    compile_contract(Contract.of(Part, check=seen.append)).check('{"title": "p"}')
    assert seen == [Part("p")]


def test_the_check_is_not_called_before_the_schema_holds() -> None:
    """A check may rely on the schema."""
    seen: list[object] = []
    assert not compile_contract(Contract(RATING, check=seen.append)).check('{"rating": 9}').passed
    assert seen == []


def test_a_coroutine_function_as_check_is_refused() -> None:
    """A check that would never be awaited is refused when the contract is compiled."""

    async def check(_value: object) -> None: ...

    with pytest.raises(SchemaError, match="check is a coroutine function; give a plain function"):
        compile_contract(Contract(RATING, check=check))
