"""The wire language of Anthropic's Messages, which some servers and gateways of others speak as well.

An answer is a list of content blocks. Each becomes one part or one transition of provider-run work, in its place; what
has to go back to the provider is kept as it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

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
from furcate.dialects._open_work import OpenWork
from furcate.dialects._sse_stream import SseStream, decode_body
from furcate.dialects.anthropic_messages._answer import MessagesAnswer
from furcate.dialects.anthropic_messages._encode import encode_call
from furcate.dialects.anthropic_messages._wire import DIALECT, WHOLES
from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._stream import StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, Failure, ModelCall, ResponseHead, UnknownContent, WireRequest


@frozen
class AnthropicMessages:
    """Speak ``anthropic-messages``."""

    @property
    def name(self) -> str:
        """The name that configurations use."""
        return DIALECT

    @property
    def default_base_url(self) -> str:
        """Where requests go when a backend names no address."""
        return "https://api.anthropic.com/v1"

    def encode(self, call: ModelCall) -> WireRequest:
        """Encode a call as a POST to ``/messages``.

        Thought without a signature and provider-run work without its native form are not sent; an assistant message
        that has nothing else is left out.

        Raises:
            RequestError: a text holds half a character, a message says nothing, or tools and tool choice do not fit.
            UnsupportedError: a setting, a medium or a late system message that the dialect does not carry.
            PayloadError: a native value of the call's own provider cannot be decoded.
        """
        return encode_call(call)

    def auth_headers(self, key: str) -> tuple[tuple[str, str], ...]:
        """Give the header that carries a credential."""
        return (("x-api-key", key),)

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
            open_activities: the starts of work that earlier answers began, and that this one may end.
        """
        begin = partial(MessagesAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
        return SseStream(begin(), lambda body: _whole(body, begin()))

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
        begin = partial(MessagesAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
        return decode_body(body, begin, lambda whole: _whole(whole, begin()))

    def decode_error(self, head: ResponseHead, body: bytes) -> Failure:
        """Say what a response with an HTTP status other than success means."""
        return response_failure(head, body)


def _whole(body: bytes, answer: MessagesAnswer) -> list[StreamEvent]:
    try:
        body.decode()
        whole = WHOLES.decode(body)
    except ValidationError as error:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        raise AttemptFailed(malformed(f"the server's JSON answer has another shape than {DIALECT}")) from error
    except (*UNREADABLE, UnicodeDecodeError) as error:
        raise no_json(body) from error
    if whole.content is None:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        raise AttemptFailed(malformed(f"the server's JSON answer has no content; is it an {DIALECT} server?"))
    return answer.take_whole(whole)
