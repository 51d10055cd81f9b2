"""Answers as an openai-responses server writes them: a response object, or the events that build it up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

import attrs

from furcate.testing._completion import Completion, StreamError, StubSearch, known, prompt_tokens, total
from furcate.testing._framing import CREATED, JsonObject, sealed, split_text, sse, text_halves

if TYPE_CHECKING:
    from furcate.testing._request import StubRequest

# Why a response is incomplete; a complete one says nothing.
WORDS: Mapping[str, str] = {
    "end_turn": "",
    "tool_use": "",
    "stop_sequence": "",
    "max_output_tokens": "max_output_tokens",
    "context_window": "context_length_exceeded",
    "refusal": "content_filter",
}
SOURCES = "web_search_call.action.sources"
SEALED = "reasoning.encrypted_content"

_Event = tuple[str, JsonObject]


def whole(completion: Completion, request: StubRequest) -> JsonObject:
    """Render an answer as one response object."""
    if completion.error is not None:
        return _response(completion, request, status="failed", error=completion.error)
    return _response(completion, request, status=_status(completion), output=_output(completion, request))


def events(completion: Completion, request: StubRequest) -> tuple[bytes, ...]:
    """Render an answer as a stream of events, numbered and named by their types."""
    told: list[bytes] = []
    for number, (name, members) in enumerate(_events(completion, request)):
        told.append(sse({"type": name, "sequence_number": number, **members}, event=name))
    return tuple(told)


def failure(error: StreamError) -> JsonObject:
    """Render an error object."""
    return {"error": {"message": error.message, "type": error.kind, "param": None, "code": error.code}}


def _status(completion: Completion) -> str:
    return "incomplete" if completion.stop(WORDS) else "completed"


def _response(
    completion: Completion,
    request: StubRequest,
    *,
    status: str,
    output: list[JsonObject] | None = None,
    error: StreamError | None = None,
) -> JsonObject:
    asked = request.body
    over = status in ("completed", "incomplete")
    response: JsonObject = {
        "id": f"resp_stub_{request.number}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": {"code": error.code or error.kind, "message": error.message} if error is not None else None,
        "incomplete_details": {"reason": completion.stop(WORDS)} if status == "incomplete" else None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "model": request.model,
        "output": output or [],
        "parallel_tool_calls": True,
        "previous_response_id": asked.get("previous_response_id"),
        "reasoning": {"effort": None, "summary": None, **(asked.get("reasoning") or {})},
        "store": asked.get("store", True),
        "temperature": asked.get("temperature", 1.0),
        "text": {"format": {"type": "text"}, **(asked.get("text") or {})},
        "tool_choice": asked.get("tool_choice", "auto"),
        "tools": asked.get("tools", []),
        "top_p": asked.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": _usage(completion, request) if over else None,
        "user": None,
        "metadata": {},
    }
    if completion.usage == "omitted":
        del response["usage"]
    return response


def _output(completion: Completion, request: StubRequest) -> list[JsonObject]:
    output: list[JsonObject] = []

    def add(kind: str, prefix: str, **members: object) -> None:
        output.append({"id": f"{prefix}_stub_{request.number}_{len(output)}", "type": kind, **members})

    state = completion.state_for(request)
    if completion.reasoning is not None or state:
        summary = [{"type": "summary_text", "text": completion.reasoning}] if completion.reasoning else []
        # As with the stream's usage in openai-chat: it comes where it is asked for, or where the script insists.
        sent = state if completion.reasoning_state is not None or request.includes(SEALED) else ""
        add("reasoning", "rs", summary=summary, **({"encrypted_content": sent} if sent else {}))
    for search in completion.searches:
        status = "failed" if search.error else "completed"
        add("web_search_call", "ws", status=status, action=_action(search, request))
    content = _content(completion)
    if content or not completion.tool_calls:
        add("message", "msg", status=_status(completion), role="assistant", content=content or [_text_part(completion)])
    for place, call in enumerate(completion.tool_calls, start=1):
        call_id = call.id_for(request, place, "call")
        arguments = call.arguments_text()
        add("function_call", "fc", status="completed", call_id=call_id, name=call.name, arguments=arguments)
    return output


def _action(search: StubSearch, request: StubRequest) -> JsonObject:
    action: JsonObject = {"type": "search", "query": search.query, "queries": [search.query]}
    if request.includes(SOURCES):
        action["sources"] = [{"type": "url", "url": page.url} for page in search.results]
    return action


def _content(completion: Completion) -> list[JsonObject]:
    content: list[JsonObject] = []
    if completion.pieces:
        content.append(_text_part(completion))
    if completion.refusal is not None:
        content.append({"type": "refusal", "refusal": completion.refusal})
    return content


def _text_part(completion: Completion) -> JsonObject:
    return {
        "type": "output_text",
        "annotations": [annotation for annotation, _ in _annotations(completion)],
        "logprobs": [],
        "text": completion.text,
    }


def _annotations(completion: Completion) -> list[tuple[JsonObject, int]]:
    """Spell the citations, each with the length of text that must be there before it; xAI leaves out the indexes."""
    return [
        (
            {
                "type": "url_citation",
                **({"start_index": span[0], "end_index": span[1]} if span else {}),
                "title": one.title,
                "url": one.url,
            },
            span[1] if span else len(completion.text),
        )
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
            "input_tokens": prompt,
            "input_tokens_details": known(beside),
            "output_tokens": counts.output_tokens,
            "output_tokens_details": known({"reasoning_tokens": counts.reasoning_tokens}),
            "total_tokens": total(prompt, counts.output_tokens),
        }
    )


def _events(completion: Completion, request: StubRequest) -> Iterator[_Event]:
    for name in ("created", "in_progress"):
        yield f"response.{name}", {"response": _response(completion, request, status="in_progress")}
    output = _output(completion, request)
    for place, item in enumerate(output):
        open_end = completion.error is not None and item["type"] == "message"
        yield from _Item(completion, item, place).events(broken=open_end)
        if open_end:
            break
    if completion.error is not None:
        yield "error", failure(completion.error)
        yield "response.failed", {"response": _response(completion, request, status="failed", error=completion.error)}
        return
    status = _status(completion)
    yield f"response.{status}", {"response": _response(completion, request, status=status, output=output)}


@attrs.frozen
class _Item:
    """Tell one output item piece by piece."""

    completion: Completion
    item: JsonObject
    place: int

    def events(self, *, broken: bool) -> Iterator[_Event]:
        """Give its events; those of a broken item lack the end."""
        kind = self.item["type"]
        yield "response.output_item.added", {"output_index": self.place, "item": self._begun()}
        if kind == "message":
            yield from self._message(broken=broken)
        elif kind == "reasoning":
            yield from self._reasoning()
        elif kind == "web_search_call":
            for state in ("in_progress", "searching", "completed"):
                yield self._at(f"web_search_call.{state}")
        else:
            yield from self._call()
        if not broken:
            yield "response.output_item.done", {"output_index": self.place, "item": self.item}

    def _begun(self) -> JsonObject:
        begun = dict(self.item)
        if "status" in begun:
            begun["status"] = "in_progress"
        # The state that comes with the beginning is not the one that counts.
        if "encrypted_content" in begun:
            begun["encrypted_content"] = sealed("unfinished", self.item["id"])
        for name, empty in (("summary", []), ("content", []), ("arguments", ""), ("action", {"type": "search"})):
            if name in begun:
                begun[name] = empty
        return begun

    def _at(self, event: str, /, **members: object) -> _Event:
        return f"response.{event}", {"item_id": self.item["id"], "output_index": self.place, **members}

    def _reasoning(self) -> Iterator[_Event]:
        for part in cast("list[JsonObject]", self.item["summary"]):
            text = str(part["text"])
            yield self._at("reasoning_summary_part.added", summary_index=0, part={**part, "text": ""})
            for piece in split_text(text):
                yield self._at("reasoning_summary_text.delta", summary_index=0, delta=piece)
            yield self._at("reasoning_summary_text.done", summary_index=0, text=text)
            yield self._at("reasoning_summary_part.done", summary_index=0, part=part)

    def _call(self) -> Iterator[_Event]:
        arguments = str(self.item["arguments"])
        for piece in text_halves(arguments):
            yield self._at("function_call_arguments.delta", delta=piece)
        yield self._at("function_call_arguments.done", arguments=arguments, name=self.item["name"])

    def _message(self, *, broken: bool) -> Iterator[_Event]:
        for number, part in enumerate(cast("list[JsonObject]", self.item["content"])):
            refusal = part["type"] == "refusal"
            empty = {"refusal": ""} if refusal else {"text": "", "annotations": []}
            yield self._at("content_part.added", content_index=number, part={**part, **empty})
            yield from self._declined(number, part) if refusal else self._said(number)
            if broken:
                return
            if refusal:
                yield self._at("refusal.done", content_index=number, refusal=part["refusal"])
            else:
                yield self._at("output_text.done", content_index=number, text=part["text"], logprobs=[])
            yield self._at("content_part.done", content_index=number, part=part)

    def _declined(self, number: int, part: JsonObject) -> Iterator[_Event]:
        for piece in split_text(str(part["refusal"])):
            yield self._at("refusal.delta", content_index=number, delta=piece)

    def _said(self, number: int) -> Iterator[_Event]:
        waiting = list(enumerate(_annotations(self.completion)))
        length = 0
        for piece in self.completion.pieces:
            yield self._at("output_text.delta", content_index=number, delta=piece, logprobs=[])
            length += len(piece)
            while waiting and waiting[0][1][1] <= length:
                index, (annotation, _) = waiting.pop(0)
                yield self._at(
                    "output_text.annotation.added",
                    content_index=number,
                    annotation_index=index,
                    annotation=annotation,
                )
