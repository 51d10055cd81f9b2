"""An answer that is kept as it arrives, and one that is read from what was kept."""

from __future__ import annotations

from math import inf
from types import TracebackType

from furcate.primitives._calls import RecordedCall
from furcate.primitives._wire import AttemptFailed, Failure, ResponseHead
from furcate.transport._call import Call


class KeptCall:
    """Pass a call through and keep what comes of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._head: ResponseHead | None = None
        self._chunks: list[bytes] = []

    async def __aenter__(self) -> KeptCall:
        await self._call.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._call.__aexit__(kind, error, trace)

    async def begin(self) -> ResponseHead:
        """Send the request and give the head of the answer."""
        self._head = await self._call.begin()
        return self._head

    @property
    def at_end(self) -> bool:
        """Whether the body is known to have ended."""
        return self._call.at_end

    async def receive(self, by_s: float = inf) -> bytes:
        """Give the next bytes of the answer's body; empty at its end."""
        data = await self._call.receive(by_s)
        if data:
            self._chunks.append(data)
        return data

    def record(self, body_sha256: str, failure: Failure | None) -> RecordedCall:
        """Give what was kept.

        Arguments:
            body_sha256: digest of the request's body, in hex.
            failure: how the attempt failed, if it did.
        """
        head = self._head
        return RecordedCall(
            body_sha256=body_sha256,
            status=head.status if head is not None else None,
            # A cookie may be as good as a key.
            headers=tuple(pair for pair in head.headers if pair[0] != "set-cookie") if head is not None else (),
            body=b"".join(self._chunks),
            failure=failure,
        )


class ReplayedCall:
    """Answer from a record; where that ended in a failure, so does this."""

    def __init__(self, record: RecordedCall) -> None:
        self._record = record
        self._body = record.body

    async def __aenter__(self) -> ReplayedCall:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def begin(self) -> ResponseHead:
        """Give the head of the answer.

        Raises:
            AttemptFailed: there was none.
        """
        if self._record.status is None:
            raise self._failed()
        return ResponseHead(self._record.status, self._record.headers)

    @property
    def at_end(self) -> bool:
        """Whether the body has ended; where the record broke off, that is still to be told."""
        return not self._body and self._record.failure is None

    async def receive(self, by_s: float = inf) -> bytes:
        """Give the answer's body; empty at its end.

        Raises:
            AttemptFailed: it broke off there.
        """
        data, self._body = self._body, b""
        if not data and self._record.failure is not None:
            raise self._failed()
        return data

    def _failed(self) -> AttemptFailed:
        assert self._record.failure is not None, "a record without an answer says how it failed"
        return AttemptFailed(self._record.failure)
