"""Plain JSON data to instances of attrs classes and dataclasses, strictly.

cattrs converts generously by itself: "no" becomes True, 2.9 becomes 2, 5 becomes "5", a string becomes a list of
letters. Here nothing is converted, but for a whole number where a float is wanted.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from cattrs import Converter, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from furcate.validation._paths import shown

Hook = Callable[[Any, Any], Any]

_NAMES: dict[object, str] = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
_BUILDERS: dict[object, Callable[[list[Any]], Any]] = {
    list: list,
    Sequence: tuple,
    Iterable: tuple,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    AbstractSet: frozenset,
    typing.MutableSequence: list,
}


class Misfit(ValueError):
    """Raised when a value does not fit its field's type; the message says what is wanted."""


def strict_converter() -> Converter:
    """Make a converter that converts nothing."""
    converter = Converter()
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(type(None), _null)
    converter.register_structure_hook_factory(_is_collection, _collection_hook)
    converter.register_structure_hook_factory(_is_choice, _choice_hook)
    converter.register_structure_hook_factory(_is_union, _union_hook)
    converter.register_structure_hook_factory(_is_class, _class_hook)
    return converter


def _exactly(kind: type) -> Hook:
    def hook(value: Any, _kind: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(f"{shown(value)} is not {_NAMES[kind]}")
        return value

    return hook


def _number(value: Any, _kind: Any) -> float:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Misfit(f"{shown(value)} is too large a number") from None
    if type(value) is not float:
        raise Misfit(f"{shown(value)} is not a number")
    return value


def _null(value: Any, _kind: Any) -> None:
    if value is not None:
        raise Misfit(f"{shown(value)} is not null")


def _is_collection(hint: Any) -> bool:
    return get_origin(hint) in _BUILDERS and bool(get_args(hint))


def _collection_hook(hint: Any, converter: Converter) -> Hook:
    build, arguments = _BUILDERS[get_origin(hint)], get_args(hint)
    fixed = get_origin(hint) is tuple and arguments[-1] is not ...

    def hook(value: Any, _hint: Any) -> Any:
        if not isinstance(value, list):
            raise Misfit(f"{shown(value)} is not a list")
        if fixed and len(value) != len(arguments):
            raise Misfit(f"this list has {len(value)} items; {len(arguments)} are wanted")
        wanted = arguments if fixed else (arguments[0],) * len(value)
        made, errors = [], []
        for index, (item, kind) in enumerate(zip(value, wanted, strict=True)):
            try:
                made.append(converter.structure(item, kind))
            except Exception as error:
                error.add_note(IterableValidationNote(f"Structuring @ index {index}", index, kind))
                errors.append(error)
        if errors:
            raise IterableValidationError(f"While structuring {hint!r}", errors, hint)
        return build(made)

    return hook


def _is_choice(hint: Any) -> bool:
    return get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum))


def _choice_hook(hint: Any) -> Hook:
    members: Iterable[Any] = get_args(hint) if get_origin(hint) is Literal else hint
    choices = [(m.value if isinstance(m, enum.Enum) else m, m) for m in members]

    def hook(value: Any, _hint: Any) -> Any:
        for plain, member in choices:
            if type(plain) is type(value) and plain == value:
                return member
        raise Misfit(f"{shown(value)} is none of {', '.join(shown(plain) for plain, _ in choices)}")

    return hook


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _union_hook(hint: Any, converter: Converter) -> Hook:
    members = get_args(hint)

    def hook(value: Any, _hint: Any) -> Any:
        # Extra keys are no error for a class alone, but they tell which of several classes is meant.
        likely = [member for member in members if _looks_like(value, member)]
        errors = []
        for member in (*likely, *(m for m in members if m not in likely)):
            try:
                return converter.structure(value, member)
            except Exception as error:
                errors.append(error)
        if len(likely) == 1:
            raise errors[0]
        raise Misfit(f"{shown(value)} fits none of {', '.join(getattr(m, '__name__', str(m)) for m in members)}")

    return hook


def _looks_like(value: Any, member: Any) -> bool:
    if isinstance(member, type) and _is_class(member):
        return isinstance(value, dict) and value.keys() <= set(_field_names(member))
    if _is_collection(member):
        return isinstance(value, list)
    return isinstance(member, type) and type(value) is member


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type) and (attrs.has(hint) or dataclasses.is_dataclass(hint))


def _field_names(cls: Any) -> Iterable[str]:
    return (f.name for f in (attrs.fields(cls) if attrs.has(cls) else dataclasses.fields(cls)))


def _class_hook(cls: Any, converter: Converter) -> Hook:
    make: Hook = make_dict_structure_fn(cls, converter)

    def hook(value: Any, kind: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"{shown(value)} is not an object")
        return make(value, kind)

    return hook
