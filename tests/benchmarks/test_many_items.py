"""The job of very many items, small: neither its tasks nor its memory grow with their number."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from furcate.testing import StubProvider, StubRequest, answer

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "many_items.py"

pytestmark = pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def script() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("many_items", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["many_items"] = module
    spec.loader.exec_module(module)
    return module


async def _slow(request: StubRequest) -> object:
    await anyio.sleep(0.001)
    return answer("done")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_tasks_and_memory_do_not_grow_with_the_items(script: ModuleType, tmp_path: Path, loop: str) -> None:
    """2,000 items of 1 kB, 50 at once: a task for each of the 50 and few more, and no memory for those that wait."""
    with StubProvider.in_thread(_slow, remember=False) as stub:
        plan = script.Plan(items=2000, asking=20, traced=True)
        # On a loop of its own: one that looks for mistakes keeps the stack of whatever it is given to do.
        figures = anyio.run(partial(script.measure, tmp_path, plan, stub.base_url), backend=loop)
        assert stub.requests_read == 100
        assert stub.most_in_flight <= 50
    assert figures.finished == 2000
    # Each of the 50 has its connection; whoever runs the test has tasks too.
    assert 50 <= figures.tasks <= 130
    assert figures.grown < 20 * 2**20
