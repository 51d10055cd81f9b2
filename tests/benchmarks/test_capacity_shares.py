"""The simulation of shared capacity, small: what it claims of 200 workers holds of twenty."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "capacity_shares.py"

pytestmark = pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def script() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("capacity_shares", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["capacity_shares"] = module
    spec.loader.exec_module(module)
    return module


def test_the_capacity_is_used_evenly_and_never_exceeded(script) -> None:
    """Joining, idling, dying and a wait hint: everything is done, by all alike, and changes come through in no time."""
    plan = script.Plan(workers=20, items=4000, capacity=50, service_s=1.0)
    figures = script.Simulation(plan).run()
    assert figures.finished == 4000
    assert figures.most == 50
    assert figures.busy / figures.possible > 0.97
    assert figures.overall > 0.99
    assert max(figures.to_give_up) < 0.5
    assert figures.to_stop_s < 0.2
    assert "in flight, at most                            50 of 50" in figures.lines(plan)


def test_the_picture_is_one(script) -> None:
    """It is an SVG with a title, two panels and what happened when."""
    plan = script.Plan(workers=8, items=400, capacity=10, service_s=0.5)
    root = ET.fromstring(script.Picture(plan, script.Simulation(plan).run()).svg())
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"8 workers share 10 places", "requests in flight", "wait hint", "seconds since the start"} <= set(words)
