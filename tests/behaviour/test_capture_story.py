"""What an exchange captures, and what continuing it makes."""

from __future__ import annotations

import copy
import hashlib
import json
import socket

import anyio
import anyio.abc
import pytest

import furcate
from furcate.testing import Hold, StubProvider, StubToolCall, answer, error

pytestmark = pytest.mark.anyio

TITLED = {"type": "object", "required": ["title"], "properties": {"title": {"type": "string", "maxLength": 20}}}


def texts(exchange: furcate.Exchange) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in exchange.messages]


@pytest.mark.req("S4-016", "S4-017", "S4-086")
async def test_capture_is_asked_for(engine_for, ask) -> None:
    """Without asking there is no exchange, and reading it says how to ask; with asking it stands beside the result."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        plain = await engine.run(ask())
        captured = await engine.run(ask(capture=True))
    assert not plain.captured
    with pytest.raises(furcate.NotCaptured, match="capture=True"):
        plain.exchange  # noqa: B018 - reading it is what raises
    assert captured.text == "ok"
    assert captured.exchange.run_id == captured.run_id
    assert captured.exchange.parent_run_id is None


@pytest.mark.req("S4-007", "S4-021", "S4-024", "S4-023", "S4-041")
async def test_an_exchange_holds_what_was_executed(engine_for, ask) -> None:
    """Roles, order, cache hints and content are those that went out, the answer last; a continuation adds to them."""
    hinted = furcate.Message.system("Be brief.", cache=furcate.CacheHint())
    prompt = furcate.Prompt("q", [furcate.MessageTemplate("user", "About {{ topic }}.")], profile="p")
    async with (
        StubProvider(lambda request: answer(f"answer {request.number}")) as stub,
        engine_for(stub, prompts=[prompt]) as engine,
    ):
        first = await engine.run(ask(messages=[hinted, furcate.Message.user("Hi")], capture=True))
        then = furcate.Request("q", vars={"topic": "rain"}, messages="And appended.")
        second = await engine.continue_from(first.exchange, then)
        sent = [(m["role"], m["content"]) for m in stub.requests[1].body["messages"]]
    assert texts(first.exchange) == [("system", "Be brief."), ("user", "Hi"), ("assistant", "answer 1")]
    assert first.exchange.messages[0].cache == furcate.CacheHint()
    assert texts(second.exchange) == [
        *texts(first.exchange),
        ("user", "About rain."),
        ("user", "And appended."),
        ("assistant", "answer 2"),
    ]
    assert sent == texts(second.exchange)[:-1]


@pytest.mark.req("S4-008", "S4-124", "S4-048", "S4-003")
async def test_after_a_repair_only_the_final_content_is_captured(engine_for, ask) -> None:
    """The first answer and the note that corrected it are on the wire, not in the exchange."""
    contract = furcate.Contract(TITLED, repairs=1)
    script = [answer('{"title": "far too long to be a title"}'), answer('{"title": "short"}'), answer("next")]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        result = await engine.run(ask("A title?", contract=contract, capture=True))
        await engine.continue_from(result.exchange, ask("go on"))
        repair, follow_up = (request.body["messages"] for request in stub.requests[1:])
    assert result.validation.status == "passed"
    assert result.value == {"title": "short"}
    assert texts(result.exchange) == [("user", "A title?"), ("assistant", '{"title": "short"}')]
    assert [m["role"] for m in repair] == ["user", "assistant", "user"]
    assert "far too long" in repair[1]["content"]
    assert "$.title" in repair[2]["content"]
    assert "far too long" not in json.dumps(follow_up)


@pytest.mark.req("S4-009")
async def test_retries_leave_no_trace_in_the_exchange(engine_for, ask) -> None:
    """After two failed attempts the user's turn stands once, and both attempts carried the same bytes."""
    async with StubProvider([error(503), error(503), answer("ok")]) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(capture=True))
    assert texts(result.exchange) == [("user", "Hello?"), ("assistant", "ok")]
    assert len(result.attempts) == 3
    assert len({attempt.body_sha256 for attempt in result.attempts}) == 1
    assert len({attempt.request_id for attempt in result.attempts}) == 3


@pytest.mark.field(29)
async def test_a_turn_whose_first_connection_was_refused_stands_once(engine_for, ask) -> None:
    """Nobody listens at first, then somebody does: one user's turn, and both receipts are of the same bytes."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))

        def open_it(event: furcate.Observation) -> None:
            if isinstance(event, furcate.AttemptsPaused):
                door.listen()
                opened.set()

        async def lead_on(to: str) -> None:
            await opened.wait()
            async with await anyio.abc.SocketListener.from_socket(door.dup()) as listener:
                async with await listener.accept() as here, await anyio.connect_tcp(*to.split(":")) as there:
                    async with anyio.create_task_group() as ways:
                        ways.start_soon(copy_bytes, here, there)
                        ways.start_soon(copy_bytes, there, here)

        async with StubProvider(answer("ok")) as stub, anyio.create_task_group() as tasks:
            opened = anyio.Event()
            tasks.start_soon(lead_on, stub.base_url.removeprefix("http://").removesuffix("/v1"))
            async with engine_for(f"http://127.0.0.1:{door.getsockname()[1]}/v1") as engine:
                result = await engine.run(ask(capture=True, observers=[open_it]))
            assert len(stub.requests) == 1
            sent = hashlib.sha256(stub.requests[0].raw).hexdigest()
            tasks.cancel_scope.cancel()
    assert [attempt.failure and attempt.failure.reason for attempt in result.attempts] == ["connection_refused", None]
    assert texts(result.exchange) == [("user", "Hello?"), ("assistant", "ok")]
    refused, answered = result.receipts
    assert {attempt.body_sha256 for attempt in result.attempts} == {sent}
    assert refused.provider_request_sha256 == answered.provider_request_sha256
    assert refused.native_request_sha256 == answered.native_request_sha256


async def copy_bytes(since: anyio.abc.ByteStream, to: anyio.abc.ByteStream) -> None:
    async for piece in since:
        await to.send(piece)


@pytest.mark.req("S4-014")
async def test_an_exchange_says_nothing_of_validation(engine_for, ask) -> None:
    """What was checked and failed, checked and passed, or never checked is captured alike, to the digest."""
    contracts = [None, furcate.Contract(TITLED, repairs=0), furcate.Contract({"required": ["else"]}, repairs=0)]
    async with StubProvider(answer('{"title": "short"}')) as stub:
        async with engine_for(stub) as engine:
            results = [await engine.run(ask(contract=contract, capture=True)) for contract in contracts]
    assert [result.validation.status for result in results] == ["not_requested", "passed", "failed"]
    described = [result.exchange.details() for result in results]
    assert len({result.exchange.digest for result in results}) == 1
    for details in described:
        del details["run_id"]
        assert details == described[0]
        assert not [word for word in ("valid", "fault", "passed", "failed", "accept") if word in json.dumps(details)]


@pytest.mark.req("S4-125", "S4-076")
async def test_a_callback_learns_that_a_check_failed(engine_for, ask) -> None:
    """An answer that fails its contract is delivered like any, with status and exchange; an error brings neither."""
    seen = []

    async def next_action(turn: furcate.Turn):
        if turn.result is not None:
            seen.append((turn.result.validation.status, turn.exchange is turn.result.exchange, turn.exchange))
        return furcate.Continue(ask(contract=furcate.Contract(TITLED, repairs=1)))

    script = [answer("begin"), answer("no title"), answer("still none"), error(400, "bad")]
    async with StubProvider(script) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask("Begin.", capture=True))).exchange
        coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=3)
        with pytest.raises(furcate.ProviderError) as caught:
            await coordinator.run()
        assert len(stub.requests) == 4
    assert [(status, same) for status, same, _ in seen] == [("failed", True)]
    assert texts(seen[0][2])[-1] == ("assistant", "still none")
    assert coordinator.undelivered is None
    assert not hasattr(caught.value, "exchange")


@pytest.mark.req("S4-010", "S4-011", "S4-015")
@pytest.mark.field(34)
async def test_an_answer_that_fails_its_contract_is_captured_as_it_is(engine_for, ask) -> None:
    """When repairs run out the result is an ordinary one with the last answer, each round's faults and all usage."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    long = json.dumps({"title": "x" * 45})
    async with StubProvider(answer(long, usage=usage)) as stub, engine_for(stub) as engine:
        result = await engine.run(ask(contract=furcate.Contract(TITLED, repairs=2), capture=True))
        assert len(stub.requests) == 3
    assert result.validation.status == "failed"
    assert [len(faults) for faults in result.validation.rounds] == [1, 1, 1]
    assert result.validation.faults[0].path == "$.title"
    assert result.text == long
    assert result.exchange.messages[-1].text == long
    assert (result.usage.input_tokens, result.usage.output_tokens) == (30, 15)
    with pytest.raises(furcate.NotValid, match=r"\$\.title"):
        result.value  # noqa: B018 - reading it is what raises


@pytest.mark.req("S4-012", "S4-125")
async def test_an_operational_error_captures_nothing(engine_for, ask) -> None:
    """A failed execution raises; there is no result that could hold an exchange."""
    async with StubProvider(error(400, "bad")) as stub, engine_for(stub) as engine:
        with pytest.raises(furcate.ProviderError) as caught:
            await engine.run(ask(capture=True))
    assert caught.value.partial is None


@pytest.mark.req("S4-018", "S4-019", "S4-126", "S4-006", "S4-108")
async def test_prepared_execution_captures_when_it_runs(engine_for, ask) -> None:
    """Preparing calls nobody and tells nobody; the exchange comes with that very execution, which spends the handle."""
    recorder = furcate.Recorder()
    async with StubProvider(answer("ok")) as stub, engine_for(stub, observers=[recorder]) as engine:
        prepared = engine.prepare(ask(capture=True))
        discarded = engine.prepare(ask(capture=True))
        assert prepared.details()["messages"] == [{"role": "user", "parts": [{"type": "text", "text": "Hello?"}]}]
        discarded.discard()
        assert not stub.requests
        assert not recorder.events
        result = await prepared.run()
        for use in (prepared.run, discarded.run):
            with pytest.raises(furcate.MisuseError, match="before"):
                await use()
        with pytest.raises(furcate.MisuseError, match="before"):
            prepared.discard()
        assert len(stub.requests) == 1
    assert texts(result.exchange) == [("user", "Hello?"), ("assistant", "ok")]


@pytest.mark.req("S4-020")
async def test_a_continuation_always_captures(engine_for, ask) -> None:
    """Continuing needs no opting in, streamed and prepared too."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        first = (await engine.run(ask(capture=True))).exchange
        assert (await engine.continue_from(first, ask())).captured
        assert (await engine.prepare(ask(), exchange=first).run()).captured
        async with engine.stream(ask(), exchange=first) as stream:
            async for _ in stream:
                pass
        assert stream.result.captured


@pytest.mark.field(28)
async def test_a_hundred_forks_at_once_keep_to_their_own_words(engine_for, ask) -> None:
    """Each of a hundred bodies holds the shared turns and one marker, its own, in order; so do the exchanges."""
    ends: dict[str, furcate.Exchange] = {}

    def saying(word: str):
        async def once(turn: furcate.Turn):
            ends[word] = turn.exchange
            return furcate.Continue(ask(word)) if turn.remaining else furcate.Stop()

        return once

    words = [f"ZEBRA-{n:03}" for n in range(100)]
    async with StubProvider(lambda request: answer(f"to {request.body['messages'][-1]['content']}")) as stub:
        async with engine_for(stub, capacity=100) as engine:
            one = (await engine.run(ask("one", capture=True))).exchange
            async with furcate.open_branches(engine, one) as branches:
                for word in words:
                    branches.start_soon(saying(word), additional_turns=1)
        bodies = [request.body["messages"] for request in stub.requests[1:]]
    shared = [("user", "one"), ("assistant", "to one")]
    assert [branch.unwrap() for branch in branches] == [furcate.Outcome.STOPPED] * 100
    sent = sorted([(m["role"], m["content"]) for m in body] for body in bodies)
    assert sent == sorted([*shared, ("user", word)] for word in words)
    for word in words:
        assert texts(ends[word]) == [*shared, ("user", word), ("assistant", f"to {word}")]
    assert texts(one) == shared


@pytest.mark.req("S4-022", "S4-023", "S4-129", "S4-132", "S4-084", "S4-082")
@pytest.mark.field(27)
async def test_branches_share_their_beginning_and_nothing_else(engine_for, ask) -> None:
    """Forks of one exchange hold its turns and their own; it and its other descendants stay as they were."""
    async with StubProvider(lambda request: answer(f"to {request.body['messages'][-1]['content']}")) as stub:
        async with engine_for(stub) as engine:
            one = (await engine.run(ask("one", capture=True))).exchange
            two = (await engine.continue_from(one, ask("two"))).exchange
            before = [one.digest, two.digest]
            marked = [(await engine.continue_from(one, ask(f"ZEBRA-{n}"))).exchange for n in range(5)]
            three = (await engine.continue_from(two, ask("three"))).exchange
        bodies = [request.raw.decode() for request in stub.requests]
    assert [one.digest, two.digest] == before
    assert "ZEBRA" not in bodies[-1]
    for n, fork in enumerate(marked):
        assert [m.text for m in fork.messages] == ["one", "to one", f"ZEBRA-{n}", f"to ZEBRA-{n}"]
        assert bodies[2 + n].count("ZEBRA") == 1
        assert fork.parent_run_id == one.run_id
    assert three.parent_run_id == two.run_id
    assert two.parent_run_id == one.run_id
    assert len({exchange.run_id for exchange in (one, two, three, *marked)}) == 8


@pytest.mark.req("S4-026", "S4-128")
async def test_history_outlives_its_files(engine_for, ask, tmp_path) -> None:
    """The input file is read when the prompt is rendered; changing or deleting it later changes no history."""
    source = tmp_path / "source.txt"
    source.write_text("the original")
    prompt = furcate.Prompt(
        "read", [furcate.MessageTemplate("user", "Read: {{ inputs.doc }}")], profile="p", inputs={"doc": source}
    )
    async with StubProvider(answer("ok")) as stub, engine_for(stub, prompts=[prompt]) as engine:
        first = (await engine.run(furcate.Request("read", capture=True))).exchange
        source.write_text("changed")
        await engine.continue_from(first, ask())
        source.unlink()
        await engine.continue_from(first, ask())
        for request in stub.requests:
            assert request.body["messages"][0]["content"] == "Read: the original"


@pytest.mark.req("S4-027", "S4-037", "S4-035")
async def test_a_direct_credential_lasts_one_execution(engine_for, ask) -> None:
    """The key given for the first turn is not sent with the second and is nowhere in the exchange."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub, api_key="the-backends-key") as engine:
        first = await engine.run(ask(capture=True, credential="only-for-turn-one"))
        await engine.continue_from(first.exchange, ask())
        keys = [request.headers["authorization"] for request in stub.requests]
    assert keys == ["Bearer only-for-turn-one", "Bearer the-backends-key"]
    held = repr(first) + repr(first.exchange) + json.dumps(first.exchange.details())
    assert "only-for-turn-one" not in held


@pytest.mark.req("S4-029", "S4-030", "S4-127")
async def test_another_engine_continues_by_its_own_rules(engine_for, ask) -> None:
    """History travels; prompts, profiles, contracts and keys are those of the engine that continues."""
    async with StubProvider(answer("first")) as there, StubProvider(answer('{"a": 1}'), key="here") as here:
        async with engine_for(there, api_key="there") as one:
            exchange = (await one.run(ask("begin", capture=True))).exchange
        own = furcate.Prompt(
            "own",
            [furcate.MessageTemplate("user", "go on")],
            profile="p",
            contract=furcate.Contract({"required": ["a"]}),
        )
        async with engine_for(here, api_key="here", prompts=[own]) as two:
            result = await two.continue_from(exchange, furcate.Request("own"))
        sent = [m["content"] for m in here.requests[0].body["messages"]]
    assert sent == ["begin", "first", "go on"]
    assert result.validation.status == "passed"
    assert result.exchange.parent_run_id == exchange.run_id


@pytest.mark.req("S4-028", "S4-031", "S4-032", "S4-094")
async def test_an_exchange_is_a_plain_value(engine_for, ask) -> None:
    """It has nothing to close, no provider envelope, no attempts; copies are itself; engines look nothing up by it."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
    public = {name for name in dir(exchange) if not name.startswith("_")}
    assert public == {"carrier", "details", "digest", "history", "messages", "parent_run_id", "run_id"}
    assert copy.copy(exchange) is exchange
    assert copy.deepcopy(exchange) is exchange
    with pytest.raises(AttributeError):
        exchange.run_id = "other"
    assert not [name for name in dir(furcate.Engine) if "exchange" in name or "conversation" in name]


@pytest.mark.req("S4-092", "S4-133")
async def test_details_read_no_file_and_render_nothing(engine_for, ask, tmp_path, monkeypatch) -> None:
    """With the input file gone, and files and templates out of reach, details say what was executed."""
    source = tmp_path / "source.txt"
    source.write_text("the original")
    prompt = furcate.Prompt(
        "read", [furcate.MessageTemplate("user", "Read: {{ inputs.doc }}")], profile="p", inputs={"doc": source}
    )

    def forbidden(*args: object, **given: object) -> None:
        raise AssertionError("details() must not come here")

    async with StubProvider(answer("ok")) as stub, engine_for(stub, prompts=[prompt]) as engine:
        first = (await engine.run(furcate.Request("read", capture=True))).exchange
        second = (await engine.continue_from(first, ask("more"))).exchange
        prepared = engine.prepare(furcate.Request("read"))
        source.unlink()
        calls = len(stub.requests)
        with monkeypatch.context() as patch:
            for place in ("builtins.open", "io.open", "os.open", "pathlib.Path.read_bytes", "pathlib.Path.read_text"):
                patch.setattr(place, forbidden)
            for name in ("render_str", "render_template", "add_template"):
                patch.setattr(f"furcate.orchestrator._prompts.Environment.{name}", forbidden, raising=False)
            details, ahead = second.details(), prepared.details()
        assert len(stub.requests) == calls
        prepared.discard()
    said = [message["parts"][0]["text"] for message in details["messages"]]
    assert said == ["Read: the original", "ok", "more", "ok"]
    assert ahead["messages"][0]["parts"][0]["text"] == "Read: the original"


@pytest.mark.req("S4-025", "S4-089", "S4-090", "S4-091", "S4-133")
async def test_details_are_fresh_plain_data(engine_for, ask) -> None:
    """An ordinary encoder takes them, changing them changes nothing, and nobody is called for them."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        first = (await engine.run(ask(capture=True))).exchange
        second = (await engine.continue_from(first, ask("more"))).exchange
        calls = len(stub.requests)
        details = second.details()
        encoded = json.dumps(details)
        details["messages"][0]["parts"][0]["text"] = "changed"
        details["messages"].clear()
        assert json.dumps(second.details()) == encoded
        assert len(stub.requests) == calls
    decoded = json.loads(encoded)
    assert [m["parts"][0]["text"] for m in decoded["messages"]] == ["Hello?", "ok", "more", "ok"]
    assert decoded["run_id"] == second.run_id
    assert decoded["parent_run_id"] == first.run_id
    assert [m.text for m in first.messages] == ["Hello?", "ok"]


@pytest.mark.field(26)
async def test_what_the_caller_passes_in_stays_the_callers(engine_for) -> None:
    """Variables and messages are copied: a repair does not change them, and changing them later changes no request."""
    variables = {"items": [{"name": "a"}]}
    messages = [furcate.Message.user("base")]
    kept = copy.deepcopy(variables)
    prompt = furcate.Prompt("p", [furcate.MessageTemplate("user", "{{ items[0].name }}")], profile="p")
    contract = furcate.Contract({"type": "object"}, repairs=1)
    async with StubProvider([answer("no"), answer("{}"), answer("{}")]) as stub:
        async with engine_for(stub, prompts=[prompt]) as engine:
            request = furcate.Request("p", vars=variables, messages=messages, contract=contract, capture=True)
            result = await engine.run(request)
            assert (variables, len(messages)) == (kept, 1)
            digest = result.exchange.digest
            variables["items"][0]["name"] = "changed"
            messages.append(furcate.Message.user("late"))
            again = await engine.run(request)
        assert [m["content"] for m in stub.requests[2].body["messages"]] == ["a", "base"]
    assert again.exchange.digest == digest == result.exchange.digest


@pytest.mark.field(26)
async def test_a_change_while_a_request_is_under_way_reaches_nothing(engine_for) -> None:
    """Lists and nested objects that change between an answer and its repair change neither repair nor exchange."""
    variables = {"items": [{"name": "a"}]}
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    messages = [furcate.Message.user("base")]
    kept = copy.deepcopy((variables, schema))
    prompt = furcate.Prompt("p", [furcate.MessageTemplate("user", "{{ items[0].name }}")], profile="p")
    go_on = anyio.Event()
    script = [answer("no", at={1: Hold(go_on.wait)}), answer('{"title": "x"}'), answer("no"), answer('{"title": "x"}')]
    async with StubProvider(script) as stub, engine_for(stub, prompts=[prompt]) as engine:
        contract = furcate.Contract(schema, repairs=1)
        request = furcate.Request("p", vars=variables, messages=messages, contract=contract, capture=True)
        results = []

        async def run() -> None:
            results.append(await engine.run(request))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await stub.wait_until(lambda s: len(s.requests) == 1)
            assert (variables, schema) == kept
            variables["items"][0]["name"] = "changed"
            variables["items"].append({"name": "more"})
            schema["properties"]["title"]["type"] = "integer"
            messages.append(furcate.Message.user("late"))
            go_on.set()
        await run()
        first, repair, again, _ = (request.body for request in stub.requests)
    assert [m["content"] for m in repair["messages"][:2]] == ["a", "base"]
    assert repair["response_format"] == first["response_format"]
    assert again == first
    assert [result.validation.status for result in results] == ["passed", "passed"]
    assert results[0].exchange.digest == results[1].exchange.digest


async def test_an_unanswered_tool_call_is_an_error_before_any_request(engine_for, ask) -> None:
    """The error names the call; answering it lets the conversation go on, with the pair on the wire."""
    tool = furcate.Tool("look", "Look it up.", {"type": "object", "properties": {"at": {"type": "string"}}})
    call = StubToolCall(id="call_1", name="look", arguments='{"at": "x"}')
    async with StubProvider([answer(tool_calls=[call]), answer("seen")]) as stub, engine_for(stub) as engine:
        first = await engine.run(ask(tools=[tool], capture=True))
        assert first.stop_reason == "tool_use"
        assert first.message.tool_calls[0].parsed() == {"at": "x"}
        with pytest.raises(furcate.UnansweredToolCallError, match="call_1"):
            await engine.continue_from(first.exchange, ask())
        assert len(stub.requests) == 1
        reply = furcate.Message.tool(furcate.ToolResult("call_1", "found"))
        second = await engine.continue_from(first.exchange, ask(messages=[reply], tools=[tool]))
        wire = stub.requests[1].body["messages"]
    assert second.text == "seen"
    assert [m["role"] for m in wire] == ["user", "assistant", "tool"]
    assert wire[2]["tool_call_id"] == "call_1"
