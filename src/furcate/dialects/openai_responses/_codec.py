"""The wire language of OpenAI's Responses, stateless: nothing is kept at the provider, everything is sent again.

An answer is a list of items: messages, reasoning, calls for the application, and work that the provider ran itself.
What one server or another leaves out, repeats or orders differently is taken as it is meant; what bears content and is
not understood fails the answer, unless the backend wants it carried.
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
from furcate.dialects.openai_responses._answer import ResponsesAnswer
from furcate.dialects.openai_responses._encode import encode_call
from furcate.dialects.openai_responses._wire import read_members, readable
from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._stream import StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, Failure, ModelCall, ResponseHead, UnknownContent, WireRequest


@frozen
class OpenAIResponses:
    """Speak ``openai-responses``."""

    @property
    def name(self) -> str:
        """The name that configurations use."""
        return "openai-responses"

    @property
    def default_base_url(self) -> str:
        """Where requests go when a backend names no address."""
        return "https://api.openai.com/v1"

    def encode(self, call: ModelCall) -> WireRequest:
        """Encode a call as a POST to ``/responses`` that keeps nothing at the provider.

        Raises:
            RequestError: a text holds half a character, or tools and tool choice do not fit together.
            UnsupportedError: a medium or a setting that the dialect does not carry.
            PayloadError: what this provider said earlier cannot be read any more.
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
            origin: goes onto opaque state, and its provider onto payloads.
            unknown_content: what becomes of content of an unknown kind.
            open_activities: the starts of work that earlier answers began, and that this one may end.
        """
        begin = partial(ResponsesAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
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

        Raises:
            AttemptFailed: the body is no answer of this dialect.
        """
        begin = partial(ResponsesAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
        return decode_body(body, begin, lambda whole: _whole(whole, begin()))

    def decode_error(self, head: ResponseHead, body: bytes) -> Failure:
        """Say what a response with an HTTP status other than success means."""
        return response_failure(head, body)


def _whole(body: bytes, answer: ResponsesAnswer) -> list[StreamEvent]:
    try:
        body = readable(body)
        response = read_members(body)
    except ValidationError as error:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        raise AttemptFailed(malformed("the server's JSON answer has another shape than openai-responses")) from error
    except UNREADABLE as error:
        raise no_json(body) from error
    if "output" not in response:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        raise AttemptFailed(malformed("the server's JSON answer has no output; is it an openai-responses server?"))
    return answer.take_response(body, response)
