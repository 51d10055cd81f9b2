"""Where in an answer a fault is, and how much of it is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MOST_FAULTS = 20
MOST_CHARACTERS = 300
_SHOWN_CHARACTERS = 60
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def path_of(steps: Iterable[str | int], start: str = "$") -> str:
    """Write the way to a value as ``$.items[2].title``; keys that are no plain words stand as ``$["a b"]``."""
    path = start
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            path += f".{step}"
        else:
            path += f"[{json.dumps(bounded(step, _SHOWN_CHARACTERS), ensure_ascii=False)}]"
    return path


def bounded(text: str, most: int = MOST_CHARACTERS) -> str:
    """Cut a text to at most `most` characters, showing that it was cut."""
    return text if len(text) <= most else text[: most - 3] + "..."


def shown(value: object) -> str:
    """Show a value of an answer in a few characters; objects and lists are named, never shown."""
    if isinstance(value, dict):
        return "this object"
    if isinstance(value, (list, tuple)):
        return "this list"
    if value is None or isinstance(value, (str, int, float)):
        return bounded(json.dumps(value, ensure_ascii=False), _SHOWN_CHARACTERS)
    return f"this {type(value).__name__}"
