"""The strategies that ship with the test tools."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from furcate.primitives._content import Part
from furcate.primitives._message import Role
from furcate.testing import strategies

QUICK = settings(max_examples=2000, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.parametrize("kind", get_args(Part), ids=lambda kind: kind.__name__)
def test_every_kind_of_part_is_among_them(kind: type) -> None:
    """No kind of part is left out of the messages."""
    find(strategies.messages(), lambda message: any(isinstance(part, kind) for part in message.parts), settings=QUICK)


@pytest.mark.parametrize("role", get_args(Role))
def test_a_role_can_be_asked_for(role: Role) -> None:
    """Messages of one role are of that role alone."""
    with pytest.raises(NoSuchExample):
        find(
            strategies.messages(role),
            lambda message: message.role != role,
            settings=settings(QUICK, max_examples=20),
        )


def test_results_come_captured_and_not() -> None:
    """Both are among the results, and a captured one holds the message that its exchange ends in."""
    find(strategies.results(), lambda result: not result.captured, settings=QUICK)
    captured = find(strategies.results(), lambda result: result.captured, settings=QUICK)
    assert captured.exchange.history.last == captured.message


def test_the_other_test_tools_work_without_hypothesis() -> None:
    """Hypothesis is loaded by whoever asks for the strategies, and by nobody else."""
    program = "import sys, furcate.testing; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
