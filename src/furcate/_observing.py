"""What a configuration file says about observing, for programs; the command line does the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from furcate.orchestrator._config import load_config
from furcate.primitives._observations import Listener


@contextmanager
def observe_config(path: str | Path, *, beside: Collection[str] = ()) -> Iterator[tuple[Listener, ...]]:
    """Give the observers that a configuration file asks for, while a block lasts; none where it asks for none.

    Hand them to the engine that is made from the same file::

        with furcate.observe_config("furcate.toml") as observers:
            async with furcate.Engine.from_config("furcate.toml", observers=observers) as engine:
                ...

    Args:
        path: the file; its table ``[otel]`` says what `observe_otel` takes as arguments.
        beside: top-level keys that belong to the application and are passed over.

    Raises:
        ConfigError: something in the file is wrong, or the extra ``otel`` is not installed.
    """
    settings = load_config(path, beside=beside).otel
    if settings is None:
        yield ()
        return
    # Loaded where it is asked for, since loading the telemetry library takes its time.
    from furcate.observers._otel_setup import observe_by

    with observe_by(settings) as observer:
        yield (observer,)
