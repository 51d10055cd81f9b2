"""The correction branches of the examples."""

from __future__ import annotations

import json
from collections import Counter

import anyio
import attrs
import pytest
from click.testing import CliRunner

import furcate
from furcate.testing import StubProvider, StubRequest, answer, error

SAME, OTHER = answer('{"same": true}'), answer('{"same": false}')


def proposal(text: str):
    return answer(json.dumps({"docstring": text}))


@pytest.fixture
def program(load):
    """Give the program's module."""
    return load("correct_docs")


@pytest.fixture
def functions(program):
    """Give three functions with a fault each: a parameter not named, a long sentence, no full stop."""
    long = "Do it with b and then do it again and again and again until nobody asks for more."
    return [
        program.Function("alpha", ("a",), "Do it."),
        program.Function("beta", ("b",), long),
        program.Function("gamma", ("c",), "Do it with c"),
    ]


@pytest.fixture
def script(wanted):
    """Make a script: alpha succeeds at once, beta at the second go, gamma is never found to mean the same."""

    def choose(request: StubRequest):
        conversation = " ".join(str(message["content"]) for message in request.body["messages"])
        match wanted(request):
            case ("docstring",) if "alpha(" in conversation:
                return proposal("Do it with a.")
            case ("docstring",) if "beta(" in conversation:
                return proposal("Do it with b." if conversation.count("Write a better one") > 1 else "Do it.")
            case ("docstring",):
                return proposal("Leave c.")
            case ("same",):
                return OTHER if "Leave c." in conversation else SAME
        return answer("Understood.")

    return choose


@pytest.mark.req("S4-138", "S4-002")
async def test_branches_correct_with_findings_and_second_looks(program, engine_on, functions, script) -> None:
    """Known faults open each branch, callbacks look again on the one place, and the verdicts are the program's."""
    group, recorder = furcate.Group("docs"), furcate.Recorder()
    async with StubProvider(script) as stub, engine_on(stub, recorder) as engine:
        with anyio.fail_after(30):
            corrections = await program.correct(engine, functions, group, "local")
        requests = stub.requests
        assert stub.most_in_flight == 1
        assert engine.statistics()["stub"].in_use == 0

    assert {name: made.verdict for name, made in corrections.items()} == {
        "alpha": "kept",
        "beta": "kept",
        "gamma": "dropped",
    }
    assert corrections["alpha"].proposal == "Do it with a."
    assert "something else" in corrections["gamma"].reason

    # The opening; proposals and second looks: alpha 1 and 1, beta 2 and 1, gamma 3 and 3.
    assert len(requests) == 1 + 2 + 3 + 6
    openings = [request.body["messages"] for request in requests if len(request.body["messages"]) == 3]
    # Which branch begins first is the event loop's choice.
    openings.sort(key=lambda messages: messages[-1]["content"])
    assert [messages[0] for messages in openings] == [requests[0].body["messages"][0]] * 3
    assert [function.faults(function.docstring) for function in functions] == [
        ("It does not name the parameter a.",),
        ("Its first sentence has 18 words.",),
        ("It does not end with a full stop.",),
    ]
    for function, messages in zip(functions, openings, strict=True):
        assert function.faults(function.docstring)[0] in messages[-1]["content"]

    outcomes = [event.outcome for event in recorder.events if isinstance(event, furcate.CoordinatorFinished)]
    assert outcomes == ["stopped"] * 3
    told = " ".join(str(attrs.asdict(event)) for event in recorder.events)
    assert "'kept'" not in told
    assert "'dropped'" not in told


@pytest.mark.req("S4-138", "S4-101")
async def test_the_group_counts_the_shared_beginning_once(program, engine_on, functions, script) -> None:
    """Of all runs, each is counted once: the opening that three branches share, their turns, the second looks."""
    group = furcate.Group("docs")
    async with StubProvider(script) as stub, engine_on(stub) as engine:
        await program.correct(engine, functions, group, "local")
        sent = len(stub.requests)
    summary = group.summary()
    assert (summary.succeeded, summary.attempts) == (sent, sent)
    assert len({run.run_id for run in summary.runs}) == len(summary.runs) == sent
    children = Counter(run.parent_run_id for run in summary.runs)
    opening = summary.runs[0]
    assert opening.parent_run_id is None
    assert children[opening.run_id] == 3
    assert children[None] == 1 + 5


@pytest.mark.req("S4-139")
async def test_only_checked_answers_are_decoded(program, engine_on, functions, wanted) -> None:
    """A proposal or a second look without its form is no proposal and no consent, and no error either."""

    def choose(request: StubRequest):
        match wanted(request):
            case ("docstring",) if "alpha(" in request.body["messages"][2]["content"]:
                return answer("no JSON")
            case ("docstring",) if "beta(" in request.body["messages"][2]["content"]:
                return answer('{"docstring": "Do', finish_reason="length")
            case ("docstring",):
                return proposal("Leave c.")
        return answer("Neither yes nor no.")

    group = furcate.Group("docs")
    async with StubProvider(choose) as stub, engine_on(stub) as engine:
        corrections = await program.correct(engine, functions, group, "local")
    assert {made.verdict for made in corrections.values()} == {"dropped"}
    assert corrections["alpha"].proposal == corrections["beta"].proposal == ""
    assert "form" in corrections["beta"].reason
    assert corrections["gamma"].proposal == "Leave c."
    assert group.summary().validation_failed == 3 + 3


@pytest.mark.req("S4-138")
async def test_a_failed_branch_leaves_the_others(program, engine_on, functions, script) -> None:
    """What the server refuses ends one branch; the program names the reason and corrects the others."""

    def choose(request: StubRequest):
        refused = any("beta(" in str(message["content"]) for message in request.body["messages"])
        return error(400, "no beta here") if refused else script(request)

    group = furcate.Group("docs")
    async with StubProvider(choose) as stub, engine_on(stub) as engine:
        corrections = await program.correct(engine, functions, group, "local")
    assert [made.verdict for made in corrections.values()] == ["kept", "failed", "dropped"]
    assert "no beta here" in corrections["beta"].reason
    assert group.summary().failed == 1


MODULE = '''
def alpha(a):
    """Do it."""


def fine(b):
    """Do it with b."""


def bare(c):
    pass


def beta(b):
    """Do it"""
'''


@pytest.mark.req("S4-138")
@pytest.mark.parametrize(("most", "shown"), [("1", ["alpha"]), ("9", ["alpha", "beta"])])
def test_its_command_runs_on_both_loops(program, configured, loop, script, tmp_path, monkeypatch, most, shown) -> None:
    """The command checks a module, has the faulty docstrings corrected, and prints verdicts and summary."""
    (tmp_path / "module_to_correct.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with StubProvider.in_thread(script) as stub:
        arguments = ["module_to_correct", "--most", most, "--config", configured(stub.base_url), "--loop", loop]
        ended = CliRunner().invoke(program.main, arguments)
        assert stub.most_in_flight == 1
        sent = len(stub.requests)
    assert ended.exit_code == 0, ended.output
    lines = ended.output.splitlines()
    assert [line for line in lines if line.endswith(": kept")] == [f"{name}: kept" for name in shown]
    assert f"group module_to_correct: {sent} runs ({sent} succeeded)" in lines


def test_its_command_tells_of_failures(program, configured, script, tmp_path, monkeypatch) -> None:
    """A failed branch makes the exit status 1; a module that is not there is told in a sentence."""
    (tmp_path / "module_to_correct.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    refusing = [answer("Understood."), error(400, "not today"), error(400, "not today")]
    with StubProvider.in_thread(refusing) as stub:
        config = configured(stub.base_url)
        ended = CliRunner().invoke(program.main, ["module_to_correct", "--config", config])
        missing = CliRunner().invoke(program.main, ["no_such_module", "--config", config])
    assert ended.exit_code == 1
    assert ended.output.count("not today") >= 2
    assert missing.exit_code == 1
    assert missing.output.startswith("Error: module 'no_such_module' cannot be imported")


def test_without_faults_nobody_is_asked(program, configured, tmp_path, monkeypatch) -> None:
    """A module whose docstrings keep the rules costs no request."""
    (tmp_path / "module_without_faults.py").write_text('def fine(b):\n    """Do it with b."""\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with StubProvider.in_thread([]) as stub:
        ended = CliRunner().invoke(program.main, ["module_without_faults", "--config", configured(stub.base_url)])
    assert ended.exit_code == 0, ended.output
    assert "no runs" in ended.output


@pytest.mark.embedded
@pytest.mark.timeout(240)
def test_it_runs_on_the_embedded_model(program, model) -> None:
    """Without a configuration the embedded model answers, whatever it says, and every branch has its verdict."""
    ended = CliRunner().invoke(program.main, ["shutil", "--most", "1"])
    assert ended.exit_code == 0, ended.output
    verdicts = [line.partition(": ")[2] for line in ended.output.splitlines() if line.endswith((": kept", ": dropped"))]
    assert len(verdicts) == 1
    assert "failed)" not in ended.output
