"""The example programs, loaded from their files, and engines for them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import furcate
from furcate.testing import StubProvider, StubRequest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def examples() -> Path:
    """Give the folder of the examples."""
    return EXAMPLES


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Load a program of the examples; it is a registered module, since its contracts look their types up."""

    def loaded(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.fixture
def engine_on() -> Callable[..., furcate.Engine]:
    """Make an engine on a stub that serves one request at a time, with the profile that the programs ask."""

    def make(stub: StubProvider, *observers) -> furcate.Engine:
        return furcate.Engine(
            backends=[furcate.Backend("stub", base_url=stub.base_url, capacity=1)],
            profiles=[furcate.Profile("local", "stub", "m")],
            observers=observers,
        )

    return make


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str], str]:
    """Write a configuration for a server and give its path."""

    def write(base_url: str) -> str:
        path = tmp_path / "furcate.toml"
        path.write_text(
            f'[backends.stub]\nbase_url = "{base_url}"\nattempts = 1\ncapacity = 1\n'
            '[profiles.local]\nbackend = "stub"\nmodel = "m"\n',
            encoding="utf-8",
        )
        return str(path)

    return write


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> str:
    """Name each event loop in turn."""
    name: str = request.param
    return name


@pytest.fixture
def wanted() -> Callable[[StubRequest], tuple[str, ...]]:
    """Tell the members of the JSON object that a request asks for; none where it asks for text."""

    def members(request: StubRequest) -> tuple[str, ...]:
        form = request.body.get("response_format")
        return tuple(form["json_schema"]["schema"]["properties"]) if form else ()

    return members
