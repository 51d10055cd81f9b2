"""What comes after an attempt: one pure decision for each way in which it can end.

=====================================================  ============================================
an attempt that                                        is followed by
=====================================================  ============================================
answered in the contract's form, or without contract   Done
was cut off, refused, or asks for tools                Done (there is nothing to repair)
answered in another form, repairs left                 Repair, on the same lease
answered in another form, no repairs left              Done (validation failed; the answer is kept)
was refused for its schema by the server               WithoutSchema, on the same lease
was paused by its provider, resumes left               Resume, on the same lease
was paused once more                                   GiveUp
failed, may be repeated, attempts and time left        Retry, after the lease was given back
failed otherwise                                       GiveUp
=====================================================  ============================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs
from attrs import frozen

from furcate.primitives._resources import RetryPolicy
from furcate.primitives._result import Attempt, Fault
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, StopReason

CHECKED_STOPS: tuple[StopReason, ...] = ("end_turn", "stop_sequence")
"""The stop reasons after which an answer is whole, so that a contract can be held against it."""


@frozen
class Done:
    """Conclude the run with the answer that is there."""


@frozen
class Repair:
    """Send the answer back with its faults, on the same lease."""

    faults: tuple[Fault, ...]


@frozen
class Resume:
    """Send the paused answer back as it is, on the same lease, for the provider to go on."""


@frozen
class WithoutSchema:
    """Send the same call without its schema, on the same lease; the answer is checked here anyway."""


@frozen
class Retry:
    """Give the lease back, wait, and send the same call again.

    Attributes:
        after_s: how long to wait, in seconds.
        asked: whether the server asked for that wait.
    """

    after_s: float
    asked: bool = False


@frozen
class GiveUp:
    """Conclude the run with the failure.

    Attributes:
        missed: the retry that would have followed, had the policy not set it a bound in time.
    """

    missed: Retry | None = None


Decision: TypeAlias = Done | Repair | Resume | WithoutSchema | Retry | GiveUp


def after_pause(*, resumes_left: int) -> Decision:
    """Decide after an answer that its provider set aside half-way.

    Arguments:
        resumes_left: how many resumes the policy still allows.
    """
    return Resume() if resumes_left > 0 else GiveUp()


def after_answer(stop: StopReason, faults: tuple[Fault, ...] | None, *, repairs_left: int) -> Decision:
    """Decide after a completed answer.

    Arguments:
        stop: why the model stopped.
        faults: what the contract found; None where nothing was checked.
        repairs_left: how many repairs the contract still allows.
    """
    if stop not in CHECKED_STOPS or not faults or repairs_left <= 0:
        return Done()
    return Repair(faults)


def after_failure(
    failure: Failure,
    policy: RetryPolicy,
    *,
    tries: int,
    content_shown: bool,
    repeat_safe: bool,
    schema_sent: bool,
    chance: float,
    elapsed_s: float = 0.0,
) -> Decision:
    """Decide after a failed attempt.

    Arguments:
        failure: why it failed.
        policy: how often and how soon failed attempts are repeated.
        tries: how often this call was sent, this time included.
        content_shown: whether a consumer has seen content of this attempt.
        repeat_safe: whether the profile says that repeating a request that may have been worked on is safe.
        schema_sent: whether the call carried a schema.
        chance: a random number from 0 to 1, which spreads the waits.
        elapsed_s: how long ago the run's first attempt began, in seconds.
    """
    if failure.reason == "schema_refused" and schema_sent:
        return WithoutSchema()
    worked_on = failure.sent and failure.status in (None, 200) and not failure.retryable
    repeatable = failure.retryable or (
        worked_on and repeat_safe and failure.reason in ("no_answer", "cut_off", "first_event_timeout", "idle_timeout")
    )
    if content_shown or not repeatable or tries >= policy.attempts:
        return GiveUp()
    retry = _retry(failure, policy, tries=tries, chance=chance)
    return GiveUp(missed=retry) if too_late(policy, elapsed_s + retry.after_s) else retry


def _retry(failure: Failure, policy: RetryPolicy, *, tries: int, chance: float) -> Retry:
    if failure.reason == "stale_connection":
        return Retry(0.0)
    # Two to a high power is no float any more; the longest backoff is reached long before.
    backoff = min(policy.max_backoff_s, policy.first_backoff_s * 2 ** min(tries - 1, 60)) * chance
    if failure.wait_s is not None:
        return Retry(failure.wait_s + min(backoff, 1.0), asked=True)
    return Retry(backoff)


def too_late(policy: RetryPolicy, elapsed_s: float) -> bool:
    """Tell whether no further attempt may begin so many seconds after the first."""
    return policy.retry_for_s is not None and elapsed_s > policy.retry_for_s


def usage_of(attempts: Iterable[Attempt]) -> Usage:
    """Add up the usage of a run's attempts.

    An attempt that never reached the server, or that it turned away with an error status, makes no unknown beside those
    that reported; one that broke off after the server had taken it does. Where none reported, the sum is unknown.
    """
    return Usage.total(attempt.usage for attempt in attempts if not turned_away(attempt))


def turned_away(attempt: Attempt) -> bool:
    """Tell whether an attempt used nothing: it never reached the server, or was answered with an error status."""
    failure = attempt.failure
    if failure is None or attempt.usage.known:
        return False
    return not failure.sent or (failure.status is not None and failure.status >= 300)


def last_word(decision: Decision, failure: Failure | None, policy: RetryPolicy) -> Failure:
    """Give the failure that a run ends with after such a decision.

    Arguments:
        decision: anything but Done.
        failure: the latest attempt's; None where that attempt ended in a provider's pause.
        policy: what the decision was made by.
    """
    if failure is None:
        return _STILL_PAUSED
    if isinstance(decision, GiveUp) and decision.missed is not None:
        return not_again(failure, decision.missed, f"retry_for_s = {policy.retry_for_s:g} s")
    return failure


def not_again(failure: Failure, retry: Retry, bound: str) -> Failure:
    """Say in a failure that trying again would come too late, and for what bound."""
    word = "asks to wait" if retry.asked else "is tried again after"
    told = f"{failure.message}; the server {word} {seconds(retry.after_s)}, beyond {bound}"
    return attrs.evolve(failure, message=told)


def seconds(span_s: float) -> str:
    """Write a span of seconds for people: short ones with three digits, long ones whole."""
    return f"{span_s:,.0f} s" if span_s >= 100 else f"{span_s:.3g} s"


_STILL_PAUSED = Failure(
    kind="provider",
    reason="still_paused",
    message="the provider paused its answer more often than the backend's retry policy resumes (resumes)",
    status=200,
)
