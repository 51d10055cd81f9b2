"""``furcate check``: every fault on a line of its own, and no key on any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]

CONFIG = '[backends.b]\nbase_url = "http://127.0.0.1:9/v1"\n[profiles.p]\nbackend = "b"\nmodel = "m"\n'
PLAN = '[opening]\nmessages = [{ role = "user", template = "hi" }]\n[[branches]]\nname = "b"\nfollow_ups = ["more"]\n'


def test_good_configuration_is_counted(furcate_command: Command) -> None:
    """furcate.toml in the current folder is checked by default, and what it holds is counted."""
    Path("furcate.toml").write_text(CONFIG)
    said = furcate_command("check")
    assert (said.status, said.err) == (0, "")
    assert said.out == "furcate.toml: ok: 1 backend, 1 profile, 0 prompts\n"


def test_every_fault_has_its_line(furcate_command: Command) -> None:
    """Faults in several tables are all told, each with its place."""
    Path("x.toml").write_text(CONFIG.replace('"b"', '"a"').replace("http:", "ftp:") + "[backends.c]\ncapacity = 0\n")
    said = furcate_command("check", "x.toml")
    assert (said.status, said.out) == (2, "")
    places = [line.split("]")[0] for line in said.err.splitlines()]
    assert sorted(places) == ["x.toml: [backends.b", "x.toml: [backends.c", "x.toml: [profiles.p"]


def test_key_in_the_file_is_warned_of_and_not_shown(furcate_command: Command) -> None:
    """A key in the file is a warning that does not repeat it."""
    Path("furcate.toml").write_text(CONFIG.replace("[profiles", 'api_key = "very-secret"\n[profiles'))
    said = furcate_command("check")
    assert said.status == 0
    assert said.err.startswith("warning: furcate.toml: [backends.b] api_key: ")
    assert "very-secret" not in said.out + said.err


def test_missing_file_is_told(furcate_command: Command) -> None:
    """Without the file there is one fault."""
    said = furcate_command("check")
    assert said.status == 2
    assert said.err.startswith("furcate.toml: ")


def test_plan_is_checked_with_its_configuration(furcate_command: Command) -> None:
    """A plan is checked together with the configuration that it names."""
    Path("c.toml").write_text(CONFIG)
    Path("plan.toml").write_text('config = "c.toml"\n' + PLAN)
    said = furcate_command("check", "plan.toml")
    assert (said.status, said.err) == (0, "")
    assert said.out == "plan.toml: ok: a plan of 1 branch; c.toml: 1 backend, 1 profile, 0 prompts\n"


def test_plan_may_carry_its_configuration(furcate_command: Command) -> None:
    """The tables of a configuration may stand in the plan itself, and their faults are told with the plan's."""
    Path("plan.toml").write_text(PLAN + CONFIG)
    assert furcate_command("check", "plan.toml").status == 0
    Path("plan.toml").write_text(PLAN.replace('"more"', "3") + CONFIG.replace('backend = "b"', 'backend = "a"'))
    said = furcate_command("check", "plan.toml")
    assert said.status == 2
    first, second = said.err.splitlines()
    assert "[branches[0]] follow_ups[0]: found a whole number" in first
    assert "[profiles.p] backend: no backend named 'a'" in second


def test_faults_of_a_named_configuration_are_all_told(furcate_command: Command) -> None:
    """The faults of the configuration that a plan names keep that file's name."""
    Path("c.toml").write_text(CONFIG.replace("http:", "ftp:").replace('"m"', "3"))
    Path("plan.toml").write_text('config = "c.toml"\n' + PLAN)
    said = furcate_command("check", "plan.toml")
    assert said.status == 2
    assert len(said.err.splitlines()) == 2
    assert all(line.startswith("c.toml: ") for line in said.err.splitlines())
