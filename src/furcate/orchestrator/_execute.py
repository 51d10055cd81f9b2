"""One run, from its plan to its result, top to bottom.

    encode -> admit -> send, decode, assemble -> check -> decide -> release -> conclude

There is one backward edge, from *decide*: a repair goes out again on the same lease; a retry waits without a lease and
queues again at the head.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from uuid import uuid4

import anyio
import attrs
from attrs import frozen

from furcate.admission import Gate, Lease
from furcate.dialects import Dialect
from furcate.orchestrator._attempt import AttemptRun, finished
from furcate.orchestrator._plan import Plan
from furcate.orchestrator._policy import (
    CHECKED_STOPS,
    Decision,
    Done,
    GiveUp,
    Repair,
    Retry,
    WithoutSchema,
    after_answer,
    after_failure,
    usage_of,
)
from furcate.orchestrator._telling import Listeners
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
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._stream import AttemptRestarted, StreamEvent
from furcate.primitives._wire import Address, AttemptFailed, Failure, ModelCall, StopReason, WireRequest
from furcate.transport import HttpTransport
from furcate.validation import repair_note


@frozen(kw_only=True)
class Means:
    """Hold what a run works with.

    Attributes:
        address: says where the backend answers right now; asked for each attempt.
    """

    dialect: Dialect
    gate: Gate
    transport: HttpTransport
    address: Callable[[], Awaitable[Address]]
    listeners: Listeners


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
        # Encoded before anything is queued for: a request that cannot be written never takes a place.
        self._wire = means.dialect.encode(plan.call)

    @property
    def partial(self) -> Message | None:
        """What the latest attempt has brought so far; the whole message once the run has its result."""
        if self.result is not None:
            return self.result.message
        return self._latest.partial if self._latest is not None else None

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
        call, wire = self._plan.call, self._wire
        purpose: Purpose = "generate"
        tries = 0
        pause: Retry | None = None
        while True:
            if pause is not None:
                await anyio.sleep(pause.after_s)
            async with self._means.gate.lease(front=pause is not None) as lease:
                while True:
                    tries += 1
                    if self._attempts and self._streamed:
                        yield AttemptRestarted(len(self._attempts) + 1, purpose)
                    attempt = self._begin(wire, purpose, lease)
                    try:
                        events = attempt.events(self._means.transport, self._means.address, self._plan.credential)
                        async with aclosing(events):
                            async for event in events:
                                yield event
                    except AttemptFailed as error:
                        failed: AttemptFailed | None = error
                    else:
                        failed = None
                    finally:
                        self._end(attempt)
                    decision = self._decide(attempt, call, tries)
                    if isinstance(decision, Repair):
                        call, purpose, tries = self._repaired(call, attempt, decision), "repair", 0
                    elif isinstance(decision, WithoutSchema):
                        call = attrs.evolve(call, schema=None)
                    else:
                        break
                    wire = self._means.dialect.encode(call)
            if isinstance(decision, Done):
                return
            if isinstance(decision, GiveUp):
                assert failed is not None
                raise failed
            pause = self._announce(decision, attempt)

    def _begin(self, wire: WireRequest, purpose: Purpose, lease: Lease) -> AttemptRun:
        attempt = AttemptRun(
            wire,
            run_id=self.id,
            number=len(self._attempts) + 1,
            purpose=purpose,
            # The wait belongs to the attempt that it was for, not to the repairs that follow on the same lease.
            waited_s=lease.waited_s if lease is not self._lease_used else 0.0,
            backend=self._plan.backend,
            model=self._plan.call.model,
            dialect=self._means.dialect,
        )
        self._lease_used = lease
        self._latest = attempt
        self._means.listeners.tell(attempt.started())
        return attempt

    def _end(self, attempt: AttemptRun) -> None:
        record = attempt.record()
        self._attempts.append(record)
        self._means.listeners.tell(finished(self.id, record))

    def _decide(self, attempt: AttemptRun, call: ModelCall, tries: int) -> Decision:
        """Check a completed answer, and look up what follows."""
        plan = self._plan
        if attempt.failure is not None:
            return after_failure(
                attempt.failure,
                plan.backend.retry,
                tries=tries,
                content_shown=self._streamed and attempt.content_shown,
                repeat_safe=plan.profile.repeat_safe,
                schema_sent=call.schema is not None,
                chance=random.random(),
            )
        stop = self._stop(attempt)
        faults: tuple[Fault, ...] | None = None
        if plan.checker is not None and stop in CHECKED_STOPS:
            checked = plan.checker.check(attempt.assembler.message().text)
            faults, self._value = checked.faults, checked.value
            self._rounds.append(faults)
        repairs = plan.contract.repairs if plan.contract is not None else 0
        used = sum(1 for record in self._attempts if record.purpose == "repair" and record.status == "succeeded")
        return after_answer(stop, faults, repairs_left=repairs - used)

    def _stop(self, attempt: AttemptRun) -> StopReason:
        stop = attempt.assembler.stop
        assert stop is not None, "an attempt without failure has stopped"
        return stop.reason

    def _repaired(self, call: ModelCall, attempt: AttemptRun, repair: Repair) -> ModelCall:
        """Make the call that shows the model its latest answer and what is wrong with it; the base stays clean."""
        assert self._plan.contract is not None, "only a contract finds faults"
        answer = attempt.assembler.message()
        note = Message.user(repair_note(repair.faults, self._plan.contract))
        shown = (answer, note) if answer.text.strip() else (note,)
        return attrs.evolve(call, history=self._plan.call.history.extend(shown))

    def _announce(self, retry: Retry, attempt: AttemptRun) -> Retry:
        """Tell of the wait before a retry; one that would outlast the caller's deadline fails at once."""
        assert attempt.failure is not None
        deadline = anyio.current_effective_deadline()
        if anyio.current_time() + retry.after_s > deadline:
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
        message = attempt.assembler.message()
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
            partial=self._latest.partial if self._latest is not None else None,
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
