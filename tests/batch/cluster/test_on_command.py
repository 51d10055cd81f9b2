"""``furcate batch --on``: what it refuses before anything is started, and what to install."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from furcate.testing import StubProvider, answer

SOURCES = Path(__file__).parents[3] / "src"
BLOCK = """
import sys
# Neither to be found nor to be imported.
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
import furcate.cli
furcate.cli.main(sys.argv[1:])
"""

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run ``furcate batch`` in a process of its own that lacks some packages, in a folder with a configuration."""
    (tmp_path / "furcate.toml").write_text(
        '[backends.b]\nbase_url = "http://127.0.0.1:1/v1"\n[profiles.p]\nbackend = "b"\nmodel = "m"\n'
    )
    (tmp_path / "items.jsonl").write_text(json.dumps({"word": "w"}) + "\n")

    def run(*arguments: str, without: str = "distributed,ray") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", BLOCK, without, "batch", "-m", "Say {{ word }}.", "items.jsonl", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES))},
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize("extra", ["dask", "ray"])
def test_a_missing_extra_says_what_to_install(command: Command, tmp_path: Path, extra: str) -> None:
    """One sentence with the command, the status of wrong use, and no journal that nothing was done for."""
    said = command("--on", extra)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == f"furcate: --on {extra} needs the extra '{extra}': pip install 'furcate[{extra}]'\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["furcate.toml", "items.jsonl"]


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (("--on", "nonsense"), "--on nonsense names no cluster; give dask, dask://HOST:PORT, ray or ray://HOST:PORT"),
        (("--on", "dask://nowhere"), "--on dask://nowhere names no cluster; give dask"),
        (("--workers", "2"), "--workers goes with --on"),
        (("--on", "dask://127.0.0.1:1", "--workers", "2"), "--workers is for a cluster that is started here"),
    ],
)
def test_what_makes_no_sense_is_refused(command: Command, given: tuple[str, ...], right: str) -> None:
    """With the place and what would be right; nothing is left behind."""
    said = command(*given)
    assert said.returncode == 2
    assert right in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(("extra", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_job_is_worked_on_by_a_cluster_of_its_own(command: Command, tmp_path: Path, extra: str, module: str) -> None:
    """Twenty items at two workers: as many results on stdout, each by one request, and nothing else there."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the extra {extra}: {module} is not installed")
    rows = [{"id": f"i{number}", "word": f"w{number}"} for number in range(20)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with StubProvider.in_thread(answer("well")) as stub:
        (tmp_path / "furcate.toml").write_text(
            f'[backends.b]\nbase_url = "{stub.base_url}"\ncapacity = 3\n[profiles.p]\nbackend = "b"\nmodel = "m"\n'
        )
        said = command("--on", extra, "--workers", "2", without="")
    assert said.returncode == 0, said.stderr
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(row["id"] for row in rows)
    assert {line["status"] for line in lines} == {"finished"}
    assert "20 of 20 items finished" in said.stderr
    assert len(stub.requests) == 20
    assert stub.most_in_flight <= 3
