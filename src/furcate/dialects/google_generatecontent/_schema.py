"""JSON Schemas as ``google-generatecontent`` takes them.

The provider takes a part of JSON Schema and refuses or misreads the rest. What it does not know is left out of a
copy, or said in words that it knows; the answer is checked against the whole schema here anyway.
"""

from __future__ import annotations

from furcate.primitives._json import FrozenMap, Plain, thaw_object

# The documentation of responseJsonSchema lists these; of minimum and its like it says nothing about exclusive bounds.
_KEPT = frozenset(
    {
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    }
)
_MAPS = ("$defs", "properties")
_LISTS = ("anyOf", "oneOf", "prefixItems")


def adapted(schema: FrozenMap) -> Plain:
    """Give a copy of a schema in the words that the provider knows; it allows all that the schema allows."""
    return _schema(thaw_object(schema))


def _schema(schema: Plain) -> Plain:
    if not isinstance(schema, dict):
        return {}  # `true`, and `false` too, which there is no word for
    schema = _respelled(schema)
    if "$ref" in schema:
        # Beside a reference the provider takes no keyword but those that begin with a dollar.
        schema = {key: value for key, value in schema.items() if key.startswith("$")}
    found: dict[str, Plain] = {}
    for key, value in schema.items():
        if key not in _KEPT:
            continue
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: _schema(one) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_schema(one) for one in value]
        elif key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
            found[key] = _schema(value)
        elif key == "$ref" and isinstance(value, str):
            found[key] = value.replace("#/definitions/", "#/$defs/", 1)
        elif key != "enum" or _plain_values(value):
            found[key] = value
    return found


def _respelled(schema: dict[str, Plain]) -> dict[str, Plain]:
    """Say in known words what older or other keywords say."""
    found = dict(schema)
    parts = found.pop("allOf", None)
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict):
        found = {**parts[0], **found}
    definitions = found.pop("definitions", None)
    if isinstance(definitions, dict) and "$defs" not in found:
        found["$defs"] = definitions
    if "const" in found:
        found.setdefault("enum", [found.pop("const")])
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        bound = found.pop(exclusive, None)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            found.setdefault(inclusive, bound)
    return found


def _plain_values(values: Plain) -> bool:
    """Tell whether an enumeration has texts and numbers alone; others the provider refuses."""
    return isinstance(values, list) and all(
        isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in values
    )
