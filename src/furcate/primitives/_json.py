"""JSON-like values that cannot change.

Whatever an application hands over is copied on the way in (`freeze`) and on the way out (`thaw`), so that neither
side can change what the other holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from typing import TypeAlias, Union

Json: TypeAlias = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What a JSON document can hold, in the looser Python types that applications pass."""

Frozen: TypeAlias = Union[None, bool, int, float, str, tuple["Frozen", ...], "FrozenMap"]
"""The same, deeply immutable."""

Plain: TypeAlias = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""The same as fresh lists and dicts, which any encoder takes."""


MAX_DEPTH = 200
"""How deep lists and objects may nest; what nests deeper cannot be walked safely, and nobody reads it."""


class TooDeep(ValueError):
    """Raised when a value nests deeper than `MAX_DEPTH`."""


class FrozenMap(Mapping[str, Frozen]):
    """Hold a JSON object that cannot change; equal to any mapping with equal frozen content.

    Raises:
        TypeError: the content is not JSON-like; the message names its place below `path`.
        ValueError: the content holds a number that is not finite, or nests too deeply.
    """

    __slots__ = ("_data",)

    def __init__(self, items: Mapping[str, Json] | None = None, path: str = "$") -> None:
        # What is frozen already is shared, and an empty one is made with every request.
        if items is None:
            self._data: dict[str, Frozen] = {}
        elif type(items) is FrozenMap:
            self._data = items._data
        else:
            self._data = _freeze_object(items, path, 1)

    def __getitem__(self, key: str) -> Frozen:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def items(self) -> ItemsView[str, Frozen]:
        """Give the members; quicker than what a mapping inherits."""
        return self._data.items()

    def __hash__(self) -> int:
        return hash(frozenset(self._data.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._data!r})"

    def __copy__(self) -> FrozenMap:
        return self

    def __deepcopy__(self, memo: object) -> FrozenMap:
        return self


def freeze(value: Json, path: str = "$") -> Frozen:
    """Copy a JSON-like value into an immutable one.

    Raises:
        TypeError: the value holds something that JSON has no form for; the message names its path.
        ValueError: the value holds a number that is not finite, or nests too deeply.
    """
    return _freeze(value, path, 0)


def _freeze(value: Json, path: str, depth: int) -> Frozen:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value!r}; JSON numbers are finite")
        return value
    if isinstance(value, FrozenMap):
        return value
    if depth >= MAX_DEPTH:
        raise TooDeep(f"{path[:40]}... nests deeper than {MAX_DEPTH} levels; give flatter data")
    if isinstance(value, Mapping):
        made = FrozenMap()
        made._data = _freeze_object(value, path, depth + 1)
        return made
    if isinstance(value, (list, tuple)):
        return tuple([_freeze(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)])
    raise TypeError(f"{path} is of type {type(value).__name__}; only JSON-like data is taken here")


def _freeze_object(items: Mapping[str, Json], path: str, depth: int) -> dict[str, Frozen]:
    if not isinstance(items, Mapping):
        raise TypeError(f"{path} is of type {type(items).__name__}; a JSON object is taken here, such as a dict")
    data: dict[str, Frozen] = {}
    for key, item in items.items():
        if not isinstance(key, str):
            raise TypeError(f"{path} has the key {key!r}; JSON object keys are strings")
        data[key] = _freeze(item, f"{path}.{key}", depth)
    return data


def thaw(value: Frozen) -> Plain:
    """Give a fresh, changeable copy of a frozen value."""
    if isinstance(value, FrozenMap):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def thaw_object(value: FrozenMap) -> dict[str, Plain]:
    """Give a fresh dict of a frozen object."""
    return {key: thaw(item) for key, item in value.items()}


def canonical(value: Plain) -> bytes:
    """Encode a plain value so that equal values give equal bytes (keys sorted, UTF-8, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A lone surrogate is refused when a request is encoded; hashing must not be where it surfaces.
    return text.encode("utf-8", "surrogatepass")
