"""``furcate --version``, installed or not."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.mark.parametrize("name", ["furcate", "no-such-distribution"])
def test_version_is_looked_up_when_it_is_asked_for(
    furcate_command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A package that runs from its sources has no version to show, and says so instead of failing."""
    versions = {"furcate": "1.2.3"}

    def look_up(wanted: str) -> str:
        if wanted != name:
            raise importlib.metadata.PackageNotFoundError(wanted)
        return versions[wanted]

    monkeypatch.setattr(importlib.metadata, "version", look_up)
    said = furcate_command("--version")
    shown = "furcate 1.2.3\n" if name == "furcate" else "furcate (run from its sources)\n"
    assert (said.status, said.out, said.err) == (0, shown, "")
