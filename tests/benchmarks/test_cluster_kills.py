"""The trial by kills on a cluster, small: what it claims of twenty kills holds of one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cluster_kills.py"

pytestmark = pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def script() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("cluster_kills", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cluster_kills"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(120)
def test_a_killed_worker_loses_nothing_and_the_capacity_holds(script: ModuleType, tmp_path: Path) -> None:
    """Each item is in the results once, and the server never counts more requests than the backend has places."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    plan = script.Plan(items=20, branches=3, kills=1, driver_kills=0, capacity=5)
    figures = script.trial(tmp_path / "job", plan)
    assert figures.problems == [], "\n".join(figures.lines(plan))
    assert len(figures.killed) == 1
    assert 1 <= figures.count.most <= 5


def test_what_does_not_hold_on_a_cluster_is_told(script: ModuleType, tmp_path: Path) -> None:
    """An item twice in the results, too many requests at once, and calls that nothing accounts for are problems."""
    plan = script.Plan(items=2, branches=1, kills=0, driver_kills=0, capacity=5)
    trial = script.Trial(tmp_path, plan, None)
    (tmp_path / "pids").mkdir()
    (tmp_path / "stderr.txt").write_text("")
    usage = {"input_tokens": 20, "output_tokens": 4}
    row = {"id": "i0", "status": "finished", "result": ["to w0 root", "to w0 0"], "usage": usage}
    (tmp_path / "out.jsonl").write_text(2 * (json.dumps(row) + "\n"))
    trial.figures.count = script.Count(5, 3, 6)
    trial._check()
    assert [problem.split(":")[0] for problem in trial.figures.problems] == [
        "6 requests were in flight, of 5 places",
        "3 different calls, where there are 4",
        "2 calls were made again; 0 were under way",
        "1 results, 2 not as they should be",
    ]


@pytest.mark.timeout(60)
def test_a_job_that_takes_too_long_is_given_up(script: ModuleType, tmp_path: Path) -> None:
    """It is ended and told as a problem, however many kills were still to come."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    plan = script.Plan(items=2, branches=1, kills=1, driver_kills=0, longest_s=0.5)
    figures = script.trial(tmp_path / "job", plan)
    assert figures.problems[:2] == ["the job was given up after 0.5 s", "the job ended before all kills"]
