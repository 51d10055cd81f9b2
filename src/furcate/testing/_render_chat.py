"""Answers as an openai-chat server writes them: whole JSON, or a stream of chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from furcate.testing._completion import Completion, StreamError, StubSearch, known, prompt_tokens, total
from furcate.testing._framing import CREATED, DONE, JsonObject, split_text, sse, text_halves

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

WORDS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_output_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}


def whole(completion: Completion, request: StubRequest) -> JsonObject:
    """Render an answer as one JSON body."""
    if completion.error is not None:
        return failure(completion.error)
    message: JsonObject = {"role": "assistant", "content": completion.text or None, "refusal": completion.refusal}
    if completion.reasoning is not None:
        message["reasoning_content"] = completion.reasoning
    if completion.reasoning_state:
        message["reasoning_details"] = [_state(completion.reasoning_state)]
    if completion.searches:
        message["executed_tools"] = [_executed(*item) for item in enumerate(completion.searches)]
    if completion.citations:
        message["annotations"] = _annotations(completion)
    if completion.tool_calls:
        message["tool_calls"] = _calls(completion)
    elif completion.refusal is None:
        message["content"] = completion.text
    body = _frame(request, "chat.completion")
    stop = completion.stop(WORDS)
    body["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": stop}]
    if completion.usage != "omitted":
        body["usage"] = _usage(completion, request)
    return body


def events(completion: Completion, request: StubRequest) -> tuple[bytes, ...]:
    """Render an answer as a stream of chunks."""
    told = [_chunk(request, delta) for delta in _deltas(completion)]
    if completion.error is not None:
        return (*told, sse(failure(completion.error)))
    told.append(_chunk(request, {}, finish_reason=completion.stop(WORDS)))
    if request.wants_usage and completion.usage != "omitted":
        tail = _frame(request, "chat.completion.chunk")
        tail["choices"] = []
        tail["usage"] = _usage(completion, request)
        told.append(sse(tail))
    return (*told, DONE)


def failure(error: StreamError) -> JsonObject:
    """Render an error object."""
    return {"error": {"message": error.message, "type": error.kind, "param": None, "code": error.code}}


def _calls(completion: Completion) -> list[JsonObject]:
    return [
        {
            "id": call.id or f"call_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text()},
        }
        for place, call in enumerate(completion.tool_calls, start=1)
    ]


def _deltas(completion: Completion) -> list[JsonObject]:
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    if completion.reasoning is not None:
        deltas += [{"reasoning_content": piece} for piece in split_text(completion.reasoning)]
    if completion.reasoning_state:
        deltas.append({"reasoning_details": [_state(completion.reasoning_state)]})
    for index, search in enumerate(completion.searches):
        begun = {**_executed(index, search), "output": "", "search_results": {"results": []}}
        deltas += [{"executed_tools": [begun]}, {"executed_tools": [_executed(index, search)]}]
    if completion.refusal is not None:
        deltas += [{"refusal": piece} for piece in split_text(completion.refusal)]
    deltas += [{"content": piece} for piece in completion.pieces]
    if completion.citations and completion.error is None:
        deltas.append({"annotations": _annotations(completion)})
    for index, (call, told) in enumerate(zip(completion.tool_calls, _calls(completion), strict=True)):
        opening = {"index": index, **told, "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for piece in text_halves(call.arguments_text()):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return deltas


def _state(state: str) -> JsonObject:
    """Spell opaque reasoning state as OpenRouter does; OpenAI's own servers show none in this dialect."""
    return {"type": "reasoning.encrypted", "data": state, "format": "stub-v1", "id": None, "index": 0}


def _executed(index: int, search: StubSearch) -> JsonObject:
    """Spell a search as Groq does; OpenAI's own servers show none in this dialect."""
    results = [
        {"title": page.title, "url": page.url, "content": page.snippet, "score": 1.0 - place / 100}
        for place, page in enumerate(search.results)
    ]
    output = (
        f"Error: {search.error}" if search.error else "".join(f"{page.title}\n{page.url}\n" for page in search.results)
    )
    return {
        "index": index,
        "type": "search",
        "arguments": json.dumps({"query": search.query}),
        "output": output or "No results",
        "search_results": {"results": results},
    }


def _annotations(completion: Completion) -> list[JsonObject]:
    # A citation of the whole text has both indexes at 0, as OpenRouter sends them.
    return [
        {
            "type": "url_citation",
            "url_citation": {
                "start_index": span[0] if span else 0,
                "end_index": span[1] if span else 0,
                "title": one.title,
                "url": one.url,
                **({"content": one.excerpt} if one.excerpt else {}),
            },
        }
        for one, span in completion.placed()
    ]


def _usage(completion: Completion, request: StubRequest) -> JsonObject | None:
    if isinstance(completion.usage, Mapping):
        return dict(completion.usage)
    counts = completion.counts(request)
    if counts is None:
        return None
    prompt = prompt_tokens(counts)
    beside = {"cached_tokens": counts.cache_read_tokens, "cache_write_tokens": counts.cache_write_tokens}
    return known(
        {
            "prompt_tokens": prompt,
            "completion_tokens": counts.output_tokens,
            "total_tokens": total(prompt, counts.output_tokens),
            "prompt_tokens_details": known(beside),
            "completion_tokens_details": known({"reasoning_tokens": counts.reasoning_tokens}),
        }
    )


def _frame(request: StubRequest, kind: str) -> JsonObject:
    return {"id": f"chatcmpl-stub-{request.number}", "object": kind, "created": CREATED, "model": request.model}


def _chunk(request: StubRequest, delta: Mapping[str, object], *, finish_reason: str | None = None) -> bytes:
    frame = _frame(request, "chat.completion.chunk")
    frame["choices"] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
    return sse(frame)
