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
