"""TOML values read by what belongs in their place; every mismatch is collected, never raised."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, time
from typing import Any, TypeAlias

from furcate.primitives._checks import WIRE_NAME
from furcate.primitives._errors import ConfigError
from furcate.primitives._json import FrozenMap

Reader: TypeAlias = Callable[[object], Any]
"""Takes a value as TOML gave it, and gives what it means.

Raises:
    Wrong: the value does not belong there.
"""


class Wrong(Exception):
    """Raised when a value does not belong where it stands.

    Attributes:
        problem: what is wrong.
        remedy: what would be right.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(problem)


class Report:
    """Collect what is wrong with one configuration.

    Attributes:
        where: the file, or ``Engine(...)``.
        faults: what was found so far, in the order of the tables.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[ConfigError] = []

    def add(self, table: str, key: str, problem: str, *, remedy: str = "") -> None:
        """Note a fault."""
        self.faults.append(ConfigError(problem, where=self.where, table=table, key=key, remedy=remedy))

    def raise_first(self) -> None:
        """Raise the first fault with the others attached; do nothing where there is none.

        Raises:
            ConfigError: there are faults.
        """
        if self.faults:
            first, *others = self.faults
            raise ConfigError(
                first.problem,
                where=first.where,
                table=first.table,
                key=first.key,
                remedy=first.remedy,
                others=tuple(others),
            )


class Table:
    """Read one table of a TOML file.

    Attributes:
        name: dotted path of the table, for the faults.
        sound: whether nothing was found wrong so far.
    """

    def __init__(self, report: Report, name: str, content: Mapping[str, object], *, prefix: str = "") -> None:
        self._report = report
        self._content = content
        self._prefix = prefix
        self.name = name
        self.sound = True

    def wrong(self, key: str, problem: str, remedy: str = "") -> None:
        """Note a fault at a key of this table; an empty key is the table as a whole."""
        self.sound = False
        self._report.add(self.name, (self._prefix + key).rstrip("."), problem, remedy=remedy)

    def read(self, readers: Mapping[str, Reader], required: Collection[str] = ()) -> dict[str, Any]:
        """Read the keys that are there; a wrong value is noted and left out, an unknown or missing key is noted.

        Args:
            readers: what each known key holds.
            required: keys that must be there.
        """
        found: dict[str, Any] = {}
        for key, value in self._content.items():
            if key not in readers:
                self.wrong(key, "unknown key", guess(key, readers, "known keys"))
                continue
            try:
                found[key] = readers[key](value)
            except Wrong as wrong:
                self.wrong(key, wrong.problem, wrong.remedy)
        for key in required:
            if key not in self._content:
                self.wrong(key, "missing", "this key is required")
        return found

    def part(self, key: str, content: Mapping[str, object]) -> Table:
        """Give a table inside this one, whose faults are told as of this one."""
        return Table(self._report, self.name, content, prefix=f"{self._prefix}{key}.")


def guess(name: str, known: Iterable[str], what: str) -> str:
    """Say which name was probably meant, and which there are.

    Args:
        name: the name that is not there.
        known: the names that are.
        what: how to call them, in the plural.
    """
    names = list(known)
    # Loaded where something is misspelt.
    import difflib  # noqa: PLC0415

    close = difflib.get_close_matches(name, names, n=1)
    listing = f"{what}: {', '.join(names) or 'none'}"
    return f"did you mean {close[0]!r}? ({listing})" if close else listing


def described(value: object) -> str:
    """Say what kind of value TOML gave, without showing it: it may be a key."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a whole number"),
        (float, "a number with a fraction"),
        (list, "a list"),
        (dict, "a table"),
        ((date, time), "a date or time"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)


def text(value: object) -> str:
    """Read a text that says something."""
    if not isinstance(value, str):
        raise Wrong(f"found {described(value)}", "give a text in quotes")
    if not value.strip():
        raise Wrong("empty", "give a text, or leave the key out")
    return value


def wire_name(value: object) -> str:
    """Read a name that goes out on the wire."""
    name = text(value)
    if not WIRE_NAME.fullmatch(name):
        raise Wrong(f"{name!r} is no name", "use 1 to 64 letters, digits, _ and -")
    return name


def any_text(value: object) -> str:
    """Read a text that may be empty."""
    return text(value) if not isinstance(value, str) else value


def flag(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise Wrong(f"found {described(value)}", "give true or false, without quotes")
    return value


def whole(minimum: int | None = None) -> Reader:
    """Read a whole number of at least `minimum`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"found {described(value)}", "give a whole number")
        if minimum is not None and value < minimum:
            raise Wrong(f"{value} is too small", f"give {minimum} or more")
        return value

    return read


def number(minimum: float, maximum: float = math.inf) -> Reader:
    """Read a number between two bounds."""
    wanted = f"give {minimum:g} or more" if maximum == math.inf else f"give a number from {minimum:g} to {maximum:g}"

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Wrong(f"found {described(value)}", "give a number, without quotes")
        if not math.isfinite(value) or not minimum <= value <= maximum:
            raise Wrong(f"{value} is out of bounds", wanted)
        return value

    return read


def seconds(value: object) -> float:
    """Read a span of time in seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Wrong(f"found {described(value)}", "give seconds as a number, without quotes")
    if not 0 < value < math.inf:
        raise Wrong(f"{value} is out of bounds", "give more than 0 seconds")
    return value


def limit(value: object) -> float | None:
    """Read a time limit in seconds; ``inf`` is no limit, since TOML has no null."""
    return None if value == math.inf and isinstance(value, float) else seconds(value)


def one_of(*words: str) -> Reader:
    """Read one of a few words."""

    def read(value: object) -> str:
        word = text(value)
        if word not in words:
            raise Wrong(f"{word!r} is not possible here", guess(word, words, "possible"))
        return word

    return read


def texts(value: object) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(value, list):
        raise Wrong(f"found {described(value)}", "give a list of texts in quotes")
    return tuple(_item(text, item, n) for n, item in enumerate(value))


def some_texts(value: object) -> tuple[str, ...]:
    """Read a list of at least one text."""
    found = texts(value)
    if not found:
        raise Wrong("found an empty list", "name at least one, or leave the key out")
    return found


def text_or_texts(value: object) -> tuple[str, ...]:
    """Read a text, or a list of them; white space alone counts."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise Wrong(f"found {described(value)}", "give a text in quotes, or a list of such")
    return tuple(items)


def _item(reader: Reader, value: object, number: int) -> Any:
    try:
        return reader(value)
    except Wrong as wrong:
        raise Wrong(f"item {number + 1}: {wrong.problem}", wrong.remedy) from wrong


def table(value: object) -> dict[str, object]:
    """Read a table."""
    if not isinstance(value, dict):
        raise Wrong(f"found {described(value)}", "give a table")
    return value


def text_table(value: object) -> dict[str, str]:
    """Read a table of texts."""
    content = table(value)
    for key, item in content.items():
        if not isinstance(item, str):
            raise Wrong(f"{key!r}: found {described(item)}", "give a text in quotes")
    return {key: str(item) for key, item in content.items()}


def json_table(value: object) -> FrozenMap:
    """Read a table of what JSON can hold."""
    content: Any = table(value)
    try:
        return FrozenMap(content)
    except (TypeError, ValueError) as error:
        found = str(error).partition(";")[0]
        raise Wrong(f"no JSON: {found}", "use texts, finite numbers, true, false, lists and tables") from error


def anything(value: object) -> object:
    """Leave a value to whoever reads it further."""
    return value
