"""Profiles whose model or provider-side tools do not go with their backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import furcate
from furcate.dialects import _server_tools, dialect_named
from furcate.dialects._server_tools import CAPABILITIES, Spelling
from furcate.orchestrator._config import check_resources, find_faults, load_config
from furcate.primitives._errors import ConfigError
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._resources import Backend, Profile
from furcate.primitives._wire import ModelCall
from furcate.testing import StubProvider, answer

BACKENDS = """
[backends.lab]
dialect = "openai-chat"
base_url = "http://127.0.0.1:8080/v1"
[backends.home]
kind = "embedded"
"""


def faults(folder: Path, profile: str) -> list[str]:
    """Give what is wrong with one profile, without the file's name and the table's."""
    path = folder / "furcate.toml"
    path.write_text(f"{BACKENDS}[profiles.p]\n{profile}\n", encoding="utf-8")
    return [str(fault).removeprefix(f"{path}: [profiles.p] ") for fault in find_faults(path)]


def named(*names: str, backend: str = "lab") -> str:
    return f"backend = {backend!r}\nmodel = 'm'\nserver_tools = {json.dumps(names)}"


def check(profile: Profile, *backends: Backend) -> Profile:
    return check_resources(backends, [profile], (), where="Engine(...)").profiles[profile.name]


@pytest.mark.req("S1-01", "S1-13")
def test_a_capability_keeps_its_name(tmp_path: Path) -> None:
    """What the file calls a capability is what the profile, and so every record of it, calls it."""
    assert faults(tmp_path, named("web_search")) == []
    made = load_config(tmp_path / "furcate.toml").profiles["p"]
    assert made.server_tools == ("web_search",)
    assert made.server_tools[0] in CAPABILITIES


@pytest.mark.req("S1-02")
def test_no_key_means_no_tools(tmp_path: Path) -> None:
    """A profile without the key has none of the provider's tools."""
    assert faults(tmp_path, "backend = 'lab'\nmodel = 'm'") == []
    assert load_config(tmp_path / "furcate.toml").profiles["p"].server_tools == ()


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        pytest.param(
            (),
            "server_tools: found an empty list; name at least one, or leave the key out",
            marks=pytest.mark.req("S1-03"),
        ),
        pytest.param(
            ("web_search", "web_search"),
            "server_tools: 'web_search' is there twice; name each capability once",
            marks=pytest.mark.req("S1-04"),
        ),
        pytest.param(
            ("web_serch",),
            "server_tools: no capability 'web_serch'; did you mean 'web_search'? "
            f"(capabilities: {', '.join(CAPABILITIES)})",
            marks=pytest.mark.req("S1-05"),
        ),
        pytest.param(
            ("code_execution",),
            "server_tools: dialect 'openai-chat' cannot ask for 'code_execution'; "
            "capabilities of openai-chat: web_search",
            marks=pytest.mark.req("S1-06"),
        ),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path: Path, names: tuple[str, ...], wanted: str) -> None:
    """An empty list, a repeated name, an unknown one and one that the dialect cannot spell are faults of the file."""
    assert faults(tmp_path, named(*names)) == [wanted]


@pytest.mark.req("S1-07")
@pytest.mark.parametrize("names", [("web_search", "web_search"), ("web_serch",), ("code_execution",)])
def test_a_wrong_declaration_fails_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Both ways of making an engine refuse it before the engine has a transport."""
    monkeypatch.setattr("furcate.orchestrator._engine.make_transport", _never)
    assert faults(tmp_path, named(*names)) != []
    with pytest.raises(ConfigError, match="server_tools"):
        furcate.Engine.from_config(tmp_path / "furcate.toml")
    with pytest.raises(ConfigError, match=r"Engine\(...\): \[profiles.p\] server_tools: "):
        furcate.Engine(backends=[Backend("lab")], profiles=[Profile("p", "lab", "m", server_tools=names)])


def _never() -> None:
    raise AssertionError("a transport was made for a configuration that is wrong")


@pytest.mark.req("S1-08")
def test_the_list_has_no_length_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All capabilities that a dialect can spell may be declared at once."""
    monkeypatch.setattr(_server_tools, "_TABLE", {name: {"openai-chat": Spelling()} for name in CAPABILITIES})
    profile = Profile("p", "lab", "m", server_tools=CAPABILITIES)
    assert check(profile, Backend("lab")).server_tools == CAPABILITIES


@pytest.mark.req("S1-09")
def test_the_check_and_the_encoder_ask_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spelling put into the one table is allowed by the check and sent by the encoder; taken out, both refuse."""
    profile = Profile("p", "lab", "m", server_tools=("code_execution",))
    call = ModelCall(model="m", history=History((Message.user("hello"),)), server_tools=profile.server_tools)
    chat = dialect_named("openai-chat")
    table: Mapping[str, Mapping[str, Spelling]] = {
        "code_execution": {"openai-chat": Spelling(member=("sandbox", FrozenMap({"size": 1})))}
    }
    with monkeypatch.context() as patched:
        patched.setattr(_server_tools, "_TABLE", table)
        assert check(profile, Backend("lab")) == profile
        assert json.loads(b"".join(chat.encode(call).body))["sandbox"] == {"size": 1}
    with pytest.raises(ConfigError, match="cannot ask for 'code_execution'"):
        check(profile, Backend("lab"))
    with pytest.raises(AssertionError, match="reached the encoder"):
        chat.encode(call)


@pytest.mark.req("S1-10", "S1-69")
@pytest.mark.parametrize("model", ["m", "claude-opus-4", "gpt-5-search-preview", "gemini-2.5-pro"])
@pytest.mark.parametrize("provider", ["lab", "anthropic"])
def test_names_and_addresses_decide_nothing(model: str, provider: str) -> None:
    """Neither the model's name nor the provider's nor the address widens what a dialect can spell, or adds a tool."""
    backend = Backend("lab", base_url="https://api.anthropic.com/v1", provider=provider)
    assert check(Profile("p", "lab", model), backend).server_tools == ()
    with pytest.raises(ConfigError, match="dialect 'openai-chat' cannot ask for 'web_fetch'"):
        check(Profile("p", "lab", model, server_tools=["web_fetch"]), backend)


@pytest.mark.req("S1-69")
def test_efforts_are_those_of_the_list(tmp_path: Path) -> None:
    """The list is absent or names each effort once; an effort outside it is an error, whatever the model is called."""
    base = "backend = 'lab'\nmodel = 'claude-opus-4'\n"
    assert faults(tmp_path, base + "reasoning_effort = 'max'") == []
    assert faults(tmp_path, base + "reasoning_efforts = ['low', 'high']\nreasoning_effort = 'low'") == []
    assert faults(tmp_path, base + "reasoning_efforts = []") == [
        "reasoning_efforts: found an empty list; name at least one, or leave the key out"
    ]
    assert faults(tmp_path, base + "reasoning_efforts = ['low', 'low']") == [
        "reasoning_efforts: 'low' is there twice; name each effort once"
    ]
    assert faults(tmp_path, base + "reasoning_efforts = ['low', 'high']\nreasoning_effort = 'max'") == [
        "reasoning_effort: 'max' is not in reasoning_efforts; allowed efforts: low, high"
    ]


@pytest.mark.req("S1-69")
async def test_a_request_asks_for_no_effort_outside_the_list() -> None:
    """What a request overrides is held against the list too, before anybody is asked."""
    profile = Profile("p", "lab", "m", reasoning_efforts=["low"])
    async with furcate.Engine(backends=[Backend("lab", base_url="http://127.0.0.1:9")], profiles=[profile]) as engine:
        settings = furcate.Settings(reasoning_effort="high")
        with pytest.raises(furcate.RequestError, match="effort 'high'; profile 'p' allows low"):
            await engine.run(furcate.Request(profile="p", messages="Go", settings=settings))


@pytest.mark.req("S1-12")
async def test_declaring_is_all_it_takes() -> None:
    """A declared capability is in every request of its profile, nobody being asked, and in no other request."""
    profiles = [Profile("with", "lab", "m", server_tools=["web_search"]), Profile("without", "lab", "m")]
    async with StubProvider([answer("News."), answer("None.")]) as stub:
        async with furcate.Engine(backends=[Backend("lab", base_url=stub.base_url)], profiles=profiles) as engine:
            for profile in profiles:
                await engine.run(furcate.Request(profile=profile.name, messages="What is new?"))
        first, second = (request.body for request in stub.requests)
    assert first["web_search_options"] == {}
    assert "web_search_options" not in second


def test_the_embedded_model_has_no_provider(tmp_path: Path) -> None:
    """The model on this machine has nobody who would run a tool for it."""
    assert faults(tmp_path, named("web_search", backend="home")) == [
        "server_tools: backend 'home' is embedded: a model on this machine has no provider that runs tools for it; "
        "leave it out, or use a remote backend"
    ]


def test_the_embedded_model_needs_no_name(tmp_path: Path) -> None:
    """Its only model has a name of ours, wherever the profile comes from; a name that is given stays."""
    home = Backend("home", kind="embedded")
    assert check(Profile("p", "home"), home).model == "embedded"
    assert check(Profile("p", "home", "mine"), home).model == "mine"
    assert faults(tmp_path, "backend = 'home'") == []
    assert load_config(tmp_path / "furcate.toml").profiles["p"] == check(Profile("p", "home"), home)


@pytest.mark.parametrize("model", ["", " "])
def test_another_model_is_named(tmp_path: Path, model: str) -> None:
    """A remote backend has many models, so one has to be named; a backend that is not there is complained of alone."""
    with pytest.raises(ConfigError, match=r"\[profiles.p\] model: missing; name the model as the backend calls it"):
        check(Profile("p", "lab", model), Backend("lab"))
    assert faults(tmp_path, "backend = 'lab'") == ["model: missing; name the model as the backend calls it"]
    assert [fault.partition(":")[0] for fault in faults(tmp_path, "backend = 'lap'")] == ["backend"]


def test_unknown_content_is_one_of_two_words() -> None:
    """A word from Python that a backend cannot take is named with those it can."""
    wrong = Backend("lab", unknown_content="keep")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown_content: 'keep' is not possible here; possible: fail, carry"):
        check(Profile("p", "lab", "m"), wrong)
