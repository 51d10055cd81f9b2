"""``furcate explore`` against a stub: lines, tree, account and exit status."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.testing import Answer, StubProvider, StubRequest, answer, error

Command = Callable[..., Any]

PLAN = """
[opening]
messages = [{ role = "user", template = "Read: {{ inputs.document }}" }]
input = "document"

[[branches]]
name = "twice"
follow_ups = ["first", "second"]

[[branches]]
name = "once"
turns = 1
follow_ups = ["alpha", "beta"]
"""


def last_text(request: StubRequest) -> str:
    text: str = request.body["messages"][-1]["content"]
    return text


def echo(request: StubRequest) -> Answer:
    """Answer with what was asked, and count it."""
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    return answer(f"re {last_text(request)}", usage=usage)


@pytest.fixture
def plan(folder: Path) -> Path:
    """Write the plan and two inputs."""
    (folder / "a.txt").write_text("A")
    (folder / "b.txt").write_text("B")
    path = folder / "plan.toml"
    path.write_text(PLAN)
    return path


def test_each_branch_gives_one_line(furcate_command: Command, configured: Command, plan: Path, loop: str) -> None:
    """Every branch of every input has a line that tells its whole story; only lines are on stdout."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt", "b.txt", "--loop", loop)
    assert said.status == 0, said.err
    lines = {(line["input"], line["branch"]): line for line in said.lines}
    assert sorted(lines) == [("a.txt", "once"), ("a.txt", "twice"), ("b.txt", "once"), ("b.txt", "twice")]
    twice, once = lines["a.txt", "twice"], lines["a.txt", "once"]
    assert (twice["outcome"], twice["turns"], twice["text"]) == ("stopped", 2, "re second")
    assert (once["outcome"], once["turns"], once["text"]) == ("exhausted", 1, "re alpha")
    assert [m["parts"][0]["text"] for m in twice["messages"]] == [
        "Read: A",
        "re Read: A",
        "first",
        "re first",
        "second",
        "re second",
    ]
    assert twice["status"] == "succeeded"
    assert twice["error"] is None
    assert twice["validation"] == {"status": "not_requested", "faults": []}
    assert (twice["usage"]["input_tokens"], twice["usage"]["output_tokens"]) == (20, 2)
    assert twice["usage"]["reasoning_tokens"] is None
    # 2 openings and 3 turns for each
    assert len(stub.requests) == 8


def test_opening_runs_once_and_branches_share_it(furcate_command: Command, configured: Command, plan: Path) -> None:
    """Both branches continue the one opening of their input."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt")
    assert [last_text(r) for r in stub.requests].count("Read: A") == 1
    once = next(line for line in said.lines if line["branch"] == "once")
    first_turns = [r for r in stub.requests if len(r.body["messages"]) == 3]
    assert len(first_turns) == 2
    assert once["parent_run_id"]


def test_account_and_changes_are_on_stderr(furcate_command: Command, configured: Command, plan: Path) -> None:
    """Without a terminal there is a plain line for what ended, and the summary calls unknown unknown."""
    with StubProvider.in_thread(lambda request: answer("x", usage="omitted")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt", "--out", "r.jsonl")
    assert said.out == ""
    assert len(Path("r.jsonl").read_text().splitlines()) == 2
    told = said.err.splitlines()
    assert any(line.startswith("a.txt: done, tokens in ?, out ?, ") for line in told)
    assert any(line.startswith("a.txt / once: exhausted, turn 1/1, tokens in ?, out ?, ") for line in told)
    assert "group plan: 4 runs (4 succeeded)" in told
    assert "  input unknown (4 runs unknown)" in told
    assert told[-1] == "branches: 2 (1 exhausted, 1 stopped); results in r.jsonl" or (
        told[-1] == "branches: 2 (1 stopped, 1 exhausted); results in r.jsonl"
    )
    assert "\x1b" not in said.err


def test_failed_branch_does_not_stop_its_sibling(furcate_command: Command, configured: Command, plan: Path) -> None:
    """A branch that fails has its error on its line and what it had reached; the other goes on; the status is 1."""

    def script(request: StubRequest) -> Answer:
        return error(400, "no more of this") if last_text(request) == "second" else echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt")
    assert said.status == 1
    lines = {line["branch"]: line for line in said.lines}
    assert lines["once"]["status"] == "succeeded"
    twice = lines["twice"]
    assert (twice["status"], twice["outcome"], twice["turns"], twice["text"]) == ("failed", None, 1, "re first")
    assert twice["error"]["type"] == "ProviderError"
    assert "no more of this" in twice["error"]["message"]
    assert "Traceback" not in said.err


def test_failed_opening_gives_every_branch_its_line(furcate_command: Command, configured: Command, plan: Path) -> None:
    """Where an opening fails, its branches' lines say so, and other inputs are not touched."""

    def script(request: StubRequest) -> Answer:
        return error(400, "unreadable") if last_text(request) == "Read: A" else echo(request)

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt", "b.txt")
    assert said.status == 1
    failed = [line for line in said.lines if line["status"] == "failed"]
    assert [(line["input"], line["branch"]) for line in failed] == [("a.txt", "twice"), ("a.txt", "once")]
    assert failed[0]["error"]["message"].startswith("the opening failed: ")
    assert "unreadable" in failed[0]["error"]["message"]
    assert failed[0]["messages"] == []
    assert [line["status"] for line in said.lines if line["input"] == "b.txt"] == ["succeeded", "succeeded"]


CALLABLE = """
from furcate import Continue, Request, Stop

async def step(turn):
    print("a callback speaks")
    if turn.result is not None and "enough" in turn.result.text:
        return Stop()
    return Continue(Request(messages=f"{turn.remaining} left"))

async def wrong(turn):
    return "go on"

async def raises(turn):
    raise ValueError("my own mistake")
"""


def test_callables_drive_branches(furcate_command: Command, configured: Command, folder: Path, loop: str) -> None:
    """A callable beside the plan drives its branch; what it prints is kept off the results; its errors are told."""
    plans = folder / "plans"
    plans.mkdir()
    (plans / f"steps_{loop}.py").write_text(CALLABLE)
    (plans / "plan.toml").write_text(
        '[opening]\nmessages = [{ role = "user", template = "hi" }]\n'
        + "".join(
            f'[[branches]]\nname = "{name}"\nturns = 3\ncallable = "steps_{loop}:{name}"\n'
            for name in ("step", "wrong", "raises")
        )
    )

    def script(request: StubRequest) -> Answer:
        return answer("enough" if last_text(request) == "2 left" else "more")

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plans/plan.toml", "--loop", loop)
    assert said.status == 1
    lines = {line["branch"]: line for line in said.lines}
    assert (lines["step"]["outcome"], lines["step"]["turns"], lines["step"]["input"]) == ("stopped", 2, None)
    assert lines["wrong"]["error"]["type"] == "ActionError"
    assert lines["raises"]["error"] == {"type": "ValueError", "message": "my own mistake"}
    assert "a callback speaks" in said.err
    assert "Traceback" not in said.err


def test_named_prompts_bring_their_own(furcate_command: Command, configured: Command, folder: Path) -> None:
    """Configured prompts keep their profile and contract; the plan's variables and input reach their templates."""
    more = (
        '[profiles.other]\nbackend = "stub"\nmodel = "o"\n'
        '[prompts.start]\nprofile = "other"\ninputs = ["text"]\n'
        'messages = [{ role = "user", template = "{{ tone }}: {{ inputs.text }}" }]\n'
        '[prompts.check]\nmessages = [{ role = "user", template = "{{ tone }}" }]\n'
        'contract = { schema = { type = "object" } }\n'
    )
    (folder / "in.txt").write_text("T")
    (folder / "plan.toml").write_text(
        'profile = "only"\nvars = { tone = "dry" }\n[opening]\nprompt = "start"\ninput = "text"\n'
        '[[branches]]\nname = "b"\nfollow_ups = [{ prompt = "check", vars = { tone = "wet" } }]\n'
    )
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=more)
        said = furcate_command("explore", "plan.toml", "in.txt")
    opening, follow_up = (request.body for request in stub.requests)
    assert (opening["model"], opening["messages"][0]["content"]) == ("o", "dry: T")
    assert (follow_up["model"], follow_up["messages"][-1]["content"]) == ("m", "wet")
    (line,) = said.lines
    # "re wet" is no JSON, and the last answer that was checked decides.
    assert line["validation"]["status"] == "failed"
    assert line["validation"]["faults"][0]["path"] == "$"
    assert said.status == 1


def test_repaired_opening_is_well(furcate_command: Command, configured: Command, folder: Path) -> None:
    """An opening's contract may be repaired, and inline follow-ups are not held to it."""
    (folder / "plan.toml").write_text(
        '[opening]\nmessages = [{ role = "user", template = "hi" }]\n'
        'contract = { schema = { type = "object" }, repairs = 1 }\n'
        '[[branches]]\nname = "b"\nfollow_ups = ["more"]\n'
    )
    with StubProvider.in_thread([answer("no"), answer("{}"), answer("free text")]) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml")
    assert said.status == 0
    assert "1 repair" in said.err


def test_most_active_is_kept_over_all_inputs(
    furcate_command: Command, configured: Command, plan: Path, loop: str
) -> None:
    """With one place there is never more than one request, whatever the backend would take."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt", "b.txt", "--max-active", "1", "--loop", loop)
    assert said.status == 0
    assert stub.most_in_flight == 1
    assert len(said.lines) == 4


def test_capacity_bounds_what_goes_on(furcate_command: Command, configured: Command, plan: Path) -> None:
    """The backend's capacity holds for openings and branches together."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        furcate_command("explore", "plan.toml", "a.txt", "b.txt")
    assert stub.most_in_flight <= 2


def test_same_plan_runs_against_another_server(furcate_command: Command, configured: Command, plan: Path) -> None:
    """--config goes before the configuration that the plan names."""
    plan.write_text('config = "not/here.toml"\n' + PLAN)
    with StubProvider.in_thread(echo) as stub:
        os.rename(configured(stub.base_url), "another.toml")
        said = furcate_command("explore", "plan.toml", "a.txt", "--config", "another.toml")
    assert said.status == 0
    assert len(said.lines) == 2


def test_config_wins_over_the_tables_of_the_plan(furcate_command: Command, configured: Command, plan: Path) -> None:
    """A plan with a configuration of its own can be tried on another server as it is; its tables are passed over."""
    plan.write_text(PLAN + '[backends.mine]\nbase_url = "ftp://nowhere"\n[profiles.p]\nbackend = 5\n')
    with StubProvider.in_thread(echo) as stub:
        os.rename(configured(stub.base_url), "another.toml")
        said = furcate_command("explore", "plan.toml", "a.txt", "--config", "another.toml")
    assert (said.status, len(said.lines)) == (0, 2)
    assert furcate_command("explore", "plan.toml", "a.txt").status == 2


def test_plan_may_carry_its_backend(furcate_command: Command, configured: Command, plan: Path) -> None:
    """A plan with the tables of a configuration needs no other file."""
    with StubProvider.in_thread(echo) as stub:
        config = configured(stub.base_url)
        plan.write_text(PLAN + config.read_text())
        config.unlink()
        said = furcate_command("explore", "plan.toml", "a.txt")
    assert said.status == 0
    assert len(said.lines) == 2


@pytest.mark.field(76)
def test_terminal_sees_the_tree_and_the_account(configured: Command, on_terminal: Command, plan: Path) -> None:
    """On a terminal the last tree stays, with the account below it, and the file has the lines."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        status, shown = on_terminal("explore", "plan.toml", "a.txt", "--out", "r.jsonl")
    assert status == 0
    last = shown[shown.rindex("a.txt") :]
    assert "├─ twice" in last
    assert "stopped" in last
    assert "└─ once" in last
    assert last.index("└─ once") < last.index("group plan: 4 runs")
    assert len(Path("r.jsonl").read_text().splitlines()) == 2


def test_terminal_that_shows_both_keeps_lines_whole(configured: Command, on_terminal: Command, plan: Path) -> None:
    """Where lines and tree share a terminal, the tree makes way for each line."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        status, shown = on_terminal("explore", "plan.toml", "a.txt")
    assert status == 0
    pieces = [piece for line in shown.splitlines() if (piece := line[line.find('{"input"') :]).startswith('{"input"')]
    assert sorted(json.loads(piece)["branch"] for piece in pieces) == ["once", "twice"]
    assert "group plan: 4 runs" in shown


@pytest.mark.field(76)
def test_reader_that_left_ends_the_exploration(configured: Command, spawn: Command, plan: Path) -> None:
    """Where nobody reads the results any more, that is told in a sentence and nothing more is generated."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        read, write = os.pipe()
        os.close(read)
        process = spawn("explore", "plan.toml", "a.txt", stdout=write)
        _, err = process.communicate(timeout=30)
        os.close(write)
    assert process.returncode == 1
    assert "furcate: results cannot be written to stdout any more (Broken pipe); stopped" in err
    assert "results in stdout" not in err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.field(76)
def test_nobody_watching_is_harmless(configured: Command, spawn: Command, plan: Path) -> None:
    """A closed stderr changes neither the lines nor the status."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url)
        read, write = os.pipe()
        os.close(read)
        process = spawn("explore", "plan.toml", "a.txt", stderr=write)
        out, _ = process.communicate(timeout=30)
        os.close(write)
    assert process.returncode == 0
    assert sorted(json.loads(line)["branch"] for line in out.splitlines()) == ["once", "twice"]


def test_line_is_there_as_soon_as_its_branch_ended(configured: Command, spawn: Command, plan: Path, loop: str) -> None:
    """A finished branch's line can be read while another branch still waits for its answer."""

    def script(request: StubRequest) -> Answer:
        return answer("late", silence_after=1) if last_text(request) == "second" else answer("ok")

    with StubProvider.in_thread(script) as stub:
        configured(stub.base_url)
        process = spawn("explore", "plan.toml", "a.txt", "--loop", loop)
        line = json.loads(process.stdout.readline())
        assert (line["branch"], line["outcome"]) == ("once", "exhausted")
        assert process.poll() is None
        process.kill()


def test_failed_opening_is_told(furcate_command: Command, configured: Command, plan: Path) -> None:
    """In plain lines a failed opening has one line when it fails and one in the account, and both say why."""
    with StubProvider.in_thread(error(400, "no such model")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "a.txt")
    (line,) = [line for line in said.err.splitlines() if line.startswith("a.txt: failed")]
    (account,) = [line for line in said.err.splitlines() if line.startswith("furcate: a.txt / opening: ")]
    assert "no such model" in line
    assert "no such model" in account


def test_opening_that_was_cut_off_is_not_called_wrong(furcate_command: Command, configured: Command) -> None:
    """A branch tells that the opening's answer was cut off, and so was never checked."""
    Path("plan.toml").write_text(
        '[opening]\nmessages = [{ role = "user", template = "x" }]\ncontract = { schema = "form.json" }\n'
        '[[branches]]\nname = "b"\nfollow_ups = ["more"]\n'
    )
    Path("form.json").write_text('{"type": "object"}')

    def reply(request: StubRequest) -> Answer:
        return answer('{"a": ', finish_reason="length") if len(request.body["messages"]) == 1 else answer("ok")

    with StubProvider.in_thread(reply) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml")
    assert said.status == 1
    assert "b: stopped, turn 1/1" in said.err
    assert "the opening's answer was cut off, so it was not checked" in said.err
    assert "branches without an answer that meets its contract: 1" in said.err
