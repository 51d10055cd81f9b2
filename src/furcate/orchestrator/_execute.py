"""One run, from its plan to its result, top to bottom.

    encode -> admit -> send, decode, assemble -> check -> decide -> release -> conclude

There is one backward edge, from *decide*: a repair goes out again on the same lease; a retry waits without a lease and
queues again at the head.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from math import inf

import anyio
import attrs
from attrs import frozen

from furcate.admission import Lease, Share
from furcate.dialects import Dialect, dialect_named
from furcate.orchestrator._answering import Answer
from furcate.orchestrator._attempt import AttemptRun, Credential, finished, request_id
from furcate.orchestrator._checking import Checks
from furcate.orchestrator._encoding import Encoded, encode_ahead, origin_of
from furcate.orchestrator._health import Health
from furcate.orchestrator._plan import Plan
from furcate.orchestrator._policy import (
    Decision,
    Done,
    Repair,
    Resume,
    Retry,
    WithoutSchema,
    after_answer,
    after_failure,
    after_pause,
    last_word,
    not_again,
    seconds,
    usage_of,
)
from furcate.orchestrator._scopes import current_scope
from furcate.orchestrator._spending import Expense, count, estimated_tokens
from furcate.orchestrator._tape import NO_TAPE, Tape
from furcate.orchestrator._telling import Ending, Listeners, activity_changed, content_sent, run_finished, run_started
from furcate.primitives._calls import CallLog
from furcate.primitives._errors import BudgetExceededError, ProviderError, RequestError
from furcate.primitives._exchange import Exchange
from furcate.primitives._message import Message
from furcate.primitives._observations import (
    AttemptsPaused,
    ContentReceived,
    Purpose,
)
from furcate.primitives._receipt import Failed
from furcate.primitives._result import Attempt, Fault, Result
from furcate.primitives._stream import AttemptRestarted, HostedTransition, Stopped, StreamEvent
from furcate.primitives._wire import Address, AttemptFailed, Failure, ModelCall, WireRequest
from furcate.transport import Transport, TransportService, native_sha256
from furcate.validation import repair_note

_log = logging.getLogger("furcate")


@frozen(kw_only=True)
class Means:
    """Hold what a run works with.

    Attributes:
        health: admits to the backend, and hears how its attempts end.
        address: says where the backend answers right now; asked for each attempt.
        runtime_id: names the engine in receipts.
        share: whose requests wait together for admission; None for those of nobody in particular.
        calls: where answers are kept, and had again; None asks the provider each time.
    """

    dialect: Dialect
    health: Health
    transport: Transport
    address: Callable[[], Awaitable[Address]]
    listeners: Listeners
    runtime_id: str
    share: Share | None = None
    calls: CallLog | None = None


@frozen
class _Step:
    """Hold what an attempt sends, why, and how often it was sent."""

    call: ModelCall
    purpose: Purpose = "generate"
    tries: int = 0


class Run:
    """Execute a plan once.

    Attributes:
        id: the run's id.
        result: what came of it, once `events` has ended normally.
        began: called with each event from the first piece of the answer on, before anybody sees it; None calls nobody.
    """

    def __init__(self, plan: Plan, means: Means, *, scope_id: str | None, streamed: bool) -> None:
        # Encoded before anything is queued for: a request that cannot be written never takes a place.
        self._encoded = encode_ahead(plan.call, plan, means.dialect)
        calls = means.calls
        self.id = secrets.token_hex(16) if calls is None else calls.begin(_key(self._encoded.wire, plan))
        self.result: Result | None = None
        self.began: Callable[[], None] | None = None
        self._plan = plan
        self._means = means
        self._scope_id = scope_id or current_scope.get()
        self._streamed = streamed
        self._attempts: list[Attempt] = []
        self._checks = Checks(plan.checker)
        self._latest: AttemptRun | None = None
        self._lease_used: Lease | None = None
        self._expense = Expense()
        self._first_sent_s: float | None = None
        self._answer = Answer()
        self._native_sha256 = native_sha256(plan.request, plan.parent)
        self._service = TransportService(
            origin_of(plan), means.runtime_id, max_result_bytes=plan.backend.max_result_bytes
        )

    @property
    def recorded(self) -> bool:
        """Whether its first answer is there already, so that the provider will not read its request."""
        return not self._attempts and self._tape(self._plan.call).recorded is not None

    @property
    def at_hand(self) -> bool:
        """Whether the next event has arrived already, so that it comes without waiting."""
        return self._latest is not None and self._latest.at_hand > 0

    @property
    def partial(self) -> Message | None:
        """What the latest attempt has brought so far; the whole message once the run has its result."""
        if self.result is not None:
            return self.result.message
        return self._answer.so_far(self._latest.partial if self._latest is not None else None)

    async def complete(self) -> Result:
        """Run to the end and give the result.

        Raises:
            ProviderError: no attempt gave a completed answer.
            BudgetExceededError: a budget of the request is used up; nothing was sent.
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
            BudgetExceededError: a budget of the request is used up; nothing was sent.
        """
        listeners = self._means.listeners
        started_s = 0.0
        if listeners.heard:
            started_s = anyio.current_time()
            listeners.tell(run_started(self._plan, self.id, scope_id=self._scope_id, base_url=_base_url(self._plan)))
        ending = Ending("cancelled")
        try:
            # In the step in which the run begins: of many that begin at once, none finds what another has taken.
            if self._plan.request.budgets:
                self._expense.reserve(self._plan.request.budgets, self._estimate())
            async with aclosing(self._attempt_until_done()) as events:
                async for event in events:
                    yield event
            self.result = self._conclude()
            ending = Ending("succeeded", validation=self.result.validation.status, stop=self.result.stop_reason)
        except AttemptFailed as error:
            ending = Ending("failed", error.failure.kind, error.failure.reason)
            raise _error(self, error.failure) from error
        except BudgetExceededError:
            ending = Ending("failed", reason="budget")
            raise
        except Exception:
            ending = Ending("failed")
            raise
        finally:
            self._expense.settle()
            if listeners.heard:
                took_s = anyio.current_time() - started_s
                listeners.tell(run_finished(self._plan, self.id, ending, attempts=self._attempts, duration_s=took_s))

    async def _attempt_until_done(self) -> AsyncGenerator[StreamEvent, None]:
        """Send the call, and what follows from it, until a decision ends the run; each pass holds one lease."""
        step = _Step(self._plan.call)
        pause: Retry | None = None
        while True:
            if pause is not None:
                await anyio.sleep(pause.after_s)
            async with self._place(step, front=pause is not None) as lease:
                while True:
                    step = _Step(step.call, step.purpose, step.tries + 1)
                    if step.purpose == "repair" and step.tries == 1 and self._streamed:
                        yield AttemptRestarted(len(self._attempts) + 1, step.purpose)
                    attempt = self._begin(step, lease)
                    failed: AttemptFailed | None = None
                    try:
                        key = Credential(self._plan.credential)
                        tape = self._tape(step.call)
                        events = attempt.events(self._means.transport, self._means.address, key, tape=tape)
                        async with aclosing(events):
                            async for event in events:
                                if self.began is not None or type(event) is HostedTransition:
                                    self._notice(event, attempt)
                                if self._streamed:
                                    yield event
                    except AttemptFailed as error:
                        failed = error
                    finally:
                        self._end(attempt, lease)
                    decision = self._decide(attempt, step)
                    following = self._follow(decision, step, attempt)
                    if following is None:
                        break
                    step = following
                    if not lease.held and self._tape(step.call).recorded is None:
                        break  # what was answered from a record needed no place; this does
            if isinstance(decision, Done):
                return
            pause = None if following is not None else self._pause(decision, attempt, failed)

    def _notice(self, event: StreamEvent, attempt: AttemptRun) -> None:
        if self.began is not None and attempt.content_shown:
            self.began()
        if type(event) is HostedTransition and self._means.listeners.heard:
            self._means.listeners.tell(activity_changed(self.id, len(self._attempts) + 1, event))

    def _place(self, step: _Step, *, front: bool) -> AbstractAsyncContextManager[Lease]:
        gate = self._means.health.gate
        if self._tape(step.call).recorded is not None:
            return gate.no_place()
        self._means.health.look_ahead(self._elapsed_s())
        return gate.lease(front=front, tokens=self._estimate(), share=self._means.share)

    def _tape(self, call: ModelCall) -> Tape:
        if self._means.calls is None:
            return NO_TAPE
        number = len(self._attempts) + 1
        return Tape(self._means.calls, self.id, number=number, body_sha256=self._encode(call).wire.body_sha256)

    def _follow(self, decision: Decision, step: _Step, attempt: AttemptRun) -> _Step | None:
        """Give what goes out next on the same lease; None where the lease is to go back."""
        if isinstance(decision, Repair):
            self._answer.restart()
            # It was encoded to see whether it can be sent at all.
            return _Step(self._encoded.call, "repair")
        if isinstance(decision, Resume):
            self._latest = None
            return _Step(self._answer.paused(step.call, attempt.message), "resume")
        if isinstance(decision, WithoutSchema):
            return attrs.evolve(step, call=attrs.evolve(step.call, schema=None))
        return None

    def _begin(self, step: _Step, lease: Lease) -> AttemptRun:
        number = len(self._attempts) + 1
        encoded = self._encode(step.call)
        begun = self._service.begin(
            step.call,
            request_id=request_id(self.id, number),
            native_request_sha256=self._native_sha256,
            parted=encoded.parted,
        )
        if lease is self._lease_used:
            lease.begin_again(tokens=self._estimate())
        attempt = AttemptRun(
            encoded.wire,
            begun,
            run_id=self.id,
            number=number,
            purpose=step.purpose,
            # The wait belongs to the attempt that it was for, not to the repairs that follow on the same lease.
            waited_s=lease.waited_s if lease is not self._lease_used else 0.0,
            backend=self._plan.backend,
            dialect=self._means.dialect,
        )
        if self._first_sent_s is None:
            self._first_sent_s = attempt.started_s
        self._lease_used = lease
        self._latest = attempt
        if self._means.listeners.heard:
            self._means.listeners.tell(attempt.started())
        if self._means.listeners.read_content:
            self._means.listeners.tell_content(
                content_sent(self.id, number, self._plan.parent, asked=step.call.history, sent=begun.request.history)
            )
        return attempt

    def _encode(self, call: ModelCall) -> Encoded:
        # A retry sends the very bytes that failed.
        if self._encoded.call is not call:
            self._encoded = encode_ahead(call, self._plan, self._means.dialect)
        return self._encoded

    def _estimate(self) -> int:
        return estimated_tokens(self._encoded.wire, self._encoded.call)

    def _elapsed_s(self) -> float:
        return 0.0 if self._first_sent_s is None else anyio.current_time() - self._first_sent_s

    def _end(self, attempt: AttemptRun, lease: Lease) -> None:
        outcome = self._service.complete(attempt.outcome())
        receipt = outcome.receipt
        if outcome.message is not None:
            attempt.message = outcome.message  # with the service's own tag on whatever it seals
        if isinstance(receipt.outcome, Failed) and receipt.outcome.kind == "result_size":
            attempt.fail(Failure(kind="result_size", reason="result_size", message=receipt.outcome.message))
        record = attempt.record(receipt)
        self._attempts.append(record)
        brought_message = attempt.message if attempt.message.parts else attempt.partial
        if brought_message is not None and self._means.listeners.read_content:
            told = ContentReceived(run_id=self.id, number=record.number, message=brought_message)
            self._means.listeners.tell_content(told)
        if self._means.listeners.heard:
            self._means.listeners.tell(finished(self.id, record))
        brought = brought_message is not None
        counted = count(record, brought=brought)
        if attempt.replayed:
            return  # it cost nothing, and says nothing of how the backend stands now
        self._expense.add(counted)
        self._means.health.heard(lease, record, counted)
        self._means.health.look_at_usage(record, brought=brought)

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
                elapsed_s=self._elapsed_s(),
            )
        if attempt.assembler.paused:
            resumes = sum(1 for record in self._attempts if record.purpose == "resume")
            return after_pause(resumes_left=plan.backend.retry.resumes - resumes)
        stop = _stop(attempt).reason
        faults = self._checks.check(stop, self._message(attempt).text)
        repairs = plan.contract.repairs if plan.contract is not None else 0
        used = sum(1 for record in self._attempts if record.purpose == "repair" and record.status == "succeeded")
        decision = after_answer(stop, faults, repairs_left=repairs - used)
        if isinstance(decision, Repair) and not self._sendable(self._repaired(step.call, attempt, decision.faults)):
            return Done()
        return decision

    def _message(self, attempt: AttemptRun) -> Message:
        return self._answer.whole(attempt.message)

    def _sendable(self, call: ModelCall) -> bool:
        """Tell whether a call can be written; an answer that is paid for is worth more than its repair."""
        try:
            self._encode(call)
        except RequestError as error:
            _log.warning("run %s: the answer cannot be sent back for repair: %s", self.id, error)
            return False
        return True

    def _repaired(self, call: ModelCall, attempt: AttemptRun, faults: tuple[Fault, ...]) -> ModelCall:
        """Make the call that shows the model its latest answer and what is wrong with it; the base stays clean."""
        assert self._plan.contract is not None, "only a contract finds faults"
        answer = self._message(attempt)
        note = Message.user(repair_note(faults, self._plan.contract))
        shown = (answer, note) if answer.text.strip() else (note,)
        return attrs.evolve(call, history=self._plan.call.history.extend(shown))

    def _pause(self, decision: Decision, attempt: AttemptRun, failed: AttemptFailed | None) -> Retry:
        """Tell of the wait before a retry; one that would outlast the caller's deadline fails at once."""
        if not isinstance(decision, Retry):
            raise AttemptFailed(last_word(decision, attempt.failure, self._plan.backend.retry)) from failed
        assert attempt.failure is not None
        if attempt.replayed:
            return Retry(0.0)  # what followed it then was waited for then
        deadline = anyio.current_effective_deadline()
        # -inf says that this is cancelled already: no deadline to speak of, and the coming sleep lets that pass.
        if deadline > -inf and anyio.current_time() + decision.after_s > deadline:
            left_s = max(0.0, deadline - anyio.current_time())
            raise AttemptFailed(not_again(attempt.failure, decision, f"the deadline in {seconds(left_s)}"))
        self._means.listeners.tell(
            AttemptsPaused(run_id=self.id, wait_s=decision.after_s, failure_kind=attempt.failure.kind)
        )
        return decision

    def _conclude(self) -> Result:
        plan, attempt = self._plan, self._latest
        assert attempt is not None
        message = self._message(attempt)
        exchange = None
        if plan.capture:
            exchange = Exchange(
                plan.call.history.answered(message),
                self.id,
                plan.parent.run_id if plan.parent is not None else None,
                self._means.listeners.carrier(self.id),
            )
        return Result(
            run_id=self.id,
            message=message,
            stop_reason=_stop(attempt).reason,
            stop_detail=_stop(attempt).detail,
            validation=self._checks.validation(_stop(attempt).reason if attempt.failure is None else None),
            usage=usage_of(self._attempts),
            attempts=tuple(self._attempts),
            exchange=exchange,
        )


def _stop(attempt: AttemptRun) -> Stopped:
    stop = attempt.assembler.stop
    assert stop is not None, "an attempt without failure has stopped"
    return stop


def _error(run: Run, failure: Failure) -> ProviderError:
    return ProviderError(
        failure,
        run_id=run.id,
        attempts=tuple(run._attempts),
        usage=usage_of(run._attempts),
        partial=run.partial,
    )


def _base_url(plan: Plan) -> str | None:
    backend = plan.backend
    if backend.kind == "embedded":
        return None
    return backend.base_url or dialect_named(backend.dialect).default_base_url


def _key(wire: WireRequest, plan: Plan) -> bytes:
    """Give the digest by which a run that begins with this request is known in a log of calls."""
    named = f"{plan.backend.dialect}\0{wire.path}\0{wire.body_sha256}"
    return hashlib.sha256(named.encode()).digest()
