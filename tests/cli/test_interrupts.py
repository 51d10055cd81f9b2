"""Ctrl-C: what has finished is written, the rest is told as cancelled, and a second one leaves at once."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.testing import Answer, StubProvider, StubRequest, answer

Command = Callable[..., Any]

PLAN = """
[opening]
messages = [{ role = "user", template = "{{ inputs.input }}" }]

[[branches]]
name = "quick"
follow_ups = ["now"]

[[branches]]
name = "slow"
follow_ups = ["now", "never"]
"""


def script(request: StubRequest) -> Answer:
    """Answer everything but the last follow-up of the slow branch, and the second input's opening."""
    if request.body["messages"][-1]["content"] in ("never", "B"):
        return answer("not all of it", silence_after=2)
    return answer("done")


@pytest.fixture
def plan(folder: Path) -> Path:
    """Write the plan and three inputs."""
    for name in "ABC":
        (folder / f"{name}.txt").write_text(name)
    path = folder / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.field(78)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_finished_branches_are_kept_and_the_rest_is_cancelled(
    configured: Command, spawn: Command, plan: Path, loop: str, number: signal.Signals
) -> None:
    """After a signal every branch has its line, the account is told, and the status is 130."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this process ignores that signal, as under nohup, and its children do too")
    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        process = spawn("explore", "plan.toml", "A.txt", "B.txt", "C.txt", "--loop", loop)
        first = json.loads(process.stdout.readline())
        assert (first["input"], first["branch"], first["status"]) == ("A.txt", "quick", "succeeded")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    rest = [json.loads(line) for line in out.splitlines()]
    assert sorted((line["input"], line["branch"]) for line in rest) == [
        ("A.txt", "slow"),
        ("B.txt", "quick"),
        ("B.txt", "slow"),
        ("C.txt", "quick"),
        ("C.txt", "slow"),
    ]
    assert {(line["status"], line["outcome"], line["error"] is None) for line in rest} == {("cancelled", None, True)}
    slow = next(line for line in rest if line["input"] == "A.txt")
    assert slow["messages"][0]["parts"][0]["text"] == "A"
    assert "group plan: " in err
    assert "(5 cancelled, 1 stopped)" in err or "(1 stopped, 5 cancelled)" in err
    assert "Traceback" not in err


STUCK = """
import sys, time

async def step(turn):
    print("stuck", flush=True)
    time.sleep(60)
"""


@pytest.mark.field(78)
def test_second_signal_leaves_at_once(configured: Command, spawn: Command, folder: Path, loop: str) -> None:
    """A second signal ends the process even where a callback keeps the event loop from turning."""
    (folder / "stuck.py").write_text(STUCK)
    (folder / "plan.toml").write_text(
        '[opening]\nmessages = [{ role = "user", template = "x" }]\n'
        '[[branches]]\nname = "b"\nturns = 1\ncallable = "stuck:step"\n'
    )
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        process = spawn("explore", "plan.toml", "--loop", loop, stderr=subprocess.PIPE)
        while process.stderr.readline() != "stuck\n":
            assert process.poll() is None
        # Two of one kind that come close together would count as one.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 130
