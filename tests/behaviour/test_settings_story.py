"""Which profile, contract, session and key an execution takes: chosen afresh each time."""

from __future__ import annotations

import pytest

import furcate
from furcate.testing import StubProvider, answer

pytestmark = pytest.mark.anyio

USER = furcate.MessageTemplate("user", "Go.")
NUMBER = furcate.Contract({"type": "integer"})
OBJECT = furcate.Contract({"type": "object"})


def bare(name: str, **given) -> furcate.Prompt:
    return furcate.Prompt(name, [USER], **given)


@pytest.mark.req("S4-033", "S4-034", "S4-035")
async def test_the_profile_is_the_requests_or_the_prompts_and_never_the_exchanges(engine_for, ask) -> None:
    """An explicit profile wins over the prompt's; without either it is an error, though the history had one."""
    prompts = [bare("with", profile="p"), bare("without")]
    other = furcate.Profile("other", "stub", "other-model")
    async with StubProvider(answer("ok")) as stub, engine_for(stub, prompts=prompts, profiles=[other]) as engine:
        exchange = (await engine.run(furcate.Request("with", profile="other", capture=True))).exchange
        await engine.continue_from(exchange, furcate.Request("with"))
        with pytest.raises(furcate.MissingProfileError, match="'without' has no default profile"):
            await engine.continue_from(exchange, furcate.Request("without"))
        with pytest.raises(furcate.MissingProfileError, match="there is no prompt"):
            await engine.continue_from(exchange, furcate.Request(messages="hi"))
        with pytest.raises(furcate.UnknownNameError, match=r"no profile named 'nope'; there are: other, p"):
            await engine.continue_from(exchange, furcate.Request("with", profile="nope"))
        models = [request.body["model"] for request in stub.requests]
    assert models == ["other-model", "m"]


@pytest.mark.req("S4-036", "S4-035")
async def test_the_contract_is_the_requests_or_the_prompts(engine_for, ask) -> None:
    """A request's contract replaces the prompt's completely, and no turn inherits one."""
    prompts = [bare("number", profile="p", contract=NUMBER)]
    async with StubProvider([answer("1"), answer("{}"), answer("text")]) as stub:
        async with engine_for(stub, prompts=prompts) as engine:
            first = await engine.run(furcate.Request("number", capture=True))
            second = await engine.continue_from(first.exchange, furcate.Request("number", contract=OBJECT))
            third = await engine.continue_from(second.exchange, ask())
        sent = [
            request.body.get("response_format", {}).get("json_schema", {}).get("schema") for request in stub.requests
        ]
    assert [r.validation.status for r in (first, second, third)] == ["passed", "passed", "not_requested"]
    assert (first.value, second.value) == (1, {})
    assert sent == [{"type": "integer"}, {"type": "object"}, None]


@pytest.mark.req("S4-038", "S4-039")
async def test_the_session_id_is_explicit_or_rendered_and_binds_nothing(engine_for) -> None:
    """It goes to observations; parents are parents whatever it says, and giving it twice is fine."""
    recorder = furcate.Recorder()
    prompts = [bare("s", profile="p", session="job-{{ id }}")]
    async with StubProvider(answer("ok")) as stub, engine_for(stub, prompts=prompts, observers=[recorder]) as engine:
        one = await engine.run(furcate.Request("s", vars={"id": 7}, capture=True))
        two = await engine.continue_from(one.exchange, furcate.Request("s", session_id="mine"))
        await engine.continue_from(two.exchange, furcate.Request("s", session_id="mine"))
        assert "mine" not in stub.requests[1].raw.decode()
    started = [event for event in recorder.events if isinstance(event, furcate.RunStarted)]
    assert [event.session_id for event in started] == ["job-7", "mine", "mine"]
    assert [event.parent_run_id for event in started] == [None, one.run_id, two.run_id]


@pytest.mark.req("S4-040")
def test_there_is_no_way_to_inherit_settings() -> None:
    """No request field and no engine argument speaks of inheriting."""
    fields = {name for name in dir(furcate.Request) if not name.startswith("_")}
    assert not {name for name in fields if "inherit" in name or "keep" in name}


@pytest.mark.req("S4-037")
async def test_keys_are_looked_up_for_each_attempt(engine_for, ask, monkeypatch) -> None:
    """A set variable wins over a key in the configuration; a callable, plain or async, is asked each time."""
    made = iter(["first", "second"])

    async def fresh() -> str:
        return next(made)

    async with StubProvider(answer("ok")) as stub:
        async with engine_for(stub, api_key="configured", api_key_env="STUB_KEY") as engine:
            await engine.run(ask())
            monkeypatch.setenv("STUB_KEY", "from-the-environment")
            await engine.run(ask())
        async with engine_for(stub, credential=fresh) as engine:
            await engine.run(ask())
            await engine.run(ask())
        keys = [request.headers["authorization"].removeprefix("Bearer ") for request in stub.requests]
    assert keys == ["configured", "from-the-environment", "first", "second"]


async def test_a_key_that_is_not_there_is_told_before_anything_is_sent(engine_for, ask) -> None:
    """The error names the variable and the backend's table."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub, api_key_env="NOT_SET_ANYWHERE") as engine:
        with pytest.raises(furcate.ConfigError, match=r"\[backends.stub\] api_key_env: .*NOT_SET_ANYWHERE is not set"):
            await engine.run(ask())
        assert not stub.requests


async def test_a_key_that_no_header_carries_is_told_without_being_shown(engine_for, ask) -> None:
    """A stray newline is the commonest fault of keys read from files."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub, credential=lambda: "sk-secret\n") as engine:
        with pytest.raises(furcate.RequestError) as caught:
            await engine.run(ask())
        assert not stub.requests
    assert "sk-secret" not in str(caught.value)


async def test_settings_of_the_request_lie_over_the_profiles(engine_for, ask) -> None:
    """What the request sets wins, what it leaves stays; extra members are merged and headers are sent as they are."""
    settings = furcate.Settings(max_output_tokens=100, temperature=0.5, extra_body={"top_k": 3, "x": 1})
    over = furcate.Settings(temperature=0.0, extra_body={"x": 2})
    async with StubProvider(answer("ok")) as stub:
        async with engine_for(stub, profile={"settings": settings}, extra_headers={"x-team": "blue"}) as engine:
            await engine.run(ask(settings=over))
        body, headers = stub.requests[0].body, stub.requests[0].headers
    assert (body["max_tokens"], body["temperature"], body["top_k"], body["x"]) == (100, 0.0, 3, 2)
    assert headers["x-team"] == "blue"


@pytest.mark.req("S4-095")
async def test_inspecting_describes_what_is_configured(engine_for) -> None:
    """Prompts, profiles and backends are given as configured, keys unseen, conversations unheard of."""
    prompt = bare("q", profile="p")
    engine = engine_for("http://127.0.0.1:1/v1", prompts=[prompt], api_key="sk-hidden")
    assert engine.inspect_prompt("q") == prompt
    assert engine.inspect_profile("p").model == "m"
    assert engine.inspect_backend("stub").capacity == 1
    assert "sk-hidden" not in repr(engine.inspect_backend("stub"))
    with pytest.raises(furcate.UnknownNameError, match="no backend named 'other'; there are: stub"):
        engine.inspect_backend("other")
