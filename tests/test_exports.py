"""What `import furcate` offers, and what it leaves alone."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from types import UnionType
from typing import get_origin

import pytest

import furcate

# Words of the applications that use furcate; it knows conversations and execution only.
FOREIGN_WORDS = ("candidate", "accept", "reject", "revision", "withdraw", "assess")
LEFT_ALONE = (
    "furcate.batch",
    "furcate.cli",
    "furcate.local",
    "furcate.report",
    "furcate.testing",
    "opentelemetry.exporter",
    "opentelemetry.sdk",
    "pytest",
    "xllamacpp",
)

NAMES = furcate.__all__


def _is_alias(value: object) -> bool:
    return isinstance(value, UnionType) or get_origin(value) is not None


def test_all_is_a_sorted_tuple_without_repetition() -> None:
    """The list of public names is fixed and easy to search."""
    assert isinstance(NAMES, tuple)
    assert list(NAMES) == sorted(set(NAMES), key=_order)


def _order(name: str) -> tuple[bool, str]:
    # Classes before functions, as every linter sorts them.
    return not name[0].isupper(), name


def test_all_names_exactly_what_is_public() -> None:
    """Every public attribute is listed, and everything listed is there."""
    public = {
        name
        for name, value in vars(furcate).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    # Telemetry is loaded by whoever asks for it.
    assert public - {"TYPE_CHECKING"} | {"observe_otel"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(name: str) -> None:
    """Each public name has a docstring of its own; aliases of unions cannot have one."""
    value = getattr(furcate, name)
    if _is_alias(value):
        return
    assert vars(value).get("__doc__") if isinstance(value, type) else value.__doc__


@pytest.mark.req("S4-001")
@pytest.mark.parametrize("name", NAMES)
def test_public_names_speak_of_conversations_and_execution_only(name: str) -> None:
    """Neither a name, nor a member, nor a parameter says what the content means."""
    value = getattr(furcate, name)
    words = {name}
    if isinstance(value, type):
        words |= {member for member in dir(value) if not member.startswith("_")}
        words |= {
            parameter
            for member in (value, *vars(value).values())
            if callable(member) and not _is_alias(member)
            for parameter in _parameters(member)
        }
    elif callable(value) and not _is_alias(value):
        words |= _parameters(value)
    assert not {word for word in words if any(foreign in word.lower() for foreign in FOREIGN_WORDS)}


def _parameters(value: object) -> set[str]:
    try:
        return set(inspect.signature(value).parameters)  # type: ignore[arg-type]  # it is callable
    except (TypeError, ValueError):
        return set()


def test_import_leaves_alone_what_few_need() -> None:
    """A fresh `import furcate` loads no test tools, no embedded model, no command line and no telemetry SDK."""
    program = "import json, sys, furcate; print(json.dumps(sorted(sys.modules)))"
    # Warnings are errors there as well.
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    unwanted = [name for name in loaded if any(name == one or name.startswith(f"{one}.") for one in LEFT_ALONE)]
    assert not unwanted
