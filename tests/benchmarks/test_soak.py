"""The soak, small: what it claims of many branches holds of a few."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not _SOAK.exists(), reason="the benchmarks are not part of this copy"),
]


@pytest.fixture
def soak() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("soak", _SOAK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    return module


async def test_a_small_soak_holds(soak, caplog) -> None:
    """Twenty branches, a fifth of all answers spoiled: one outcome each, counts equal, nothing left open."""
    caplog.set_level(logging.CRITICAL, "furcate")
    # A silence long enough that a busy machine's own pauses are never taken for one.
    report = await soak.soak(soak.Load(turns=200, branches=20, waves=2, share=0.2, seed=2, capacity=20, quiet_s=3))
    assert report.problems == [], str(report)
    assert dict(report.lines)["branches"] == "20"


def test_the_table_tells_what_does_not_hold(soak) -> None:
    """Two counts that differ are both shown, and are a problem."""
    report = soak.Report()
    report.equal("places in use = none", 1, 0)
    assert report.problems == ["places in use = none: 1 here, 0 there"]
    assert str(report) == "places in use = none  1 but 0"
