"""Conversations over all four dialects: pauses, provider-run work, citations, reasoning, and a switch of provider."""

from __future__ import annotations

import json
import traceback

import attrs
import pytest

import furcate
from furcate.cli._receipt_log import ReceiptLog
from furcate.report import cited_in, reopened, row_text, sources_text, written
from furcate.testing import (
    StubCitation,
    StubProvider,
    StubSearch,
    StubSource,
    StubToolCall,
    answer,
    error,
    error_in_stream,
    events,
    raw,
)

pytestmark = pytest.mark.anyio

DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages", "google-generatecontent")
STATEFUL = ("openai-responses", "anthropic-messages", "google-generatecontent")
PAGE = StubSource("https://example.org/rhine", "The Rhine")
SEARCH = StubSearch("Rhine length", results=(PAGE,))
CITED = StubCitation(PAGE.url, PAGE.title, quote="1,233 km")


def hosted(message: furcate.Message) -> list[tuple[str, str]]:
    return [(part.name, part.state) for part in message.parts if isinstance(part, furcate.HostedActivity)]


def citations(message: furcate.Message) -> list[str]:
    return [one.source.url for part in message.parts if isinstance(part, furcate.Text) for one in part.attributions]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_every_dialect_runs_and_continues(engine_for, ask, dialect, stream) -> None:
    """The same request, answer, usage and history in each dialect, streamed and whole."""
    async with StubProvider(answer("Hello there."), strict=True) as stub:
        async with engine_for(stub, dialect=dialect, profile={"stream": stream}) as engine:
            first = await engine.run(
                ask(messages=[furcate.Message.system("Be kind."), furcate.Message.user("Hi")], capture=True)
            )
            second = await engine.continue_from(first.exchange, ask("And you?"))
    assert first.text == second.text == "Hello there."
    assert first.stop_reason == "end_turn"
    assert first.usage.known
    assert [message.role for message in second.exchange.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


@pytest.mark.field(47)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streamed_and_whole_give_the_same_exchange(engine_for, ask, dialect) -> None:
    """Reasoning, provider-run search, citations and text are the same parts in either form, down to the digest."""
    said = {} if dialect == "openai-chat" else {"searches": (SEARCH,), "reasoning_state": "U0VBTEVEU1RBVEU="}
    script = answer("It is 1,233 km long.", reasoning="Let me look.", citations=(CITED,), **said)
    results = []
    for stream in (True, False):
        async with StubProvider(script) as stub:
            async with engine_for(stub, dialect=dialect, profile={"stream": stream}) as engine:
                results.append(await engine.run(ask(capture=True)))
    streamed, whole = results
    assert citations(streamed.message) == [PAGE.url]
    # Digests take in what is opaque: sealed state, native forms, signatures.
    assert streamed.message == whole.message
    assert streamed.exchange.digest == whole.exchange.digest


@pytest.mark.field(49)
async def test_a_paused_answer_is_sent_back_and_goes_on(engine_for, ask) -> None:
    """The provider stops half-way in a search; it gets back what it said and finishes: one result, one exchange."""
    recorder = furcate.Recorder()
    usage = {"input_tokens": 10, "output_tokens": 5}
    script = [
        answer("", searches=(SEARCH,), pause=True, usage=usage),
        # It begins with the result of the search that was left open.
        answer("Found it.", searches=(SEARCH,), usage=usage),
        answer("You are welcome.", usage=usage),
    ]
    async with StubProvider(script, strict=True) as stub:
        async with engine_for(stub, dialect="anthropic-messages", observers=[recorder]) as engine:
            result = await engine.run(ask(capture=True))
            resumed = stub.requests[1].body["messages"]
            assert len(stub.requests) == 2
            await engine.continue_from(result.exchange, ask("Thanks."))
            history = stub.requests[2].body["messages"]
    assert result.text == "Found it."
    assert hosted(result.message) == [("web_search", "started"), ("web_search", "completed")]
    assert [block["type"] for block in history[1]["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    assert [attempt.purpose for attempt in result.attempts] == ["generate", "resume"]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (20, 10)
    assert len(result.receipts) == 2
    assert [message["role"] for message in resumed] == ["user", "assistant"]
    assert resumed[-1]["content"] == [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_stub_1_1",
            "name": "web_search",
            "input": {"query": SEARCH.query},
        }
    ]
    assert len(result.exchange.messages) == 2
    assert [e.status for e in recorder.of(furcate.RunFinished)] == ["succeeded"] * 2


@pytest.mark.field(41, 43)
async def test_thoughts_go_back_ahead_of_what_they_led_to(engine_for, ask) -> None:
    """A server that refuses thought away from its follower takes r1-ws1-r2-m1 back whole, empty summaries included."""

    def thought(number: int) -> dict[str, object]:
        return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": f"sealed {number}"}

    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    output = [
        thought(1),
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        thought(2),
        {**said, "content": [{"type": "output_text", "text": "Found.", "annotations": []}]},
    ]
    followers = {"sealed 1": "web_search_call", "sealed 2": "message"}

    def script(request):
        items = request.body["input"]
        for place, item in enumerate(items):
            if item.get("type") != "reasoning":
                continue
            after = items[place + 1].get("type", "message") if place + 1 < len(items) else None
            if after != followers[item["encrypted_content"]] or item.get("summary") != []:
                return error(400, "reasoning was provided without its required following item")
        body = {"id": f"resp_{request.number}", "object": "response", "status": "completed", "output": output}
        return raw(json.dumps(body))

    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect="openai-responses", profile={"stream": False}) as engine:
            first = await engine.run(ask(capture=True))
            await engine.continue_from(first.exchange, ask("And?"))
        sent = stub.requests[1].body["input"]
    assert [item.get("type", "message") for item in sent] == [
        "message",
        *(item["type"] for item in output),
        "message",
    ]
    assert [item["summary"] for item in sent if item.get("type") == "reasoning"] == [[], []]


@pytest.mark.field(41)
@pytest.mark.parametrize("searches", [(), (SEARCH,)])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_strict_server_takes_its_thoughts_back(engine_for, ask, stream, searches) -> None:
    """With a message behind the thought, or a search, three turns in a row are refused nothing."""
    script = answer("Yes.", reasoning="Hm.", reasoning_state="U0VBTEVE", searches=searches)
    async with StubProvider(script, strict=True) as stub:
        async with engine_for(stub, dialect="openai-responses", profile={"stream": stream}) as engine:
            exchange = (await engine.run(ask(capture=True))).exchange
            exchange = (await engine.continue_from(exchange, ask("And?"))).exchange
        kinds = [item.get("type", "message") for item in stub.requests[1].body["input"]]
    assert kinds == ["message", "reasoning", *("web_search_call" for _ in searches), "message", "message"]


@pytest.mark.field(42)
async def test_an_id_alone_is_no_thought_to_send(engine_for, ask) -> None:
    """Where nothing is stored, thought without sealed content stays away with its id; sealed thought is sent."""
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": "Found.", "annotations": []}]
    bare = {"id": "rs_bare", "type": "reasoning", "summary": []}
    sealed = {"id": "rs_sealed", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}

    def script(request):
        output = [bare if request.number == 1 else sealed, {**said, "content": content}]
        if b"rs_" in request.raw or b"msg_1" in request.raw:
            return error(400, "Items are not persisted when `store` is set to false.")
        return raw(json.dumps({"id": f"resp_{request.number}", "status": "completed", "output": output}))

    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect="openai-responses", profile={"stream": False}) as engine:
            exchange = (await engine.run(ask(capture=True))).exchange
            exchange = (await engine.continue_from(exchange, ask("And?"))).exchange
            await engine.continue_from(exchange, ask("And then?"))
        second, third = (request.body["input"] for request in stub.requests[1:])
    assert [item.get("type", "message") for item in second] == ["message"] * 3
    assert [item.get("type", "message") for item in third] == ["message"] * 3 + ["reasoning"] + ["message"] * 2
    assert third[3]["encrypted_content"] == "sealed"


CACHED = {
    "openai-chat": {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    },
    "openai-responses": {
        "input_tokens": 100,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    },
    "anthropic-messages": {
        "input_tokens": 30,
        "output_tokens": 5,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
    },
    "google-generatecontent": {
        "promptTokenCount": 90,
        "candidatesTokenCount": 5,
        "cachedContentTokenCount": 60,
        "totalTokenCount": 95,
    },
}


@pytest.mark.req("S2-14")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_cached_input_is_counted_apart(engine_for, ask, dialect) -> None:
    """Whether a provider counts cached tokens in its input or beside it, result and receipt have them beside it."""
    async with StubProvider(answer("ok", usage=CACHED[dialect])) as stub:
        async with engine_for(stub, dialect=dialect) as engine:
            result = await engine.run(ask())
    counted = result.receipts[0].outcome.usage
    for usage in (result.usage, counted):
        assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (30, 60, 5)
    assert counted.cache_write_tokens == (0 if dialect == "google-generatecontent" else 10)


@pytest.mark.field(36)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refusals_words_are_kept(engine_for, ask, dialect, stream) -> None:
    """A refusal field, a refusal part, a refusing stop, a safety stop: one request, a refusal, and what was said."""
    contract = furcate.Contract({"type": "object"}, repairs=3)
    worded = dialect.startswith("openai")
    script = answer(refusal="I will not.") if worded else answer("I will not.", finish_reason="refusal")
    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect=dialect, profile={"stream": stream}) as engine:
            result = await engine.run(ask(contract=contract, capture=True))
        assert len(stub.requests) == 1
    assert result.stop_reason == "refusal"
    assert (result.message.refusal if worded else result.text) == "I will not."
    assert (result.validation.status, result.validation.faults) == ("skipped", ())
    assert "I will not." in json.dumps(result.exchange.details())


@pytest.mark.field(36)
@pytest.mark.parametrize("dialect", ["anthropic-messages", "google-generatecontent"])
async def test_what_is_said_beside_a_refusal_is_kept(engine_for, ask, dialect) -> None:
    """Where a refusal is explained beside the message and not in it, the explanation is the stop's detail."""
    async with StubProvider(answer(refusal="It may do harm.")) as stub, engine_for(stub, dialect=dialect) as engine:
        result = await engine.run(ask())
    assert result.stop_reason == "refusal"
    assert "It may do harm." in result.stop_detail


RATED = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "note": {"type": ["string", "null"]},
        "by": {"$ref": "#/$defs/Person"},
    },
    "required": ["rating"],
    "$defs": {"Person": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}}},
}


def unsupported(request) -> bool:
    """Tell whether a request's schema has what its provider refuses."""
    if request.dialect == "google-generatecontent":
        sent = request.body["generationConfig"]["responseJsonSchema"]
        return any(word in json.dumps(sent) for word in ("$schema", "minLength"))
    if request.dialect == "openai-chat":
        # Bounds are refused where the schema is to be held strictly.
        sent = request.body["response_format"]["json_schema"]
        return bool(sent["strict"])
    config = request.body["text" if request.dialect == "openai-responses" else "output_config"]["format"]
    written = json.dumps(config["schema"])
    bounds = any(word in written for word in ('"$schema":', '"minimum":', '"maximum":', '"minLength":'))
    is_open = request.dialect == "anthropic-messages" and config["schema"].get("additionalProperties") is not False
    return bounds or is_open


@pytest.mark.field(38)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_bound_that_does_not_travel_is_held_here(engine_for, ask, dialect) -> None:
    """A server that knows no bounds takes the schema; a rating of 9 is a fault all the same, and is repaired."""
    answers = [answer('{"rating": 9}'), answer('{"rating": 4}')]

    def script(request):
        return error(400, "unsupported keyword") if unsupported(request) else answers[request.number - 1]

    async with StubProvider(script) as stub, engine_for(stub, dialect=dialect) as engine:
        result = await engine.run(ask(contract=furcate.Contract(RATED, repairs=1)))
        assert len(stub.requests) == 2
        repair = stub.requests[1].raw.decode()
    assert "$.rating: 9 is greater than the maximum of 5" in repair
    assert result.value == {"rating": 4}
    assert [attempt.purpose for attempt in result.attempts] == ["generate", "repair"]


@pytest.mark.req("S1-36", "S0-25")
async def test_native_forms_are_for_their_provider_alone(engine_for, ask, caplog) -> None:
    """What a provider wants back of its work is in no log, text, row, copy, observation, detail or error."""
    caplog.set_level("DEBUG")
    recorder = furcate.Recorder()
    item = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "tides"},
        "note": "hush",
    }
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    body = {
        "id": "resp_1",
        "status": "completed",
        "output": [item, {**said, "content": [{"type": "output_text", "text": "High.", "annotations": []}]}],
    }
    options = {"dialect": "openai-responses", "profile": {"stream": False}, "observers": [recorder]}
    async with StubProvider(raw(json.dumps(body))) as stub, engine_for(stub, **options) as engine:
        result = await engine.run(ask(capture=True))
        first, second = (part for part in result.message.parts if isinstance(part, furcate.HostedActivity))
        assert b"hush" in second.payload.value
        # As it comes from somewhere that changed it: no longer what this version reads.
        broken = attrs.evolve(second, payload=attrs.evolve(second.payload, version="9"))
        told = furcate.Message("assistant", (first, broken, *result.message.parts[2:]))
        changed = furcate.Exchange(furcate.History([furcate.Message.user("a"), told]), "r")
        with pytest.raises(furcate.RequestError) as caught:
            await engine.continue_from(changed, ask("more"))
    rows = reopened([result.message]).rows
    shown = {
        "repr": repr(result) + repr(result.message.parts) + repr(result.exchange) + str(second),
        "log": caplog.text,
        "observations": repr(recorder.events),
        "written": written(result.message),
        "rows": "".join(row_text(row) + json.dumps(row.described()) for row in rows),
        "text": result.text + result.message.text + sources_text(cited_in(result.message)),
        "details": json.dumps(result.exchange.details()),
        "error": "".join(traceback.format_exception(caught.value)) + repr(caught.value),
    }
    assert "tides" in shown["written"]
    assert not [name for name, text in shown.items() if "hush" in text]


@pytest.mark.field(50)
async def test_pauses_without_end_are_no_answer(engine_for, ask) -> None:
    """With three resumes allowed, ten pauses end in a typed failure that holds what was said."""
    script = answer("So far.", searches=(SEARCH,), pause=True)
    retry = furcate.RetryPolicy(resumes=3)
    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect="anthropic-messages", retry=retry) as engine:
            with pytest.raises(furcate.ProviderError) as caught:
                await engine.run(ask())
        assert len(stub.requests) == 4
    assert (caught.value.failure.kind, caught.value.failure.reason) == ("provider", "still_paused")
    assert caught.value.partial is not None
    assert "So far." in caught.value.partial.text


@pytest.mark.field(16)
async def test_running_totals_replace_each_other(engine_for, ask) -> None:
    """Anthropic's later usage is a total: 2, 11, 37 tokens of output are 37."""
    chunks = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 30, "output_tokens": 2},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": None, "stop_sequence": None},
            "usage": {"output_tokens": 11},
        },
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 37},
        },
        {"type": "message_stop"},
    ]
    framed = [f"event: {chunk['type']}\ndata: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    async with StubProvider(events(*framed, done=False)) as stub:
        async with engine_for(stub, dialect="anthropic-messages") as engine:
            result = await engine.run(ask())
    assert (result.usage.input_tokens, result.usage.output_tokens) == (30, 37)


@pytest.mark.field(24)
async def test_usage_of_early_events_does_not_add_up(engine_for, ask) -> None:
    """A Responses stream whose every event carries usage counts the last one only."""
    response = {"id": "r", "object": "response", "model": "m", "status": "in_progress", "output": []}
    spent = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    item = {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
    }
    chunks = [
        {"type": "response.created", "response": {**response, "usage": spent}},
        {"type": "response.in_progress", "response": {**response, "usage": spent}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {
            "type": "response.content_part.added",
            "item_id": "i",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "Hi"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": spent},
        },
    ]
    async with StubProvider(events(*chunks, done=False)) as stub:
        async with engine_for(stub, dialect="openai-responses") as engine:
            result = await engine.run(ask())
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)


@pytest.mark.field(31)
async def test_context_grows_by_what_was_said(engine_for, ask) -> None:
    """Six chained turns on Responses: each sends the whole history once and names no earlier response."""
    async with StubProvider(answer("ok"), strict=True) as stub:
        async with engine_for(stub, dialect="openai-responses") as engine:
            exchange = (await engine.run(ask("turn 0", capture=True))).exchange
            for n in range(1, 6):
                exchange = (await engine.continue_from(exchange, ask(f"turn {n}"))).exchange
        sizes = [len(request.body["input"]) for request in stub.requests]
        assert not any(request.body.get("previous_response_id") for request in stub.requests)
    assert sizes == [1, 3, 5, 7, 9, 11]


@pytest.mark.field(32, 44)
@pytest.mark.req("S0-56", "S1-44", "S2-23", "S2-05")
@pytest.mark.parametrize("to", STATEFUL)
@pytest.mark.parametrize("since", STATEFUL)
async def test_a_switch_of_provider_carries_words_and_drops_state(engine_for, ask, since, to) -> None:
    """Text and citations go on; sealed reasoning, payloads and ids do not; the receipt counts what was left out."""
    if since == to:
        return
    script = answer(
        "It is 1,233 km long.",
        reasoning="Let me look.",
        reasoning_state="U0VBTEVEU1RBVEU=",
        searches=(SEARCH,),
        citations=(CITED,),
    )
    async with StubProvider(script) as there, StubProvider(answer("Thanks."), strict=True) as here:
        async with engine_for(there, dialect=since, provider="there") as engine:
            first = await engine.run(ask("How long?", capture=True))
        async with engine_for(here, dialect=to, provider="here") as engine:
            second = await engine.continue_from(first.exchange, ask("Thank you."))
        wire = here.requests[0].raw.decode()
    assert "1,233 km" in wire
    assert "U0VBTEVEU1RBVEU" not in wire
    assert "web_search" not in wire
    assert second.receipts[0].foreign_reasoning_dropped == 1
    assert second.attempts[0].payloads_dropped >= 1
    assert citations(second.exchange.messages[1]) == [PAGE.url]
    assert ("web_search", "completed") in hosted(second.exchange.messages[1])


@pytest.mark.field(46)
@pytest.mark.req("S2-24", "S0-40")
@pytest.mark.parametrize("dialect", STATEFUL)
async def test_another_address_is_another_origin(engine_for, ask, dialect) -> None:
    """Of two backends with one dialect and model, only the one that sealed the state gets it back."""
    script = answer("Yes.", reasoning="Let me think.", reasoning_state="U0VBTEVEU1RBVEU=")
    async with StubProvider(script) as a, StubProvider(script) as b:
        backends = [
            furcate.Backend(name, base_url=stub.base_url, dialect=dialect) for name, stub in (("a", a), ("b", b))
        ]
        profiles = [furcate.Profile(name, name, "m") for name in ("a", "b")]
        async with furcate.Engine(backends=backends, profiles=profiles) as engine:
            first = await engine.run(ask(profile="a", capture=True))
            again = await engine.continue_from(first.exchange, ask(profile="a"))
            other = await engine.continue_from(first.exchange, ask(profile="b"))
        assert "U0VBTEVEU1RBVEU" in a.requests[1].raw.decode()
        assert "U0VBTEVEU1RBVEU" not in b.requests[0].raw.decode()
    assert again.receipts[0].foreign_reasoning_dropped == 0
    assert other.receipts[0].foreign_reasoning_dropped == 1


@pytest.mark.req("S2-22")
async def test_an_open_tool_exchange_stays_with_its_provider(engine_for, ask) -> None:
    """Answering another provider's sealed tool call is refused before anybody is called; at home it goes on."""
    tool = furcate.Tool("look", "Look.", {"type": "object", "properties": {}})
    script = [
        answer("", tool_calls=[StubToolCall("look", {})], reasoning="Hm.", reasoning_state="U0VBTEVEU1RBVEU="),
        answer("Done."),
    ]
    async with StubProvider(script, strict=True) as home, StubProvider(answer("no")) as away:
        async with engine_for(home, dialect="anthropic-messages", provider="home") as engine:
            first = await engine.run(ask(tools=[tool], capture=True))
            call = first.message.tool_calls[0]
            reply = ask(messages=[furcate.Message.tool(furcate.ToolResult(call.id, "seen"))], tools=[tool])
            async with engine_for(away, dialect="anthropic-messages", provider="away") as other:
                with pytest.raises(furcate.ForeignReasoningState, match="home"):
                    await other.continue_from(first.exchange, reply)
                assert not away.requests
            second = await engine.continue_from(first.exchange, reply)
    assert second.text == "Done."
    assert second.receipts[0].foreign_reasoning_dropped == 0


@pytest.mark.field(51)
@pytest.mark.req("S0-40")
async def test_sealed_search_content_goes_home_only(engine_for, ask) -> None:
    """Anthropic's encrypted content and citation index return byte for byte to the same backend, and to no other."""
    script = [answer("It is 1,233 km long.", searches=(SEARCH,), citations=(CITED,)), answer("ok")]
    async with StubProvider(script, strict=True) as home, StubProvider(answer("ok"), strict=True) as away:
        async with engine_for(home, dialect="anthropic-messages", provider="home") as engine:
            first = await engine.run(ask(capture=True))
            await engine.continue_from(first.exchange, ask("more"))
        async with engine_for(away, dialect="anthropic-messages", provider="away") as engine:
            await engine.continue_from(first.exchange, ask("more"))
        kept, left = home.requests[1].raw.decode(), away.requests[0].raw.decode()
    for word in ("encrypted_content", "encrypted_index"):
        assert word in kept
        assert word not in left
    assert "1,233 km" in left


@pytest.mark.field(52)
async def test_every_citation_arrives_and_is_counted_once(engine_for, ask) -> None:
    """Five citations come as five events in order, and the same five are in the result."""
    pages = [f"https://example.org/{n}" for n in range(5)]
    cited = tuple(StubCitation(page, quote=f"word{n}") for n, page in enumerate(pages))
    text = " ".join(f"word{n}" for n in range(5))
    async with StubProvider(answer(text, searches=(SEARCH,), citations=cited)) as stub:
        async with engine_for(stub, dialect="openai-responses") as engine, engine.stream(ask()) as stream:
            seen = [event.attribution.source.url async for event in stream if isinstance(event, furcate.Citation)]
    assert seen == pages
    assert citations(stream.result.message) == pages


@pytest.mark.field(33)
async def test_a_request_used_twice_says_the_same_twice(engine_for, ask) -> None:
    """The system text is at the top of both bodies: nothing was taken out of the caller's values."""
    request = ask(messages=[furcate.Message.system("Be kind."), furcate.Message.user("Hi")])
    async with StubProvider(answer("ok")) as stub, engine_for(stub, dialect="anthropic-messages") as engine:
        await engine.run(request)
        await engine.run(request)
        first, second = (request.raw for request in stub.requests)
    assert first == second
    assert b"Be kind." in first


@pytest.mark.field(35, 36)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("reason", "expected"), [("max_output_tokens", "max_output_tokens"), ("refusal", "refusal")])
async def test_no_dialect_repairs_what_is_not_whole(engine_for, ask, dialect, reason, expected) -> None:
    """Length and refusal in each dialect's own words end the run at one request with their stop reason."""
    contract = furcate.Contract({"type": "object", "properties": {}, "additionalProperties": False}, repairs=3)
    script = answer('{"items":["a","b', finish_reason=reason)
    async with StubProvider(script) as stub, engine_for(stub, dialect=dialect) as engine:
        result = await engine.run(ask(contract=contract))
        assert len(stub.requests) == 1
    assert result.stop_reason == expected
    assert result.validation.status == "skipped"


@pytest.mark.field(64)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_error_in_any_stream_is_no_answer(engine_for, ask, dialect) -> None:
    """Whatever form the error takes, the run fails with what had arrived."""
    retry = furcate.RetryPolicy(attempts=1)
    async with StubProvider(error_in_stream("half an answer", "went wrong")) as stub:
        async with engine_for(stub, dialect=dialect, retry=retry) as engine:
            with pytest.raises(furcate.ProviderError) as caught:
                await engine.run(ask())
    assert caught.value.partial is not None
    assert "half" in caught.value.partial.text


@pytest.mark.field(59)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_keys_travel_in_headers_only(engine_for, ask, dialect, caplog, tmp_path) -> None:
    """No URL, error, traceback, receipt, file, observation, log or repr holds the key, though the server repeats it."""
    recorder = furcate.Recorder()
    caplog.set_level("DEBUG")
    saved = tmp_path / "receipts.jsonl"
    script = [error(404, "no model for KEY-12345"), *[error(503, "busy with KEY-12345")] * 3]
    texts = []
    with ReceiptLog(saved) as log:
        given = {"dialect": dialect, "api_key": "KEY-12345", "observers": [recorder, log]}
        async with StubProvider(script, key="KEY-12345") as stub, engine_for(stub, **given) as engine:
            for status in (404, 503):
                with pytest.raises(furcate.ProviderError) as caught:
                    await engine.run(ask())
                assert caught.value.failure.status == status
                texts += [str(caught.value), repr(caught.value), repr(caught.value.attempts)]
                texts += traceback.format_exception(caught.value)
                texts += [json.dumps(receipt.to_dict()) for receipt in caught.value.receipts]
            texts += [repr(recorder.events), caplog.text, repr(engine), repr(engine.inspect_backend("stub"))]
    lines = saved.read_text("utf-8")
    assert len(lines.splitlines()) == len(stub.requests) == 4
    for request in stub.requests:
        assert "KEY-12345" not in request.path
        assert any("KEY-12345" in value for value in request.headers.values())
    assert not [text for text in (*texts, lines) if "KEY-12345" in text]


@pytest.mark.field(55)
@pytest.mark.req("S1-06", "S1-07")
def test_an_unsupported_server_tool_is_refused_at_the_start() -> None:
    """A capability that the dialect has no spelling for never becomes a request."""
    with pytest.raises(furcate.ConfigError, match="web_fetch"):
        furcate.Engine(
            backends=[furcate.Backend("b", dialect="openai-chat", base_url="http://127.0.0.1:1/v1")],
            profiles=[furcate.Profile("p", "b", "m", server_tools=["web_fetch"])],
        )
