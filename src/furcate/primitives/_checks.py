"""Validators that several values share; each error names the field, what it was given, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable

WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""How schemas and tools may be called on the wire; the narrowest rule of the known servers."""


def check_whole(name: str, value: int, minimum: int) -> None:
    """Check a whole number of at least `minimum`; a bool is none.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; give a whole number")
    if value < minimum:
        raise ValueError(f"{name} is {value}; give {minimum} or more")


def check_instance(name: str, value: object, wanted: type) -> None:
    """Check what an argument is.

    Raises:
        TypeError: it is something else; the message says what it is and what would be right.
    """
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is of type {type(value).__name__}; give a furcate.{wanted.__name__}")


def whole(minimum: int) -> Callable[[object, object, int], None]:
    """Make a validator for a whole number of at least `minimum`."""

    def check(_instance: object, attribute: object, value: int) -> None:
        if type(value) is int and value >= minimum:
            return
        check_whole(getattr(attribute, "name", "value"), value, minimum)

    return check


def optional_seconds(instance: object, attribute: object, value: float | None) -> None:
    """Check a span of time in seconds; None passes."""
    if value is not None:
        seconds(instance, attribute, value)


def seconds(_instance: object, attribute: object, value: float) -> None:
    """Check a span of time in seconds."""
    name = getattr(attribute, "name", "value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; give seconds")
    if not value > 0:
        raise ValueError(f"{name} is {value}; give more than 0 seconds")
