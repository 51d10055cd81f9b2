"""The trial by kills, small: what it claims of a hundred kills holds of twelve."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill_and_resume.py"

pytestmark = pytest.mark.skipif(not _SCRIPT.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def script() -> ModuleType:
    """Load the script as a module."""
    spec = importlib.util.spec_from_file_location("kill_and_resume", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kill_and_resume"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("loop", "kills"), [("asyncio", 7), ("trio", 5)])
def test_kills_lose_nothing_and_repeat_nothing(script: ModuleType, tmp_path: Path, loop: str, kills: int) -> None:
    """Results are those of an undisturbed run, each once; a call whose answer was kept is never made again."""
    report = script.trial(tmp_path, script.Plan(kills=kills, items=250, loop=loop, seed=11))
    assert report.problems == [], str(report)
    assert report.killed == kills
    assert report.begun


def test_what_does_not_hold_is_told(script: ModuleType, tmp_path: Path) -> None:
    """A result that is missing and a call that was made too often are problems."""
    (tmp_path / "out.jsonl").write_text('{"id": "i0", "status": "finished", "result": ["1 w0", "2 w0"]}\n')
    plan = script.Plan(kills=0, items=2)
    report = script.Report()
    provider = script.Provider(0.0, None, calls=[("1", "w0")] * 3)
    script._check(tmp_path, plan, provider, report=report)
    assert [problem.split(" ", 1)[1].split(":")[0] for problem in report.problems] == [
        "results, 2 not as they should be",
        "calls were made again; 0 kills may cost 0",
        "different calls, where there are 4",
    ]
