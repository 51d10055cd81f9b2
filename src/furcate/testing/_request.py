"""What the stub provider remembers of a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

StubDialect = Literal["openai-responses", "openai-chat", "anthropic-messages", "google-generatecontent"]

_ENDS: tuple[tuple[str, StubDialect], ...] = (
    ("/chat/completions", "openai-chat"),
    ("/responses", "openai-responses"),
    ("/messages", "anthropic-messages"),
)
_GOOGLE = re.compile(r"/(?:models|tunedModels|endpoints)/(?P<model>[^/]+):(?P<method>g|streamG)enerateContent")


@attrs.frozen(kw_only=True)
class StubRequest:
    """Hold one request as it reached the stub.

    Attributes:
        number: its place among all requests of this stub, counted from 1.
        connection: the number of the TCP connection that brought it, counted from 1; equal numbers mean
            that a connection was reused.
        method: the HTTP method, upper case.
        path: the request target as sent, query included, such as ``/v1/chat/completions``.
        headers: header values by lower-case name; repeated ones are joined with ``", "``.
        body: the parsed JSON body, or None where there is none or it is no JSON.
        raw: the body's bytes as sent, without transfer encoding.
        at: when it was fully read, in seconds on the clock of the stub's event loop.
    """

    number: int
    connection: int
    method: str
    path: str
    headers: Mapping[str, str]
    # JSON of any shape: tests index into it, and a precise type would make each of them cast.
    body: Any
    raw: bytes
    at: float

    @property
    def dialect(self) -> StubDialect | None:
        """The wire language that the path belongs to; None for a path of none."""
        path = self.path.partition("?")[0]
        known = next((dialect for end, dialect in _ENDS if path.endswith(end)), None)
        return known or ("google-generatecontent" if self._google() else None)

    @property
    def streaming(self) -> bool:
        """Tell whether a stream of events is asked for."""
        google = self._google()
        return google["method"] == "streamG" if google else bool(self._field("stream"))

    @property
    def wants_usage(self) -> bool:
        """Tell whether the body asks for the usage chunk at the end of an openai-chat stream."""
        options = self._field("stream_options")
        return isinstance(options, dict) and bool(options.get("include_usage"))

    @property
    def model(self) -> str:
        """Return the model that the body or the path names, or ``stub`` where neither does."""
        google = self._google()
        if google:
            return unquote(google["model"])
        model = self._field("model")
        return model if isinstance(model, str) else "stub"

    def words(self) -> int:
        """Count the words in the text of all messages and instructions; what the stub takes for input tokens."""
        conversation = [self._field(name) for name in ("messages", "input", "contents")]
        listed = [item for items in conversation if isinstance(items, list) for item in items if isinstance(item, dict)]
        plain = [items for items in conversation if isinstance(items, str)]
        instructions = [self._field(name) for name in ("system", "instructions", "systemInstruction")]
        return sum(map(_words, [*listed, *plain, *instructions]))

    def includes(self, name: str) -> bool:
        """Tell whether an openai-responses request includes an optional part of the answer, by its name there."""
        wanted = self._field("include")
        return isinstance(wanted, list) and name in wanted

    def _google(self) -> re.Match[str] | None:
        return _GOOGLE.search(self.path.partition("?")[0])

    def _field(self, name: str) -> object:
        return self.body.get(name) if isinstance(self.body, dict) else None


def _words(content: object) -> int:
    if isinstance(content, str):
        return len(content.split())
    if isinstance(content, list):
        return sum(_words(part) for part in content if isinstance(part, dict))
    if isinstance(content, dict):
        return sum(_words(content.get(key)) for key in ("text", "content", "parts"))
    return 0
