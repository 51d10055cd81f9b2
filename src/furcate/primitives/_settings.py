"""Settings of a model and the function tools that it may call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs
from attrs import field, frozen
from attrs.validators import optional

from furcate.primitives._checks import whole
from furcate.primitives._json import FrozenMap, Json


def _as_map(value: Mapping[str, Json]) -> FrozenMap:
    return FrozenMap(value)


def _as_strings(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _number(_instance: object, attribute: object, value: float | None) -> None:
    if value is None:
        return
    name = getattr(attribute, "name", "value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; give a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value}; give a number that is 0 or more")


def _word(_instance: object, attribute: object, value: str | None) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{getattr(attribute, 'name', 'value')} is {value!r}; give a word in quotes")


_SAMPLING = ("max_output_tokens", "temperature", "top_p", "seed", "stop", "reasoning_effort")


@frozen(kw_only=True)
class Settings:
    """Set how a model answers; None leaves a setting to the server.

    Attributes:
        max_output_tokens: most tokens of one answer.
        temperature: sampling temperature.
        top_p: nucleus sampling mass.
        seed: sampling seed, for servers that take one.
        stop: texts at which the model stops.
        reasoning_effort: a word such as ``low`` or ``high`` that the server understands.
        extra_body: further members of the request body, sent as they are.
    """

    max_output_tokens: int | None = field(default=None, validator=optional(whole(1)))
    temperature: float | None = field(default=None, validator=_number)
    top_p: float | None = field(default=None, validator=_number)
    seed: int | None = field(default=None, validator=optional(whole(-(2**63))))
    stop: tuple[str, ...] = field(default=(), converter=_as_strings)
    reasoning_effort: str | None = field(default=None, validator=_word)
    extra_body: FrozenMap = field(factory=FrozenMap, converter=_as_map)

    def overlaid(self, other: Settings | None) -> Settings:
        """Give these settings with all that `other` sets in their place; `extra_body` is merged key by key."""
        if other is None:
            return self
        set_there = {name: value for name in _SAMPLING if (value := getattr(other, name)) not in (None, ())}
        return attrs.evolve(self, extra_body={**self.extra_body, **other.extra_body}, **set_there)


@frozen
class Tool:
    """Declare a function that the model may call and the application answers.

    Attributes:
        name: 1 to 64 letters, digits, ``_`` and ``-``.
        description: what it does, for the model.
        parameters: JSON Schema of its arguments.
    """

    name: str
    description: str = ""
    parameters: FrozenMap = field(factory=lambda: FrozenMap({"type": "object", "properties": {}}), converter=_as_map)


def as_tools(value: Iterable[Tool]) -> tuple[Tool, ...]:
    """Copy tools into a tuple.

    Raises:
        TypeError: one of them is no `Tool`.
    """
    if value == ():
        return ()
    if isinstance(value, Tool):
        raise TypeError("tools is a single furcate.Tool; give a list or tuple of them")
    tools = tuple(value)
    for tool in tools:
        if not isinstance(tool, Tool):
            raise TypeError(f"tools holds a {type(tool).__name__}; give furcate.Tool values")
    return tools
