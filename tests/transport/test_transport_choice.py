"""Which transport sends: chosen by the event loop, by name, or by the configuration."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

import furcate
from furcate.testing import StubProvider, answer
from furcate.transport import _choice, make_transport, quick_is_installed

CONFIG = '[backends.a]\nbase_url = "https://a.example/v1"\n'
RUN = """
import sys
import anyio
import furcate
from furcate.testing import StubProvider, answer

async def main():
    async with StubProvider(answer("Hello.")) as stub:
        backend = furcate.Backend("a", base_url=stub.base_url)
        async with furcate.Engine(backends=[backend], profiles=[furcate.Profile("p", "a", "m")]{given}) as engine:
            print((await engine.run(furcate.Request(messages="Hello?", profile="p"))).text)

assert not {{"aiohttp", "httpcore2"}} & set(sys.modules), "nothing is loaded before it is used"
anyio.run(main, backend={loop!r})
print(*sorted({{"aiohttp", "httpcore2", "trio"}} & set(sys.modules)))
"""


async def _made(name: str | None) -> str:
    return type(make_transport(name)).__name__


@pytest.mark.parametrize(
    ("loop", "name", "installed", "made"),
    [
        ("asyncio", None, True, "QuickTransport"),
        ("asyncio", None, False, "HttpTransport"),
        ("asyncio", "httpx2", True, "HttpTransport"),
        ("asyncio", "aiohttp", True, "QuickTransport"),
        ("trio", None, True, "HttpTransport"),
        ("trio", "httpx2", True, "HttpTransport"),
    ],
)
def test_the_quickest_is_taken_where_none_is_named(monkeypatch, loop, name, installed, made) -> None:
    """On asyncio aiohttp if it is there, on trio never."""
    monkeypatch.setattr(_choice, "quick_is_installed", lambda: installed)
    assert anyio.run(_made, name, backend=loop) == made


@pytest.mark.parametrize(("version", "fit"), [("3.14.0", True), ("4.0.0a1", True), ("3.9.5", False), ("dev", False)])
def test_an_old_version_counts_as_none(monkeypatch, version, fit) -> None:
    """An aiohttp that came with something else is not used if it lacks what is needed."""
    monkeypatch.setattr(_choice, "version", lambda _: version)
    assert quick_is_installed() is fit


def test_aiohttp_on_trio_is_refused() -> None:
    """The sentence says what to do, and the engine stays closed."""
    engine = furcate.Engine(backends=[furcate.Backend("a", base_url="https://a.example")], transport="aiohttp")

    async def enter() -> None:
        for _ in range(2):
            with pytest.raises(furcate.MisuseError, match='asyncio alone; leave transport out, or choose "httpx2"'):
                await engine.__aenter__()

    anyio.run(enter, backend="trio")


@pytest.mark.parametrize("given", ['transport = "aiohttp"\n', 'transport = "httpx2"\n', ""])
def test_a_configuration_may_choose(tmp_path, given) -> None:
    """The key stands above all tables."""
    path = tmp_path / "furcate.toml"
    path.write_text(given + CONFIG)
    engine = furcate.Engine.from_config(path)
    assert engine._resources.transport == (given.split('"')[1] if given else None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('transport = "aiohtp"\n', "transport: 'aiohtp' is not possible here; did you mean 'aiohttp'?"),
        ("transport = 1\n", "transport: found"),
        ("[transport]\nname = 1\n", "transport: found"),
    ],
)
def test_a_wrong_choice_is_a_fault_of_the_file(tmp_path, given, said) -> None:
    """It is told with all the others."""
    path = tmp_path / "furcate.toml"
    path.write_text(given + CONFIG)
    with pytest.raises(furcate.ConfigError) as caught:
        furcate.Engine.from_config(path)
    assert said in str(caught.value)


def test_a_choice_that_is_not_installed_is_told(monkeypatch) -> None:
    """Before anything is opened, with what to install."""
    monkeypatch.setattr("furcate.orchestrator._config_transport.quick_is_installed", lambda: False)
    with pytest.raises(furcate.ConfigError, match=r"Engine\(...\): transport: .*furcate\[quick\]"):
        furcate.Engine(backends=[furcate.Backend("a", base_url="https://a.example")], transport="aiohttp")


def test_an_applications_own_key_of_that_name_is_passed_over(tmp_path) -> None:
    """What is named as lying beside is not read."""
    path = tmp_path / "furcate.toml"
    path.write_text('transport = "by ship"\n' + CONFIG)
    assert furcate.Engine.from_config(path, beside={"transport"})._resources.transport is None


@pytest.mark.parametrize(
    ("loop", "given", "loaded"),
    [
        ("asyncio", "", "aiohttp"),
        ("asyncio", ", transport='httpx2'", "httpcore2"),
        ("trio", "", "httpcore2"),
    ],
)
def test_only_what_is_used_is_loaded(loop, given, loaded) -> None:
    """A program loads one HTTP library, when its engine is entered."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(loop=loop, given=given)], capture_output=True, text=True, check=False
    )
    said, _, modules = done.stdout.partition("\n")
    assert said == "Hello.", done.stderr
    assert {"aiohttp", "httpcore2"} & set(modules.split()) == {loaded}


@pytest.mark.anyio
@pytest.mark.usefixtures("each_transport")
async def test_an_engine_is_entered_again_with_fresh_connections() -> None:
    """What one block opened is closed with it, and the next one does not miss it."""
    async with StubProvider(answer("Hello.")) as stub:
        engine = furcate.Engine(
            backends=[furcate.Backend("a", base_url=stub.base_url)], profiles=[furcate.Profile("p", "a", "m")]
        )
        for _ in range(2):
            async with engine:
                await engine.run(furcate.Request(messages="Hello?", profile="p"))
        assert stub.connections == 2
