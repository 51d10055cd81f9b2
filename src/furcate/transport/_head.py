"""The head of an answer, in the one form that the rest of furcate reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

from furcate.primitives._wire import ResponseHead


def head_of(status: int, headers: Iterable[tuple[str, str]]) -> ResponseHead:
    """Make the head of an answer.

    Arguments:
        status: the HTTP status code.
        headers: name and value pairs as they came.
    """
    pairs = [(name.lower(), value) for name, value in headers]
    if not any(name == "date" for name, _ in pairs):
        # Whoever receives an answer without a date is to note when that was (RFC 9110, section 6.6.1); a wait that
        # is given as a date means nothing without.
        pairs.append(("date", _written(datetime.now(UTC).replace(microsecond=0))))
    return ResponseHead(status, tuple(pairs))


@lru_cache(maxsize=1)
def _written(second: datetime) -> str:
    return format_datetime(second, usegmt=True)
