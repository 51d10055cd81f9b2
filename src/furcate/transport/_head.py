"""The head of an answer, in the one form that the rest of furcate reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache

from furcate.primitives._wire import ResponseHead


def head_of(status: int, fields: Iterable[tuple[bytes, bytes]]) -> ResponseHead:
    """Make the head of an answer.

    Arguments:
        status: the HTTP status code.
        fields: name and value pairs as they came.
    """
    pairs = [(_text(name).lower(), _text(value)) for name, value in fields]
    if not any(name == "date" for name, _ in pairs):
        # Whoever receives an answer without a date is to note when that was (RFC 9110, section 6.6.1); a wait that
        # is given as a date means nothing without.
        pairs.append(("date", _written(datetime.now(UTC).replace(microsecond=0))))
    return ResponseHead(status, tuple(pairs))


def _text(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        return field.decode("latin-1")


@lru_cache(maxsize=1)
def _written(second: datetime) -> str:
    return format_datetime(second, usegmt=True)
