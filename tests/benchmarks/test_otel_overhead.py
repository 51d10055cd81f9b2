"""The measurement of what telemetry costs, small: it measures something of each kind."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "otel_overhead.py"

pytestmark = pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def overhead() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("otel_overhead", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["otel_overhead"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_each_kind_is_measured(overhead, loop, caplog) -> None:
    """Runs without telemetry, with telemetry made and with telemetry sent are measured, and nothing is lost."""
    figures = overhead.measure(overhead.Load(runs=3, rounds=1, loop=loop))
    assert all(len(found) == 1 and found[0] > 0 for found in (figures.without, figures.made, figures.sent))
    assert figures.ratio(figures.without) == 1
    assert not [record for record in caplog.records if record.name == "furcate"]
