"""JSON Schema of an attrs class or a dataclass.

Objects are closed and every field without a default is required, which is what servers with strict structured output
ask for.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import attrs

from furcate.primitives._errors import SchemaError
from furcate.primitives._json import Json, Plain, freeze, thaw

_SCALARS: dict[object, dict[str, Plain]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}
_SEQUENCES = (list, tuple, Sequence, Iterable)
_SETS = (set, frozenset, AbstractSet)
_MAPPINGS = (dict, Mapping)


def schema_of(cls: type) -> dict[str, Plain]:
    """Derive the JSON Schema of an attrs class or a dataclass.

    Field types may be str, int, float, bool, None, Literal, Enum, unions, lists, tuples, sets, dicts with string keys,
    and further such classes. A field's metadata may carry further keywords under ``"schema"``, such as
    ``{"schema": {"minimum": 1}}``.

    Raises:
        SchemaError: the class is neither, or one of its fields has a type without a JSON form.
    """
    definitions: dict[str, Plain] = {}
    schema = _object(cls, definitions, {})
    schema["title"] = cls.__name__
    if definitions:
        schema["$defs"] = definitions
    return schema


def _fields(cls: type) -> list[tuple[str, bool, Mapping[str, Json]]]:
    if attrs.has(cls):
        return [(a.name, a.default is attrs.NOTHING, a.metadata) for a in attrs.fields(cls) if a.init]
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        return [
            (f.name, f.default is missing and f.default_factory is missing, f.metadata)
            for f in dataclasses.fields(cls)
            if f.init
        ]
    raise SchemaError(
        f"{getattr(cls, '__name__', cls)!r} is no attrs class and no dataclass; give one, or a JSON Schema"
    )


def _object(cls: type, definitions: dict[str, Plain], names: dict[type, str]) -> dict[str, Plain]:
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise SchemaError(
            f"{cls.__name__} has a field whose type cannot be looked up: {error}; define the classes at module level"
        ) from error
    properties: dict[str, Plain] = {}
    required: list[Plain] = []
    for name, needed, metadata in _fields(cls):
        if name not in hints:
            raise SchemaError(f"{cls.__name__}.{name} has no type; annotate the field")
        described = _type(hints[name], f"{cls.__name__}.{name}", definitions, names=names)
        extra = thaw(freeze(metadata.get("schema", {})))
        if isinstance(extra, dict):
            described = {**described, **extra}
        properties[name] = described
        if needed:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _type(hint: object, where: str, definitions: dict[str, Plain], *, names: dict[type, str]) -> dict[str, Plain]:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type(arguments[0], where, definitions, names=names)
    if origin is typing.Literal:
        return _enumeration(arguments, where)
    if origin in (typing.Union, types.UnionType):
        options: list[Plain] = [_type(a, where, definitions, names=names) for a in arguments]
        return {"anyOf": options}
    if origin in _SETS and arguments:
        return {"type": "array", "uniqueItems": True, "items": _type(arguments[0], where, definitions, names=names)}
    if origin is tuple and arguments and arguments[-1] is not ...:
        items: list[Plain] = [_type(a, where, definitions, names=names) for a in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin in _SEQUENCES and arguments:
        return {"type": "array", "items": _type(arguments[0], where, definitions, names=names)}
    if origin in _MAPPINGS and len(arguments) == 2 and arguments[0] is str:
        return {"type": "object", "additionalProperties": _type(arguments[1], where, definitions, names=names)}
    if isinstance(hint, type):
        return _class(hint, where, definitions, names=names)
    raise SchemaError(f"{where} has the type {hint!r}, which has no JSON form")


def _enumeration(values: Iterable[Json], where: str) -> dict[str, Plain]:
    try:
        return {"enum": [thaw(freeze(value)) for value in values]}
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{where} has a choice that has no JSON form: {error}") from error


def _class(hint: type, where: str, definitions: dict[str, Plain], *, names: dict[type, str]) -> dict[str, Plain]:
    if issubclass(hint, enum.Enum):
        return _enumeration((member.value for member in hint), where)
    if not (attrs.has(hint) or dataclasses.is_dataclass(hint)):
        raise SchemaError(f"{where} has the type {hint.__name__}, which has no JSON form")
    if hint not in names:
        name = hint.__name__
        while name in definitions:
            name += "_"
        names[hint] = name
        definitions[name] = None  # holds the name while the class's own fields are looked at
        definitions[name] = _object(hint, definitions, names)
    return {"$ref": f"#/$defs/{names[hint]}"}
