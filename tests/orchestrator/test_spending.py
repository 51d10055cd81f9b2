"""What a run uses: estimated, counted, and told to its budgets."""

from __future__ import annotations

import pytest

from furcate.admission import Budget
from furcate.orchestrator._spending import Counted, Expense, count, estimated_tokens, zero_with_output
from furcate.primitives._errors import BudgetExceededError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._result import Attempt
from furcate.primitives._settings import Settings
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, ModelCall, WireRequest


def _attempt(usage: Usage, failure: Failure | None = None) -> Attempt:
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


@pytest.mark.parametrize(("most", "expected"), [(None, 1010), (50, 60)])
def test_an_estimate_is_a_quarter_of_the_bytes_and_all_the_output(most: int | None, expected: int) -> None:
    """Forty bytes in chunks are ten tokens; where the request sets no limit, a thousand of output are expected."""
    call = ModelCall(model="m", history=History([Message.user("x")]), settings=Settings(max_output_tokens=most))
    assert estimated_tokens(WireRequest("/x", (b"a" * 30, b"b" * 10)), call) == expected


BUSY = Failure(kind="unavailable", reason="overloaded", message="HTTP 503", status=503)
LOST = Failure(kind="unavailable", reason="no_answer", message="closed")


@pytest.mark.parametrize(
    ("usage", "failure", "brought", "expected"),
    [
        (Usage(input_tokens=10, cache_read_tokens=5, output_tokens=7), None, True, Counted(22, True)),
        (Usage(input_tokens=10), None, True, Counted(10, False)),
        (Usage(), None, True, Counted(0, False)),
        (Usage(input_tokens=0, output_tokens=0), None, True, Counted(0, False)),
        (Usage(input_tokens=0, output_tokens=0), None, False, Counted(0, True)),
        (Usage(input_tokens=10, output_tokens=2).as_lower_bound(), LOST, True, Counted(12, False)),
        (Usage(), LOST, False, Counted(0, False)),
        (Usage(), BUSY, False, Counted(0, True)),
    ],
)
def test_an_attempt_counts_what_is_known_of_it(usage, failure, brought, expected) -> None:
    """All that was reported; a refusal used none; what was reported in part, not at all or as zero is not sure."""
    assert count(_attempt(usage, failure), brought=brought) == expected


def test_zero_with_output_is_noticed() -> None:
    """A server that reports zero for an answer counts nothing; zero for no answer is a report."""
    zero = Usage(input_tokens=0, output_tokens=0)
    assert zero_with_output(zero, brought=True)
    assert not zero_with_output(zero, brought=False)
    assert not zero_with_output(Usage(), brought=True)
    assert not zero_with_output(Usage(input_tokens=3, output_tokens=0), brought=True)


def test_a_budget_that_occurs_twice_counts_once() -> None:
    """A request's and its coordinator's budget may be the same one."""
    budget = Budget()
    expense = Expense()
    expense.reserve([budget, budget], 10)
    expense.add(Counted(5, True))
    expense.add(Counted(2, False))
    expense.settle()
    assert (budget.spent().runs, budget.spent().tokens, budget.spent().unknown_answers) == (1, 7, 1)


def test_what_one_budget_refuses_the_others_get_back() -> None:
    """Of two budgets the second is used up: the first has lost nothing."""
    wide, narrow = Budget(runs=5), Budget(runs=1)
    narrow.reserve(1)
    expense = Expense()
    with pytest.raises(BudgetExceededError):
        expense.reserve([wide, narrow], 10)
    expense.settle()
    assert (wide.spent().runs, wide.spent().running, wide.spent().reserved_tokens) == (0, 0, 0)
