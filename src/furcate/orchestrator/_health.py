"""How a backend stands: what its answers say about it, and who may be admitted on account of that."""

from __future__ import annotations

import logging
from math import inf

import anyio

from furcate.admission import Gate, Lease
from furcate.orchestrator._policy import seconds, too_late
from furcate.orchestrator._spending import Counted, zero_with_output
from furcate.orchestrator._telling import Listeners
from furcate.primitives._observations import BackendLimited, BackendPaused
from furcate.primitives._resources import Backend
from furcate.primitives._result import Attempt
from furcate.primitives._wire import AttemptFailed, Failure, FailureKind

_log = logging.getLogger("furcate")

_ASKED_TOO_MUCH = ("rate_limited", "overloaded")


class Health:
    """Keep one backend's gate, and let the ends of attempts bear on it.

    Arguments:
        backend: the backend.
        listeners: told of pauses and limits.

    Attributes:
        gate: admits to the backend.
    """

    def __init__(self, backend: Backend, listeners: Listeners) -> None:
        self._backend = backend
        self._listeners = listeners
        self._paused_by: FailureKind = "rate_limited"
        self._warned = False
        self.gate = Gate(
            backend.capacity,
            adaptive=backend.adaptive,
            requests_per_minute=backend.requests_per_minute,
            tokens_per_minute=backend.tokens_per_minute,
        )

    def look_ahead(self, elapsed_s: float) -> None:
        """Fail at once where the backend is paused for longer than the caller can wait.

        Arguments:
            elapsed_s: how long ago the run's first attempt began, in seconds.

        Raises:
            AttemptFailed: the pause ends beyond the caller's deadline, or the policy's bound for trying again.
        """
        left_s = self.gate.paused_s
        if left_s == 0.0:
            return
        deadline = anyio.current_effective_deadline()
        now_s = anyio.current_time()
        # -inf says that the caller is cancelled already, which the coming wait lets pass.
        if -inf < deadline < now_s + left_s:
            bound = f"beyond the deadline in {seconds(max(0.0, deadline - now_s))}"
        elif too_late(self._backend.retry, elapsed_s + left_s):
            bound = f"beyond retry_for_s = {self._backend.retry.retry_for_s:g} s"
        else:
            return
        raise AttemptFailed(
            Failure(
                kind=self._paused_by,
                reason="backend_paused",
                message=f"the server of backend {self._backend.name!r} asked to be left alone for "
                f"{seconds(left_s)} more, {bound}",
                retryable=True,
                sent=False,
                wait_s=left_s,
            )
        )

    def heard(self, lease: Lease, record: Attempt, counted: Counted) -> None:
        """Take what the end of an attempt says: pauses, too much asked, tokens used.

        Arguments:
            lease: the place on which it was made.
            record: the attempt.
            counted: the tokens that it used.
        """
        if counted.sure and self._backend.tokens_per_minute is not None:
            lease.correct(counted.tokens)
        failure = record.failure
        before = self.gate.limit
        if failure is None and record.status == "succeeded":
            if before < self._backend.capacity:
                lease.succeeded()  # a place more may be tried
        elif failure is not None and failure.reason in _ASKED_TOO_MUCH:
            lease.throttled()
        if failure is not None and failure.wait_s is not None:
            self._pause(failure, failure.wait_s)
        limit = self.gate.limit
        if limit != before:
            self._listeners.tell(
                BackendLimited(backend=self._backend.name, limit=limit, before=before, capacity=self._backend.capacity)
            )

    def look_at_usage(self, record: Attempt, *, brought: bool) -> None:
        """Warn, once, of a server that counts nothing: no limit of tokens works with it."""
        if not self._warned and zero_with_output(record.usage, brought=brought):
            self._warned = True
            _log.warning(
                "backend %s reported zero tokens with output; its token counts cannot be relied on, and budgets of "
                "tokens count its answers as their unknown= says",
                self._backend.name,
            )

    def _pause(self, failure: Failure, wait_s: float) -> None:
        # Whoever was told waits on behalf of all: the others would only hear the same.
        if self.gate.pause(anyio.current_time() + wait_s):
            self._paused_by = failure.kind
            self._listeners.tell(BackendPaused(backend=self._backend.name, wait_s=wait_s, failure_kind=failure.kind))
