"""Calls that were answered before, to be had again without asking the provider, and paying, twice."""

from __future__ import annotations

from typing import Protocol

from attrs import field, frozen

from furcate.primitives._wire import Failure


@frozen(kw_only=True)
class RecordedCall:
    """Hold how one attempt was answered, as it came over the wire.

    Attributes:
        body_sha256: digest of the request's body, in hex: another request has another answer.
        status: the answer's HTTP status; None where there was no answer.
        headers: name and value pairs of the answer, without cookies.
        body: all that came of the answer's body.
        failure: how the attempt failed; None where the answer is complete.
    """

    body_sha256: str
    status: int | None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)
    failure: Failure | None = None


class CallLog(Protocol):
    """Keep the calls of one piece of work, so that doing it again costs only what is new.

    Runs are told apart by the digest of their first request and the order in which equal ones begin.
    """

    def begin(self, key: bytes) -> str:
        """Give the id of a run that begins with this request: that of the next recorded one, or a fresh one.

        Arguments:
            key: SHA-256 of the first request, 32 bytes.
        """

    def recall(self, run_id: str, number: int) -> RecordedCall | None:
        """Give how the run's attempt of that number was answered before; None where it was not."""

    async def keep(self, run_id: str, number: int, call: RecordedCall) -> None:
        """Keep how an attempt was answered. Once this returns, it is kept whatever happens."""
