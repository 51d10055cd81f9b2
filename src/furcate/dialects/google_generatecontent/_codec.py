"""The wire language of Google's GenerateContent, which Gemini's developer API and Vertex AI speak."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

import attrs
import msgspec
from attrs import frozen

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
from furcate.dialects.google_generatecontent._answer import GoogleAnswer, is_answer, read_chunks
from furcate.dialects.google_generatecontent._encode import encode_call
from furcate.dialects.google_generatecontent._wire import read_members
from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._json import Plain
from furcate.primitives._stream import StreamEvent, StreamFailed
from furcate.primitives._wire import AttemptFailed, Failure, ModelCall, ResponseHead, UnknownContent, WireRequest

_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


@frozen
class GoogleGenerateContent:
    """Speak ``google-generatecontent``."""

    @property
    def name(self) -> str:
        """The name that configurations use."""
        return "google-generatecontent"

    @property
    def default_base_url(self) -> str:
        """Where requests go when a backend names no address."""
        return "https://generativelanguage.googleapis.com/v1beta"

    def encode(self, call: ModelCall) -> WireRequest:
        """Encode a call as a POST to the model's ``streamGenerateContent`` or ``generateContent``.

        Thought signatures and parts of provider-run work go back where they were; thoughts without a signature,
        searches that were only told of, and citations do not.

        Raises:
            RequestError: a text holds half a character, tools and tool choice do not fit together, a result answers
                no call, or there is nothing but system messages.
            PayloadError: reasoning state or provider-run work of a format that is not known here.
            UnsupportedError: a late system message, a medium or a call that the dialect does not carry.
        """
        return encode_call(call)

    def auth_headers(self, key: str) -> tuple[tuple[str, str], ...]:
        """Give the header that carries a credential: an API key, or an OAuth access token as Vertex AI takes it."""
        if key.startswith("ya29."):
            return (("authorization", f"Bearer {key}"),)
        return (("x-goog-api-key", key),)

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
        begin = partial(GoogleAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
        return SseStream(begin(), lambda body: _whole(body, begin()))

    def decode_whole(
        self,
        body: bytes,
        origin: Origin,
        unknown_content: UnknownContent = "fail",
        *,
        open_activities: Iterable[HostedActivity] = (),
    ) -> list[StreamEvent]:
        """Decode an answer that came in one piece, or as a list of chunks.

        A server that streams without being asked to is understood too.

        Raises:
            AttemptFailed: the body is no answer of this dialect.
        """
        begin = partial(GoogleAnswer, origin, unknown_content, OpenWork(tuple(open_activities)))
        return decode_body(body, begin, lambda whole: _whole(whole, begin()))

    def decode_error(self, head: ResponseHead, body: bytes) -> Failure:
        """Say what a response with an HTTP status other than success means.

        The wait that the provider asks for stands in the body. A key that is not valid comes with status 400, so the
        kind is ``invalid_request``; the reason is ``authentication``.
        """
        failure = response_failure(head, body)
        details = _details(read_plain(body))
        if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
            return attrs.evolve(failure, reason="authentication")
        if failure.retryable and failure.wait_s is None:
            delays = [delay for detail in details if isinstance(delay := detail.get("retryDelay"), str)]
            matches = [match for delay in delays if (match := _DELAY.fullmatch(delay)) is not None]
            if matches:
                return attrs.evolve(failure, wait_s=max(float(match[1]) for match in matches))
        return failure


def _whole(body: bytes, answer: GoogleAnswer) -> list[StreamEvent]:
    try:
        chunks = read_chunks(body)
        answers = bool(chunks) and is_answer(read_members(chunks[0]))
    except msgspec.ValidationError as error:
        raise AttemptFailed(
            malformed("the server's JSON answer has another shape than google-generatecontent")
        ) from error
    except UNREADABLE as error:
        raise no_json(body) from error
    if not answers:
        found = error_in(read_plain(body))
        if found:
            return [StreamFailed(stream_failure(found))]
        message = "the server's JSON answer has no candidates; is it a google-generatecontent server?"
        raise AttemptFailed(malformed(message))
    events: list[StreamEvent] = []
    for chunk in chunks:
        events.extend(answer.take(bytes(chunk)))
    return events + answer.end(whole=True)


def _details(plain: Plain) -> list[dict[str, Plain]]:
    if isinstance(plain, list):
        plain = plain[0] if plain else None
    error = plain.get("error") if isinstance(plain, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    return [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
