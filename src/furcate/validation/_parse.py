"""An answer's text to JSON."""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

from furcate.primitives._json import Plain

# Models wrap JSON in one code fence even when told not to. Anything more (prose around it, several fences) is a
# fault: guessing which part was meant would accept answers that the next reader cannot parse.
_FENCED = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\r?\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class NoJson(ValueError):
    """Raised when a text is no JSON; the message says where and why."""


def parse(text: str) -> Plain:
    """Parse the JSON in an answer's text; white space and one code fence around all of it are taken off.

    Of repeated keys the last counts.

    Args:
        text: the answer.

    Raises:
        NoJson: it is no JSON, holds a number that is not finite or too long, or nests too deeply.
    """
    stripped = text.strip()
    fenced = _FENCED.fullmatch(stripped)
    inner = fenced.group(1) if fenced else stripped
    if not inner.strip():
        raise NoJson("no JSON: the answer is empty")
    try:
        value: Plain = json.loads(inner, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise NoJson(f"no JSON: {reason} at line {error.lineno}, column {error.colno}") from error
    except NoJson:
        raise
    except ValueError as error:
        raise NoJson("no JSON that can be read: it holds a whole number with too many digits") from error
    except RecursionError as error:
        raise NoJson("no JSON that can be read: it nests too deeply") from error
    return value


def _refuse(constant: str) -> NoReturn:
    raise NoJson(f"no JSON: {constant} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NoJson(f"no JSON that can be read: the number {digits[:30]} is too large")
    return number
