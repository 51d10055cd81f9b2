"""The wire language of OpenAI's Chat Completions, which most servers and gateways speak in one accent or another.

What the accents have in common is taken as it is meant; where a server leaves out, repeats or misspells something
that others were seen to do as well, it is understood; what cannot be understood and bears content fails the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs
from attrs import frozen
from msgspec import ValidationError

from furcate.dialects._failures import (
    UNREADABLE,
    error_in,
    malformed,
    no_json,
    read_plain,
    response_failure,
    stream_failure,
)
from furcate.dialects._sse_stream import SseStream, decode_body
from furcate.dialects.openai_chat._answer import ChatAnswer
from furcate.dialects.openai_chat._encode import encode_call
from furcate.dialects.openai_chat._wire import read_chunk
from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._stream import StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, Failure, ModelCall, ResponseHead, UnknownContent, WireRequest

# llama.cpp's server turns a schema into a grammar and says so in these words (HTTP 400) where it cannot.
_SCHEMA_REFUSED = re.compile(r"failed to parse grammar|JSON schema error")


@frozen
class OpenAIChat:
    """Speak ``openai-chat``."""

    @property
    def name(self) -> str:
        """The name that configurations use."""
        return "openai-chat"

    @property
    def default_base_url(self) -> str:
        """Where requests go when a backend names no address."""
        return "https://api.openai.com/v1"

    def encode(self, call: ModelCall) -> WireRequest:
        """Encode a call as a POST to ``/chat/completions``.

        Of earlier answers, the reasoning that its own server wants back goes with them; provider-run work does not.
        An assistant message that has nothing else is left out.

        Raises:
            RequestError: a text holds half a character, or tools and tool choice do not fit together.
            UnsupportedError: a medium that the dialect does not carry, provider-run work with a native form, or
                tools where the server has none.
            PayloadError: reasoning state of a format that is not known here, or damaged.
        """
        return encode_call(call)

    def auth_headers(self, key: str) -> tuple[tuple[str, str], ...]:
        """Give the header that carries a credential."""
        return (("authorization", f"Bearer {key}"),)

    def decoder(
        self,
        origin: Origin,
        unknown_content: UnknownContent = "fail",
        *,
        open_activities: Iterable[HostedActivity] = (),
    ) -> SseStream:
        """Begin to decode a streamed answer.

        Args:
            origin: goes onto opaque reasoning state, and its provider onto payloads.
            unknown_content: what becomes of content of an unknown kind.
            open_activities: passed over: what a server of this dialect ran, it tells in one answer.
        """
        return SseStream(
            ChatAnswer(origin, unknown_content=unknown_content), lambda body: _whole(body, origin, unknown_content)
        )

    def decode_whole(
        self,
        body: bytes,
        origin: Origin,
        unknown_content: UnknownContent = "fail",
        *,
        open_activities: Iterable[HostedActivity] = (),
    ) -> list[StreamEvent]:
        """Decode an answer that came in one piece.

        A server that streams without being asked to is understood too.

        Args:
            body: the whole body.
            origin: as for `decoder`.
            unknown_content: as for `decoder`.
            open_activities: as for `decoder`.

        Raises:
            AttemptFailed: the body is no answer of this dialect.
        """
        return decode_body(
            body,
            lambda: ChatAnswer(origin, unknown_content=unknown_content),
            lambda whole: _whole(whole, origin, unknown_content),
        )

    def decode_error(self, head: ResponseHead, body: bytes) -> Failure:
        """Say what a response with an HTTP status other than success means.

        A schema that the server's grammar cannot hold has the reason ``schema_refused``: the call may go out without.
        """
        failure = response_failure(head, body)
        if head.status == 400 and _SCHEMA_REFUSED.search(failure.message):
            return attrs.evolve(failure, reason="schema_refused")
        return failure


def _whole(body: bytes, origin: Origin, unknown_content: UnknownContent) -> list[StreamEvent]:
    try:
        chunk = read_chunk(body)
    except ValidationError as error:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        raise AttemptFailed(malformed("the server's JSON answer has another shape than openai-chat")) from error
    except UNREADABLE as error:
        raise no_json(body) from error
    answer = ChatAnswer(origin, unknown_content=unknown_content, whole=True)
    events = answer.take_chunk(chunk, body)
    if not answer.done and not chunk.choices:
        raise AttemptFailed(malformed("the server's JSON answer has no choices; is it an openai-chat server?"))
    return events + answer.end(marked=True)
