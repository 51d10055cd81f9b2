"""What every command begins with: which configuration, which event loop, whether the embedded model is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from attrs import frozen

from furcate.cli._told import changes_told, say
from furcate.local import MODEL_NAME, fetch
from furcate.local._weights import present_at_a_glance
from furcate.orchestrator._config import Resources, check_resources, load_config
from furcate.orchestrator._embedded import embedded_server
from furcate.orchestrator._engine import Engine
from furcate.primitives._observations import Listener
from furcate.primitives._resources import Backend, Profile
from furcate.primitives._settings import Settings

DEFAULT_CONFIG = Path("furcate.toml")
LOCAL = "local"
_LOCAL_OUTPUT_TOKENS = 512

_Function = TypeVar("_Function", bound=Callable[..., Any])


@frozen
class Setup:
    """Hold a checked configuration.

    Attributes:
        resources: what it describes.
        path: the file that it stands in; None where it came from elsewhere.
        beside: the file's other top-level keys.
        note: what people should know of the choice, to be told before anything runs.
    """

    resources: Resources
    path: Path | None = None
    beside: tuple[str, ...] = ()
    note: str = ""

    def engine(self, observers: Iterable[Listener] = ()) -> Engine:
        """Make an engine of it.

        Arguments:
            observers: told of every run of the engine.
        """
        if self.path is not None:
            return Engine.from_config(self.path, beside=self.beside, observers=observers)
        made = self.resources
        return Engine(
            backends=made.backends.values(),
            profiles=made.profiles.values(),
            prompts=made.prompts.values(),
            observers=observers,
            transport=made.transport,
        )

    @property
    def only_profile(self) -> str | None:
        """The profile's name where there is but one: the choice that needs no saying."""
        names = tuple(self.resources.profiles)
        return names[0] if len(names) == 1 else None


def built_in() -> Setup:
    """Give the configuration for those who have none: the embedded model as backend and profile ``local``."""
    resources = check_resources(
        [Backend(LOCAL, kind="embedded", capacity=1)],
        [Profile(LOCAL, LOCAL, MODEL_NAME, settings=Settings(max_output_tokens=_LOCAL_OUTPUT_TOKENS))],
        [],
        where="the built-in configuration",
    )
    note = f"furcate: no {DEFAULT_CONFIG} here; using the small embedded model (backend and profile {LOCAL!r})"
    return Setup(resources, note=note)


def choose(config: Path | None) -> Setup:
    """Choose the configuration: the file that was named, else furcate.toml right here, else the built-in one.

    Raises:
        ConfigError: the file is not there, or something in it is wrong.
    """
    if config is None and DEFAULT_CONFIG.exists():
        config = DEFAULT_CONFIG
    if config is not None:
        return Setup(load_config(config), config)
    return built_in()


async def make_ready(setup: Setup, backends: Iterable[Backend]) -> None:
    """Tell the configuration's note, and fetch the weights that one of the backends needs and that are not there.

    Raises:
        LocalModelError: the extra is not installed, or the weights are not to be had.
    """
    if setup.note:
        say(setup.note)
    if any(backend.kind == "embedded" for backend in backends):
        embedded_server()  # says in a sentence what to install
        if not present_at_a_glance():
            await fetch(changes_told())


def config_option(function: _Function) -> _Function:
    """Add ``--config``."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Configuration to use. [default: furcate.toml in this folder, else the embedded model]",
    )(function)


def loop_option(function: _Function) -> _Function:
    """Add ``--loop``."""
    return click.option(
        "--loop",
        type=click.Choice(["asyncio", "trio"]),
        default="asyncio",
        show_default=True,
        help="Event loop to run on.",
    )(function)
