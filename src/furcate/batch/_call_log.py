"""One item's answered calls: had again in their order, and kept in the job's journal as they come."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable
from uuid import uuid4

import msgspec
from attrs import evolve

from furcate.batch._rows import KeptCall
from furcate.primitives._calls import RecordedCall
from furcate.primitives._errors import JournalError
from furcate.primitives._wire import Failure, FailureKind


class _StoredFailure(msgspec.Struct, array_like=True, frozen=True):
    kind: FailureKind
    reason: str
    message: str
    retryable: bool
    sent: bool
    wait_s: float | None
    status: int | None


class _StoredCall(msgspec.Struct, array_like=True, frozen=True):
    """How an answered call stands in a journal: MessagePack, by position."""

    body_sha256: str
    status: int | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    failure: _StoredFailure | None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_StoredCall)


class ItemCalls:
    """Keep the calls of one item, and give those that an earlier start of it has brought.

    Arguments:
        kept: the calls of the earlier start, in the order in which they were answered.
        keep: writes one more; returns once it is durable.
        path: the journal.

    Raises:
        JournalError: a kept call cannot be read.
    """

    def __init__(self, kept: Iterable[KeptCall], keep: Callable[[KeptCall], Awaitable[None]], *, path: str) -> None:
        self._keep = keep
        self._keys: dict[str, bytes] = {}
        self._waiting: dict[bytes, deque[str]] = defaultdict(deque)
        self._calls: dict[tuple[str, int], RecordedCall] = {}
        for call in kept:
            if call.run_id not in self._keys:
                self._keys[call.run_id] = call.key
                self._waiting[call.key].append(call.run_id)
            self._calls[call.run_id, call.number] = _read(call, path)

    def begin(self, key: bytes) -> str:
        """Give the id of a run that begins with the request of this digest."""
        waiting = self._waiting.get(key)
        if waiting:
            return waiting.popleft()
        run_id = uuid4().hex
        self._keys[run_id] = key
        return run_id

    def failed(self) -> tuple[tuple[str, int], ...]:
        """Give run and number of the failed attempts that runs ended in: done again, those are made anew."""
        found = []
        for run_id in self._keys:
            number = max((number for run, number in self._calls if run == run_id), default=0)
            while (call := self._calls.get((run_id, number))) is not None and call.failure is not None:
                found.append((run_id, number))
                number -= 1
        return tuple(found)

    def recall(self, run_id: str, number: int) -> RecordedCall | None:
        """Give how the run's attempt of that number was answered before; None where it was not."""
        return self._calls.get((run_id, number))

    async def keep(self, run_id: str, number: int, call: RecordedCall) -> None:
        """Keep how an attempt was answered; durable once this returns."""
        self._calls[run_id, number] = evolve(call, body=b"", headers=())
        failure = call.failure
        stored = _StoredCall(
            call.body_sha256,
            call.status,
            call.headers,
            call.body,
            None
            if failure is None
            else _StoredFailure(
                failure.kind,
                failure.reason,
                failure.message,
                failure.retryable,
                failure.sent,
                failure.wait_s,
                failure.status,
            ),
        )
        await self._keep(KeptCall(run_id=run_id, number=number, key=self._keys[run_id], data=_ENCODER.encode(stored)))


def _read(call: KeptCall, path: str) -> RecordedCall:
    try:
        stored = _DECODER.decode(call.data)
    except (msgspec.DecodeError, TypeError) as error:
        raise JournalError(
            f"a kept call of run {call.run_id} cannot be read ({error}); start again with replay switched off",
            "damaged",
            path=path,
        ) from error
    failure = stored.failure
    return RecordedCall(
        body_sha256=stored.body_sha256,
        status=stored.status,
        headers=stored.headers,
        body=stored.body,
        failure=None
        if failure is None
        else Failure(
            kind=failure.kind,
            reason=failure.reason,
            message=failure.message,
            retryable=failure.retryable,
            sent=failure.sent,
            wait_s=failure.wait_s,
            status=failure.status,
        ),
    )
