"""The vendors' own clients read what the stub says, and the strict stub takes what they send back.

They come with the extra ``judges``; without it these tests are skipped.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from furcate.primitives._usage import Usage
from furcate.testing import (
    StubCitation,
    StubProvider,
    StubSearch,
    StubSource,
    StubToolCall,
    answer,
    error,
    error_in_stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

openai = pytest.importorskip("openai", reason="needs the extra judges")
anthropic = pytest.importorskip("anthropic", reason="needs the extra judges")
genai = pytest.importorskip("google.genai", reason="needs the extra judges")

# What these clients and their libraries deprecate is their own matter.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TEXT = "Rīga lies on the Daugava 🚢. Ships sail there."
FIRST = "Rīga lies on the Daugava 🚢."
PAGE = StubSource("https://a.example", "A", snippet="rivers")
CITED = StubCitation("https://a.example", "A", quote=FIRST, excerpt="rivers")
USAGE = Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=2, output_tokens=20, reasoning_tokens=7)
EVERYTHING = answer(
    TEXT,
    reasoning="Where is it?",
    searches=[StubSearch("rivers", [PAGE])],
    citations=[CITED],
    tool_calls=[StubToolCall("look", {"at": "me"}), StubToolCall("look", {"at": "you"})],
    usage=USAGE,
)
ASKED: list[Any] = [{"role": "user", "content": "Where?"}]
NO_RETRIES = {"api_key": "k", "max_retries": 0}


@pytest.fixture
def anyio_backend() -> str:
    """Run on asyncio alone, which is all that these clients know."""
    return "asyncio"


@asynccontextmanager
async def openai_client(stub: StubProvider) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=stub.base_url, **NO_RETRIES) as client:
        yield client


@asynccontextmanager
async def anthropic_client(stub: StubProvider) -> AsyncIterator[Any]:
    async with anthropic.AsyncAnthropic(base_url=stub.base_url.removesuffix("/v1"), **NO_RETRIES) as client:
        yield client


@asynccontextmanager
async def google_client(stub: StubProvider) -> AsyncIterator[Any]:
    client = genai.Client(api_key="k", http_options={"base_url": stub.base_url.removesuffix("/v1")})
    try:
        yield client.aio.models
    finally:
        await client.aio.aclose()
        client.close()


async def complete(client: Any, *, stream: bool, **more: Any) -> Any:
    if not stream:
        return await client.chat.completions.create(model="m", messages=ASKED, **more)
    options = {"include_usage": True}
    async with client.chat.completions.stream(model="m", messages=ASKED, stream_options=options, **more) as stream_:
        return await stream_.get_final_completion()


async def respond(client: Any, *, stream: bool, **more: Any) -> Any:
    given = {"model": "m", "input": ASKED, "include": ["reasoning.encrypted_content"], "store": False, **more}
    if not stream:
        return await client.responses.create(**given)
    async with client.responses.stream(**given) as stream_:
        return await stream_.get_final_response()


async def write(client: Any, *, stream: bool, **more: Any) -> Any:
    given = {"model": "m", "max_tokens": 99, "messages": ASKED, **more}
    if not stream:
        return await client.messages.create(**given)
    async with client.messages.stream(**given) as stream_:
        return await stream_.get_final_message()


async def generate(client: Any, *, stream: bool, contents: Any = "Where?") -> list[Any]:
    if not stream:
        return [await client.generate_content(model="m", contents=contents)]
    return [chunk async for chunk in await client.generate_content_stream(model="m", contents=contents)]


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@both_ways
async def test_openai_reads_chat_completions(stream: bool) -> None:
    """OpenAI's client reads text, citations, calls, usage and ending of a chat completion."""
    async with StubProvider(EVERYTHING, key="k") as stub, openai_client(stub) as client:
        told = await complete(client, stream=stream)
    (choice,) = told.choices
    assert (choice.message.content, choice.finish_reason) == (TEXT, "tool_calls")
    assert choice.message.reasoning_content == "Where is it?"
    assert [(call.function.name, call.function.arguments) for call in choice.message.tool_calls] == [
        ("look", '{"at": "me"}'),
        ("look", '{"at": "you"}'),
    ]
    (cited,) = choice.message.annotations
    where = cited["url_citation"] if isinstance(cited, dict) else cited.url_citation.model_dump()
    assert (where["url"], TEXT[where["start_index"] : where["end_index"]]) == ("https://a.example", FIRST)
    assert (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.total_tokens) == (10, 20, 30)
    assert told.usage.prompt_tokens_details.cached_tokens == 3
    assert told.usage.completion_tokens_details.reasoning_tokens == 7


@both_ways
async def test_openai_reads_responses(stream: bool) -> None:
    """OpenAI's client reads items, text, citations, calls, usage and status of a response."""
    async with StubProvider(EVERYTHING, key="k") as stub, openai_client(stub) as client:
        told = await respond(client, stream=stream)
    assert (told.status, told.output_text) == ("completed", TEXT)
    thought, search, message, *calls = told.output
    assert thought.summary[0].text == "Where is it?"
    assert thought.encrypted_content
    assert (search.status, search.action.query) == ("completed", "rivers")
    (cited,) = message.content[0].annotations
    assert (cited.url, TEXT[cited.start_index : cited.end_index]) == ("https://a.example", FIRST)
    assert [call.arguments for call in calls] == ['{"at": "me"}', '{"at": "you"}']
    assert (told.usage.input_tokens, told.usage.output_tokens, told.usage.total_tokens) == (10, 20, 30)
    assert told.usage.input_tokens_details.cached_tokens == 3
    assert told.usage.output_tokens_details.reasoning_tokens == 7


@both_ways
async def test_anthropic_reads_messages(stream: bool) -> None:
    """Anthropic's client reads blocks, citations, calls, usage and ending of a message."""
    async with StubProvider(EVERYTHING, key="k") as stub, anthropic_client(stub) as client:
        told = await write(client, stream=stream)
    thought, search, found, first, rest, *calls = told.content
    assert (thought.type, thought.thinking) == ("thinking", "Where is it?")
    assert thought.signature
    assert (search.type, search.name, search.input) == ("server_tool_use", "web_search", {"query": "rivers"})
    assert (found.tool_use_id, found.content[0].url) == (search.id, "https://a.example")
    assert (first.text, first.text + rest.text) == (FIRST, TEXT)
    assert (first.citations[0].url, first.citations[0].cited_text) == ("https://a.example", "rivers")
    assert [call.input for call in calls] == [{"at": "me"}, {"at": "you"}]
    assert told.stop_reason == "tool_use"
    assert (told.usage.input_tokens, told.usage.output_tokens) == (5, 20)
    assert (told.usage.cache_read_input_tokens, told.usage.cache_creation_input_tokens) == (3, 2)
    assert told.usage.server_tool_use.web_search_requests == 1


@both_ways
async def test_google_reads_contents(stream: bool) -> None:
    """Google's client reads parts, grounding, calls, usage and ending of a generated content."""
    async with StubProvider(EVERYTHING, key="k") as stub, google_client(stub) as client:
        told = await generate(client, stream=stream)
    parts = [part for chunk in told for part in chunk.candidates[0].content.parts]
    assert "".join(part.text for part in parts if part.thought) == "Where is it?"
    assert "".join(part.text for part in parts if part.text and not part.thought) == TEXT
    calls = [part for part in parts if part.function_call]
    assert [part.function_call.args for part in calls] == [{"at": "me"}, {"at": "you"}]
    assert [bool(part.thought_signature) for part in calls] == [True, False]
    last = told[-1]
    grounding = last.candidates[0].grounding_metadata
    (support,) = grounding.grounding_supports
    assert TEXT.encode()[support.segment.start_index or 0 : support.segment.end_index].decode() == FIRST
    assert [chunk.web.uri for chunk in grounding.grounding_chunks] == ["https://a.example"]
    assert grounding.web_search_queries == ["rivers"]
    assert last.candidates[0].finish_reason == genai.types.FinishReason.STOP
    usage = last.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (10, 13, 7)


@both_ways
async def test_what_openai_sends_back_is_taken(stream: bool) -> None:
    """The strict stub takes a response's output as OpenAI's client gives it back."""
    async with StubProvider(EVERYTHING, strict=True) as stub, openai_client(stub) as client:
        told = await respond(client, stream=stream)
        output = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in told.output]
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "found"}
            for item in told.output
            if item.type == "function_call"
        ]
        await respond(client, stream=stream, input=[*ASKED, *output, *results])
        with pytest.raises(openai.BadRequestError, match="required following item"):
            await respond(client, stream=stream, input=[*ASKED, output[0], *output[2:], *results])


@both_ways
async def test_what_anthropic_sends_back_is_taken(stream: bool) -> None:
    """The strict stub takes a message's content as Anthropic's client gives it back, paused ones as well."""
    script = [EVERYTHING, answer("Yes."), answer("Hm.", searches=[StubSearch("rivers")], pause=True), answer("There.")]
    async with StubProvider(script, strict=True) as stub, anthropic_client(stub) as client:
        told = await write(client, stream=stream)
        said = {"role": "assistant", "content": [block.to_dict() for block in told.content]}
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "found"}
            for block in told.content
            if block.type == "tool_use"
        ]
        answered = {"role": "user", "content": results}
        await write(client, stream=stream, messages=[*ASKED, said, answered])
        with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
            await write(client, stream=stream, messages=[*ASKED, {**said, "content": said["content"][1:]}, answered])
        paused = await write(client, stream=stream)
        assert paused.stop_reason == "pause_turn"
        brought = [*ASKED, {"role": "assistant", "content": [block.to_dict() for block in paused.content]}]
        resumed = await write(client, stream=stream, messages=brought)
        assert [block.type for block in resumed.content] == ["web_search_tool_result", "text"]


@both_ways
async def test_what_google_sends_back_is_taken(stream: bool) -> None:
    """The strict stub takes a content as Google's client gives it back."""
    types = genai.types
    async with StubProvider(EVERYTHING, strict=True) as stub, google_client(stub) as client:
        told = await generate(client, stream=stream)
        parts = [part for chunk in told for part in chunk.candidates[0].content.parts if part.text != ""]
        asked = types.Content(role="user", parts=[types.Part(text="Where?")])
        results = [
            types.Part.from_function_response(name=part.function_call.name, response={"result": "found"})
            for part in parts
            if part.function_call
        ]
        answered = types.Content(role="user", parts=results)
        await generate(client, stream=stream, contents=[asked, types.Content(role="model", parts=parts), answered])
        for part in parts:
            part.thought_signature = None
        with pytest.raises(genai.errors.ClientError, match="missing a thought_signature"):
            await generate(client, stream=stream, contents=[asked, types.Content(role="model", parts=parts), answered])


async def test_errors_reach_the_clients_as_theirs() -> None:
    """HTTP errors raise what each client has for them, with the message."""
    async with StubProvider(error(429, "slow down"), key="k") as stub:
        async with openai_client(stub) as client:
            with pytest.raises(openai.RateLimitError, match="slow down"):
                await complete(client, stream=False)
            with pytest.raises(openai.RateLimitError, match="slow down"):
                await respond(client, stream=True)
        async with anthropic_client(stub) as client:
            with pytest.raises(anthropic.RateLimitError, match="rate_limit_error"):
                await write(client, stream=True)
        async with google_client(stub) as client:
            with pytest.raises(genai.errors.ClientError, match="RESOURCE_EXHAUSTED"):
                await generate(client, stream=False)


async def test_errors_in_the_middle_reach_the_clients() -> None:
    """An error inside a stream is one to each client."""
    async with StubProvider(error_in_stream("Half of", "too busy", code="server_is_overloaded")) as stub:
        async with openai_client(stub) as client:
            with pytest.raises(openai.APIError, match="too busy"):
                await complete(client, stream=True)
            with pytest.raises(openai.APIError, match="too busy"):
                await respond(client, stream=True)
        async with anthropic_client(stub) as client:
            with pytest.raises(anthropic.APIStatusError, match="too busy"):
                await write(client, stream=True)
        async with google_client(stub) as client:
            with pytest.raises(genai.errors.ServerError, match="too busy"):
                await generate(client, stream=True)
