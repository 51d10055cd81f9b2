"""The one place where the optional embedded model is imported."""

from __future__ import annotations

from typing import Protocol

from furcate.primitives._errors import LocalModelError
from furcate.primitives._wire import Address


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
    from furcate.local import EmbeddedServer  # noqa: PLC0415 - loaded only where it is used

    return EmbeddedServer()
