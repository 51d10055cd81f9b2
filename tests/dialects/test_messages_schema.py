"""Schemas of ``anthropic-messages`` requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap, Json
from furcate.primitives._message import Message
from furcate.primitives._settings import Settings
from furcate.primitives._wire import ModelCall


def _format(schema: dict[str, Json]) -> Any:
    settings = Settings(reasoning_effort="high")
    history = History([Message.user("hi")])
    call = ModelCall(model="m", history=history, settings=settings, schema=("answer", FrozenMap(schema)))
    config = json.loads(b"".join(dialect_named("anthropic-messages").encode(call).body))["output_config"]
    assert config["effort"] == "high"
    return config.get("format")


def _adapted(schema: dict[str, Json]) -> Any:
    told = _format(schema)
    return told if told is None else told["schema"]


@pytest.mark.field(38)
def test_what_the_provider_refuses_is_told_in_words() -> None:
    """Bounds leave the schema for the description, objects are closed, and the contract's own schema stays."""
    schema: dict[str, Json] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Review",
        "properties": {
            "rating": {"type": "integer", "minimum": 1, "maximum": 5, "description": "Stars"},
            "note": {"type": ["string", "null"], "maxLength": 9, "default": None},
            "by": {"$ref": "#/$defs/Person"},
        },
        "required": ["rating", "by"],
        "$defs": {"Person": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }
    before = json.dumps(schema)
    assert _format(schema) == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "title": "Review",
            "properties": {
                "rating": {"type": "integer", "description": "Stars (minimum: 1, maximum: 5)"},
                "note": {"type": ["string", "null"], "description": "(maxLength: 9)"},
                "by": {"$ref": "#/$defs/Person"},
            },
            "required": ["rating", "by"],
            "additionalProperties": False,
            "$defs": {
                "Person": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "additionalProperties": False,
                }
            },
        },
    }
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        ({"const": "a"}, {"const": "a"}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"allOf": [{"type": "string"}]}, {"allOf": [{"type": "string"}]}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "iban"}, {"type": "string", "description": '(format: "iban")'}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "description": '(pattern: "^a")'}),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "(uniqueItems: true)"},
        ),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 3},
            {"type": "array", "items": {"type": "string"}, "description": "(minItems: 3)"},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}, {"type": "string"}]},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        ),
        (
            {"prefixItems": [{"type": "string"}, {"type": "string"}]},
            {"type": "array", "items": {"type": "string"}},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "properties": {}, "additionalProperties": False},
        ),
        (
            {"properties": {"a": {"type": "string"}}, "additionalProperties": True},
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        ),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "string"}}},
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "string"}}},
        ),
    ],
)
def test_forms_that_have_a_counterpart(schema: dict[str, Json], adapted: object) -> None:
    """What can be said otherwise is said otherwise, and a definition used twice is no circle."""
    assert _adapted(schema) == adapted


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"type": "array"},
        {"type": "object", "properties": {"any": True}},
        {"enum": [{"a": 1}]},
        {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"type": "string"}}},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}},
        {"type": "object", "properties": {"below": {"$ref": "#"}}},
    ],
)
def test_forms_that_have_none(schema: dict[str, Json]) -> None:
    """A schema that the provider could only be told wrongly is not told at all; the answer is still checked here."""
    assert _adapted(schema) is None


def test_without_anything_to_tell() -> None:
    """A call without a schema or an effort has no output configuration."""
    call = ModelCall(model="m", history=History([Message.user("hi")]), schema=("answer", FrozenMap()))
    assert "output_config" not in json.loads(b"".join(dialect_named("anthropic-messages").encode(call).body))
