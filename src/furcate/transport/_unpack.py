"""An answer's compression, undone piece by piece."""

from __future__ import annotations

import zlib
from typing import Protocol

from furcate.primitives._wire import AttemptFailed, ResponseHead
from furcate.transport._unanswered import BROKEN_COMPRESSION

ACCEPTED = "gzip, deflate"
"""What a request says that it understands."""

_EITHER_FORM = 32 + zlib.MAX_WBITS


class Unpacking(Protocol):
    """Undo what was done to an answer's body."""

    def feed(self, data: bytes) -> bytes:
        """Give what the next bytes come to.

        Raises:
            AttemptFailed: they are not what the head says.
        """

    def finish(self) -> None:
        """Look whether the end has come.

        Raises:
            AttemptFailed: the body ended within what was packed.
        """


class Plain:
    """Give the bytes as they came."""

    def feed(self, data: bytes) -> bytes:
        """Give the bytes."""
        return data

    def finish(self) -> None:
        """Be content with any end."""


class Deflated:
    """Undo gzip and deflate, whichever it is."""

    def __init__(self) -> None:
        self._unpack = zlib.decompressobj(_EITHER_FORM)
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        """Give what the next bytes come to."""
        self._begun = True
        try:
            return self._unpack.decompress(data)
        except zlib.error:
            raise AttemptFailed(BROKEN_COMPRESSION) from None

    def finish(self) -> None:
        """Look whether the end has come; an empty body is one."""
        if self._begun and not self._unpack.eof:
            raise AttemptFailed(BROKEN_COMPRESSION)


def unpacking(head: ResponseHead) -> Unpacking:
    """Choose what undoes an answer's compression.

    Raises:
        AttemptFailed: it is packed in a way that was not asked for.
    """
    form = (head.get("content-encoding") or "identity").strip().lower()
    if form == "identity":
        return Plain()
    if form not in ("gzip", "x-gzip", "deflate"):
        raise AttemptFailed(BROKEN_COMPRESSION)
    return Deflated()
