"""From an answer in neutral words to a body in the wire language of the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from furcate.testing import _render_chat, _render_google, _render_messages, _render_responses
from furcate.testing._completion import Completion, StreamError
from furcate.testing._framing import EVENT_STREAM, JSON, JsonObject, Rendered, whole_json

if TYPE_CHECKING:
    from furcate.testing._request import StubDialect, StubRequest


@attrs.frozen
class _Renderer:
    whole: Callable[[Completion, StubRequest], JsonObject]
    events: Callable[[Completion, StubRequest], tuple[bytes, ...]]


_CHAT = _Renderer(_render_chat.whole, _render_chat.events)
_RENDERERS: Mapping[StubDialect | None, _Renderer] = {
    "openai-chat": _CHAT,
    "openai-responses": _Renderer(_render_responses.whole, _render_responses.events),
    "anthropic-messages": _Renderer(_render_messages.whole, _render_messages.events),
    "google-generatecontent": _Renderer(_render_google.whole, _render_google.events),
}

# How anthropic-messages names what went wrong.
_KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
GENERAL = "stub_error"


@attrs.frozen(kw_only=True)
class HttpError:
    """Hold the error of a response with an HTTP status other than success."""

    message: str
    code: str | int | None
    kind: str

    def render(self, request: StubRequest, status: int, wait: str | None) -> Rendered:
        """Render the error object; `wait` is the wait hint of the headers, in seconds."""
        body: JsonObject
        if request.dialect == "google-generatecontent":
            body = _google_error(self, status, wait)
        elif request.dialect == "anthropic-messages":
            kind = _KINDS.get(status, "api_error") if self.kind == GENERAL else self.kind
            inner = {"type": kind, "message": self.message}
            body = {"type": "error", "error": inner, "request_id": f"req_stub_{request.number}"}
        else:
            body = _render_chat.failure(StreamError(message=self.message, code=self.code, kind=self.kind))
        return Rendered(JSON, (json.dumps(body).encode(),), sized=True)


def render(completion: Completion, request: StubRequest) -> Rendered:
    """Render an answer: as a stream of events where the request asks for one, as JSON otherwise.

    Raises:
        ValueError: the dialect of the request has no such answer.
    """
    if completion.pause and request.dialect != "anthropic-messages":
        raise ValueError(f"pause=True is for anthropic-messages; {request.dialect} has no answer that pauses")
    renderer = _RENDERERS.get(request.dialect, _CHAT)
    if not request.streaming:
        return whole_json(renderer.whole(completion, request))
    if request.dialect == "google-generatecontent" and "alt=sse" not in request.path.partition("?")[2].split("&"):
        return _listed(completion, request)
    return Rendered(EVENT_STREAM, renderer.events(completion, request), sized=False)


def said(completion: Completion, request: StubRequest) -> JsonObject:
    """Render an answer as one JSON value, however it goes out."""
    return _RENDERERS.get(request.dialect, _CHAT).whole(completion, request)


def _listed(completion: Completion, request: StubRequest) -> Rendered:
    """Render Google's other stream: one JSON list that grows."""
    chunks = [json.dumps(chunk).encode() for chunk in _render_google.chunks(completion, request)]
    if completion.error is not None:
        chunks.append(json.dumps(_render_google.failure(completion.error)).encode())
    pieces = [(b",\r\n" if place else b"[") + chunk for place, chunk in enumerate(chunks)]
    return Rendered(JSON, (*pieces, b"]\n"), sized=False)


def _google_error(error: HttpError, status: int, wait: str | None) -> JsonObject:
    details: list[JsonObject] = [_render_google.reason(error.code)] if isinstance(error.code, str) else []
    if wait is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"})
    word = error.kind if error.kind.isupper() else _render_google.STATUSES.get(status, "UNKNOWN")
    inner: JsonObject = {"code": status, "message": error.message, "status": word}
    return {"error": {**inner, "details": details} if details else inner}
