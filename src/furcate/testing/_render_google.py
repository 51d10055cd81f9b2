"""Answers as a google-generatecontent server writes them: one chunk, or a stream of chunks with CRLF line ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from furcate.testing._completion import Completion, StreamError, known, prompt_tokens, total
from furcate.testing._framing import JsonObject, split_text, sse

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

WORDS: Mapping[str, str] = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "max_output_tokens": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "refusal": "SAFETY",
}

# The words that stand beside HTTP status codes.
STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def whole(completion: Completion, request: StubRequest) -> JsonObject:
    """Render an answer as one chunk."""
    if completion.error is not None:
        return failure(completion.error)
    parts: list[JsonObject] = []
    if completion.reasoning:
        parts.append({"text": completion.reasoning, "thought": True})
    if completion.text or not completion.tool_calls:
        parts.append({"text": completion.text})
    state = completion.state_for(request)
    calls = _calls(completion, request)
    if state and not calls:
        parts[-1]["thoughtSignature"] = state
    return _chunk(completion, request, parts + calls, share=1.0, last=True)


def events(completion: Completion, request: StubRequest) -> tuple[bytes, ...]:
    """Render an answer as a stream of chunks; an error ends it as a bare JSON object, as Vertex AI sends one."""
    told = tuple(sse(chunk, newline="\r\n") for chunk in chunks(completion, request))
    if completion.error is None:
        return told
    return (*told, json.dumps(failure(completion.error), indent=2).encode() + b"\n")


def chunks(completion: Completion, request: StubRequest) -> list[JsonObject]:
    """Render an answer as its chunks."""
    parts: list[JsonObject] = [{"text": piece, "thought": True} for piece in split_text(completion.reasoning or "")]
    parts += [{"text": piece} for piece in completion.pieces]
    calls = _calls(completion, request)
    ending: JsonObject = {"text": ""}
    state = completion.state_for(request)
    if state and not calls:
        ending["thoughtSignature"] = state
    parts += calls
    told = [
        _chunk(completion, request, [part], share=place / (len(parts) + 1), last=False)
        for place, part in enumerate(parts, start=1)
    ]
    if completion.error is None:
        told.append(_chunk(completion, request, [ending], share=1.0, last=True))
    return told


def failure(error: StreamError) -> JsonObject:
    """Render an error object; a code that is no number becomes the reason among its details."""
    number = error.code if isinstance(error.code, int) else 500
    status = error.kind if error.kind.isupper() else STATUSES.get(number, "UNKNOWN")
    inner: JsonObject = {"code": number, "message": error.message, "status": status}
    if isinstance(error.code, str):
        inner["details"] = [reason(error.code)]
    return {"error": inner}


def reason(word: str) -> JsonObject:
    """Spell a detail of an error that names its reason."""
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": word, "domain": "googleapis.com"}


def _calls(completion: Completion, request: StubRequest) -> list[JsonObject]:
    calls: list[JsonObject] = []
    for place, call in enumerate(completion.tool_calls, start=1):
        function = {"name": call.name, "args": call.arguments_object(), "id": call.id_for(request, place, "call")}
        calls.append({"functionCall": function})
    state = completion.state_for(request)
    if calls and state:
        # One signature stands for all calls that were made at once.
        calls[0]["thoughtSignature"] = state
    return calls


def _chunk(
    completion: Completion, request: StubRequest, parts: list[JsonObject], *, share: float, last: bool
) -> JsonObject:
    candidate: JsonObject = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if completion.searches or completion.citations:
        candidate["groundingMetadata"] = _grounding(completion) if last else {}
    if last:
        refused = completion.finish_reason is None and completion.refusal is not None
        candidate["finishReason"] = "SAFETY" if refused else completion.stop(WORDS)
        if completion.refusal is not None:
            candidate["finishMessage"] = completion.refusal
    chunk: JsonObject = {"candidates": [candidate]}
    if completion.usage != "omitted":
        chunk["usageMetadata"] = _usage(completion, request, share)
    return {**chunk, "modelVersion": request.model, "responseId": f"stub-{request.number}"}


def _grounding(completion: Completion) -> JsonObject:
    pages = {one.url: {"web": {"uri": one.url, "title": one.title}} for one in completion.citations}
    places = list(pages)
    grounding: JsonObject = {}
    queries = [search.query for search in completion.searches]
    if queries:
        shown = "".join(f'<a class="chip">{query}</a>' for query in queries)
        grounding["searchEntryPoint"] = {"renderedContent": f"<div>{shown}</div>"}
    grounding["groundingChunks"] = list(pages.values())
    grounding["groundingSupports"] = list(_supports(completion, places))
    if queries:
        grounding["webSearchQueries"] = queries
    return grounding


def _supports(completion: Completion, places: list[str]) -> Iterator[JsonObject]:
    """Give each cited stretch once, in bytes of UTF-8, with all pages that stand behind it."""
    text = completion.text
    spans: dict[tuple[int, int], list[int]] = {}
    for one, span in completion.placed():
        if span is not None:
            spans.setdefault(span, []).append(places.index(one.url))
    for (start, end), indices in spans.items():
        # The provider leaves out zeros.
        first, last = len(text[:start].encode()), len(text[:end].encode())
        segment: JsonObject = {"startIndex": first} if first else {}
        segment.update({"endIndex": last, "text": text[start:end]})
        yield {"segment": segment, "groundingChunkIndices": indices}


def _usage(completion: Completion, request: StubRequest, share: float) -> JsonObject | None:
    """Give the token counts as they stand when a share of the answer is out."""
    if isinstance(completion.usage, Mapping):
        return dict(completion.usage)
    counts = completion.counts(request)
    if counts is None:
        return None
    thought = counts.reasoning_tokens or 0
    said = None if counts.output_tokens is None else int(max(0, counts.output_tokens - thought) * share)
    prompt = prompt_tokens(counts)
    spelled = known(
        {
            "promptTokenCount": prompt,
            "candidatesTokenCount": said,
            "totalTokenCount": total(prompt, said, thought),
            "thoughtsTokenCount": thought,
            "cachedContentTokenCount": counts.cache_read_tokens,
        }
    )
    return {name: count for name, count in spelled.items() if count != 0}
