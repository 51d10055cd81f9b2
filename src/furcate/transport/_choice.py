"""Which transport sends the requests: the one place where HTTP libraries are loaded, and only the one that is used."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Literal, TypeAlias, get_args

import anyio.lowlevel

from furcate.primitives._errors import MisuseError
from furcate.transport._call import Transport

TransportName: TypeAlias = Literal["httpx2", "aiohttp"]
"""A transport, by the HTTP library beneath: httpx2 serves both event loops, aiohttp is quicker on asyncio."""

TRANSPORTS: tuple[TransportName, ...] = get_args(TransportName)

_OLDEST_AIOHTTP = (3, 14)
"""The oldest version that offers what is used of it, as pyproject.toml asks for in the extra ``quick``."""


def quick_is_installed() -> bool:
    """Tell whether the extra ``quick`` is there, without loading anything of it."""
    try:
        major, minor = version("aiohttp").split(".")[:2]
    except (PackageNotFoundError, ValueError):
        return False
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= _OLDEST_AIOHTTP


def on_asyncio() -> bool:
    """Tell whether the event loop that runs is one of asyncio's."""
    return anyio.lowlevel.current_token().backend_class.__module__.endswith("._asyncio")


def make_transport(name: TransportName | None) -> Transport:
    """Make a transport for the event loop that runs.

    Arguments:
        name: which one; None takes aiohttp on asyncio where it is installed, and httpx2 elsewhere.

    Raises:
        MisuseError: aiohttp is asked for on another event loop than asyncio's.
    """
    here = on_asyncio()
    if name == "aiohttp" and not here:
        raise MisuseError('the transport "aiohttp" runs on asyncio alone; leave transport out, or choose "httpx2"')
    if name == "aiohttp" or (name is None and here and quick_is_installed()):
        from furcate.transport._quick import QuickTransport  # noqa: PLC0415 - an extra, loaded only where it is used

        return QuickTransport()
    from furcate.transport._http import HttpTransport  # noqa: PLC0415 - trio comes with it, which not all need

    return HttpTransport()
