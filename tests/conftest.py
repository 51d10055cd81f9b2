"""What every test stands on: both event loops, a clean environment, nothing left behind."""

from __future__ import annotations

import asyncio
import os
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from furcate.local import OfflineError, fetch
from furcate.testing import virtual_backend
from furcate.transport import TRANSPORTS, make_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# The event loop is a fixture of the function, which Hypothesis would refuse: a loop serves many examples well.
settings.register_profile(
    "furcate",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("furcate")

# Where the cache of the model's weights lies is the machine's business, not a test's.
_KEPT = {"FURCATE_CACHE"}


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Let every async test look for tasks it left behind."""
    if collector.istestfunction(obj, name):
        hypothesis = getattr(obj, "hypothesis", None)
        if iscoroutinefunction(hypothesis.inner_test if hypothesis else obj):
            pytest.mark.usefixtures("no_task_left")(obj)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run the test on both event loops, on virtual time where it is marked ``virtual_time``."""
    if request.node.get_closest_marker("virtual_time"):
        return virtual_backend(request.param)
    return request.param, {"debug": True} if request.param == "asyncio" else {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the async tests of a file that uses ``each_transport`` with every transport that an event loop has."""
    if {"anyio_backend", "each_transport"} <= set(metafunc.fixturenames):
        metafunc.parametrize("each_transport", TRANSPORTS, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what there is not: aiohttp on trio."""
    items[:] = [item for item in items if not _is_nowhere(getattr(getattr(item, "callspec", None), "params", {}))]


def _is_nowhere(params: dict[str, object]) -> bool:
    # Where cancellation is swept, the event loop is the first thing that a way says.
    way = params.get("way")
    loop = way[0] if isinstance(way, tuple) else params.get("anyio_backend")
    return (loop, params.get("each_transport")) == ("trio", "aiohttp")


@pytest.fixture
def each_transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Make every engine send with the transport whose turn it is; None leaves the choice to the engine."""
    name = getattr(request, "param", None)
    if name is not None:
        monkeypatch.setattr("furcate.orchestrator._engine.make_transport", lambda _: make_transport(name))
    return name


@pytest.fixture
async def no_task_left(anyio_backend_name: str) -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task behind; trio has no way to leave one."""
    if anyio_backend_name != "asyncio":
        yield
        return
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if not _is_the_runners(task)]
    assert not left, f"the test left tasks behind: {left}"


def _is_the_runners(task: asyncio.Task[Any]) -> bool:
    # anyio's plugin enters each test and fixture by a task of its own.
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the variables that would change what furcate or its libraries do."""
    for name in tuple(os.environ):
        upper = name.upper()
        influences = upper.endswith(("_API_KEY", "_PROXY")) or upper.startswith(("FURCATE_", "OTEL_"))
        if influences and name not in _KEPT:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def model() -> Path:
    """Fetch the embedded model's weights into the user's cache folder, or skip where no network leads to them."""
    try:
        return anyio.run(fetch)
    except OfflineError as error:
        pytest.skip(str(error))
