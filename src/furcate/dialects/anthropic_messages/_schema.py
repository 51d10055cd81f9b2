"""Schemas in the part of JSON Schema that ``anthropic-messages`` takes for structured answers.

The provider compiles a schema into a grammar: objects are closed, bounds and patterns are not taken, references stay
inside and never go in circles. What it does not take is told in the description instead, where the model can read it;
the full schema is held against the answer here in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from furcate.primitives._json import Frozen, FrozenMap, Plain, thaw

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
)
_DEFINITIONS = ("$defs", "definitions")

# What is taken over or made anew below, and what says nothing about a value.
_HANDLED = frozenset(
    {
        *_DEFINITIONS, "$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "enum", "items",
        "oneOf", "patternProperties", "prefixItems", "properties", "required", "title", "type",
        "$schema", "$id", "$comment", "$anchor", "examples", "default", "deprecated", "readOnly", "writeOnly",
    }
)  # fmt: skip
_NOTE_LIMIT = 400


class _Inexpressible(Exception):
    """Raised when a schema says something that has no form here and cannot be left to its description."""


def adapted(schema: FrozenMap) -> dict[str, Plain] | None:
    """Give a schema as the provider takes it, or None where nothing useful is left of it.

    Free-form objects and lists, open maps, and schemas that refer to themselves cannot be told to the provider.
    """
    try:
        _check_references(schema)
        return _adapt(schema)
    except (_Inexpressible, RecursionError):
        return None


def _check_references(schema: FrozenMap) -> None:
    definitions: dict[str, Frozen] = {}
    for key in _DEFINITIONS:
        held = schema.get(key)
        if isinstance(held, FrozenMap):
            definitions.update({f"#/{key}/{name}": one for name, one in held.items()})
    edges = {name: _references(one) for name, one in definitions.items()}
    rest = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    edges["#"] = _references(FrozenMap(rest))
    finished: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above or name not in edges:
            raise _Inexpressible
        if name not in finished:
            for target in sorted(edges[name]):
                visit(target, (*above, name))
            finished.add(name)

    visit("#", ())


def _references(value: Frozen) -> set[str]:
    if isinstance(value, tuple):
        return {reference for one in value for reference in _references(one)}
    if not isinstance(value, FrozenMap):
        return set()
    own = value.get("$ref")
    found = {own} if isinstance(own, str) else set()
    return found.union(*(_references(one) for one in value.values()))


def _adapt(schema: Frozen) -> dict[str, Plain]:
    if not isinstance(schema, FrozenMap):
        raise _Inexpressible
    made: dict[str, Plain] = {}
    for key in _DEFINITIONS:
        held = schema.get(key)
        if isinstance(held, FrozenMap):
            made[key] = {name: _adapt(one) for name, one in held.items()}
    if isinstance(schema.get("$ref"), str):
        return {**made, "$ref": schema["$ref"]}  # type: ignore[dict-item]  # a string, as was just looked up
    made.update(_choices(schema))
    kinds = _kinds(schema)
    if kinds:
        made["type"] = list(kinds) if len(kinds) > 1 else kinds[0]
    if "object" in kinds:
        made.update(_object(schema))
    if "array" in kinds:
        made.update(_array(schema))
    if not made.keys() - set(_DEFINITIONS):
        raise _Inexpressible
    _describe(schema, made)
    return made


def _kinds(schema: FrozenMap) -> tuple[str, ...]:
    given = schema.get("type")
    if isinstance(given, str):
        return (given,)
    if isinstance(given, tuple):
        return tuple(kind for kind in given if isinstance(kind, str))
    if "properties" in schema:
        return ("object",)
    return ("array",) if "items" in schema or "prefixItems" in schema else ()


def _choices(schema: FrozenMap) -> dict[str, Plain]:
    made: dict[str, Plain] = {}
    listed = schema.get("enum")
    if isinstance(listed, tuple):
        made["enum"] = [_scalar(one) for one in listed]
    if "const" in schema:
        made["const"] = _scalar(schema["const"])
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, tuple):
        made["anyOf"] = [_adapt(one) for one in options]
    joined = schema.get("allOf")
    if isinstance(joined, tuple):
        if _references(joined):
            raise _Inexpressible
        made["allOf"] = [_adapt(one) for one in joined]
    return made


def _scalar(value: Frozen) -> Plain:
    if isinstance(value, (tuple, FrozenMap)):
        raise _Inexpressible
    return value


def _object(schema: FrozenMap) -> dict[str, Plain]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = FrozenMap()
    if not properties and (schema.get("additionalProperties") is not False or "patternProperties" in schema):
        raise _Inexpressible  # closing a free-form object would leave nothing that it may hold
    made: dict[str, Plain] = {
        "properties": {name: _adapt(one) for name, one in properties.items()},
        "additionalProperties": False,
    }
    if "required" in schema:
        made["required"] = thaw(schema["required"])
    return made


def _array(schema: FrozenMap) -> dict[str, Plain]:
    places = schema.get("prefixItems")
    options: list[Plain] = []
    for one in places if isinstance(places, tuple) else ():
        option = _adapt(one)
        if option not in options:
            options.append(option)
    if not options:
        made: dict[str, Plain] = {"items": _adapt(schema.get("items"))}
    elif len(options) == 1:
        made = {"items": options[0]}
    else:
        made = {"items": {"anyOf": options}}
    if schema.get("minItems") in (0, 1):
        made["minItems"] = thaw(schema["minItems"])
    return made


def _describe(schema: FrozenMap, made: dict[str, Plain]) -> None:
    form = schema.get("format")
    if form in _FORMATS:
        made["format"] = thaw(form)
    title, told = schema.get("title"), schema.get("description")
    if isinstance(title, str):
        made["title"] = title
    notes = [
        f"{key}: {json.dumps(thaw(value), ensure_ascii=False)}"
        for key, value in schema.items()
        if key not in _HANDLED and key not in made
    ]
    note = f"({', '.join(notes)})" if notes else ""
    words = [part for part in (told if isinstance(told, str) else "", note[:_NOTE_LIMIT]) if part]
    if words:
        made["description"] = " ".join(words)
