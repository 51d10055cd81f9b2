"""Observations as lines of JSON: the form in which recordings are kept.

A line is an object with `v` (the version of the form), `at` (seconds since 1970 by the wall clock), `kind` (the name of
the observation's class) and the observation's fields under their own names. A field that has its default is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import attrs

from furcate.primitives._describe import portable
from furcate.primitives._json import FrozenMap, Plain, thaw_object
from furcate.primitives._message import Message
from furcate.primitives._observations import ContentObservation, Observation
from furcate.primitives._receipt import TransportReceipt
from furcate.primitives._settings import Settings
from furcate.primitives._usage import Usage

VERSION = 1

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def line_of(event: Observation | ContentObservation, at_s: float) -> bytes:
    """Write one observation as a line of UTF-8, with its end.

    Arguments:
        event: what is told. Messages are written in their portable form, without what only a provider may read.
        at_s: when, in seconds since 1970.

    Raises:
        ValueError: it holds a number that is not finite.
    """
    told: dict[str, Plain] = {"v": VERSION, "at": round(at_s, 6), "kind": type(event).__name__, **_fields(event)}
    # Half a character of a broken text has no UTF-8 form.
    return _encode(told).encode("utf-8", "replace") + b"\n"


def _fields(value: attrs.AttrsInstance) -> dict[str, Plain]:
    told: dict[str, Plain] = {}
    for name, default in _defaults(type(value)).items():
        held = getattr(value, name)
        if held is not default and held != default:
            told[name] = _plain(held)
    return told


@cache
def _defaults(cls: type[attrs.AttrsInstance]) -> Mapping[str, object]:
    """Give a class's fields, each with the default that it need not be written for."""
    return {field.name: _default(field.default) for field in attrs.fields(cls)}


def _default(default: object) -> object:
    made: object = getattr(default, "factory", lambda: default)()
    return made


def _plain(value: object) -> Plain:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, TransportReceipt):
        return value.to_dict()
    if isinstance(value, Message):
        return portable(value)
    if isinstance(value, FrozenMap):
        return thaw_object(value)
    if isinstance(value, (frozenset, tuple)):
        return [_plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
    if isinstance(value, (Settings, Usage)):
        return _fields(value)
    raise TypeError(f"a {type(value).__name__} has no form in a recording")
