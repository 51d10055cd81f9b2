"""Answers as an anthropic-messages server writes them: a message, or the events that build it up block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from furcate.testing._completion import Completion, StreamError, StubCitation, StubSearch, StubToolCall, known
from furcate.testing._framing import JsonObject, cut_pieces, sealed, split_text, sse, text_halves
from furcate.testing._rules import dicts, text

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

WORDS: Mapping[str, str] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_output_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "context_window": "model_context_window_exceeded",
}


@attrs.frozen
class _Block:
    """A content block, and the pieces in which a stream carries its text or its input."""

    whole: JsonObject
    pieces: tuple[str, ...] = ()


def whole(completion: Completion, request: StubRequest) -> JsonObject:
    """Render an answer as one message."""
    if completion.error is not None:
        return failure(completion.error)
    message = _message(request, [block.whole for block in _blocks(completion, request)])
    message.update(_ending(completion, request))
    if completion.usage != "omitted":
        message["usage"] = _usage(completion, request)
    return message


def events(completion: Completion, request: StubRequest) -> tuple[bytes, ...]:
    """Render an answer as a stream of events, each named by its type."""
    return tuple(sse(event, event=str(event["type"])) for event in _events(completion, request))


def failure(error: StreamError) -> JsonObject:
    """Render an error object; the general kind is spelled as this provider does."""
    kind = error.kind
    if kind == "server_error":
        kind = "overloaded_error" if error.code in (503, 529) else "api_error"
    return {"type": "error", "error": {"details": None, "type": kind, "message": error.message}}


def _open_search(request: StubRequest) -> tuple[str, str] | None:
    """Find the search that the conversation left open; give its id and its query.

    A paused answer comes back as the last message; beside calls of the application, the open search stands in the
    message whose calls are answered now.
    """
    messages = dicts(request.body.get("messages"))
    if messages and dicts(messages[-1].get("content")) and messages[-1].get("role") == "user":
        answered = any(block.get("type") == "tool_result" for block in dicts(messages.pop().get("content")))
        if not answered:
            return None
    blocks = dicts(messages[-1].get("content")) if messages and messages[-1].get("role") == "assistant" else []
    over = [block.get("tool_use_id") for block in blocks]
    left = [block for block in blocks if block.get("type") == "server_tool_use" and block.get("id") not in over]
    return (text(left[-1], "id"), text(left[-1].get("input"), "query")) if left else None


def _message(request: StubRequest, content: list[JsonObject]) -> JsonObject:
    return {
        "model": request.model,
        "id": f"msg_stub_{request.number}",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }


def _ending(completion: Completion, request: StubRequest) -> JsonObject:
    reason = completion.stop(WORDS)
    if completion.finish_reason is None and completion.pause and not completion.tool_calls:
        reason = "pause_turn"
    elif completion.finish_reason is None and completion.refusal is not None:
        reason = "refusal"
    sequences = request.body.get("stop_sequences") or [None]
    details = None
    if reason == "refusal":
        details = {"type": "refusal", "category": None, "explanation": completion.refusal}
    return {
        "stop_reason": reason,
        "stop_sequence": sequences[0] if reason == "stop_sequence" else None,
        "stop_details": details,
    }


def _blocks(completion: Completion, request: StubRequest) -> list[_Block]:
    blocks = list(_thought(completion, request))
    searches = list(completion.searches)
    resumed = _open_search(request)
    if resumed is not None:
        # The results of the search that was left open come first.
        its_id, query = resumed
        found = next((search for search in searches if search.query == query), StubSearch(query))
        searches = [search for search in searches if search is not found]
        blocks.insert(0, _Block(_results(found, its_id)))
    if completion.pause:
        blocks += _texts(completion, request)
    for place, search in enumerate(searches, start=1):
        its_id = f"srvtoolu_stub_{request.number}_{place}"
        blocks.append(_call("server_tool_use", its_id, StubToolCall("web_search", {"query": search.query})))
        if not completion.pause or place < len(searches):
            blocks.append(_Block(_results(search, its_id)))
    if not completion.pause:
        blocks += _texts(completion, request)
    for place, call in enumerate(completion.tool_calls, start=1):
        blocks.append(_call("tool_use", call.id_for(request, place, "toolu_stub"), call))
    return blocks


def _thought(completion: Completion, request: StubRequest) -> Iterator[_Block]:
    state = completion.state_for(request)
    if completion.reasoning is not None:
        thinking: JsonObject = {"type": "thinking", "thinking": completion.reasoning, "signature": state}
        yield _Block(thinking, split_text(completion.reasoning))
    elif state:
        yield _Block({"type": "redacted_thinking", "data": state})


def _call(kind: str, its_id: str, call: StubToolCall) -> _Block:
    made: JsonObject = {"type": kind, "id": its_id, "name": call.name, "input": call.arguments_object()}
    return _Block(made, ("", *text_halves(call.arguments_text())))


def _results(search: StubSearch, its_id: str) -> JsonObject:
    content: object = [
        {
            "type": "web_search_result",
            "title": page.title,
            "url": page.url,
            "encrypted_content": sealed("page", its_id, place, page.snippet),
            "page_age": page.page_age,
        }
        for place, page in enumerate(search.results)
    ]
    if search.error is not None:
        content = {"type": "web_search_tool_result_error", "error_code": search.error}
    return {"type": "web_search_tool_result", "tool_use_id": its_id, "content": content}


def _texts(completion: Completion, request: StubRequest) -> Iterator[_Block]:
    """Give the text in blocks: a cited stretch is a block of its own, which carries the citations that end in it."""
    size = len(completion.text)
    placed = [(one, span or (0, size)) for one, span in completion.placed()]
    cuts = sorted({place for _, span in placed for place in span} - {0, size})
    at = 0
    for pieces in cut_pieces(completion.pieces, cuts):
        text = "".join(pieces)
        block: JsonObject = {"type": "text", "text": text}
        cited = [_citation(one, request) for one, span in placed if at < span[1] <= at + len(text)]
        if cited:
            block["citations"] = cited
        if text:
            yield _Block(block, tuple(pieces))
        at += len(text)


def _citation(one: StubCitation, request: StubRequest) -> JsonObject:
    return {
        "type": "web_search_result_location",
        "cited_text": one.excerpt,
        "url": one.url,
        "title": one.title,
        "encrypted_index": sealed("cited", request.number, one.url, one.excerpt),
    }


def _usage(completion: Completion, request: StubRequest) -> JsonObject | None:
    if isinstance(completion.usage, Mapping):
        return dict(completion.usage)
    counts = completion.counts(request)
    if counts is None:
        return None
    finished = len(completion.searches) - completion.pause
    return known(
        {
            "input_tokens": counts.input_tokens,
            "cache_creation_input_tokens": counts.cache_write_tokens,
            "cache_read_input_tokens": counts.cache_read_tokens,
            "output_tokens": counts.output_tokens,
            "output_tokens_details": known({"thinking_tokens": counts.reasoning_tokens}),
            "server_tool_use": {"web_search_requests": finished} if finished > 0 else {},
        }
    )


def _events(completion: Completion, request: StubRequest) -> Iterator[JsonObject]:
    usage = _usage(completion, request)
    head = _message(request, [])
    if completion.usage != "omitted":
        # What is generated is not known yet; a first token is.
        head["usage"] = {**usage, "output_tokens": 1} if usage and "output_tokens" in usage else usage
    yield {"type": "message_start", "message": head}
    yield {"type": "ping"}
    blocks = _blocks(completion, request)
    for index, block in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block.whole)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if completion.error is None or index < len(blocks) - 1:
            yield {"type": "content_block_stop", "index": index}
    if completion.error is not None:
        yield failure(completion.error)
        return
    end: JsonObject = {"type": "message_delta", "delta": _ending(completion, request)}
    if completion.usage != "omitted":
        end["usage"] = usage
    yield end
    yield {"type": "message_stop"}


def _begun(block: JsonObject) -> JsonObject:
    """Give a block as a stream begins it; results and redacted thought come whole."""
    empty: JsonObject = {"text": "", "citations": [], "thinking": "", "signature": "", "input": {}}
    return {name: empty.get(name, value) for name, value in block.items()}


def _deltas(block: _Block) -> Iterator[JsonObject]:
    kind = block.whole["type"]
    if kind == "text":
        citations = block.whole.get("citations")
        for one in citations if isinstance(citations, list) else ():
            yield {"type": "citations_delta", "citation": one}
        for piece in block.pieces:
            yield {"type": "text_delta", "text": piece}
    elif kind == "thinking":
        for piece in block.pieces:
            yield {"type": "thinking_delta", "thinking": piece}
        if block.whole["signature"]:
            yield {"type": "signature_delta", "signature": block.whole["signature"]}
    else:
        for piece in block.pieces:
            yield {"type": "input_json_delta", "partial_json": piece}
