"""The job of very many items, small: neither its tasks nor its memory grow with their number."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from furcate.testing import StubProvider, StubRequest, answer

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "many_items.py"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy"),
]


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


@pytest.mark.field(73)
@pytest.mark.timeout(120)
async def test_tasks_and_memory_do_not_grow_with_the_items(script: ModuleType, tmp_path: Path) -> None:
    """2,000 items of 1 kB, 50 at once: a task for each of the 50 and few more, and less memory than the items take."""
    with StubProvider.in_thread(_slow, remember=False) as stub:
        figures = await script.measure(tmp_path, script.Plan(items=2000, traced=True), stub.base_url)
        assert stub.requests_read == 2000
        assert stub.most_in_flight <= 50
    assert figures.finished == 2000
    # Each of the 50 has its connection; whoever runs the test has tasks too.
    assert 50 <= figures.tasks <= 130
    assert figures.grown < 20 * 2**20
