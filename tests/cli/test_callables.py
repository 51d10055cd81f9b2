"""A plan's callables: which module they come from, and what they must not be able to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.testing import StubProvider, answer

Command = Callable[..., Any]

OPENING = '[opening]\nmessages = [{ role = "user", template = "x" }]\n'
ASKING = "import furcate\nasync def go(turn):\n    return furcate.Stop() if turn.result else furcate.Continue("


def plan(*branches: str) -> None:
    tables = [f'[[branches]]\nname = "{name}"\nturns = 2\ncallable = "{name}:go"\n' for name in branches]
    Path("plan.toml").write_text(OPENING + "".join(tables))


def test_module_beside_the_plan_wins_over_python_s_own(furcate_command: Command, configured: Command) -> None:
    """A module that has the name of one that is imported already is the plan's own, and hides nothing from others."""
    import token  # noqa: PLC0415 - it is imported before the command is run

    plan("token")
    Path("token.py").write_text(ASKING + 'furcate.Request(messages="mine"))\n')
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml")
    assert (said.status, said.lines[0]["outcome"]) == (0, "stopped")
    assert "mine" in str(stub.requests[1].body)
    assert not hasattr(token, "go")


def test_object_with_async_call_is_a_callable(furcate_command: Command, configured: Command) -> None:
    """An object whose __call__ is async drives a branch like a function."""
    plan("object_module")
    Path("object_module.py").write_text(
        "import furcate\nclass Go:\n    async def __call__(self, turn):\n        return furcate.Stop()\ngo = Go()\n"
    )
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml")
    assert (said.status, said.lines[0]["outcome"]) == (0, "stopped")


def test_callable_that_leaves_the_program_fails_alone(furcate_command: Command, configured: Command, loop: str) -> None:
    """A branch whose callable calls sys.exit is written as failed, and the others go on."""
    plan("leaver", "stayer")
    Path("leaver.py").write_text("import sys\nasync def go(turn):\n    sys.exit(3)\n")
    Path("stayer.py").write_text(ASKING + 'furcate.Request(messages="more"))\n')
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "--loop", loop)
    lines = {line["branch"]: line for line in said.lines}
    assert said.status == 1
    assert lines["stayer"]["outcome"] == "stopped"
    assert "tried to leave the program (SystemExit 3)" in lines["leaver"]["error"]["message"]
    assert "Traceback" not in said.err


def test_callable_s_keyboard_interrupt_is_ctrl_c(furcate_command: Command, configured: Command, loop: str) -> None:
    """KeyboardInterrupt from a callable cancels the rest, which is written, and the status is that of Ctrl-C."""
    plan("interrupter")
    Path("interrupter.py").write_text("async def go(turn):\n    raise KeyboardInterrupt\n")
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "--loop", loop)
    assert said.status == 130
    assert [line["status"] for line in said.lines] == ["cancelled"]


@pytest.mark.parametrize("template", ["All inputs are equal.", "{% set inputs = 1 %}{{ inputs }}"])
def test_word_inputs_is_no_input(furcate_command: Command, configured: Command, template: str) -> None:
    """A template that only speaks of inputs needs no file."""
    Path("plan.toml").write_text(
        f'[opening]\nmessages = [{{ role = "user", template = "{template}" }}]\n'
        '[[branches]]\nname = "b"\nfollow_ups = ["What are inputs?"]\n'
    )
    with StubProvider.in_thread(answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml")
    assert said.status == 0, said.err
