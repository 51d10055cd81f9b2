"""What is wrong with a line of a recording, in words for people."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    IterableValidationError,
    IterableValidationNote,
)

from furcate.validation._paths import bounded, path_of

_MOST_MISFITS = 3
_WANTED = "a line is a JSON object with v, at and kind"


def misfits(error: Exception) -> str:
    """Say what does not fit, each fault with the field that it is in.

    Arguments:
        error: what structuring the line raised.
    """
    said = list(_misfits(error, ""))
    more = [f"{len(said) - _MOST_MISFITS:,} more"] if len(said) > _MOST_MISFITS else []
    return "; ".join((*said[:_MOST_MISFITS], *more))


def unparsed(error: Exception, line: bytes) -> str:
    """Say why a line is no JSON.

    Arguments:
        error: what reading it raised.
        line: what was read.
    """
    if isinstance(error, RecursionError):
        return "is no JSON: it nests objects and lists too deeply; " + _WANTED
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line[:8]:
        return "is no JSON: it looks like UTF-16; save the file as UTF-8"
    if isinstance(error, UnicodeDecodeError) or not _is_utf8(line):
        return "is no JSON: it holds bytes that are no UTF-8; save the file as UTF-8"
    if not line.lstrip().startswith(b"{"):
        return f"is no JSON: it begins with {_beginning(line)}; {_WANTED}"
    return f"is no JSON: it is an object that is broken or cut off; {_WANTED}"


def _beginning(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(bounded(text, 20))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _misfits(error: BaseException, path: str) -> Iterator[str]:
    """Flatten what cattrs raises; its notes say which field or item an error belongs to."""
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _misfits(inner, _deeper(inner, path, error))
    elif isinstance(error, KeyError) and hasattr(error, "__notes__"):
        yield f"{path.removeprefix('.')} is missing"
    else:
        place = f"{path.removeprefix('.')}: " if path else ""
        yield place + bounded(str(error) or type(error).__name__)


def _deeper(inner: BaseException, path: str, outer: BaseException) -> str:
    for note in getattr(inner, "__notes__", ()):
        if isinstance(outer, ClassValidationError) and isinstance(note, AttributeValidationNote):
            return path_of([note.name], path)
        if isinstance(outer, IterableValidationError) and isinstance(note, IterableValidationNote):
            return path_of([note.index], path)
    return path
