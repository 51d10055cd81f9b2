"""JSON Schemas as ``openai-responses`` takes them: a copy without the words that servers refuse.

What is dropped is told in the description instead, for the model to read; the whole schema is checked here anyway.
"""

from __future__ import annotations

import re

import msgspec

from furcate.primitives._json import FrozenMap, Plain, thaw_object

_KEPT = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "definitions",
        "description",
        "enum",
        "items",
        "properties",
        "required",
        "title",
        "type",
    }
)
# Says nothing about what is right.
_SILENT = frozenset({"$comment", "$id", "$schema", "default", "deprecated", "examples", "readOnly", "writeOnly"})
_TOLD_BYTES = 200


def response_format(name: str, schema: FrozenMap) -> Plain:
    """Give the format member for a schema, or None where its root is no object, which the dialect cannot ask for."""
    if schema.get("type") != "object":
        return None
    adapted, strict = _adapted(thaw_object(schema))
    return {
        "type": "json_schema",
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "answer",
        "schema": adapted,
        "strict": strict,
    }


def _adapted(schema: dict[str, Plain]) -> tuple[dict[str, Plain], bool]:
    """Give a schema without refused words, and whether a strict server takes it."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    dropped = {key: value for key, value in schema.items() if key not in _KEPT and key not in _SILENT}
    strict = bool(kept.keys() & {"type", "anyOf", "$ref", "enum", "const"})
    for key in ("properties", "$defs", "definitions"):
        named = kept.get(key)
        if isinstance(named, dict):
            below = {name: _adapted_value(value) for name, value in named.items()}
            kept[key] = {name: value for name, (value, _) in below.items()}
            strict = strict and all(good for _, good in below.values())
    if "items" in kept:
        kept["items"], good = _adapted_value(kept["items"])
        strict = strict and good
    options = kept.get("anyOf")
    if isinstance(options, list):
        each = [_adapted_value(option) for option in options]
        kept["anyOf"] = [option for option, _ in each]
        strict = strict and all(good for _, good in each)
    if dropped and "$ref" not in kept:
        told = ", ".join(f"{key}: {msgspec.json.encode(value).decode()}" for key, value in dropped.items())
        if len(told) <= _TOLD_BYTES:
            said = kept.get("description")
            kept["description"] = f"{said} ({told})" if isinstance(said, str) and said else told
    return kept, strict and _closed(kept)


def _adapted_value(value: Plain) -> tuple[Plain, bool]:
    return _adapted(value) if isinstance(value, dict) else (value, False)


def _closed(schema: dict[str, Plain]) -> bool:
    """Tell whether an object asks for all it has and has nothing else, and a list says what is in it."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds and "items" not in schema:
        return False
    if "object" not in kinds and "properties" not in schema:
        return True
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    return schema.get("additionalProperties") is False and {str(name) for name in required} == set(properties)
