"""Validators that several values share; each error names the field, what it was given, and what would be right."""

from __future__ import annotations

from collections.abc import Callable


def whole(minimum: int) -> Callable[[object, object, int | None], None]:
    """Make a validator for a whole number of at least `minimum`; None passes, a bool does not."""

    def check(_instance: object, attribute: object, value: int | None) -> None:
        if value is None:
            return
        name = getattr(attribute, "name", "value")
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}; give a whole number")
        if value < minimum:
            raise ValueError(f"{name} is {value}; give {minimum} or more")

    return check


def seconds(_instance: object, attribute: object, value: float | None) -> None:
    """Check a span of time in seconds; None passes."""
    if value is None:
        return
    name = getattr(attribute, "name", "value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; give seconds")
    if not value > 0:
        raise ValueError(f"{name} is {value}; give more than 0 seconds")
