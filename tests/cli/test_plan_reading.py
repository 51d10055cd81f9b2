"""Plan files become frozen values, or faults that say where and what."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from furcate.cli._plan import ExplorePlan, check_names, is_plan, read_plan
from furcate.orchestrator._config import read_toml
from furcate.orchestrator._config_read import Report
from furcate.primitives._resources import MessageTemplate, Profile, Prompt

GOOD = """
config = "other.toml"
profile = "careful"
vars = { words = 5, tone = "dry" }

[opening]
messages = [{ role = "system", template = "Be {{ tone }}." }, { role = "user", template = "{{ inputs.letter }}" }]
input = "letter"
contract = { schema = { type = "object" }, repairs = 2 }

[[branches]]
name = "formal"
follow_ups = ["Say it formally.", { prompt = "shorten", vars = { words = 3 }, profile = "quick" }]

[[branches]]
name = "coded"
turns = 4
callable = "package.module:function"
"""


def read(text: str) -> tuple[ExplorePlan | None, list[str]]:
    report = Report("p/plan.toml")
    plan = read_plan(Path("p/plan.toml"), tomllib.loads(text), report)
    return plan, [str(fault) for fault in report.faults]


def test_plan_becomes_values() -> None:
    """A plan's tables are all in its value, relative paths taken from its folder."""
    plan, faults = read(GOOD)
    assert faults == []
    assert plan is not None
    assert plan.config == Path("p/other.toml")
    assert (plan.profile, plan.input) == ("careful", "letter")
    assert isinstance(plan.opening.prompt, Prompt)
    assert plan.opening.prompt.messages[0] == MessageTemplate("system", "Be {{ tone }}.")
    assert plan.opening.prompt.contract is not None
    assert plan.opening.prompt.contract.repairs == 2
    formal, coded = plan.branches
    assert (formal.name, formal.turns, formal.callable) == ("formal", 2, None)
    assert formal.follow_ups[1].prompt == "shorten"
    assert formal.follow_ups[1].profile == "quick"
    assert (coded.turns, coded.callable, coded.follow_ups) == (4, "package.module:function", ())


def test_variables_are_laid_over_each_other() -> None:
    """A follow-up's own variables win over the plan's, which stay beside them."""
    plan, _ = read(GOOD)
    assert plan is not None
    assert plan.opening.vars == {"words": 5, "tone": "dry"}
    assert plan.branches[0].follow_ups[1].vars == {"words": 3, "tone": "dry"}


def test_contract_goes_with_a_named_prompt() -> None:
    """An opening that names a prompt may bring a contract of its own."""
    plan, faults = read(
        '[opening]\nprompt = "x"\ncontract = { schema = { type = "array" } }\n'
        '[[branches]]\nname = "b"\nfollow_ups = ["more"]'
    )
    assert faults == []
    assert plan is not None
    assert plan.opening.contract is not None
    assert plan.opening.contract.schema == {"type": "array"}


BRANCH = '[[branches]]\nname = "b"\nfollow_ups = ["more"]\n'
OPENING = '[opening]\nmessages = [{ role = "user", template = "hi" }]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BRANCH, "opening: missing"),
        (OPENING, "branches: missing"),
        (f"branches = []\n{OPENING}", "branches: found an empty list; give at least one table [[branches]]"),
        (f"{OPENING}{BRANCH}{BRANCH}", "[branches[1]] name: there are two branches named 'b'"),
        (f"{OPENING}[[branches]]\nfollow_ups = ['x']", "[branches[0]] name: missing"),
        (f"{OPENING}[[branches]]\nname = 'b'", "[branches[0]]: a branch has either follow_ups or a callable"),
        (f"{OPENING}[[branches]]\nname = 'b'\nfollow_ups = []", "[branches[0]] follow_ups: found an empty list"),
        (f"{OPENING}[[branches]]\nname = 'b'\nfollow_ups = [3]", "follow_ups[0]: found a whole number"),
        (f"{OPENING}[[branches]]\nname = 'b'\nfollow_ups = [{{}}]", "follow_ups[0]: a follow-up has either"),
        (f"{OPENING}[[branches]]\nname = 'b'\nfollow_ups = [{{ promt = 'x' }}]", "did you mean 'prompt'"),
        (
            f"{OPENING}[[branches]]\nname = 'b'\nturns = -1\nfollow_ups = ['x']",
            "turns: -1 is too small; give 0 or more",
        ),
        (f"{OPENING}[[branches]]\nname = 'b'\ncallable = 'a:b'", "[branches[0]] turns: missing"),
        (f"{OPENING}[[branches]]\nname = 'b'\nturns = 1\ncallable = 'a.b'", "callable: 'a.b' names no function"),
        (f"{OPENING}[[branches]]\nname = 'b'\nturn = 1\nfollow_ups = ['x']", "turn: unknown key; did you mean 'turns'"),
        (f"[opening]\n{BRANCH}", "[opening]: an opening has either a prompt or messages of its own"),
        (f"{OPENING}prompt = 'x'\n{BRANCH}", "[opening]: an opening has either a prompt or messages of its own"),
        (f"{OPENING}input = 'a b'\n{BRANCH}", "[opening] input: 'a b' cannot be written as inputs.<name>"),
        (
            f"[opening]\nmessages = [{{ role = 'user' }}]\n{BRANCH}",
            "messages[0]: a message has either template or file",
        ),
        (f"[opening]\nmessages = [{{ role = 'usr', template = 'x' }}]\n{BRANCH}", "did you mean 'user'"),
        (f"{OPENING}contract = {{ schema = 'gone.json' }}\n{BRANCH}", "gone.json"),
        (f"{OPENING}contract = {{ schema = {{}}, repairs = -1 }}\n{BRANCH}", "contract.repairs: -1 is too small"),
        (f"profiles = 3\nconfig = 'x'\n{OPENING}{BRANCH}", "config: the plan carries a configuration itself"),
        (f"colour = 'red'\n{OPENING}{BRANCH}", "colour: unknown key"),
        (f"vars = 'x'\n{OPENING}{BRANCH}", "vars: found a text; give a table"),
    ],
)
def test_fault_is_told(text: str, told: str) -> None:
    """Each thing that is wrong with a plan is told with its place, and no plan comes of it."""
    plan, faults = read(text)
    assert plan is None
    assert any(told in fault for fault in faults), faults
    assert all(fault.startswith("p/plan.toml: ") for fault in faults)


def test_all_faults_are_told_at_once() -> None:
    """One wrong table does not hide another."""
    _, faults = read(f"colour = 1\n{OPENING}contract = 3\n[[branches]]\nname = 3\nfollow_ups = ['x']")
    assert len(faults) == 3


def test_names_are_looked_up() -> None:
    """Prompts and profiles that the configuration lacks are told, with what was probably meant."""
    plan, _ = read(GOOD)
    assert plan is not None
    report = Report("plan.toml")
    shorter = Prompt("shorter", (MessageTemplate("user", "x"),))
    check_names(plan, report, {"shorter": shorter}, profiles={"careful": Profile("careful", "b", "m")})
    first, second = map(str, report.faults)
    assert "[branches[0]] follow_ups[1].profile: no profile named 'quick'" in first
    assert "[branches[0]] follow_ups[1].prompt: no prompt named 'shorten'; did you mean 'shorter'?" in second


def test_templates_of_the_plan_are_compiled() -> None:
    """A broken template is found before anything runs, wherever it stands."""
    plan, _ = read(
        '[opening]\nmessages = [{ role = "user", template = "{{ a" }]\n'
        '[[branches]]\nname = "b"\nfollow_ups = ["{% if %}"]'
    )
    assert plan is not None
    report = Report("plan.toml")
    check_names(plan, report, {}, profiles={"only": Profile("only", "b", "m")})
    first, second = map(str, report.faults)
    assert "[opening] messages[0].template: line 1: " in first
    assert "[branches[0]] follow_ups[0]: line 1: " in second


def test_profile_must_be_known_where_several_could_be_meant() -> None:
    """With two profiles and none named, the plan is asked for one."""
    plan, _ = read(OPENING + BRANCH)
    assert plan is not None
    report = Report("plan.toml")
    profiles = {name: Profile(name, "b", "m") for name in ("one", "two")}
    check_names(plan, report, {}, profiles=profiles)
    assert "profile: missing; name the profile of what has none of its own; profiles: one, two" in str(report.faults[0])


def test_file_that_is_no_toml_is_told(tmp_path: Path) -> None:
    """Missing, broken and non-UTF-8 files give one fault that names the file."""
    broken, latin = tmp_path / "broken.toml", tmp_path / "latin.toml"
    broken.write_text("[opening\n")
    latin.write_bytes(b"a = '\xe9'")
    for path, told in ((broken, "no TOML"), (latin, "is no UTF-8 text"), (tmp_path / "gone", "cannot be read")):
        report = Report(str(path))
        assert read_toml(report, path) is None
        (fault,) = map(str, report.faults)
        assert fault.startswith(str(path))
        assert told in fault


def test_plan_is_told_from_configuration() -> None:
    """Only a document with an opening or branches is a plan."""
    assert is_plan({"opening": {}})
    assert is_plan({"branches": []})
    assert not is_plan({"backends": {}})
