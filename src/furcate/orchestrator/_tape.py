"""One attempt's place in a log of calls: what it is read from, or what it is written to."""

from __future__ import annotations

from furcate.primitives._calls import CallLog, RecordedCall
from furcate.primitives._wire import Failure
from furcate.transport import Call, KeptCall


class Tape:
    """Hold how an attempt was answered before, or keep how it is answered now.

    Arguments:
        log: where calls are kept; None keeps none.
        run_id: the run.
        number: the attempt's number.
        body_sha256: digest of the attempt's body, in hex; a record of another body is passed over.

    Attributes:
        recorded: the earlier answer; None where the provider is to be asked.
    """

    def __init__(self, log: CallLog | None, run_id: str, *, number: int, body_sha256: str) -> None:
        self._log = log
        self._place = (run_id, number)
        self._body_sha256 = body_sha256
        self._kept: KeptCall | None = None
        found = log.recall(run_id, number) if log is not None else None
        self.recorded: RecordedCall | None = None
        if found is not None and found.body_sha256 == body_sha256:
            self.recorded = found

    def through(self, call: Call) -> Call:
        """Give the call to read from, which keeps what passes where there is a log."""
        if self._log is None:
            return call
        self._kept = KeptCall(call)
        return self._kept

    async def keep(self, failure: Failure | None) -> None:
        """Keep how the attempt ended. Cancelled, it is kept or it is not, never half."""
        if self._log is not None and self._kept is not None:
            await self._log.keep(*self._place, self._kept.record(self._body_sha256, failure))


NO_TAPE = Tape(None, "", number=0, body_sha256="")
"""The place of any attempt where there is no log."""
