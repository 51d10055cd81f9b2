"""The plan of the examples, which the README runs."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import furcate.cli
from furcate.testing import StubProvider, StubRequest, answer

SUMMARY = answer('{"title": "Lamps", "summary": "Lamps are lit at dusk."}')


@pytest.fixture
def folder(examples, tmp_path, monkeypatch) -> Iterator[Path]:
    """Copy the plan's folder, with a long text to explore; what it imports does not stay."""
    shutil.copytree(examples / "plans", tmp_path / "plans", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "lamps.txt").write_text("Lamps are lit at dusk. " * 500, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "angles", raising=False)
    yield tmp_path
    sys.modules.pop("angles", None)


@pytest.fixture
def command(capfd):
    """Run the command line in this process and give its status and the JSON lines."""

    def run(*arguments: str) -> tuple[int, list[dict], str]:
        with pytest.raises(SystemExit) as ended:
            furcate.cli.main(arguments)
        out, err = capfd.readouterr()
        return ended.value.code, [json.loads(line) for line in out.splitlines() if line.startswith("{")], err

    return run


def move_to(server: str) -> None:
    """Change the plan's backend table, and nothing else."""
    plan = Path("plans/angles.toml")
    text = plan.read_text(encoding="utf-8")
    assert text.count('kind = "embedded"\n') == 1
    plan.write_text(text.replace('kind = "embedded"\n', f'base_url = "{server}"\n'), encoding="utf-8")


def test_it_is_without_faults(folder, command) -> None:
    """`furcate check` finds nothing in the plan as it stands."""
    status, _, err = command("check", "plans/angles.toml")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(("words", "turns"), [(["lamps", "brine", "crow"], 1), (["kelp", "brine", "crow"], 2)])
def test_it_runs_on_another_server_by_its_backend_table(folder, command, wanted, loop, words, turns) -> None:
    """Opening and branches run, the text is cut, and the callable asks again where no keyword is in the text."""

    def script(request: StubRequest):
        match wanted(request):
            case ("title", "summary"):
                return SUMMARY
            case ("keywords",):
                return answer(json.dumps({"keywords": words}))
        return answer("Light.")

    with StubProvider.in_thread(script) as stub:
        move_to(stub.base_url)
        status, lines, err = command("explore", "plans/angles.toml", "lamps.txt", "--loop", loop)
        opening = stub.requests[0].body
        assert len(stub.requests) == 1 + 2 + 1 + 2 + turns
        assert all(request.body["messages"][0] == opening["messages"][0] for request in stub.requests)

    assert status == 0, err
    assert len(opening["messages"][0]["content"]) < 1700
    assert {line["branch"]: (line["outcome"], line["turns"]) for line in lines} == {
        "shorter": ("stopped", 2),
        "beginner": ("stopped", 1),
        "sceptic": ("stopped", 2),
        "keywords": ("stopped", turns),
    }
    assert Counter(line["status"] for line in lines) == {"succeeded": 4}
    assert "group" in err


@pytest.mark.req("S4-139")
def test_the_callable_decodes_only_what_was_checked(folder, command, wanted, loop) -> None:
    """Keywords without their form are asked for once more, and the branch ends without an error."""

    def script(request: StubRequest):
        return SUMMARY if wanted(request) == ("title", "summary") else answer("no JSON")

    with StubProvider.in_thread(script) as stub:
        move_to(stub.base_url)
        status, lines, _ = command("explore", "plans/angles.toml", "lamps.txt", "--loop", loop)
    [keywords] = [line for line in lines if line["branch"] == "keywords"]
    assert (keywords["outcome"], keywords["turns"], keywords["error"]) == ("stopped", 2, None)
    assert keywords["validation"]["status"] == "failed"
    assert status == 1


@pytest.mark.embedded
@pytest.mark.timeout(300)
def test_it_runs_as_it_stands(folder, command, model) -> None:
    """The plan runs on the embedded model and every branch ends, whatever was said."""
    Path("short.txt").write_text("Lamps are lit at dusk. Keepers write down each ship.", encoding="utf-8")
    status, lines, err = command("explore", "plans/angles.toml", "short.txt")
    assert status in (0, 1), err  # 1 where an answer did not fit its form
    assert Counter(line["outcome"] for line in lines) == {"stopped": 4}
    assert "(4 stopped)" in err
