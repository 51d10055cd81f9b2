"""The examples as batch jobs: the commands that their documentation gives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import furcate.cli
from furcate.testing import StubProvider, StubRequest, answer, error

PLACES = pytest.mark.parametrize(
    ("loop", "where"),
    [
        ("asyncio", None),
        ("trio", None),
        # Starting a cluster takes seconds: each engine once, with a loop of its own.
        ("asyncio", "dask"),
        ("trio", "ray"),
    ],
    indirect=["where"],
)
"""Which event loop works on the items, and where."""

SAME = answer('{"same": true}')


@pytest.fixture
def batch(examples: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a batch job in the examples' folder, with its journal elsewhere, and give status and results."""
    monkeypatch.chdir(examples)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Whoever loads the examples otherwise gets modules of their own.
    for name in ("analyse_docs", "correct_docs"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def run(*arguments: str):
        out = tmp_path / "out.jsonl"
        kept = ("--journal", str(tmp_path / "job.journal"), "--results", str(out), "--order", "items")
        with pytest.raises(SystemExit) as ended:
            furcate.cli.main(("batch", *arguments, *kept))
        return ended.value.code, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    yield run
    for name in ("analyse_docs", "correct_docs"):
        sys.modules.pop(name, None)


@pytest.fixture
def where(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Give the command's options for a place that works on items, as far as its extra is installed."""
    if request.param is None:
        return ()
    pytest.importorskip({"dask": "distributed"}.get(request.param, request.param))
    return ("--on", request.param, "--workers", "2")


@PLACES
def test_packages_are_questioned(batch, configured, wanted, loop: str, where: tuple[str, ...]) -> None:
    """Each package has its findings; each of the four questions is asked twice where the quotation is false."""

    def script(request: StubRequest):
        if not wanted(request):
            return answer("A package.")
        text = request.body["messages"][0]["content"].split("\n\n", 1)[1]
        first = "click" in text.casefold()
        quote = " ".join(text.split()[3:9])[:100] if first else "words that are in no text at all"
        return answer(json.dumps({"claim": "It is.", "quote": quote}))

    with StubProvider.in_thread(script) as stub:
        given = ("analyse_docs:analyse_item", "batch/packages.jsonl", "--config", configured(stub.base_url))
        status, rows = batch(*given, "--loop", loop, *where)
        assert len(stub.requests) == (1 + 4) + 2 * (1 + 8)
        again, same = batch(*given, "--loop", loop)
        assert len(stub.requests) == 23
    assert (status, again) == (0, 0)
    assert same == rows
    assert [(row["id"], len(row["result"]["settled"]), len(row["result"]["findings"])) for row in rows] == [
        ("click", 4, 4),
        ("attrs", 0, 8),
        ("anyio", 0, 8),
    ]


@PLACES
def test_modules_are_corrected_and_a_failed_one_again(
    batch, configured, wanted, loop: str, where: tuple[str, ...], tmp_path: Path
) -> None:
    """A branch that fails lets its item fail; done again, it asks only for what had failed."""
    refuse = True

    def script(request: StubRequest):
        conversation = " ".join(str(message["content"]) for message in request.body["messages"])
        match wanted(request):
            case ("docstring",):
                if refuse and "wrap(" in conversation:
                    return error(400, "not now")
                return answer(json.dumps({"docstring": "Nothing of that."}))
            case ("same",):
                return SAME
        return answer("Understood.")

    with StubProvider.in_thread(script) as stub:
        given = ("correct_docs:correct_item", "batch/modules.jsonl", "--config", configured(stub.base_url))
        status, rows = batch(*given, "--loop", loop, *where)
        assert status == 1
        assert {row["id"]: row["status"] for row in rows} == {
            "shutil": "finished",
            "textwrap": "failed",
            "fnmatch": "finished",
        }
        assert "not now" in rows[1]["error"]["message"]
        refuse, before = False, len(stub.requests)
        with pytest.raises(SystemExit):
            furcate.cli.main(("batch", "retry", str(tmp_path / "job.journal")))
        status, rows = batch(*given, "--loop", loop, *where)
        conversations = [str(request.body["messages"]) for request in stub.requests[before:]]
    assert status == 0
    assert {row["status"] for row in rows} == {"finished"}
    assert conversations
    assert all("wrap(" in conversation for conversation in conversations)
