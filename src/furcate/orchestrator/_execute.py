"""One run, from its plan to its result, top to bottom.

    encode -> admit -> send, decode, assemble -> check -> decide -> release -> conclude

There is one backward edge, from *decide*: a repair goes out again on the same lease; a retry waits without a lease and
queues again at the head.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from math import inf
from uuid import uuid4

import anyio
import attrs
from attrs import frozen

from furcate.admission import Gate, Lease
from furcate.dialects import Dialect
from furcate.orchestrator._attempt import AttemptRun, finished, request_id
from furcate.orchestrator._plan import Plan
from furcate.orchestrator._policy import (
    CHECKED_STOPS,
    Decision,
    Done,
    Repair,
    Resume,
    Retry,
    WithoutSchema,
    after_answer,
    after_failure,
    after_pause,
    usage_of,
)
from furcate.orchestrator._telling import Listeners
from furcate.primitives._content import Origin, Part
from furcate.primitives._errors import ProviderError
from furcate.primitives._exchange import Exchange
from furcate.primitives._message import Message
from furcate.primitives._observations import (
    AttemptsPaused,
    Purpose,
    RunFinished,
    RunStarted,
    RunStatus,
    ValidationStatus,
)
from furcate.primitives._receipt import Failed
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._stream import AttemptRestarted, StreamEvent
from furcate.primitives._wire import Address, AttemptFailed, Failure, ModelCall, StopReason, WireRequest
from furcate.transport import HttpTransport, TransportService, native_sha256, partition_reasoning
from furcate.validation import repair_note


@frozen(kw_only=True)
class Means:
    """Hold what a run works with.

    Attributes:
        address: says where the backend answers right now; asked for each attempt.
        runtime_id: names the engine in receipts.
    """

    dialect: Dialect
    gate: Gate
    transport: HttpTransport
    address: Callable[[], Awaitable[Address]]
    listeners: Listeners
    runtime_id: str


@frozen
class _Step:
    """Hold what an attempt sends, why, and how often it was sent."""

    call: ModelCall
    purpose: Purpose = "generate"
    tries: int = 0


def origin_of(plan: Plan) -> Origin:
    """Give the tag of the state that a plan's answers bring."""
    return Origin(plan.backend.provider, plan.backend.dialect, plan.call.model)


def encode_ahead(plan: Plan, dialect: Dialect) -> WireRequest:
    """Encode a plan's call as its provider may see it.

    Raises:
        RequestError: the dialect cannot carry it, or it holds foreign state where none may be.
    """
    parted = partition_reasoning(plan.call.history, origin_of(plan))
    return dialect.encode(attrs.evolve(plan.call, history=parted.history))


class Run:
    """Execute a plan once.

    Attributes:
        id: the run's id.
        result: what came of it, once `events` has ended normally.
    """

    def __init__(self, plan: Plan, means: Means, *, scope_id: str | None, streamed: bool) -> None:
        self.id = uuid4().hex
        self.result: Result | None = None
        self._plan = plan
        self._means = means
        self._scope_id = scope_id
        self._streamed = streamed
        self._attempts: list[Attempt] = []
        self._rounds: list[tuple[Fault, ...]] = []
        self._value: object = None
        self._latest: AttemptRun | None = None
        self._lease_used: Lease | None = None
        # What a provider said before it paused, and the history that it was said after.
        self._resumed: tuple[Part, ...] = ()
        self._before_pause = plan.call.history
        # Encoded before anything is queued for: a request that cannot be written never takes a place.
        self._encoded = (plan.call, encode_ahead(plan, means.dialect))
        self._native_sha256 = native_sha256(plan.request, plan.parent)
        self._service = TransportService(
            origin_of(plan), means.runtime_id, max_result_bytes=plan.backend.max_result_bytes
        )

    @property
    def partial(self) -> Message | None:
        """What the latest attempt has brought so far; the whole message once the run has its result."""
        if self.result is not None:
            return self.result.message
        begun = self._latest.partial if self._latest is not None else None
        parts = (*self._resumed, *(begun.parts if begun is not None else ()))
        return Message("assistant", parts) if parts else None

    async def complete(self) -> Result:
        """Run to the end and give the result.

        Raises:
            ProviderError: no attempt gave a completed answer.
        """
        async with aclosing(self.events()) as events:
            async for _ in events:
                pass
        assert self.result is not None
        return self.result

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Give the events of the answer as they arrive; `result` is there when they have ended.

        Closing the generator early ends the run as cancelled.

        Raises:
            ProviderError: no attempt gave a completed answer.
        """
        started_s = anyio.current_time()
        self._tell_start()
        status: RunStatus = "cancelled"
        failure: Failure | None = None
        try:
            async with aclosing(self._attempt_until_done()) as events:
                async for event in events:
                    yield event
            self.result = self._conclude()
            status = "succeeded"
        except AttemptFailed as error:
            failure = error.failure
            status = "failed"
            raise self._error(failure) from error
        except Exception:
            status = "failed"
            raise
        finally:
            self._tell_end(status, failure, anyio.current_time() - started_s)

    async def _attempt_until_done(self) -> AsyncGenerator[StreamEvent, None]:
        """Send the call, and what follows from it, until a decision ends the run; each pass holds one lease."""
        step = _Step(self._plan.call)
        pause: Retry | None = None
        while True:
            if pause is not None:
                await anyio.sleep(pause.after_s)
            async with self._means.gate.lease(front=pause is not None) as lease:
                while True:
                    step = attrs.evolve(step, tries=step.tries + 1)
                    if self._attempts and self._streamed:
                        yield AttemptRestarted(len(self._attempts) + 1, step.purpose)
                    attempt = self._begin(step, lease)
                    failed: AttemptFailed | None = None
                    try:
                        events = attempt.events(self._means.transport, self._means.address, self._plan.credential)
                        async with aclosing(events):
                            async for event in events:
                                yield event
                    except AttemptFailed as error:
                        failed = error
                    finally:
                        self._end(attempt)
                    decision = self._decide(attempt, step)
                    following = self._follow(decision, step, attempt)
                    if following is None:
                        break
                    step = following
            if isinstance(decision, Done):
                return
            if not isinstance(decision, Retry):
                raise AttemptFailed(attempt.failure or _STILL_PAUSED) from failed
            pause = self._announce(decision, attempt)

    def _follow(self, decision: Decision, step: _Step, attempt: AttemptRun) -> _Step | None:
        """Give what goes out next on the same lease; None where the lease is to go back."""
        if isinstance(decision, Repair):
            return _Step(self._repaired(step.call, attempt, decision), "repair")
        if isinstance(decision, Resume):
            return _Step(self._paused(step.call, attempt), "resume")
        if isinstance(decision, WithoutSchema):
            return attrs.evolve(step, call=attrs.evolve(step.call, schema=None))
        return None

    def _begin(self, step: _Step, lease: Lease) -> AttemptRun:
        number = len(self._attempts) + 1
        begun = self._service.begin(
            step.call, request_id=request_id(self.id, number), native_request_sha256=self._native_sha256
        )
        attempt = AttemptRun(
            self._encode(step.call, begun.request),
            begun,
            run_id=self.id,
            number=number,
            purpose=step.purpose,
            # The wait belongs to the attempt that it was for, not to the repairs that follow on the same lease.
            waited_s=lease.waited_s if lease is not self._lease_used else 0.0,
            backend=self._plan.backend,
            dialect=self._means.dialect,
        )
        self._lease_used = lease
        self._latest = attempt
        self._means.listeners.tell(attempt.started())
        return attempt

    def _encode(self, call: ModelCall, clean: ModelCall) -> WireRequest:
        # A retry sends the very bytes that failed.
        if self._encoded[0] is not call:
            self._encoded = (call, self._means.dialect.encode(clean))
        return self._encoded[1]

    def _end(self, attempt: AttemptRun) -> None:
        receipt = self._service.complete(attempt.outcome()).receipt
        if isinstance(receipt.outcome, Failed) and receipt.outcome.kind == "result_size":
            attempt.fail(Failure(kind="result_size", reason="result_size", message=receipt.outcome.message))
        record = attempt.record(receipt)
        self._attempts.append(record)
        self._means.listeners.tell(finished(self.id, record))

    def _decide(self, attempt: AttemptRun, step: _Step) -> Decision:
        """Check a completed answer, and look up what follows."""
        plan = self._plan
        if attempt.failure is not None:
            return after_failure(
                attempt.failure,
                plan.backend.retry,
                tries=step.tries,
                content_shown=self._streamed and attempt.content_shown,
                repeat_safe=plan.profile.repeat_safe,
                schema_sent=step.call.schema is not None,
                chance=random.random(),
            )
        if attempt.assembler.paused:
            resumes = sum(1 for record in self._attempts if record.purpose == "resume")
            return after_pause(resumes_left=plan.backend.retry.resumes - resumes)
        stop = self._stop(attempt)
        faults: tuple[Fault, ...] | None = None
        if plan.checker is not None and stop in CHECKED_STOPS:
            checked = plan.checker.check(self._message(attempt).text)
            faults, self._value = checked.faults, checked.value
            self._rounds.append(faults)
        repairs = plan.contract.repairs if plan.contract is not None else 0
        used = sum(1 for record in self._attempts if record.purpose == "repair" and record.status == "succeeded")
        return after_answer(stop, faults, repairs_left=repairs - used)

    def _stop(self, attempt: AttemptRun) -> StopReason:
        stop = attempt.assembler.stop
        assert stop is not None, "an attempt without failure has stopped"
        return stop.reason

    def _message(self, attempt: AttemptRun) -> Message:
        """Give an attempt's message, with what came before a provider's pause at its beginning."""
        if not self._resumed:
            return attempt.message
        return Message("assistant", (*self._resumed, *attempt.message.parts))

    def _paused(self, call: ModelCall, attempt: AttemptRun) -> ModelCall:
        """Make the call that hands a paused answer back as it is."""
        said = self._message(attempt)
        before = call.history if not self._resumed else self._before_pause
        self._before_pause = before
        self._resumed = said.parts
        return attrs.evolve(call, history=before.extend((said,)))

    def _repaired(self, call: ModelCall, attempt: AttemptRun, repair: Repair) -> ModelCall:
        """Make the call that shows the model its latest answer and what is wrong with it; the base stays clean."""
        assert self._plan.contract is not None, "only a contract finds faults"
        answer = self._message(attempt)
        self._resumed = ()
        note = Message.user(repair_note(repair.faults, self._plan.contract))
        shown = (answer, note) if answer.text.strip() else (note,)
        return attrs.evolve(call, history=self._plan.call.history.extend(shown))

    def _announce(self, retry: Retry, attempt: AttemptRun) -> Retry:
        """Tell of the wait before a retry; one that would outlast the caller's deadline fails at once."""
        assert attempt.failure is not None
        deadline = anyio.current_effective_deadline()
        # -inf says that this is cancelled already: no deadline to speak of, and the coming sleep lets that pass.
        if deadline > -inf and anyio.current_time() + retry.after_s > deadline:
            left_s = max(0.0, deadline - anyio.current_time())
            word = "asks to wait" if retry.asked else "is tried again after"
            raise AttemptFailed(
                attrs.evolve(
                    attempt.failure,
                    message=f"{attempt.failure.message}; the server {word} {retry.after_s:.3g} s, "
                    f"beyond the deadline in {left_s:.3g} s",
                )
            )
        self._means.listeners.tell(
            AttemptsPaused(run_id=self.id, wait_s=retry.after_s, failure_kind=attempt.failure.kind)
        )
        return retry

    def _conclude(self) -> Result:
        plan, attempt = self._plan, self._latest
        assert attempt is not None
        message = self._message(attempt)
        exchange = None
        if plan.capture:
            exchange = Exchange(
                plan.call.history.extend((message,)),
                self.id,
                plan.parent.run_id if plan.parent is not None else None,
                self._means.listeners.carrier(self.id),
            )
        return Result(
            run_id=self.id,
            message=message,
            stop_reason=self._stop(attempt),
            validation=self._validation(),
            usage=usage_of(self._attempts),
            attempts=tuple(self._attempts),
            exchange=exchange,
        )

    def _validation(self) -> Validation:
        if self._plan.checker is None:
            return Validation()
        latest = self._latest
        if latest is None or latest.failure is not None or self._stop(latest) not in CHECKED_STOPS:
            return Validation(status="skipped", rounds=tuple(self._rounds))
        faults = self._rounds[-1]
        status: ValidationStatus = "failed" if faults else "passed"
        return Validation(status=status, faults=faults, rounds=tuple(self._rounds), value=self._value)

    def _error(self, failure: Failure) -> ProviderError:
        return ProviderError(
            failure,
            run_id=self.id,
            attempts=tuple(self._attempts),
            usage=usage_of(self._attempts),
            partial=self.partial,
        )

    def _tell_start(self) -> None:
        plan = self._plan
        self._means.listeners.tell(
            RunStarted(
                run_id=self.id,
                parent_run_id=plan.parent.run_id if plan.parent is not None else None,
                prompt=plan.prompt,
                profile=plan.profile.name,
                backend=plan.backend.name,
                model=plan.call.model,
                dialect=plan.backend.dialect,
                session_id=plan.session_id,
                scope_id=self._scope_id,
            )
        )

    def _tell_end(self, status: RunStatus, failure: Failure | None, duration_s: float) -> None:
        result = self.result
        self._means.listeners.tell(
            RunFinished(
                run_id=self.id,
                status=status,
                duration_s=duration_s,
                usage=usage_of(self._attempts),
                attempts=len(self._attempts),
                repairs=sum(1 for record in self._attempts if record.purpose == "repair"),
                validation=result.validation.status if result is not None else self._unfinished_validation(),
                stop_reason=result.stop_reason if result is not None else None,
                failure_kind=failure.kind if failure is not None else None,
                failure_reason=failure.reason if failure is not None else None,
            )
        )

    def _unfinished_validation(self) -> ValidationStatus:
        return "not_requested" if self._plan.checker is None else "skipped"


_STILL_PAUSED = Failure(
    kind="provider",
    reason="still_paused",
    message="the provider paused its answer more often than the backend's retry policy resumes (resumes)",
    status=200,
)
