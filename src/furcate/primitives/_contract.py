"""What an answer must look like, and how many repairs are allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from furcate.primitives._checks import WIRE_NAME, whole
from furcate.primitives._errors import SchemaError
from furcate.primitives._json import FrozenMap, Json, TooDeep
from furcate.primitives._schema import schema_of


def _as_schema(value: Mapping[str, Json]) -> FrozenMap:
    return FrozenMap(value)


def _check_name(_instance: object, _attribute: object, value: str) -> None:
    if not WIRE_NAME.fullmatch(value):
        raise ValueError(f"name is {value!r}; give 1 to 64 letters, digits, _ and -")


@frozen
class Contract:
    """State what an answer must look like.

    Attributes:
        schema: JSON Schema (draft 2020-12 unless it names another) of the answer.
        repairs: how often, at most, an answer that fails is sent back with its faults.
        check: called with the structured value after the schema held; whatever it raises becomes a fault.
        structure: an attrs class or dataclass to make the value an instance of.
        name: how the schema is called on the wire: 1 to 64 letters, digits, ``_`` and ``-``.

    Raises:
        TypeError: repairs is no whole number.
        ValueError: repairs is negative, or the name has other characters.
    """

    schema: FrozenMap = field(converter=_as_schema)
    repairs: int = field(default=0, validator=whole(0))
    check: Callable[[object], object] | None = field(default=None, kw_only=True)
    structure: type | None = field(default=None, kw_only=True)
    name: str = field(default="answer", kw_only=True, validator=_check_name)

    @classmethod
    def of(cls, wanted: type, repairs: int = 0, *, check: Callable[[object], object] | None = None) -> Contract:
        """Make the contract of an attrs class or a dataclass; an answer's value is then an instance of it.

        Raises:
            SchemaError: the class has no JSON form.
        """
        return cls(
            schema_of(wanted),
            repairs,
            check=check,
            structure=wanted,
            name=re.sub(r"[^A-Za-z0-9_-]", "_", wanted.__name__)[:64],
        )

    @classmethod
    def from_file(
        cls, path: str | Path, repairs: int = 0, *, check: Callable[[object], object] | None = None
    ) -> Contract:
        """Read the schema from a JSON file.

        Raises:
            SchemaError: the file cannot be read, or holds no JSON object; the message names it.
        """
        place = Path(path)
        try:
            content = json.loads(place.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise SchemaError(f"schema file {place}: {error.strerror or error}") from error
        except ValueError as error:
            raise SchemaError(f"schema file {place}: no JSON: {error}") from error
        except RecursionError as error:
            raise SchemaError(f"schema file {place}: it nests too deeply to be read") from error
        if not isinstance(content, dict):
            raise SchemaError(f"schema file {place}: a JSON Schema here is an object")
        try:
            return cls(content, repairs, check=check)
        except TooDeep as error:
            raise SchemaError(f"schema file {place}: {error}") from error
