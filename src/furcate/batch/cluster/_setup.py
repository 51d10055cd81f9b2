"""What a worker needs to know of a job: the configuration by value, the target, and never a credential."""

from __future__ import annotations

import inspect
import os
import pickle
import platform
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen

from furcate.batch._target import Target
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import ConfigError, ExecutorError
from furcate.primitives._resources import Backend, Profile, Prompt
from furcate.primitives._telemetry import OTelSettings
from furcate.transport import TransportName

Loop: TypeAlias = Literal["asyncio", "trio"]
Dumps: TypeAlias = Callable[[object], bytes]
"""Pickles a value; functions that cannot be imported on the other side by value."""

_SECRET = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "ocp-apim-subscription-key",
    }
)


@frozen(kw_only=True)
class Setup:
    """Hold what all items of a job are worked on with.

    Attributes:
        backends: without their keys.
        profiles: models on them.
        prompts: message templates.
        transport: the HTTP library to send with.
        otel: where a worker's telemetry goes.
        target: what is done with each item.
        observations: whether observations come back with an item's end.
        events: whether they come back as they happen.
        content: whether what is said comes back with them.
        carrier: the trace context of the job; items link to it.
    """

    backends: tuple[Backend, ...]
    profiles: tuple[Profile, ...]
    prompts: tuple[Prompt, ...]
    transport: TransportName | None
    otel: OTelSettings | None
    target: Target
    observations: bool
    events: bool
    content: bool = False
    carrier: Mapping[str, str] = field(factory=dict)


@frozen(kw_only=True)
class Parcel:
    """Carry a setup to a worker, which looks at what is written outside before it opens it.

    Attributes:
        job: the same for each start of a job, another one for each job.
        furcate: the driver's release.
        python: the driver's Python, such as ``3.11``.
        loop: the event loop to run on.
        folder: where the driver runs; modules are looked for there where a worker has that folder.
        modules: SHA-256 of the source of the target's module, by the module's name.
        most_bytes: how large what came of an item may be, in bytes.
        variables: names of the environment variables that hold keys.
        body: the setup.
    """

    job: str
    furcate: str
    python: str
    loop: Loop
    folder: str
    modules: Mapping[str, str]
    variables: tuple[str, ...]
    most_bytes: int
    body: bytes = field(repr=False)

    def check(self) -> None:
        """Check that this process can do the job.

        Raises:
            ExecutorError: releases or code differ, or a credential is missing.
        """
        for name, theirs, ours in (("furcate", self.furcate, release()), ("Python", self.python, python())):
            if theirs != ours:
                raise ExecutorError(f"the driver has {name} {theirs}, this worker {ours}; install the same on both")
        missing = [name for name in self.variables if not os.environ.get(name)]
        if missing:
            raise ExecutorError(
                f"the environment variable {missing[0]} is not set on this worker; a worker takes credentials from "
                "its own environment, so set it where workers are started"
            )
        if os.path.isdir(self.folder) and self.folder not in sys.path:
            sys.path.append(self.folder)
        for name, digest in self.modules.items():
            found = _module_digest(name)
            if found != digest:
                what = "cannot be imported" if found is None else "is another version"
                raise ExecutorError(
                    f"the target's module {name!r} {what} on this worker; bring the driver's version of it there"
                )

    def open(self) -> Setup:
        """Give the setup; only what `check` has let pass can be read for sure."""
        setup = pickle.loads(self.body)
        assert isinstance(setup, Setup)
        return setup


def pack(setup: Setup, *, job: str, loop: Loop, most_bytes: int, dumps: Dumps) -> Parcel:
    """Make a parcel of a setup.

    Raises:
        ExecutorError: the target cannot be sent.
    """
    try:
        body = dumps(setup)
    except Exception as error:
        raise ExecutorError(
            f"the target cannot be sent to workers ({type(error).__name__}: {error}); let it hold plain data only"
        ) from error
    variables = {backend.api_key_env for backend in setup.backends if backend.credential is None}
    return Parcel(
        job=job,
        furcate=release(),
        python=python(),
        loop=loop,
        folder=os.getcwd(),
        modules=_modules_of(setup.target),
        variables=tuple(sorted(name for name in variables if name is not None)),
        most_bytes=most_bytes,
        body=body,
    )


def without_keys(engine: Engine) -> tuple[Backend, ...]:
    """Give an engine's backends as they may travel.

    Raises:
        ConfigError: a backend has its credential in the configuration.
    """
    resources = engine._resources
    found = []
    for backend in resources.backends.values():
        place = f"backends.{backend.name}"
        if backend.api_key is not None and backend.api_key_env is None:
            raise ConfigError(
                "the key stands in the configuration, which is sent to workers as it is",
                where=resources.where,
                table=place,
                key="api_key",
                remedy="name an environment variable by api_key_env, and set it where workers are started",
            )
        for name, _ in backend.extra_headers:
            if name.lower() in _SECRET:
                raise ConfigError(
                    f"the header {name!r} holds a credential, and the configuration is sent to workers as it is",
                    where=resources.where,
                    table=place,
                    key="extra_headers",
                    remedy="name an environment variable by api_key_env, and set it where workers are started",
                )
        found.append(evolve(backend, api_key=None))
    if resources.otel is not None and resources.otel.headers:
        raise ConfigError(
            "headers for a collector may hold a credential, and the configuration is sent to workers as it is",
            where=resources.where,
            table="otel",
            key="headers",
            remedy="set OTEL_EXPORTER_OTLP_HEADERS where workers are started",
        )
    return tuple(found)


def release() -> str:
    """Give the version of this package."""
    try:
        return version("furcate")
    except PackageNotFoundError:
        return "unknown"


def python() -> str:
    """Give the version of Python on which pickled code depends."""
    return ".".join(platform.python_version_tuple()[:2])


def _modules_of(target: Target) -> dict[str, str]:
    """Give the module that a target's function stands in, where workers have to import it."""
    name = getattr(inspect.unwrap(target), "__module__", None)
    if not isinstance(name, str) or name == "__main__" or name.split(".")[0] == "furcate":
        return {}
    digest = _module_digest(name)
    return {} if digest is None else {name: digest}


def _module_digest(name: str) -> str | None:
    """Give the SHA-256 of a module's source; None where it cannot be found."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            return None
        file = None if spec is None else spec.origin
    try:
        return None if file is None else sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None
