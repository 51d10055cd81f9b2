"""What is done with each item: an async function of the application, or a prompt of the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from attrs import field, frozen

from furcate.batch._rows import ItemFailure
from furcate.groups import Group
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import BudgetExceededError, ProviderError
from furcate.primitives._json import Json, Plain
from furcate.primitives._request import Request
from furcate.primitives._resources import Prompt


@frozen(kw_only=True)
class ItemJob:
    """What a target works with for one item.

    Attributes:
        engine: runs requests under this item: they are counted to it, wait for admission as one with it, and are not
            asked and paid for again where an earlier start of the item has their answers.
        group: counts all runs of that engine.
        item_id: what the item is called.
        line: the line of the input that it begins on, from 1 on.
    """

    engine: Engine = field(repr=False)
    group: Group = field(repr=False)
    item_id: str
    line: int


Target: TypeAlias = Callable[[Any, ItemJob], Awaitable[Json]]
"""An async function that is given an item's value and what to work with, and returns a JSON value."""


def target_name(target: Target | Prompt | str) -> str:
    """Name a target: a prompt by its id, a function as ``module:function``.

    Raises:
        TypeError: it is neither a prompt nor a prompt's id nor an async function of two arguments.
    """
    if isinstance(target, (str, Prompt)):
        return target if isinstance(target, str) else target.name
    call = getattr(target, "__call__", None)  # noqa: B004 - an object with an async __call__ is meant
    if not (inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call)):
        given = "an async generator" if inspect.isasyncgenfunction(target) else repr(target)
        raise TypeError(f"the target is {given}; give an async function that returns a value, or the id of a prompt")
    try:
        inspect.signature(target).bind(None, None)
    except TypeError:
        raise TypeError("the target does not take two arguments; write async def target(item, job)") from None
    return f"{target.__module__}:{getattr(target, '__qualname__', type(target).__qualname__)}"


def function_of(target: Target | Prompt | str) -> Target:
    """Give the function that a target stands for."""
    return _of_prompt(target) if isinstance(target, (str, Prompt)) else target


def _of_prompt(prompt: Prompt | str) -> Target:
    name = target_name(prompt)

    async def run_prompt(item: Plain, job: ItemJob) -> Json:
        if not isinstance(item, dict):
            raise TypeError(f"the item is no JSON object, whose members would be the variables of prompt {name!r}")
        result = await job.engine.run(Request(prompt, vars=item))
        told: dict[str, Json] = {"text": result.text, "stop_reason": result.stop_reason}
        if result.validation.status != "not_requested":
            told["validation"] = result.validation.status
            faults: list[Json] = [str(fault) for fault in result.validation.faults]
            told["faults"] = faults
        if result.validation.status == "passed":
            value = result.validation.value
            told["value"] = value if isinstance(value, dict | list) else result.value  # type: ignore[assignment]
        return told

    return run_prompt


def failure_of(error: BaseException) -> ItemFailure:
    """Tell why an item failed: the kind is a failure kind of a provider, or the class of what was raised."""
    inner: BaseException = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    if isinstance(inner, SystemExit):
        problem = f"the function tried to leave the program (SystemExit {inner.code}); let it raise an error, or return"
        return ItemFailure("SystemExit", problem)
    if isinstance(inner, ProviderError):
        return ItemFailure(inner.failure.kind, str(inner))
    if isinstance(inner, BudgetExceededError):
        return ItemFailure("budget", str(inner))
    said = _said(inner)
    if isinstance(inner, BaseExceptionGroup):
        said = "; ".join([f"{type(one).__name__}: {_said(one)}" for one in _leaves(inner)])
    return ItemFailure(type(inner).__name__, said)


def _said(error: BaseException) -> str:
    """Give an error's own words; what it is called, where it has none or cannot say them."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    """Give what was raised, without the groups around it; several branches may have failed at once."""
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found
