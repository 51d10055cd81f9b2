"""One item as it is cut out of a file: its JSON read, or what is wrong with it."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from attrs import frozen

from furcate.primitives._json import MAX_DEPTH, Plain, TooDeep, freeze

MAX_ITEM_BYTES = 16 * 2**20
"""How long an item may be, in bytes; what is longer cannot be told from a file that is none of ours."""
BLOCK = 2**16
"""How many bytes are read at a time."""
BOM = b"\xef\xbb\xbf"
"""The mark that some editors write before a text."""
SPACE = b" \t\r\n"
"""What JSON takes for space."""


@frozen
class Piece:
    """Hold one item as it was read.

    Attributes:
        line: the line that it begins on, from 1 on.
        size: how long it is, in bytes.
        value: what it holds; None where `problem` is told, unless it could be read all the same.
        problem: what is wrong with it; None where nothing is.
        doubtful: the key that its object gives twice; None where there is none.
    """

    line: int
    size: int
    value: Plain = None
    problem: str | None = None
    doubtful: str | None = None


def parse(raw: bytes, line: int, *, column: int = 1) -> Piece:
    """Read the JSON of one item.

    Arguments:
        raw: its bytes.
        line: the line that it begins on, from 1 on.
        column: where it begins there, in characters, from 1 on.
    """
    twice: list[str] = []

    def members(pairs: list[tuple[str, Plain]]) -> Plain:
        found = dict(pairs)
        if len(found) < len(pairs) and not twice:
            names = [name for name, _ in pairs]
            twice.append(next(name for name in names if names.count(name) > 1))
        return found

    try:
        text = raw.decode("utf-8")
        value: Plain = json.loads(text, object_pairs_hook=members, parse_constant=_refuse, parse_float=_finite)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            freeze(value)
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} of the item is no UTF-8; save the file as UTF-8"
        return Piece(line, len(raw), problem=problem)
    except json.JSONDecodeError as error:
        reason = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        place = f"column {column + error.colno - 1}" if error.lineno == 1 else f"line {line + error.lineno - 1}"
        return Piece(line, len(raw), problem=f"no JSON: {reason} at {place}")
    except _NoNumber as error:
        return Piece(line, len(raw), problem=str(error))
    except (RecursionError, TooDeep):
        return Piece(line, len(raw), problem=f"nests deeper than {MAX_DEPTH} levels; give flatter data")
    except ValueError:
        return Piece(line, len(raw), problem="holds a whole number with too many digits; give it as text")
    if twice:
        problem = f"gives the key {twice[0]!r} twice; keep one of them"
        return Piece(line, len(raw), value, problem=problem, doubtful=twice[0])
    return Piece(line, len(raw), value)


class _NoNumber(ValueError):
    """Raised when a number has no place in JSON."""


def _refuse(constant: str) -> NoReturn:
    raise _NoNumber(f"no JSON: {constant} is no JSON number; give null or text")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NoNumber(f"the number {digits[:30]} is too large; give it as text")
    return number


def too_long(line: int, what: str) -> Piece:
    """Tell that an item is too long."""
    size = f"{MAX_ITEM_BYTES // 2**20} MiB"
    return Piece(line, BLOCK, problem=f"{what} is longer than {size}; give long content by the name of a file")
