"""One attempt: send an encoded call, receive, decode, assemble, within the time limits of its phases."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from math import inf

import anyio
import anyio.lowlevel
import attrs
from attrs import field, frozen

from furcate.dialects import Assembler, Dialect, StreamDecoder
from furcate.orchestrator._tape import Tape
from furcate.primitives._errors import RequestError
from furcate.primitives._json import TooDeep
from furcate.primitives._message import Message
from furcate.primitives._observations import AttemptFinished, AttemptStarted, Purpose, RunStatus
from furcate.primitives._receipt import TransportReceipt
from furcate.primitives._resources import Backend, CredentialSource, TimeLimits
from furcate.primitives._result import Attempt
from furcate.primitives._stream import (
    Noticed,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    UsageReported,
)
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Address, AttemptFailed, Failure, ResponseHead, SecretHeaders, WireRequest
from furcate.transport import Call, ProviderCall, Quiet, ReplayedCall, Transport, Transported

_MOST_BODY_BYTES = 64 * 1024 * 1024
_MOST_ERROR_BYTES = 256 * 1024
_MOST_STREAM_BYTES = 256 * 1024 * 1024

NO_CONTENT = (ResponseStarted, UsageReported, Noticed, Stopped, StreamFailed)
"""The stream events that show nothing of an answer."""

_NOTHING_SAID = Message("assistant", ())


@frozen
class Credential:
    """Hold where a key comes from, and show nothing of it."""

    source: CredentialSource | None = field(default=None, repr=False)


class AttemptRun:
    """Make one attempt and keep what is known of it, however it ends.

    Attributes:
        assembler: the answer so far.
        message: the answer's message, once it is complete.
        failure: why it gave no completed answer, once that is known.
        content_shown: whether content was handed on.
        replayed: whether the answer was read from a record, and the provider not asked.
        started_s: the moment on the event loop's clock at which it was begun.
        request_id: the attempt's own identity: a repeated attempt is another request.
        at_hand: how many further events have arrived already, so that the next one comes without waiting.
    """

    def __init__(
        self,
        wire: WireRequest,
        call: ProviderCall,
        *,
        run_id: str,
        number: int,
        purpose: Purpose,
        waited_s: float,
        backend: Backend,
        dialect: Dialect,
    ) -> None:
        self._wire = wire
        self._call = call
        self._run_id = run_id
        self.request_id = request_id(run_id, number)
        self._number = number
        self._purpose = purpose
        self._waited_s = waited_s
        self._backend = backend
        self._dialect = dialect
        self._limits: TimeLimits = backend.limits
        self._decoder: StreamDecoder | None = None
        self._ended = False
        self._key: str | None = None
        self._streamed_bytes = 0
        # What anyio.current_time would look for again at each piece.
        self._now = anyio.lowlevel.current_token().backend_class.current_time
        self.started_s = self._now()
        self._first_event_s: float | None = None
        self._progress_s = self.started_s
        self._status: RunStatus = "cancelled"
        self.assembler = Assembler()
        self.message = _NOTHING_SAID
        self.failure: Failure | None = None
        self.content_shown = False
        self.replayed = False
        self.at_hand = 0

    def started(self) -> AttemptStarted:
        """Make the observation that the attempt begins."""
        return AttemptStarted(
            run_id=self._run_id,
            number=self._number,
            purpose=self._purpose,
            request_id=self.request_id,
            waited_s=self._waited_s,
        )

    async def events(
        self,
        transport: Transport,
        address: Callable[[], Awaitable[Address]],
        credential: Credential,
        *,
        tape: Tape,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Send the call and give what arrives, until the answer is complete.

        No cancel scope is open while an event is handed on, so the consumer may do so from any task, and its own time
        counts against no limit but `total_s`.

        Raises:
            AttemptFailed: the attempt gave no completed answer; `failure` holds the same.
        """
        try:
            async with await self._call_of(transport, address, credential, tape=tape) as call:
                self._progress_s = self._now()
                with anyio.CancelScope(deadline=self._deadline_s()) as scope:
                    head = await call.begin()
                if scope.cancelled_caught:
                    raise AttemptFailed(self._late())
                if head.status != 200:
                    raise AttemptFailed(await self._refusal(call, head))
                while (batch := await self._next_events(call)) is not None:
                    self.at_hand = len(batch)
                    for event in batch:
                        self._take(event)
                        yield event
                    if batch and not self._ended:
                        self._progress_s = self._now()
            if self.assembler.stop is None:
                raise AttemptFailed(_CUT_OFF)
            await tape.keep(None)
            self.message = self.assembler.message()
            self._status = "succeeded"
        except AttemptFailed as error:
            self._status = "failed"
            self.failure = error.failure
            self.at_hand = 0
            await tape.keep(error.failure)
            raise
        except Exception:
            self._status = "failed"
            raise

    async def _call_of(
        self,
        transport: Transport,
        address: Callable[[], Awaitable[Address]],
        credential: Credential,
        *,
        tape: Tape,
    ) -> Call:
        if tape.recorded is not None:
            self.replayed = True
            return ReplayedCall(tape.recorded)
        target = await address()
        headers = await self._auth(credential, target)
        return tape.through(
            transport.call(
                self._wire,
                target,
                headers,
                connect_s=self._limits.connect_s,
                retry_stale=self._backend.retry_stale_connection,
            )
        )

    async def _refusal(self, call: Call, head: ResponseHead) -> Failure:
        return self._without_key(self._dialect.decode_error(head, await self._body(call, _MOST_ERROR_BYTES)))

    async def _next_events(self, call: Call) -> list[StreamEvent] | None:
        """Give the events of the next bytes, or of the whole body at once; None after the last."""
        if self._ended:
            return None
        if self._wire.stream:
            data = await self._receive(call)
        else:
            data, self._ended = await self._body(call, _MOST_BODY_BYTES), True
        try:
            events = self._part(data) if self._wire.stream else self._whole(data)
        except (RecursionError, TooDeep) as error:
            raise AttemptFailed(_TOO_DEEP) from error
        if events and isinstance(events[-1], StreamFailed):
            # Nothing but the last one can be a failure.
            events[-1] = StreamFailed(self._without_key(events[-1].failure))
        return events

    def _whole(self, body: bytes) -> list[StreamEvent]:
        return self._dialect.decode_whole(
            body, self._call.origin, self._backend.unknown_content, open_activities=self._call.open_activities
        )

    def _part(self, data: bytes) -> list[StreamEvent]:
        self._streamed_bytes += len(data)
        if self._streamed_bytes > _MOST_STREAM_BYTES:
            raise AttemptFailed(_too_large(f"{_MOST_STREAM_BYTES:,} bytes"))
        if self._decoder is None:
            # Work that an earlier attempt or run has begun ends under what was noted at its start.
            self._decoder = self._dialect.decoder(
                self._call.origin, self._backend.unknown_content, open_activities=self._call.open_activities
            )
        events = self._decoder.feed(data) if data else self._decoder.finish()
        self._ended = not data or self._decoder.done
        return events

    def _take(self, event: StreamEvent) -> None:
        self.at_hand -= 1
        self.assembler.add(event)
        if type(event) is StreamFailed:
            raise AttemptFailed(event.failure)
        if not self.content_shown and not isinstance(event, NO_CONTENT):
            self.content_shown = True
            self._first_event_s = self._now() - self.started_s

    async def _body(self, call: Call, most_bytes: int) -> bytes:
        chunks, size = [], 0
        while not call.at_end and (chunk := await self._receive(call)):
            chunks.append(chunk)
            size += len(chunk)
            if size > most_bytes:
                raise AttemptFailed(_too_large(f"{most_bytes:,} bytes"))
            if not self._wire.stream and not call.at_end:
                self._progress_s = self._now()
        return b"".join(chunks)

    async def _receive(self, call: Call) -> bytes:
        try:
            return await call.receive(self._deadline_s())
        except Quiet:
            raise AttemptFailed(self._late()) from None

    def _deadline_s(self) -> float:
        """Give the moment at which waiting ends: no content for too long, or the attempt as a whole too long."""
        quiet_s = self._limits.first_event_s if self._first_event_s is None else self._limits.idle_s
        deadline = inf if quiet_s is None else self._progress_s + quiet_s
        if self._limits.total_s is not None:
            deadline = min(deadline, self.started_s + self._limits.total_s)
        return deadline

    def _late(self) -> Failure:
        """Say which time limit is over."""
        spent_s = self._now() - self.started_s
        if self._limits.total_s is not None and spent_s >= self._limits.total_s:
            reason, text = "total_timeout", f"no complete answer within total_s = {self._limits.total_s:g} s"
        elif self._first_event_s is None:
            reason, text = "first_event_timeout", f"no content within first_event_s = {self._limits.first_event_s:g} s"
        else:
            reason, text = "idle_timeout", f"the answer fell silent for idle_s = {self._limits.idle_s:g} s"
        return Failure(kind="timeout", reason=reason, message=text)

    async def _auth(self, credential: Credential, target: Address) -> SecretHeaders:
        # No local variable ever holds the key here: tools that show them with a traceback would show it.
        self._key = await _key_of(credential, target)
        if self._key is None:
            return SecretHeaders(self._backend.extra_headers)
        if not isinstance(self._key, str):
            raise RequestError(
                f"the credential of backend {self._backend.name!r} gave a {type(self._key).__name__}; give a str"
            )
        if not self._key or not self._key.isascii() or not self._key.isprintable() or self._key != self._key.strip():
            raise RequestError(
                f"the credential of backend {self._backend.name!r} is empty, has spaces around it, or characters "
                "that no HTTP header carries; give the bare key"
            )
        return SecretHeaders((*self._dialect.auth_headers(self._key), *self._backend.extra_headers))

    def _without_key(self, failure: Failure) -> Failure:
        # Some servers repeat the key that they refuse, and a message that is cut may end within it.
        message = failure.message
        for secret in (self._key, *(value for _, value in self._backend.extra_headers)):
            if secret is not None and len(secret) >= _SHORTEST_SECRET:
                message = _without(message, secret)
        return failure if message == failure.message else attrs.evolve(failure, message=message)

    @property
    def usage(self) -> Usage:
        """What the provider reported; a lower bound where the answer broke off."""
        reported = self.assembler.usage
        return reported if self._status == "succeeded" else reported.as_lower_bound()

    def outcome(self) -> Transported:
        """Make what the call's receipt says of the attempt."""
        stop = self.assembler.stop
        if self._status == "succeeded" and stop is not None:
            return self._call.transported(self.message, stop.reason, self.usage, response_id=self.assembler.response_id)
        return self._call.failed(self.failure or (_CANCELLED if self._status == "cancelled" else _BROKEN))

    def fail(self, failure: Failure) -> None:
        """Note that a completed answer is to count as failed."""
        self._status, self.failure = "failed", failure

    @property
    def partial(self) -> Message | None:
        """What had arrived of an answer that is not complete."""
        return self.assembler.partial()

    def record(self, receipt: TransportReceipt) -> Attempt:
        """Make the record of the attempt, as it stands, with its receipt."""
        stop = self.assembler.stop
        return Attempt(
            number=self._number,
            purpose=self._purpose,
            request_id=self.request_id,
            status=self._status,
            waited_s=self._waited_s,
            duration_s=self._now() - self.started_s,
            first_event_s=self._first_event_s,
            body_sha256=self._wire.body_sha256,
            usage=self.usage,
            stop_reason=stop.reason if stop is not None else None,
            response_id=self.assembler.response_id,
            model=self.assembler.model,
            failure=self.failure,
            receipt=receipt,
            payloads_dropped=self._call.payloads_dropped,
            replayed=self.replayed,
        )


def finished(run_id: str, record: Attempt) -> AttemptFinished:
    """Make the observation that an attempt has ended."""
    return AttemptFinished(
        run_id=run_id,
        number=record.number,
        purpose=record.purpose,
        request_id=record.request_id,
        status=record.status,
        duration_s=record.duration_s,
        first_event_s=record.first_event_s,
        body_sha256=record.body_sha256,
        usage=record.usage,
        stop_reason=record.stop_reason,
        failure_kind=record.failure.kind if record.failure is not None else None,
        failure_reason=record.failure.reason if record.failure is not None else None,
        response_id=record.response_id,
        model=record.model,
        receipt=record.receipt,
        replayed=record.replayed,
    )


_SHORTEST_SECRET = 8
"""A shorter value is no key; and taking every "a" out of a message would help nobody."""


def _without(message: str, secret: str) -> str:
    """Mask a secret in a message, and the beginning of one at its very end."""
    message = message.replace(secret, "[key]")
    bare = message.removesuffix("...")
    for size in range(len(secret) - 1, _SHORTEST_SECRET // 2, -1):
        if bare.endswith(secret[:size]):
            return bare[:-size] + "[key]..."
    return message


def _too_large(most: str) -> Failure:
    return Failure(kind="provider", reason="too_large", message=f"the answer exceeds {most}")


async def _key_of(credential: Credential, target: Address) -> str | None:
    if not callable(credential.source):
        return target.api_key if credential.source is None else credential.source
    made = credential.source()
    return await made if inspect.isawaitable(made) else made


def request_id(run_id: str, number: int) -> str:
    """Name the attempt of a run: a repeated attempt is another request."""
    return f"{run_id}-{number}"


_CANCELLED = Failure(kind="unavailable", reason="cancelled", message="cancelled before the answer was complete")
_BROKEN = Failure(kind="provider", reason="broken", message="an error of this program ended the attempt")
_TOO_DEEP = Failure(kind="provider", reason="malformed", message="the answer holds JSON that nests without reason")
_CUT_OFF = Failure(
    kind="provider", reason="cut_off", message="the answer ended without saying that it is complete", status=200
)
