"""What every dialect offers; the engine and the transport know no more than this of any wire language.

A dialect does no input or output. It turns a call into bytes and bytes into stream events, so that whatever it
decides can be tried without a network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from furcate.primitives._content import HostedActivity, Origin
from furcate.primitives._stream import StreamEvent
from furcate.primitives._wire import Failure, ModelCall, ResponseHead, UnknownContent, WireRequest


class StreamDecoder(Protocol):
    """Decode one streamed answer; the events are the same however the bytes were cut."""

    @property
    def done(self) -> bool:
        """Whether the answer has ended, well or badly, so that nothing more needs to be read."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and give the events that they complete."""

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body and give what is left; a cut-off answer ends with a ``StreamFailed``."""


class Dialect(Protocol):
    """Speak one wire language."""

    @property
    def name(self) -> str:
        """The name that configurations use."""

    @property
    def default_base_url(self) -> str:
        """Where requests go when a backend names no address."""

    def encode(self, call: ModelCall) -> WireRequest:
        """Encode a call.

        Raises:
            RequestError: the call is wrong in itself.
            UnsupportedError: the dialect, or the server as described by the switches, cannot carry it.
        """

    def auth_headers(self, key: str) -> tuple[tuple[str, str], ...]:
        """Give the headers that carry a credential."""

    def decoder(
        self,
        origin: Origin,
        unknown_content: UnknownContent = "fail",
        *,
        open_activities: Iterable[HostedActivity] = (),
    ) -> StreamDecoder:
        """Begin to decode a streamed answer.

        Args:
            origin: goes onto opaque state, and its provider onto payloads.
            unknown_content: what becomes of content of an unknown kind.
            open_activities: the starts of work that earlier answers began, and that this one may end.
        """

    def decode_whole(
        self,
        body: bytes,
        origin: Origin,
        unknown_content: UnknownContent = "fail",
        *,
        open_activities: Iterable[HostedActivity] = (),
    ) -> list[StreamEvent]:
        """Decode an answer that came in one piece into the events that a stream would have given.

        Raises:
            AttemptFailed: the body is no answer of this dialect, such as an HTML page or JSON that breaks off.
        """

    def decode_error(self, head: ResponseHead, body: bytes) -> Failure:
        """Say what a response with an HTTP status other than success means."""
