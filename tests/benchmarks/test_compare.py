"""The comparison with other clients, small: it measures, checks what it gets, and tells it as tables."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

_FOLDER = Path(__file__).parents[2] / "benchmarks" / "compare"

pytestmark = pytest.mark.skipif(not _FOLDER.exists(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def compare(monkeypatch) -> Iterator[ModuleType]:
    """Load the script as a module, with what stands beside it."""
    monkeypatch.syspath_prepend(str(_FOLDER))
    spec = importlib.util.spec_from_file_location("compare_run", _FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare_run", module)
    spec.loader.exec_module(module)
    yield module
    for name in ("peers", "tables", "worker", "clients", "clients.base"):
        sys.modules.pop(name, None)


def test_clients_are_measured_side_by_side(compare, tmp_path, capsys) -> None:
    """Two clients run two workloads with this interpreter, and the tables tell their figures and their ratios."""
    kept = tmp_path / "found.json"
    clients = ["bare_httpx2", "furcate_httpx2"]
    own = [f"{name}={sys.executable}" for name in clients]
    plan = ["--workloads", "w1", "w3", "--repeats", "1", "--scale", "0.01", "--json", str(kept)]
    assert compare.main([*plan, "--clients", *clients, "--python", *own]) == 0
    told = capsys.readouterr().out
    assert "|  | bare_httpx2 | furcate_httpx2 |" in told
    assert "| times bare_httpx2 | bare_httpx2 | furcate_httpx2 |" in told
    assert "| W1, a run | 1.00 |" in told
    assert "httpx2" in told.partition("- furcate_httpx2: ")[2]
    found = json.loads(kept.read_text())["found"]
    assert all(one["cpu_us"] > 0 for workload in ("w1", "w3") for name in clients for one in found[workload][name])
    assert found["w1"]["furcate_httpx2"][0]["server_requests"] >= 15
    assert found["w3"]["furcate_httpx2"][0]["server_requests"] >= 11


def test_a_client_that_fails_is_told(compare, monkeypatch, capsys) -> None:
    """What fails is told with its reason, has no figure, and makes the whole fail; the others go on."""
    failing = compare.PEERS["bare_httpx2"]._replace(file="base")
    monkeypatch.setitem(compare.PEERS, "openai", failing)
    clients = ["openai", "bare_httpx2"]
    own = [f"{name}={sys.executable}" for name in clients]
    plan = ["--workloads", "w1", "--repeats", "1", "--scale", "0.01", "--clients", *clients]
    assert compare.main([*plan, "--python", *own]) == 1
    told = capsys.readouterr().out
    assert "w1 openai failed: AttributeError" in told
    assert "| W1, a run | - | 1.00 |" in told


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [(49, "294 characters: 300 were sent"), (50, "in 1 pieces: 50 were sent")],
    ids=["short", "in one"],
)
@pytest.mark.usefixtures("compare")
def test_what_a_client_gets_is_checked(pieces, reason) -> None:
    """A client that leaves something out, or does not see a stream's pieces, is no quick client but a failing one."""
    worker, base = import_module("worker"), import_module("clients.base")

    class Skipping(base.Client):
        async def open(self, base_url, capacity):
            pass

        async def run(self, prompt):
            return worker.text_of(pieces)

        async def stream(self, prompt):
            return [worker.text_of(pieces)]

    client = Skipping()
    workload = "w1" if pieces < 50 else "w2"
    with pytest.raises(ValueError, match=reason):
        client.launch(partial(worker.networked, client, workload, "http://nowhere", 0.01))


def test_a_missing_environment_is_said(compare, tmp_path, capsys) -> None:
    """Nothing is run where an environment is missing, and one sentence says what to do."""
    with pytest.raises(SystemExit):
        compare.main(["--clients", "openai", "--envs", str(tmp_path)])
    assert "make it with --setup" in capsys.readouterr().err
