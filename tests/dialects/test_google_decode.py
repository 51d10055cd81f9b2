"""Answers of ``google-generatecontent``: parts, signatures, sources, provider-run work, and how they end."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.dialects import Assembler
from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    Reasoning,
    Source,
    Text,
    ToolCall,
)
from furcate.primitives._stream import (
    Citation,
    HostedTransition,
    Noticed,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.primitives._usage import Usage
from furcate.primitives._wire import AttemptFailed, ResponseHead, UnknownContent

_GOOGLE = GoogleGenerateContent()
_ORIGIN = Origin("p", "google-generatecontent", "m")
_WEB = {"web": {"uri": "https://a.example/1", "title": "A"}}


def _chunk(*parts: object, finish: str | None = None, **more: object) -> dict[str, object]:
    candidate: dict[str, object] = {"content": {"role": "model", "parts": list(parts)}, **more}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r"}


def _sse(*chunks: object) -> bytes:
    return "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks).encode()


def _events(*chunks: object, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    decoder = _GOOGLE.decoder(_ORIGIN, unknown)
    return decoder.feed(_sse(*chunks)) + decoder.finish()


def _assembled(*chunks: object, unknown: UnknownContent = "fail") -> Assembler:
    assembler = Assembler()
    for event in _events(*chunks, unknown=unknown):
        assembler.add(event)
    return assembler


def _parts(*chunks: object) -> tuple[Part, ...]:
    assembler = _assembled(*chunks)
    assert assembler.failure is None
    return assembler.message().parts


def _notices(*chunks: object) -> list[str]:
    return [event.kind for event in _events(*chunks) if isinstance(event, Noticed)]


def _grounded(text: str, support: dict[str, object], **more: object) -> Text:
    grounding = {"groundingChunks": [_WEB], "groundingSupports": [{"groundingChunkIndices": [0], **support}], **more}
    part = _parts(_chunk({"text": text}, finish="STOP", groundingMetadata=grounding))[0]
    assert isinstance(part, Text)
    return part


def _span(part: Text) -> str | None:
    (one,) = part.attributions
    return None if one.range is None else part.text[one.range[0] : one.range[1]]


def test_events_of_a_plain_answer() -> None:
    """Text is told as it comes, usage replaces usage, and the end is told once, when the body ends."""
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4}
    first = {**_chunk({"text": "a"}, finish="STOP"), "modelVersion": "g", "usageMetadata": usage}
    assert _events(first, {**_chunk({"text": "b"}, finish="STOP"), "usageMetadata": usage})[:-2] == [
        ResponseStarted("r", "g"),
        TextDelta(0, "a"),
        UsageReported(Usage(input_tokens=3, output_tokens=1)),
        TextDelta(0, "b"),
    ]
    assert _events(first)[-1] == Stopped("end_turn")


@pytest.mark.field(53)
@pytest.mark.req("S0-37", "S0-39")
def test_bytes_become_code_points() -> None:
    """A segment counts bytes of UTF-8; the range counts characters, astral ones too."""
    support: dict[str, object] = {"segment": {"startIndex": 14, "endIndex": 19}}
    part = _grounded("Zürich 🚲! Köln liegt am Rhein.", support)
    assert part.attributions[0].range == (10, 14)
    assert _span(part) == "Köln"


@pytest.mark.field(54)
def test_segments_of_a_later_part() -> None:
    """A part index makes a segment count inside that part; the range is right in the joined text."""
    grounding = {
        "groundingChunks": [_WEB],
        "groundingSupports": [{"segment": {"partIndex": 1, "endIndex": 12}, "groundingChunkIndices": [0]}],
    }
    chunk = _chunk({"text": "Alpha beta. "}, {"text": "Gamma delta."}, finish="STOP", groundingMetadata=grounding)
    (part,) = _parts(chunk)
    assert isinstance(part, Text)
    assert _span(part) == "Gamma delta."


@pytest.mark.parametrize(
    ("segment", "span"),
    [
        ({"endIndex": 3, "text": "Köl"}, None),  # counted as characters: another text
        ({"endIndex": 4, "text": "Köl"}, "Köl"),
        ({"startIndex": 2, "endIndex": 5}, None),  # begins inside a character
        ({"startIndex": 5, "endIndex": 5}, None),
        ({"startIndex": 5, "endIndex": 99}, None),
        ({"startIndex": -1, "endIndex": 3}, None),
        ({"partIndex": 7, "startIndex": 0, "endIndex": 5}, None),
        ({"partIndex": 7, "startIndex": 0, "endIndex": 5, "text": "Köln"}, "Köln"),
        ({}, None),
    ],
)
def test_ranges_that_cannot_be_trusted(segment: dict[str, object], span: str | None) -> None:
    """A range that does not read what its segment says, or fits no text, is dropped, and the citation kept."""
    assert _span(_grounded("Köln am Rhein", {"segment": segment})) == span


def test_one_stretch_with_several_sources() -> None:
    """A stretch that several sources stand behind is several citations with one range, and comes only once."""
    grounding = {
        "groundingChunks": [_WEB, {"web": {"uri": "https://a.example/2"}}, {"maps": {"uri": "https://m.example"}}],
        "groundingSupports": [{"segment": {"endIndex": 2}, "groundingChunkIndices": [0, 1, 9]}],
    }
    chunk = _chunk({"text": "Hi."}, finish="STOP", groundingMetadata=grounding)
    (part,) = _parts(chunk, {**chunk, "candidates": [{**chunk["candidates"][0], "content": {}}]})  # type: ignore[index]
    assert part == Text(
        "Hi.",
        (
            Attribution(Source("https://a.example/1", "A"), range=(0, 2)),
            Attribution(Source("https://a.example/2"), range=(0, 2)),
            Attribution(Source("https://m.example")),
        ),
    )
    assert _notices(chunk) == ["groundingSupports.without_chunk"]


def test_citations_ahead_of_their_text_wait_for_it() -> None:
    """A citation of text that has not come is told once it has; one of an answer that breaks off is not lost."""
    grounding = {
        "groundingChunks": [_WEB],
        "groundingSupports": [{"segment": {"startIndex": 3, "endIndex": 5}, "groundingChunkIndices": [0]}],
    }
    ahead = _chunk({"text": "One"}, groundingMetadata=grounding)
    events = _events(ahead, _chunk({"text": " two"}, finish="STOP"))
    assert [event for event in events if isinstance(event, Citation)] == [
        Citation(0, Attribution(Source("https://a.example/1", "A"), range=(3, 5)))
    ]
    partial = _assembled(ahead).partial()
    assert partial is not None
    assert partial.parts == (Text("One", (Attribution(Source("https://a.example/1", "A")),), False),)


def test_sources_without_text() -> None:
    """Sources of an answer that has no text are kept on an empty one."""
    assert _parts(_chunk(finish="STOP", groundingMetadata={"groundingChunks": [_WEB]})) == (
        Text("", (Attribution(Source("https://a.example/1", "A")),)),
    )


@pytest.mark.req("S0-57")
def test_a_search_is_one_activity_that_is_over() -> None:
    """Grounding metadata is one completed search with all its queries, and keeps what has to be shown, unseen."""
    entry = {"renderedContent": "<p>SECRET</p>"}
    grounding = {"webSearchQueries": ["a", "b", "a"], "searchEntryPoint": entry}
    chunks = (_chunk({"text": "x"}, groundingMetadata={}), _chunk(finish="STOP", groundingMetadata=grounding))
    transitions = [event.activity for event in _events(*chunks) if isinstance(event, HostedTransition)]
    (one,) = transitions
    assert (one.name, one.state, one.summary, one.scope) == ("web_search", "completed", "a; b", "r")
    assert dict(one.input) == {"type": "search", "queries": ("a", "b")}
    assert one.payload is not None
    assert json.loads(one.payload.value)["searchEntryPoint"] == entry
    assert "SECRET" not in repr(one)


def test_a_search_that_was_a_part_is_told_once() -> None:
    """A search told of by its parts is not told of again by metadata; what has to be shown stays with the text."""
    call = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "args": {"queries": ["a"]}}}
    answer = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s", "response": {}}}
    grounding = {"webSearchQueries": ["a"], "searchEntryPoint": {"renderedContent": "<p></p>"}}
    parts = _parts(_chunk(call), _chunk(answer), _chunk({"text": "x"}, finish="STOP", groundingMetadata=grounding))
    started, completed, text = parts
    assert isinstance(started, HostedActivity)
    assert isinstance(completed, HostedActivity)
    assert [(one.id, one.name, one.state, one.summary) for one in (started, completed)] == [
        ("s", "web_search", "started", ""),
        ("s", "web_search", "completed", "a"),
    ]
    assert isinstance(text, Text)
    assert text.payload is not None
    assert json.loads(text.payload.value) == grounding


def test_code_without_ids() -> None:
    """Code and its result are linked by their order where they have no ids; what failed is said to have."""
    code = {"executableCode": {"language": "PYTHON", "code": "1/0"}, "thoughtSignature": "U0lH"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}}
    again = {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}
    activities = [one for one in _parts(_chunk(code, result, again, finish="STOP")) if isinstance(one, HostedActivity)]
    assert [(one.id, one.state) for one in activities] == [
        ("code_execution_1", "started"),
        ("code_execution_1", "failed"),
        ("code_execution_2", "completed"),
    ]
    assert activities[1].input == activities[0].input == {"code": "1/0", "language": "PYTHON"}
    assert [json.loads(one.payload.value) for one in activities if one.payload] == [code, result, again]


def test_tools_that_have_no_name_of_ours() -> None:
    """A tool of a new type keeps the provider's name, and a failing one is said to fail."""
    call = {"toolCall": {"toolType": "GOOGLE_MAPS", "id": "t", "args": {"place": "x"}}}
    answer = {"toolResponse": {"toolType": "GOOGLE_MAPS", "id": "t", "response": {"error": "no"}}}
    started, failed = _parts(_chunk(call, answer, answer, call, finish="STOP"))
    assert isinstance(started, HostedActivity)
    assert isinstance(failed, HostedActivity)
    assert (started.name, dict(started.input), failed.state) == ("google_maps", {"place": "x"}, "failed")
    assert _notices(_chunk(call, answer, answer, call, finish="STOP")) == ["hosted.ended_twice", "hosted.begun_twice"]


def test_a_fetched_page() -> None:
    """A page is an activity of its own; several addresses of one call are all kept."""
    call = {"toolCall": {"toolType": "URL_CONTEXT", "id": "u", "args": {"urls": ["https://a", "https://b"]}}}
    (one,) = _parts(_chunk(call, finish="STOP"))
    assert isinstance(one, HostedActivity)
    assert dict(one.input) == {"type": "open_page", "url": "https://a", "urls": ("https://a", "https://b")}
    pages = [
        {"retrievedUrl": "https://c", "urlRetrievalStatus": f"URL_RETRIEVAL_STATUS_{s}"} for s in ("SUCCESS", "NEW")
    ]
    found = _parts(_chunk(finish="STOP", urlContextMetadata={"urlMetadata": pages}))
    assert [(one.state, one.summary) for one in found if isinstance(one, HostedActivity)] == [
        ("completed", "opened https://c"),
        ("failed", "https://c"),
    ]


@pytest.mark.field(47)
@pytest.mark.parametrize(
    "last", [[{"text": "b", "thoughtSignature": "Uw=="}], [{"text": "b"}, {"text": "", "thoughtSignature": "Uw=="}]]
)
def test_the_place_of_a_signature_in_a_stream_does_not_matter(last: list[dict[str, str]]) -> None:
    """A text signed at its beginning, its end, or on an empty part behind it, is the same message."""
    streamed = _parts(
        _chunk({"text": "hm", "thought": True}), _chunk({"text": "a"}), *(_chunk(one, finish="STOP") for one in last)
    )
    whole = _parts(_chunk({"text": "hm", "thought": True}, {"text": "ab", "thoughtSignature": "Uw=="}, finish="STOP"))
    early = _parts(
        _chunk({"text": "hm", "thought": True}),
        _chunk({"text": "a", "thoughtSignature": "Uw=="}),
        _chunk({"text": "b"}, finish="STOP"),
    )
    assert streamed == whole == early
    thought, text, sealed = whole
    assert (thought, text) == (Reasoning("hm"), Text("ab"))
    assert isinstance(sealed, Reasoning)
    assert sealed.state is not None
    assert (sealed.state.data, sealed.state.origin) == (b"Uw==", _ORIGIN)


def test_signatures_of_calls_and_thoughts() -> None:
    """The signature of a call belongs to the thought ahead of it; one of a thought stays on it."""
    signed = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "QQ=="}
    first, call = _parts(_chunk({"text": "hm", "thought": True}), _chunk(signed, finish="STOP"))
    assert isinstance(first, Reasoning)
    assert first.text == "hm"
    assert first.state is not None
    assert first.state.format.endswith("next")
    assert isinstance(call, ToolCall)
    own, further, _ = _parts(_chunk({"text": "hm", "thought": True, "thoughtSignature": "Qg=="}, signed, finish="STOP"))
    assert isinstance(own, Reasoning)
    assert isinstance(further, Reasoning)
    assert own.state is not None
    assert further.state is not None
    assert (own.state.data, further.state.data) == (b"Qg==", b"QQ==")


def test_parallel_calls_without_ids() -> None:
    """Calls without ids get ids that differ, also between responses, and that other dialects take."""
    chunk = _chunk(*({"functionCall": {"name": "f", "args": {"n": n}}} for n in (1, 2)), finish="STOP")
    calls = _assembled(chunk).message().tool_calls
    assert [call.id for call in calls] == ["gcall_1_r", "gcall_2_r"]
    bare = {"candidates": chunk["candidates"]}
    (one, two) = _assembled(bare).message().tool_calls
    assert len({one.id, two.id}) == 2
    assert all(call.id.replace("_", "").isalnum() and len(call.id) <= 40 for call in (one, two))
    assert _assembled(chunk).stop == Stopped("tool_use")


def _pieces(*pieces: dict[str, object]) -> list[object]:
    return [_chunk({"functionCall": piece}) for piece in pieces]


def _piece(*values: dict[str, object], last: bool = False) -> dict[str, object]:
    return {"partialArgs": list(values), **({} if last else {"willContinue": True})}


def test_streamed_arguments() -> None:
    """Pieces of arguments are put where their paths say; strings go on until they are said to be over."""
    chunks = _pieces(
        {"name": "f", "willContinue": True},
        _piece({"jsonPath": "$.a[0].b", "stringValue": "x", "willContinue": True}),
        _piece({"jsonPath": "$.a[0].b", "stringValue": "y"}, {"jsonPath": "$['c d'][\"e\"]", "numberValue": 2.5}),
        _piece({"jsonPath": "$.a[1]", "boolValue": False}, {"jsonPath": "$.z", "nullValue": "NULL_VALUE"}, last=True),
        {"name": "g", "args": {"k": 1}},
    )
    events = _events(*chunks, _chunk(finish="STOP"))
    assert ToolCallDelta(0, "gcall_1_r", "f") in events
    calls = [(one.name, one.parsed()) for one in _assembled(*chunks, _chunk(finish="STOP")).message().tool_calls]
    assert calls == [("f", {"a": [{"b": "xy"}, False], "c d": {"e": 2.5}, "z": None}), ("g", {"k": 1})]


@pytest.mark.parametrize(
    "path", ["", "a", "$", "$.", "$.a[1]", "$.a[-1]", "$.a[999999999]", "$.a..b", "$.s.t", "$[0]", "$" + ".a" * 70]
)
def test_paths_that_fit_nothing(path: str) -> None:
    """A piece whose path cannot be followed fails the answer, and never takes more memory than it brings."""
    start = {"name": "f", "args": {}, "willContinue": True}
    assembler = _assembled(
        *_pieces(start, _piece({"jsonPath": "$.s", "stringValue": "x"}), _piece({"jsonPath": path, "stringValue": "x"}))
    )
    assert assembler.failure is not None
    assert assembler.failure.reason == "malformed"


def test_calls_that_did_not_end() -> None:
    """A call that the answer leaves open is a failure; one that a limit cut off has arguments that are no JSON."""
    chunks = _pieces({"name": "f", "willContinue": True}, _piece({"jsonPath": "$.a", "stringValue": "x"}))
    failure = _assembled(*chunks, _chunk(finish="STOP")).failure
    assert failure is not None
    assert failure.reason == "unfinished_call"
    cut = _assembled(*chunks, _chunk(finish="MAX_TOKENS"))
    assert cut.stop == Stopped("max_output_tokens")
    (call,) = cut.message().tool_calls
    assert call.arguments == '{"a":"x"'
    broken = _assembled(*chunks).failure
    assert broken is not None
    assert broken.reason == "cut_off"


@pytest.mark.parametrize("piece", [{"args": {"a": 1}}, {"name": "f", "args": [1]}, {"name": 3}])
def test_calls_that_make_no_sense(piece: dict[str, object]) -> None:
    """Arguments of no call, arguments that are no object, and a name that is no text fail the answer."""
    failure = _assembled(_chunk({"functionCall": piece}, finish="STOP")).failure
    assert failure is not None
    assert failure.reason == "malformed"


@pytest.mark.req("S0-03", "S1-33")
def test_unknown_content() -> None:
    """Content of an unknown kind fails the answer and is named; carried, it is an opaque part of its origin."""
    chunk = _chunk({"text": "a"}, {"hologram": {"x": "SECRET"}, "thoughtSignature": "QQ=="}, finish="STOP")
    failure = _assembled(chunk).failure
    assert failure is not None
    assert (failure.kind, failure.reason) == ("provider", "unsupported_content")
    assert "hologram" in failure.message
    assert "SECRET" not in failure.message
    _, carried = _assembled(chunk, unknown="carry").message().parts
    assert isinstance(carried, HostedActivity)
    assert (carried.name, carried.state) == ("hologram", "completed")
    assert carried.payload is not None
    assert json.loads(carried.payload.value) == {"hologram": {"x": "SECRET"}, "thoughtSignature": "QQ=="}
    assert "SECRET" not in repr(carried)


@pytest.mark.req("S1-33")
def test_unknown_members_are_told_of() -> None:
    """What is added without content is told of once, and changes nothing."""
    chunk = {**_chunk({"text": "a", "colour": 1}, finish="STOP", mood={}), "weather": "fine"}
    chunk["candidates"].append({"index": 1, "content": {"parts": [{"text": "other"}]}})  # type: ignore[attr-defined]
    assert _notices(chunk, chunk) == ["part.colour", "candidate.mood", "candidates.1", "chunk.weather"]
    assert _assembled(chunk).message().text == "a"


def test_media() -> None:
    """Images come by value or by address; drafts of images are told of and not shown."""
    data = base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode()
    found = _parts(
        _chunk(
            {"inlineData": {"mimeType": "image/png", "data": data}, "thought": True},
            {"inlineData": {"mimeType": "image/png", "data": data}},
            {"fileData": {"fileUri": "https://f.example", "mimeType": "video/mp4"}},
            finish="STOP",
        )
    )
    assert found == (Media("image/png", b"\xff\xfe\xfd"), Media("video/mp4", url="https://f.example"))
    broken = _assembled(_chunk({"inlineData": {"mimeType": "image/png", "data": "###"}})).failure
    assert broken is not None
    assert broken.reason == "malformed"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("STOP", Stopped("end_turn")),
        ("MAX_TOKENS", Stopped("max_output_tokens")),
        ("SAFETY", Stopped("refusal", "SAFETY: the words")),
        ("PROHIBITED_CONTENT", Stopped("refusal", "PROHIBITED_CONTENT: the words")),
        ("IMAGE_SAFETY", Stopped("refusal", "IMAGE_SAFETY: the words")),
        ("OTHER", Stopped("end_turn", "OTHER")),
        ("NEVER_SEEN", Stopped("end_turn", "NEVER_SEEN")),
    ],
)
def test_endings(finish: str, stop: Stopped) -> None:
    """Finish reasons become ours, a refusal with what is said of it; an unknown word ends the answer and is kept."""
    assert _assembled(_chunk({"text": "a"}, finish=finish, finishMessage="the words")).stop == stop


@pytest.mark.parametrize(("finish", "retryable"), [("MALFORMED_FUNCTION_CALL", True), ("UNEXPECTED_TOOL_CALL", False)])
def test_endings_that_are_failures(finish: str, retryable: bool) -> None:
    """An answer that the provider threw away is a failure, and nothing of it is in the message."""
    failure = _assembled(_chunk(finish=finish, finishMessage="SECRET")).failure
    assert failure is not None
    assert (failure.kind, failure.reason, failure.retryable) == ("provider", finish.lower(), retryable)
    assert "SECRET" not in failure.message


def test_a_blocked_prompt() -> None:
    """A prompt that is refused is a refusal, with the provider's reason."""
    feedback = {"blockReason": "OTHER", "blockReasonMessage": "not\nthis"}
    assert _assembled({"promptFeedback": feedback}).stop == Stopped("refusal", "OTHER: not this")


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        (
            {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 3},
            Usage(input_tokens=5, cache_read_tokens=4, output_tokens=5, reasoning_tokens=3),
        ),
        (
            {"promptTokenCount": 9, "toolUsePromptTokenCount": 20, "candidatesTokenCount": 2, "totalTokenCount": 31},
            Usage(input_tokens=29, output_tokens=2),
        ),
        ({"promptTokenCount": 9, "totalTokenCount": 9}, Usage(input_tokens=9, output_tokens=0)),
        ({"promptTokenCount": 9}, Usage(input_tokens=9)),
        ({"promptTokenCount": 1, "cachedContentTokenCount": 4}, Usage(input_tokens=0, cache_read_tokens=4)),
    ],
)
@pytest.mark.req("S2-14")
def test_usage(counts: dict[str, int], usage: Usage) -> None:
    """Input excludes what was cached and includes what tools fed in; output includes thoughts."""
    assert _assembled({**_chunk(finish="STOP"), "usageMetadata": counts}).usage == usage


def test_usage_that_is_none() -> None:
    """Usage without counts, or of another shape, is no usage, and no reason to lose an answer."""
    assert not _assembled({**_chunk(finish="STOP"), "usageMetadata": {"trafficType": "ON_DEMAND"}}).usage.known
    odd = {**_chunk({"text": "a"}, finish="STOP"), "usageMetadata": {"promptTokenCount": "many"}}
    assert _notices(odd) == ["usageMetadata.unreadable"]
    strange = _chunk({"text": "a"}, finish="STOP", groundingMetadata={"groundingChunks": 3})
    assert _notices(strange) == ["groundingMetadata.unreadable"]


def test_half_characters() -> None:
    """Half a character in an answer is replaced; the answer is not lost for it."""
    body = b'{"candidates":[{"content":{"parts":[{"text":"a\\ud83d"}]},"finishReason":"STOP"}]}'
    events = _GOOGLE.decode_whole(body, _ORIGIN)
    assert TextDelta(0, "a\ufffd") in events


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cut_off"),
        (_sse(_chunk({"text": "a"})), "cut_off"),
        (b"data: {\r\n\r\n", "malformed"),
        (b"data: []\r\n\r\n", "malformed"),
        (_sse(_chunk({"text": 3})), "malformed"),
        (_sse({"candidates": [{"content": {"parts": "x"}}]}), "malformed"),
        (_sse({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m"}}), "rate_limited"),
        (_sse([{"error": {"code": 500, "status": "INTERNAL", "message": "m"}}]), "server_error"),
        (b'[{"error": {"code": 503, "status": "UNAVAILABLE"}}]', "overloaded"),
    ],
)
def test_streams_that_fail(body: bytes, reason: str) -> None:
    """A stream that breaks off, makes no sense or holds an error ends in a typed failure, and takes nothing more."""
    decoder = _GOOGLE.decoder(_ORIGIN)
    events = decoder.feed(body) + decoder.finish()
    assert isinstance(events[-1], StreamFailed)
    assert (events[-1].failure.kind, events[-1].failure.reason) == ("provider", reason)
    assert decoder.done
    assert decoder.feed(_sse(_chunk({"text": "late"}))) == decoder.finish() == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"nothing", b'{"candidates":[', b"{}", b"[]", b'{"id": 3}', b"3"])
def test_bodies_that_are_no_answers(body: bytes) -> None:
    """A whole body that is no answer of this dialect is a failed attempt, and says so without content."""
    with pytest.raises(AttemptFailed) as caught:
        _GOOGLE.decode_whole(body, _ORIGIN)
    assert caught.value.failure.reason == "malformed"


def test_whole_answers_in_other_clothes() -> None:
    """A stream where a whole answer was asked for, and a whole answer where a stream was, are understood."""
    chunk = _chunk({"text": "a"}, finish="STOP")
    streamed = _events(chunk)
    assert _GOOGLE.decode_whole(_sse(chunk), _ORIGIN) == streamed
    decoder = _GOOGLE.decoder(_ORIGIN)
    assert decoder.feed(json.dumps(chunk, indent=1).encode()) + decoder.finish() == streamed
    unended: dict[str, Any] = _chunk({"text": "a"})
    assert _GOOGLE.decode_whole(json.dumps(unended).encode(), _ORIGIN)[-1] == Stopped("end_turn", "no finishReason")
    with_mark = _sse(chunk) + b"data: [DONE]\n\n"
    marked = _GOOGLE.decoder(_ORIGIN)
    assert marked.feed(with_mark) == streamed
    assert marked.done


def test_an_empty_answer() -> None:
    """A whole answer with usage alone has no answer in it, which is a failure and not an empty text."""
    (failed,) = [one for one in _GOOGLE.decode_whole(b'{"usageMetadata":{}}', _ORIGIN) if isinstance(one, StreamFailed)]
    assert failed.failure.reason == "malformed"


@pytest.mark.parametrize(
    ("status", "body", "kind", "wait_s"),
    [
        (429, {"error": {"details": [{"retryDelay": "48.939s"}, {"retryDelay": "soon"}]}}, "rate_limited", 48.939),
        (429, {"error": {"details": "none"}}, "rate_limited", None),
        (503, [{"error": {"status": "UNAVAILABLE", "details": [{"retryDelay": "2s"}]}}], "unavailable", 2.0),
        (403, {"error": {"status": "PERMISSION_DENIED", "details": [{"retryDelay": "2s"}]}}, "authentication", None),
        (404, b"not json", "invalid_request", None),
    ],
)
def test_error_responses(status: int, body: object, kind: str, wait_s: float | None) -> None:
    """An error response gives its kind, and the wait that stands in its body where waiting may help."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    failure = _GOOGLE.decode_error(ResponseHead(status), data)
    assert (failure.kind, failure.wait_s) == (kind, wait_s)


def test_a_wait_in_the_headers_wins() -> None:
    """Where the headers ask for a wait, it counts."""
    body = json.dumps({"error": {"details": [{"retryDelay": "48s"}]}}).encode()
    assert _GOOGLE.decode_error(ResponseHead(429, (("retry-after", "3"),)), body).wait_s == 3.0


_TEXTS = st.text(alphabet="aöŁ🚲 .", max_size=12)


@given(pieces=st.lists(_TEXTS, min_size=1, max_size=6), cut=st.integers(1, 40), data=st.data())
def test_any_segment_reads_its_words(pieces: list[str], cut: int, data: st.DataObject) -> None:
    """However text is cut into chunks and bytes, a segment's range reads the words that its bytes hold."""
    text = "".join(pieces)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    segment = {"startIndex": len(text[:start].encode()), "endIndex": len(text[:end].encode())}
    grounding = {
        "groundingChunks": [_WEB],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    body = _sse(*(_chunk({"text": piece}) for piece in pieces), _chunk(finish="STOP", groundingMetadata=grounding))
    decoder, assembler = _GOOGLE.decoder(_ORIGIN), Assembler()
    for at in range(0, len(body), cut):
        for event in decoder.feed(body[at : at + cut]):
            assembler.add(event)
    for event in decoder.finish():
        assembler.add(event)
    (part,) = assembler.message().parts
    assert isinstance(part, Text)
    assert part.text == text
    assert _span(part) == (text[start:end] or None)
