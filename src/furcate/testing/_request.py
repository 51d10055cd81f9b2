"""What the stub provider remembers of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    def streaming(self) -> bool:
        """Tell whether the body asks for a stream of events."""
        return bool(self._field("stream"))

    @property
    def wants_usage(self) -> bool:
        """Tell whether the body asks for the usage chunk at the end of a stream."""
        options = self._field("stream_options")
        return isinstance(options, dict) and bool(options.get("include_usage"))

    @property
    def model(self) -> str:
        """Return the model that the body names, or ``stub`` where it names none."""
        model = self._field("model")
        return model if isinstance(model, str) else "stub"

    def words(self) -> int:
        """Count the words in the text of all messages; what the stub takes for input tokens."""
        messages = self._field("messages")
        if not isinstance(messages, list):
            return 0
        return sum(_words(message.get("content")) for message in messages if isinstance(message, dict))

    def _field(self, name: str) -> object:
        return self.body.get(name) if isinstance(self.body, dict) else None


def _words(content: object) -> int:
    if isinstance(content, str):
        return len(content.split())
    if isinstance(content, list):
        return sum(_words(part.get("text")) for part in content if isinstance(part, dict))
    return 0
