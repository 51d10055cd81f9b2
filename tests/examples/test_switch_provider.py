"""The example that changes providers in the middle of a conversation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import furcate
from furcate.report import cited_in
from furcate.testing import StubCitation, StubProvider, StubRequest, StubSearch, StubSource, answer

PAGE = StubSource("https://tides.example/bergen", "Tides\x1b[2J of Bergen")
SEARCHED = answer(
    "High water is at noon.",
    reasoning="I had better look that up.",
    reasoning_state="c2VhbGVk",
    searches=[StubSearch("high water Bergen", [PAGE])],
    citations=[StubCitation(PAGE.url, PAGE.title, quote="at noon")],
)

PAIRS = [
    ("openai-responses", "anthropic-messages"),
    ("anthropic-messages", "google-generatecontent"),
    ("google-generatecontent", "openai-chat"),
    ("openai-chat", "openai-responses"),
]


@pytest.fixture
def program(load):
    """Give the program's module."""
    return load("switch_provider")


def engine_between(stub: StubProvider, first: str, then: str) -> furcate.Engine:
    settings = furcate.Settings(max_output_tokens=99)
    spoken = {"first": first, "then": then}
    return furcate.Engine(
        backends=[furcate.Backend(name, dialect=dialect, base_url=stub.base_url) for name, dialect in spoken.items()],
        profiles=[furcate.Profile(name, name, "m", settings=settings) for name in spoken],
    )


def sent(request: StubRequest) -> str:
    return json.dumps(request.body, ensure_ascii=False)


def opaque(message: furcate.Message) -> list[str]:
    """Give the values in the message's payloads that only its provider can read."""
    payloads = [getattr(part, "payload", None) for part in message.parts]
    payloads += [one.replay for one in cited_in(message)]
    found = (re.findall(rb'"(?:encrypted_\w+|\w*[sS]ignature)": ?"([^"]+)"', one.value) for one in payloads if one)
    return [value.decode() for values in found for value in values]


@pytest.mark.req("S0-56", "S0-55")
@pytest.mark.parametrize(("first", "then"), PAIRS)
async def test_text_comes_along_and_opaque_state_does_not(program, first, then) -> None:
    """The other provider reads the texts and nothing native; people still have citations and activities."""
    async with StubProvider([SEARCHED, answer("Noon.")]) as stub, engine_between(stub, first, then) as engine:
        done = await program.switch(engine, "When is high water?", "Shorter.", first="first", then="then")
    body = sent(stub.requests[1])
    assert all(text in body for text in ("When is high water?", "High water is", "at noon", "Shorter."))
    assert not any(text in body for text in ("c2VhbGVk", PAGE.url, "high water Bergen", "had better"))
    assert not any(value in body for value in opaque(done.before.message))
    assert done.after.text == "Noon."
    assert bool(opaque(done.before.message)) is (first == "anthropic-messages")
    assert done.carried() == "2 texts, 1 citation, activities: web_search (1)"
    reasoning, payloads = done.dropped().split(", ")
    assert reasoning == "1 piece of sealed reasoning"
    assert (payloads == "0 payloads") is (first == "openai-chat")


async def test_what_stayed_behind_is_there_for_the_way_back(program) -> None:
    """Back with the first provider, its sealed reasoning is sent as it came."""
    script = [SEARCHED, answer("Noon."), answer("Yes.")]
    async with StubProvider(script) as stub, engine_between(stub, *PAIRS[0]) as engine:
        done = await program.switch(engine, "When is high water?", "Shorter.", first="first", then="then")
        await engine.continue_from(done.before.exchange, furcate.Request(profile="first", messages="Sure?"))
    assert "c2VhbGVk" in sent(stub.requests[2])
    assert "high water Bergen" in sent(stub.requests[2])


async def test_same_provider_drops_nothing(program) -> None:
    """Where both profiles are on one backend, everything goes along."""
    async with StubProvider([SEARCHED, answer("Noon.")]) as stub, engine_between(stub, *PAIRS[1]) as engine:
        done = await program.switch(engine, "When is high water?", "Shorter.", first="first", then="first")
    assert done.dropped() == "0 pieces of sealed reasoning, 0 payloads"
    assert "c2VhbGVk" in sent(stub.requests[1])


def configuration(base_url: str, folder: Path) -> str:
    tables = [
        f'[backends.{name}]\nbase_url = "{base_url}"\ndialect = "{dialect}"\nattempts = 1\n'
        f'[profiles.{name}]\nbackend = "{name}"\nmodel = "m"\nmax_output_tokens = 99\n'
        for name, dialect in (("first", "anthropic-messages"), ("then", "openai-chat"))
    ]
    path = folder / "furcate.toml"
    path.write_text("".join(tables), encoding="utf-8")
    return str(path)


def run(program, *arguments: str):
    return CliRunner().invoke(program.main, arguments)


def test_its_command_tells_both_sides(program, loop, tmp_path) -> None:
    """The command prints both answers, rows and sources under the first, what was carried and what was dropped."""
    with StubProvider.in_thread([SEARCHED, answer("Noon.")]) as stub:
        ended = run(program, "When?", "Shorter.", "--config", configuration(stub.base_url, tmp_path), "--loop", loop)
    assert ended.exit_code == 0, ended.output
    assert ended.output == (
        "first:\n[+] web_search · high water Bergen\nHigh water is at noon.\n\n"
        "Sources:\n[1] Tides of Bergen · https://tides.example/bergen\n\n"
        "carried: 2 texts, 1 citation, activities: web_search (1)\n"
        "dropped: 1 piece of sealed reasoning, 3 payloads\n\n"
        "then:\nNoon.\n"
    )


@pytest.mark.parametrize("arguments", [["--config", "none.toml"], ["--then", "nobody"]])
def test_bad_input_is_told_in_a_sentence(program, tmp_path, arguments: list[str]) -> None:
    """A configuration that is not there and a profile that nobody configured are named."""
    with StubProvider.in_thread([SEARCHED]) as stub:
        ended = run(program, "--config", configuration(stub.base_url, tmp_path), *arguments)
    assert ended.exit_code == 1
    assert ended.output.startswith("Error: ")
    assert arguments[1] in ended.output


@pytest.mark.embedded
@pytest.mark.timeout(240)
def test_it_runs_on_the_embedded_model(program, model) -> None:
    """Without a configuration the embedded model's server is spoken to in two languages."""
    ended = run(program, "--loop", "trio")
    assert ended.exit_code == 0, ended.output
    assert "carried: 2 texts, 0 citations, activities: none" in ended.output
    assert "dropped: 0 pieces of sealed reasoning, 0 payloads" in ended.output
