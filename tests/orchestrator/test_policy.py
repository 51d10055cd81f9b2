"""The table of what follows an attempt."""

from __future__ import annotations

import attrs
import pytest

from furcate.orchestrator._policy import (
    Done,
    GiveUp,
    Repair,
    Retry,
    WithoutSchema,
    after_answer,
    after_failure,
    usage_of,
)
from furcate.primitives._resources import RetryPolicy
from furcate.primitives._result import Attempt, Fault
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure

FAULTS = (Fault("$", "is no object"),)
BUSY = Failure(kind="unavailable", reason="http", message="HTTP 503", retryable=True, status=503)
NO_ANSWER = Failure(kind="unavailable", reason="no_answer", message="closed")
REFUSED = Failure(kind="unavailable", reason="connection_refused", message="no", retryable=True, sent=False)
WRONG = Failure(kind="invalid_request", reason="http", message="HTTP 400", status=400)


def decide(failure: Failure, **changes):
    given = {
        "tries": 1,
        "content_shown": False,
        "repeat_safe": False,
        "schema_sent": False,
        "chance": 1.0,
        "policy": RetryPolicy(attempts=3, first_backoff_s=1.0, max_backoff_s=3.0),
        **changes,
    }
    return after_failure(failure, given.pop("policy"), **given)


@pytest.mark.parametrize("stop", ["max_output_tokens", "refusal", "tool_use", "context_window"])
def test_no_repair_is_spent_on_an_answer_that_is_not_whole(stop) -> None:
    """A cut-off, a refusal or a tool call is an answer as it stands, whatever a contract would say."""
    assert after_answer(stop, FAULTS, repairs_left=3) == Done()


@pytest.mark.parametrize(
    ("faults", "left", "expected"),
    [(None, 3, Done()), ((), 3, Done()), (FAULTS, 1, Repair(FAULTS)), (FAULTS, 0, Done()), (FAULTS, -1, Done())],
)
def test_a_whole_answer_is_repaired_while_repairs_are_left(faults, left, expected) -> None:
    """Faults lead to a repair as long as the contract allows one, and to an ordinary end after that."""
    assert after_answer("end_turn", faults, repairs_left=left) == expected


def test_backoff_doubles_up_to_its_limit_and_is_spread_by_chance() -> None:
    """The longest wait doubles with each try up to the policy's limit, and chance takes any part of it."""
    policy = RetryPolicy(attempts=9, first_backoff_s=1.0, max_backoff_s=3.0)
    waits = [decide(BUSY, policy=policy, tries=n) for n in (1, 2, 3, 8)]
    assert waits == [Retry(1.0), Retry(2.0), Retry(3.0), Retry(3.0)]
    assert decide(BUSY, chance=0.25) == Retry(0.25)


def test_attempts_are_bounded() -> None:
    """After the last permitted try a failure is final."""
    assert decide(BUSY, tries=2) == Retry(2.0)
    assert decide(BUSY, tries=3) == GiveUp()


def test_the_time_for_trying_again_is_bounded() -> None:
    """What would begin later than the policy allows does not begin, whoever asked for the wait, and is told of."""
    policy = RetryPolicy(attempts=9, first_backoff_s=1.0, max_backoff_s=3.0, retry_for_s=10.0)
    assert decide(BUSY, policy=policy, elapsed_s=9.0) == Retry(1.0)
    assert decide(BUSY, policy=policy, elapsed_s=9.1) == GiveUp(missed=Retry(1.0))
    hinted = attrs.evolve(BUSY, wait_s=60.0)
    assert decide(hinted, policy=policy, chance=0.0) == GiveUp(missed=Retry(60.0, asked=True))
    endless = attrs.evolve(policy, retry_for_s=None)
    assert decide(hinted, policy=endless, chance=0.0, elapsed_s=1e9) == Retry(60.0, asked=True)


def test_many_tries_do_not_overflow() -> None:
    """The thousandth backoff is the longest one, not a number that is too large."""
    policy = RetryPolicy(attempts=5000, first_backoff_s=1.0, max_backoff_s=3.0)
    assert decide(BUSY, policy=policy, tries=4000) == Retry(3.0)


def test_a_servers_wait_hint_is_waited_for_and_a_little_more() -> None:
    """A hint is never undercut; the spread comes on top and stays within a second."""
    hinted = attrs.evolve(BUSY, wait_s=20.0)
    assert decide(hinted, chance=0.0) == Retry(20.0, asked=True)
    assert decide(hinted, chance=1.0) == Retry(21.0, asked=True)


def test_what_was_sent_and_not_answered_is_repeated_only_with_leave() -> None:
    """A request that may have been worked on goes out again only where the profile calls that safe."""
    assert decide(NO_ANSWER) == GiveUp()
    assert decide(NO_ANSWER, repeat_safe=True) == Retry(1.0)
    assert decide(REFUSED) == Retry(1.0)


def test_nothing_is_repeated_after_content_was_shown() -> None:
    """What a consumer has seen is not silently superseded."""
    assert decide(BUSY, content_shown=True) == GiveUp()


def test_a_wrong_request_is_not_repeated_even_where_repeating_is_safe() -> None:
    """A server that says no to the request itself would say it again."""
    assert decide(WRONG) == GiveUp()
    assert decide(WRONG, repeat_safe=True) == GiveUp()


def test_a_connection_that_went_stale_is_replaced_at_once() -> None:
    """A server that closed an idle connection never saw the request: no wait is due."""
    stale = attrs.evolve(REFUSED, reason="stale_connection")
    assert decide(stale) == Retry(0.0)


def test_a_refused_schema_is_left_out_once() -> None:
    """Where the server's grammar cannot hold a schema the call goes out without; there is no third way."""
    refused = attrs.evolve(WRONG, reason="schema_refused")
    assert decide(refused, schema_sent=True) == WithoutSchema()
    assert decide(refused, schema_sent=False) == GiveUp()


def attempt(usage: Usage = Usage(), failure: Failure | None = None) -> Attempt:  # noqa: B008 - a frozen value
    return Attempt(
        number=1,
        purpose="generate",
        request_id="r-1",
        status="failed" if failure else "succeeded",
        waited_s=0.0,
        duration_s=1.0,
        first_event_s=None,
        body_sha256="",
        usage=usage,
        failure=failure,
    )


def test_attempts_that_were_turned_away_cost_nothing_and_hide_nothing() -> None:
    """A refused connection or an error status leaves the sum exact."""
    known = Usage(input_tokens=100, output_tokens=20)
    total = usage_of([attempt(failure=BUSY), attempt(failure=REFUSED), attempt(known)])
    assert (total.input_tokens, total.output_tokens, total.lower_bounds) == (100, 20, frozenset())


@pytest.mark.field(66)
def test_an_attempt_without_an_answer_has_unknown_usage() -> None:
    """Tokens that nobody reported make the sum a lower bound, and alone stay unknown."""
    known = Usage(input_tokens=100, output_tokens=20)
    total = usage_of([attempt(failure=NO_ANSWER), attempt(known)])
    assert total.input_tokens == 100
    assert total.lower_bounds == {"input_tokens", "output_tokens"}
    assert not usage_of([attempt(failure=NO_ANSWER)]).known
