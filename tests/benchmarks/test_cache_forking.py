"""The benchmark of cache-aware forking, small: what its page claims of many branches holds of a few."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cache_forking.py"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy"),
]


@pytest.fixture
def cache_forking() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("cache_forking", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cache_forking"] = module
    spec.loader.exec_module(module)
    return module


async def test_one_first_reads_what_all_at_once_read_each(cache_forking) -> None:
    """Ten branches: one reading of the beginning, ten, or twenty and none of it cached where nobody marks it."""
    load = cache_forking.Load(branches=10, words=1500)
    rows = [await cache_forking.measure_stub(load, "anthropic-messages", mode) for mode in cache_forking.MODES]
    read = [round(row.read / 1500) for row in rows]
    assert read == [1, 10, 20]
    assert "90%" in rows[0].cells()
