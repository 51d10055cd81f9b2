"""What an answer becomes in each wire language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import attrs
import pytest

from furcate.dialects._assemble import Assembler
from furcate.dialects._base import Dialect
from furcate.dialects.anthropic_messages._codec import AnthropicMessages
from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent
from furcate.dialects.openai_chat._codec import OpenAIChat
from furcate.dialects.openai_responses._codec import OpenAIResponses
from furcate.primitives._content import HostedActivity, Origin, Reasoning, Text
from furcate.primitives._usage import Usage
from furcate.testing import (
    Answer,
    Send,
    StubCitation,
    StubDialect,
    StubRequest,
    StubSearch,
    StubSource,
    StubToolCall,
    answer,
    error,
    error_in_stream,
)
from furcate.testing._door import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    Asking = Callable[..., StubRequest]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (OpenAIChat(), OpenAIResponses(), AnthropicMessages(), GoogleGenerateContent())
}
NAMES = get_args(StubDialect)
CHAT, RESPONSES = "openai-chat", "openai-responses"
MESSAGES, GOOGLE = "anthropic-messages", "google-generatecontent"

TEXT = "Rīga lies on the Daugava. Ships sail there."
FIRST, SECOND = "Rīga lies on the Daugava.", "Ships sail there."
PAGES = (StubSource("https://a.example", "A", snippet="rivers"), StubSource("https://b.example", "B"))
CITED = (
    StubCitation("https://a.example", "A", quote=FIRST, excerpt="rivers"),
    StubCitation("https://b.example", "B", start=len(FIRST) + 1, end=len(TEXT)),
)

every_dialect = pytest.mark.parametrize("name", NAMES)
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def sent(chosen: Answer, request: StubRequest) -> bytes:
    return b"".join(step.data for step in chosen.steps_for(request) if isinstance(step, Send))


def body(chosen: Answer, request: StubRequest) -> Any:
    return json.loads(sent(chosen, request))


def events(chosen: Answer, request: StubRequest) -> list[Any]:
    lines = sent(chosen, request).decode().replace("\r\n", "\n").split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]


def read(name: str, chosen: Answer, request: StubRequest) -> Assembler:
    dialect, origin = DIALECTS[name], Origin("stub", name, "m")
    data = sent(chosen, request)
    made = Assembler()
    if request.streaming:
        decoder = dialect.decoder(origin)
        told = [event for place in range(len(data)) for event in decoder.feed(data[place : place + 1])]
        told += decoder.finish()
    else:
        told = dialect.decode_whole(data, origin)
    for event in told:
        made.add(event)
    return made


def parts(made: Assembler, kind: type) -> list[Any]:
    return [part for part in made.message().parts if isinstance(part, kind)]


@every_dialect
@both_ways
def test_text_and_usage_are_read_back(name: str, stream: bool, asking: Asking) -> None:
    """Our decoders read the text, the plausible usage, the model and the ending."""
    made = read(name, answer("Hello there."), asking(name, stream=stream))
    assert made.failure is None
    assert made.message().text == "Hello there."
    assert made.model == "m"
    assert (made.usage.input_tokens, made.usage.output_tokens) == (2, 2)
    assert made.stop is not None
    assert (made.stop.reason, made.stop.detail) == ("end_turn", None)


@every_dialect
@both_ways
def test_usage_is_spelled_by_each_dialect(name: str, stream: bool, asking: Asking) -> None:
    """Neutral counts come back as they were given; Google alone cannot tell what was written to a cache."""
    usage = Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=2, output_tokens=20, reasoning_tokens=7)
    made = read(name, answer("Hello.", usage=usage), asking(name, stream=stream))
    if name == GOOGLE:
        usage = Usage(input_tokens=7, cache_read_tokens=3, output_tokens=20, reasoning_tokens=7)
    assert made.usage == usage


@every_dialect
@both_ways
@pytest.mark.parametrize("usage", [None, "omitted", Usage()], ids=["null", "omitted", "unknown"])
def test_usage_may_be_missing(name: str, stream: bool, usage: Any, asking: Asking) -> None:
    """Null, absent and unknown counts make no count."""
    made = read(name, answer("Hello.", usage=usage), asking(name, stream=stream))
    assert made.stop is not None
    assert made.usage.output_tokens is None


@every_dialect
@both_ways
@pytest.mark.parametrize("word", ["max_output_tokens", "length"])
def test_endings_in_neutral_words(name: str, stream: bool, word: str, asking: Asking) -> None:
    """A stop reason of ours or of openai-chat is spelled in each dialect's way."""
    made = read(name, answer("Hel", finish_reason=word), asking(name, stream=stream))
    assert made.stop is not None
    assert made.stop.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("name", "where"),
    [
        (CHAT, lambda told: told["choices"][0]["finish_reason"]),
        (RESPONSES, lambda told: told["incomplete_details"]["reason"]),
        (MESSAGES, lambda told: told["stop_reason"]),
        (GOOGLE, lambda told: told["candidates"][0]["finishReason"]),
    ],
)
def test_other_endings_go_as_they_are(name: str, where: Callable[[Any], str], asking: Asking) -> None:
    """A word that is not ours reaches the wire unchanged."""
    assert where(body(answer("a", finish_reason="odd"), asking(name))) == "odd"


@every_dialect
@both_ways
def test_calls_are_read_back(name: str, stream: bool, asking: Asking) -> None:
    """Calls keep their names, arguments and ids; ids that were not given are unlike each other."""
    chosen = answer(tool_calls=[StubToolCall("look", {"at": "me"}), StubToolCall("say", id="mine")])
    made = read(name, chosen, asking(name, stream=stream))
    first, second = made.message().tool_calls
    assert (first.name, first.parsed(), second.name, second.id) == ("look", {"at": "me"}, "say", "mine")
    assert first.id not in ("", "mine")
    assert second.parsed() == {}
    assert made.stop is not None
    assert made.stop.reason == "tool_use"


@pytest.mark.parametrize("name", [CHAT, RESPONSES, MESSAGES])
def test_broken_arguments_are_streamed(name: str, asking: Asking) -> None:
    """Arguments that are no JSON reach the reader of a stream as they are."""
    chosen = answer(tool_calls=[StubToolCall("say", "{broken")])
    (call,) = read(name, chosen, asking(name, stream=True)).message().tool_calls
    assert call.arguments == "{broken"


@every_dialect
@both_ways
def test_reasoning_is_read_back(name: str, stream: bool, asking: Asking) -> None:
    """Shown reasoning comes with state where the dialect has it."""
    chosen = answer("Yes.", reasoning="I think so.")
    thoughts = parts(read(name, chosen, asking(name, stream=stream)), Reasoning)
    assert "".join(thought.text for thought in thoughts) == "I think so."
    # The plain text is all that most openai-chat servers have, and no state of theirs.
    assert any(thought.state is not None for thought in thoughts) or name == CHAT


@every_dialect
@both_ways
def test_a_given_state_alone(name: str, stream: bool, asking: Asking) -> None:
    """A state without shown reasoning is sealed or redacted thought, sent byte for byte."""
    chosen = answer("Yes.", reasoning_state="c2VhbGVk")
    (thought,) = parts(read(name, chosen, asking(name, stream=stream)), Reasoning)
    assert thought.text == ""
    assert b"c2VhbGVk" in thought.state.data
    silent = answer("Yes.", reasoning="Shown.", reasoning_state="")
    assert all(not thought.state for thought in parts(read(name, silent, asking(name)), Reasoning)) or name == CHAT


@every_dialect
@both_ways
def test_refusals(name: str, stream: bool, asking: Asking) -> None:
    """A refusal ends as one; where a channel exists it carries the text, else the ending does."""
    made = read(name, answer(refusal="I will not."), asking(name, stream=stream))
    assert made.stop is not None
    assert made.stop.reason == "refusal"
    if name in (CHAT, RESPONSES):
        assert made.message().refusal == "I will not."
    if name == MESSAGES:
        assert made.stop.detail == "I will not."


@every_dialect
@both_ways
def test_searches_are_read_back(name: str, stream: bool, asking: Asking) -> None:
    """Searches become completed activities with their queries."""
    searches = [StubSearch("rivers", PAGES), StubSearch("ships", PAGES[:1])]
    made = read(name, answer(TEXT, searches=searches, citations=CITED), asking(name, stream=stream))
    done = [one for one in parts(made, HostedActivity) if one.state == "completed"]
    assert {one.name for one in done} == {"web_search"}
    assert [query for one in done for query in one.input["queries"]] == ["rivers", "ships"]


@pytest.mark.parametrize("name", [RESPONSES, MESSAGES])
@both_ways
def test_a_failed_search(name: str, stream: bool, asking: Asking) -> None:
    """A search with an error becomes a failed activity where the dialect can say so."""
    chosen = answer("Hm.", searches=[StubSearch("rivers", error="max_uses_exceeded")])
    activities = parts(read(name, chosen, asking(name, stream=stream)), HostedActivity)
    assert activities[-1].state == "failed"


@every_dialect
@both_ways
def test_citations_are_read_back(name: str, stream: bool, asking: Asking) -> None:
    """Citations keep their sources, and their stretch of the text: as a range, or as a text part of their own."""
    made = read(name, answer(TEXT, citations=CITED), asking(name, stream=stream))
    assert made.message().text == TEXT
    found = [
        (one.source.url, part.text[slice(*one.range)] if one.range else part.text)
        for part in parts(made, Text)
        for one in part.attributions
    ]
    assert found == [("https://a.example", FIRST), ("https://b.example", SECOND)]


@every_dialect
@both_ways
def test_a_citation_of_the_whole_text(name: str, stream: bool, asking: Asking) -> None:
    """Without a place, a citation has no range."""
    made = read(name, answer(TEXT, citations=[StubCitation("https://a.example", "A")]), asking(name, stream=stream))
    (text,) = parts(made, Text)
    assert [(one.source.url, one.range) for one in text.attributions] == [("https://a.example", None)]


def test_overlapping_citations_in_blocks(asking: Asking) -> None:
    """Where citations overlap, the text is cut at all their ends and each citation stands once, where it ends."""
    overlapping = (StubCitation("u1", start=0, end=6), StubCitation("u2", start=4, end=10), StubCitation("u3"))
    content = body(answer("0123456789ab", citations=overlapping), asking(MESSAGES))["content"]
    assert [(block["text"], [one["url"] for one in block.get("citations", ())]) for block in content] == [
        ("0123", []),
        ("45", ["u1"]),
        ("6789", ["u2"]),
        ("ab", ["u3"]),
    ]


def test_responses_events_in_their_order(asking: Asking) -> None:
    """The events of openai-responses come numbered, item by item, each annotation when its text is there."""
    chosen = answer(
        TEXT,
        deltas=(FIRST, " " + SECOND),
        reasoning="Hm.",
        searches=[StubSearch("rivers", PAGES)],
        citations=CITED,
    )
    told = events(chosen, asking(RESPONSES, stream=True))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"].removeprefix("response.") for event in told] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert told[2]["item"]["encrypted_content"] != told[7]["item"]["encrypted_content"]
    finished = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert told[-1]["response"]["output"] == finished
    assert b"event: response.created\ndata: {" in sent(chosen, asking(RESPONSES, stream=True))


def test_responses_give_what_is_asked_for(asking: Asking) -> None:
    """Sealed thought and the sources of searches come where the request includes them."""
    chosen = answer("a", reasoning="Hm.", searches=[StubSearch("rivers", PAGES)])
    thought, search, _ = body(chosen, asking(RESPONSES, include=[]))["output"]
    assert "encrypted_content" not in thought
    assert "sources" not in search["action"]
    included = asking(RESPONSES, include=["reasoning.encrypted_content", "web_search_call.action.sources"])
    thought, search, _ = body(chosen, included)["output"]
    assert thought["encrypted_content"]
    assert [page["url"] for page in search["action"]["sources"]] == ["https://a.example", "https://b.example"]


def test_messages_events_in_their_order(asking: Asking) -> None:
    """The events of anthropic-messages are named, block by block, citations ahead of the text they belong to."""
    chosen = answer(
        FIRST, deltas=(FIRST,), reasoning="Hm.", searches=[StubSearch("rivers", PAGES)], citations=CITED[:1]
    )
    request = asking(MESSAGES, stream=True)
    told = events(chosen, request)
    assert [event["delta"]["type"] if "delta" in event and "index" in event else event["type"] for event in told] == [
        "message_start",
        "ping",
        "content_block_start",
        "thinking_delta",
        "signature_delta",
        "content_block_stop",
        "content_block_start",
        "input_json_delta",
        "input_json_delta",
        "input_json_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_stop",
        "content_block_start",
        "citations_delta",
        "text_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    names = [line[7:] for line in sent(chosen, request).decode().split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in told]
    assert told[-2]["usage"]["server_tool_use"] == {"web_search_requests": 1}


def test_google_chunks(asking: Asking) -> None:
    """The chunks of google-generatecontent end their lines with CRLF, count cumulatively and ground at the end."""
    chosen = answer(TEXT, searches=[StubSearch("rivers", PAGES)], citations=CITED, tool_calls=[StubToolCall("a")])
    request = asking(GOOGLE, stream=True)
    assert b"}\r\n\r\ndata: {" in sent(chosen, request)
    told = events(chosen, request)
    totals = [chunk["usageMetadata"]["totalTokenCount"] for chunk in told]
    assert totals == sorted(totals)
    grounding = [chunk["candidates"][0]["groundingMetadata"] for chunk in told]
    assert not any(grounding[:-1])
    segments = [support["segment"] for support in grounding[-1]["groundingSupports"]]
    assert [TEXT.encode()[one.get("startIndex", 0) : one["endIndex"]].decode() for one in segments] == [FIRST, SECOND]
    assert "startIndex" not in segments[0]
    assert grounding[-1]["webSearchQueries"] == ["rivers"]


def test_googles_other_stream_is_one_list(asking: Asking) -> None:
    """Without ``alt=sse`` the chunks come as one JSON list."""
    request = asking(GOOGLE, stream=True)
    listed = attrs.evolve(request, path="/v1beta/models/m:streamGenerateContent")
    assert body(answer("a b"), listed) == events(answer("a b"), request)
    assert body(error_in_stream("a", "broke"), listed)[-1]["error"]["message"] == "broke"


def test_one_signature_stands_for_parallel_calls(asking: Asking) -> None:
    """Google signs the first of the calls that were made at once, and else the text at the end."""
    calls = [StubToolCall("a"), StubToolCall("b")]
    told = events(answer(tool_calls=calls, reasoning_state="c2ln"), asking(GOOGLE, stream=True))
    signed = [
        part for chunk in told for part in chunk["candidates"][0]["content"]["parts"] if "thoughtSignature" in part
    ]
    assert [part["functionCall"]["name"] for part in signed] == ["a"]
    told = events(answer("Yes.", reasoning_state="c2ln"), asking(GOOGLE, stream=True))
    assert told[-1]["candidates"][0]["content"]["parts"] == [{"text": "", "thoughtSignature": "c2ln"}]


@both_ways
def test_a_pause_and_what_follows_it(stream: bool, asking: Asking) -> None:
    """A paused answer ends inside its last search; the next one begins with the results of that search."""
    searches = [StubSearch("rivers", PAGES), StubSearch("ships", PAGES)]
    paused = answer("I look.", searches=searches, pause=True)
    made = read(MESSAGES, paused, asking(MESSAGES, stream=stream))
    assert made.paused
    assert [one.state for one in parts(made, HostedActivity)] == ["started", "completed", "started"]
    blocks = body(paused, asking(MESSAGES))["content"]
    brought = asking(
        MESSAGES,
        stream=stream,
        number=2,
        messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": blocks}],
    )
    resumed = read(MESSAGES, answer("There.", searches=searches[1:]), brought)
    (result,) = parts(resumed, HostedActivity)
    assert (result.state, result.id) == ("completed", blocks[-1]["id"])
    assert resumed.message().text == "There."


def test_a_pause_needs_its_dialect_and_a_search(asking: Asking) -> None:
    """A pause elsewhere, or without a search, is a mistake that is told."""
    with pytest.raises(ValueError, match="ends inside a search; give searches"):
        answer("a", pause=True)
    with pytest.raises(ValueError, match="openai-chat has no answer that pauses"):
        answer("a", pause=True, searches=[StubSearch("b")]).steps_for(asking(CHAT))


def test_citations_that_cite_nothing_are_told() -> None:
    """A quote that is not there, a range beyond the text, and half a range are refused."""
    with pytest.raises(ValueError, match="the quote 'nowhere' of a citation is not in the text 'here'"):
        answer("here", citations=[StubCitation("u", quote="nowhere")])
    with pytest.raises(ValueError, match="ends at 9, but the text has 4 characters"):
        answer("here", citations=[StubCitation("u", start=0, end=9)])
    with pytest.raises(ValueError, match="no text to cite for"):
        answer(citations=[StubCitation("u")])
    with pytest.raises(ValueError, match="a start and an end, or a quote, or none"):
        StubCitation("u", start=1)
    with pytest.raises(ValueError, match="from 3 to 3 covers nothing"):
        StubCitation("u", start=3, end=3)


@every_dialect
@both_ways
def test_errors_in_the_middle(name: str, stream: bool, asking: Asking) -> None:
    """An error in place of the end has each dialect's form, and our decoders read it."""
    chosen = error_in_stream("Half of", "too busy", code=503)
    made = read(name, chosen, asking(name, stream=stream))
    assert made.stop is None
    assert made.failure is not None
    assert "too busy" in made.failure.message
    assert made.failure.retryable
    partial = made.partial()
    assert (partial.text if partial else "") == ("Half of" if stream else "")


def test_the_forms_of_errors_in_the_middle(asking: Asking) -> None:
    """anthropic-messages names an overload, openai-responses also fails the response, Google's error stands bare."""
    chosen = error_in_stream("Half", "busy", kind="overloaded_error")
    assert events(chosen, asking(MESSAGES, stream=True))[-1]["error"]["type"] == "overloaded_error"
    *_, told, failed = events(error_in_stream("Half", "busy", code="x"), asking(RESPONSES, stream=True))
    assert (told["type"], told["error"]["code"]) == ("error", "x")
    assert (failed["type"], failed["response"]["error"]["message"]) == ("response.failed", "busy")
    data = sent(error_in_stream("Half", "busy", code=429), asking(GOOGLE, stream=True))
    assert json.loads(data.partition(b"\r\n\r\n")[2])["error"]["status"] == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (CHAT, {"error": {"message": "slow", "type": "stub_error", "param": None, "code": "c"}}),
        (RESPONSES, {"error": {"message": "slow", "type": "stub_error", "param": None, "code": "c"}}),
        (
            MESSAGES,
            {
                "type": "error",
                "error": {"type": "rate_limit_error", "message": "slow"},
                "request_id": "req_stub_1",
            },
        ),
        (
            GOOGLE,
            {
                "error": {
                    "code": 429,
                    "message": "slow",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                            "reason": "c",
                            "domain": "googleapis.com",
                        },
                        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"},
                    ],
                }
            },
        ),
    ],
)
def test_http_errors(name: str, expected: Any, asking: Asking) -> None:
    """The object of an HTTP error has the form of the request's dialect."""
    assert body(error(429, "slow", code="c", headers={"retry-after": "7"}), asking(name)) == expected


def test_the_dialect_of_a_path(asking: Asking) -> None:
    """The path tells the dialect, the model where it names one, and whether a stream is wanted."""
    base = asking(CHAT)
    for path, dialect, model, streaming in (
        ("/messages", MESSAGES, "m", False),
        ("/anthropic/v1/messages?beta=true", MESSAGES, "m", False),
        ("/v1/responses", RESPONSES, "m", False),
        ("/v1/models/gemini%2Dx:generateContent", GOOGLE, "gemini-x", False),
        ("/v1beta/tunedModels/t:streamGenerateContent?alt=sse", GOOGLE, "t", True),
        ("/v1/publishers/google/models/g:streamGenerateContent", GOOGLE, "g", True),
        ("/v1/messages/count_tokens", None, "m", False),
        ("/v1/models", None, "m", False),
    ):
        request = attrs.evolve(base, path=path)
        assert (request.dialect, request.model, request.streaming) == (dialect, model, streaming)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (CHAT, {}),
        (RESPONSES, {"instructions": "be brief"}),
        (MESSAGES, {"system": [{"type": "text", "text": "be brief"}]}),
        (GOOGLE, {"systemInstruction": {"parts": [{"text": "be brief"}]}}),
    ],
)
def test_words_of_all_dialects(name: str, more: dict[str, Any], asking: Asking) -> None:
    """Instructions count as input beside the conversation."""
    assert asking(name, **more).words() == (4 if more else 2)


@pytest.mark.parametrize(
    ("name", "headers", "status"),
    [
        (CHAT, {"authorization": "Bearer sesame"}, None),
        (RESPONSES, {"authorization": "Bearer sesame"}, None),
        (MESSAGES, {"x-api-key": "sesame"}, None),
        (MESSAGES, {"authorization": "Bearer sesame"}, None),
        (GOOGLE, {"x-goog-api-key": "sesame"}, None),
        (GOOGLE, {"authorization": "Bearer sesame"}, None),
        (CHAT, {"x-api-key": "sesame"}, 401),
        (RESPONSES, {"authorization": "sesame"}, 401),
        (MESSAGES, {"x-goog-api-key": "sesame"}, 401),
        (GOOGLE, {"x-goog-api-key": "simsim"}, 400),
    ],
)
def test_where_the_key_is_looked_for(name: str, headers: dict[str, str], status: int | None, asking: Asking) -> None:
    """Each dialect has its header; a wrong key gets what the real provider answers."""
    request = attrs.evolve(asking(name), headers=headers)
    refusal = refuse(request, "sesame")
    assert (refusal.status if refusal else None) == status
    if refusal and name == GOOGLE:
        assert body(refusal, request)["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    if refusal and name == MESSAGES:
        assert body(refusal, request)["error"]["type"] == "authentication_error"


def test_googles_key_may_stand_in_the_address(asking: Asking) -> None:
    """Google's older clients give the key as a query parameter."""
    request = attrs.evolve(asking(GOOGLE), path="/v1beta/models/m:generateContent?key=sesame")
    assert refuse(request, "sesame") is None
