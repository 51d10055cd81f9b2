"""Contracts, and the schemas of attrs classes and dataclasses."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType

import attrs
import jsonschema_rs
import pytest

from furcate.primitives._contract import Contract
from furcate.primitives._errors import SchemaError
from furcate.primitives._json import thaw_object

Label = NewType("Label", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    THING = object()


@attrs.frozen
class Place:
    city: str
    zip_code: str | None = None


@dataclasses.dataclass
class Person:
    name: str
    age: int
    height_m: float
    active: bool
    colour: Colour
    level: Level
    mood: Literal["good", "bad", 3, None]
    places: list[Place]
    pair: tuple[int, str]
    tags: frozenset[str] = frozenset()
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Sequence[tuple[int, ...]] = ()
    nothing: None = None
    nick: Annotated[str | int, "either"] = ""


@attrs.frozen
class Tree:
    label: str = attrs.field(metadata={"schema": {"minLength": 1, "description": "what it is called"}})
    children: list[Tree] = attrs.field(factory=list)
    derived: int = attrs.field(init=False, default=0)


def _schema(wanted: type) -> dict[str, Any]:
    schema = thaw_object(Contract.of(wanted).schema)
    jsonschema_rs.validator_for(schema)
    return schema


def test_a_dataclass_has_a_closed_schema_with_its_required_fields() -> None:
    """Every field has its JSON form, those without a default are required, and nothing else is allowed."""
    assert _schema(Person) == {
        "title": "Person",
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "age", "height_m", "active", "colour", "level", "mood", "places", "pair"],
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "height_m": {"type": "number"},
            "active": {"type": "boolean"},
            "colour": {"enum": ["red", "blue"]},
            "level": {"enum": [1, 2]},
            "mood": {"enum": ["good", "bad", 3, None]},
            "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            "notes": {"type": "object", "additionalProperties": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "nothing": {"type": "null"},
            "nick": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "$defs": {
            "Place": {
                "type": "object",
                "additionalProperties": False,
                "required": ["city"],
                "properties": {
                    "city": {"type": "string"},
                    "zip_code": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            }
        },
    }


def test_a_class_may_hold_itself_and_carry_further_keywords() -> None:
    """A recursive class refers to one definition; metadata adds keywords; what is not an argument is left out."""
    schema = _schema(Tree)
    label = {"type": "string", "minLength": 1, "description": "what it is called"}
    assert schema["properties"] == {
        "label": label,
        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
    }
    assert schema["required"] == ["label"]
    assert schema["$defs"]["Tree"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    checker = jsonschema_rs.validator_for(schema)
    assert checker.is_valid({"label": "a", "children": [{"label": "b", "children": []}]})
    assert not checker.is_valid({"label": "a", "children": [{"label": "", "children": []}]})


def test_two_classes_of_one_name_have_two_definitions() -> None:
    """Definitions of like-named classes do not replace one another."""
    other = attrs.make_class("Place", {"street": attrs.field(type=str)})
    both = attrs.make_class("Both", {"one": attrs.field(type=Place), "two": attrs.field(type=other)})
    schema = _schema(both)
    assert [schema["properties"][name]["$ref"] for name in ("one", "two")] == ["#/$defs/Place", "#/$defs/Place_"]
    assert set(schema["$defs"]["Place_"]["properties"]) == {"street"}


def test_a_contract_of_a_class_makes_instances_of_it() -> None:
    """The contract knows the class, is called like it, and takes repairs and a check."""

    def check(value: object) -> object:
        return value

    contract = Contract.of(Place, 2, check=check)
    assert (contract.structure, contract.name, contract.repairs, contract.check) == (Place, "Place", 2, check)


@attrs.frozen
class _HasObject:
    thing: object


@attrs.frozen
class _HasBareList:
    things: list  # type: ignore[type-arg]


@attrs.frozen
class _HasIntKeys:
    things: dict[int, str]


@attrs.frozen
class _HasNewType:
    label: Label


@attrs.frozen
class _HasOddEnum:
    odd: Odd


@attrs.frozen
class _HasBytesLiteral:
    raw: Literal[b"x"]


@attrs.frozen
class _HasNested:
    inner: list[_HasObject]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (int, "'int' is no attrs class and no dataclass; give one, or a JSON Schema"),
        (_HasObject, "_HasObject.thing has the type object, which has no JSON form"),
        (_HasBareList, "_HasBareList.things has the type list, which has no JSON form"),
        (_HasIntKeys, "_HasIntKeys.things has the type dict[int, str], which has no JSON form"),
        (_HasNewType, "_HasNewType.label has the type "),
        (_HasOddEnum, "_HasOddEnum.odd has a choice that has no JSON form: $ is of type object"),
        (_HasBytesLiteral, "_HasBytesLiteral.raw has a choice that has no JSON form: $ is of type bytes"),
        (_HasNested, "_HasObject.thing has the type object, which has no JSON form"),
        (attrs.make_class("Bare", {"x": attrs.field()}), "Bare.x has no type; annotate the field"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_class_without_a_json_form_is_refused_by_its_field(wanted: type, sentence: str) -> None:
    """The error names the class and the field, and what about it has no JSON form."""
    with pytest.raises(SchemaError) as caught:
        Contract.of(wanted)
    assert str(caught.value).startswith(sentence)


def test_a_class_whose_types_cannot_be_looked_up_is_refused() -> None:
    """A class that refers to one inside a function says where it should be defined."""

    @attrs.frozen
    class Inner:
        pass

    @attrs.frozen
    class Outer:
        inner: Inner

    with pytest.raises(SchemaError, match=r"Outer has a field whose type cannot be looked up: .*Inner.*module level"):
        Contract.of(Outer)


def test_a_contract_copies_its_schema() -> None:
    """Changing what was given as a schema leaves the contract as it was."""
    schema: dict[str, Any] = {"type": "object", "required": ["a"]}
    contract = Contract(schema)
    schema["required"].append("b")
    assert thaw_object(contract.schema) == {"type": "object", "required": ["a"]}
    assert (contract.repairs, contract.check, contract.structure) == (0, None, None)


@pytest.mark.parametrize(
    ("repairs", "kind", "sentence"),
    [
        (-1, ValueError, "repairs is -1; give 0 or more"),
        (1.0, TypeError, "repairs is 1.0; give a whole number"),
        (True, TypeError, "repairs is True; give a whole number"),
    ],
)
def test_repairs_are_a_whole_number(repairs: Any, kind: type[Exception], sentence: str) -> None:
    """A number of repairs that cannot be counted is refused in one sentence."""
    with pytest.raises(kind) as caught:
        Contract({}, repairs)
    assert str(caught.value) == sentence


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    """A JSON file that holds an object is a schema."""
    place = tmp_path / "answer.schema.json"
    place.write_text(json.dumps({"type": "object", "title": "Größe"}, ensure_ascii=False), encoding="utf-8")
    contract = Contract.from_file(place, 1)
    assert thaw_object(contract.schema) == {"type": "object", "title": "Größe"}
    assert Contract.from_file(str(place), 1) == contract


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"{", "no JSON: "),
        (b"\xff", "no JSON: "),
        (b"[]", "a JSON Schema here is an object"),
    ],
)
def test_a_schema_file_that_is_none_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    """The error names the file and what is wrong with it."""
    place = tmp_path / "answer.schema.json"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(SchemaError) as caught:
        Contract.from_file(place)
    assert str(caught.value).startswith(f"schema file {place}: {problem}")
