"""Errors from one process to another: each class of ours is itself again, with all that it holds."""

from __future__ import annotations

import copy
import pickle
from inspect import isclass

import pytest

import furcate
from furcate.primitives import _errors as errors
from furcate.primitives._budget import BudgetSpent
from furcate.primitives._wire import Failure

SOME: dict[str, errors.FurcateError] = {
    "ConfigError": errors.ConfigError("wrong", where="f.toml", table="t", key="k", remedy="do so"),
    "UnknownNameError": errors.UnknownNameError("prompt", "x", ("b", "a")),
    "RenderError": errors.RenderError("wrong", prompt="p", place="a template"),
    "UnansweredToolCallError": errors.UnansweredToolCallError(("c1", "c2")),
    "ToolTurnError": errors.ToolTurnError("c1", "has two results"),
    "ForeignReasoningState": errors.ForeignReasoningState("a", ("c", "b")),
    "ProviderError": errors.ProviderError(
        Failure(kind="rate_limited", reason="throttled", message="slow down", retryable=True, wait_s=3.0),
        run_id="r",
        usage=furcate.Usage(input_tokens=3),
    ),
    "BudgetExceededError": errors.BudgetExceededError(
        "runs", 3, BudgetSpent(runs=3, running=0, tokens=9, reserved_tokens=0, unknown_answers=0)
    ),
    "ReceiptError": errors.ReceiptError("$.a", "is missing"),
    "NotValid": errors.NotValid("not valid", ()),
    "BranchCancelled": errors.BranchCancelled("left"),
    "ActionError": errors.ActionError(7),
    "StorageError": errors.StorageError("cut off", "damaged", version=2),
    "ItemsError": errors.ItemsError("no JSON", where="items.jsonl", lines=(3, 7)),
    "JournalError": errors.JournalError("in use", "busy", path="j", pid=3),
    "TooLargeError": errors.TooLargeError("the item", 3_000_000, 2_000_000),
}
KINDS = {name: kind for name, kind in vars(errors).items() if isclass(kind) and issubclass(kind, errors.FurcateError)}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_survives_the_way(name: str) -> None:
    """Class, text and attributes arrive, by pickling and by copying."""
    error = SOME.get(name) or KINDS[name]("what is wrong")
    assert type(error).__name__ == name
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert arrived.args == error.args
        assert vars(arrived) == vars(error)


def test_errors_inside_an_error_survive_the_way() -> None:
    """What else is wrong with a configuration is told on the other side, too."""
    inner = errors.ConfigError("second", where="f.toml")
    arrived = pickle.loads(pickle.dumps(errors.ConfigError("first", where="f.toml", others=(inner,))))
    assert [other.problem for other in arrived.others] == ["second"]
    assert "1 more" in str(arrived)
