"""What the public values consist of, and what they leave out on purpose."""

from __future__ import annotations

import enum
import inspect
from typing import get_type_hints

import attrs
import pytest

import furcate
from furcate.testing import StubProvider, answer


def fields(cls: type) -> set[str]:
    return {attribute.alias for attribute in attrs.fields(cls)}


def public(thing: object) -> set[str]:
    """Name what can be read of a thing: for an instance, what it was given in its making too."""
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.anyio
@pytest.mark.req("S4-072", "S4-075", "S4-078")
async def test_a_coordinator_returns_an_outcome_and_keeps_one_response(engine_for, ask) -> None:
    """Outcome, error and undelivered response are all there is: no archive, stage, counters, totals or further ids."""

    async def next_action(turn: furcate.Turn):
        return furcate.Continue(ask()) if turn.remaining else furcate.Stop()

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
        coordinator = furcate.Coordinator(engine, exchange, next_action, additional_turns=1)
        before = public(coordinator)
        outcome = await coordinator.run()
        async with furcate.open_branches(engine, exchange) as branches:
            branch = branches.start_soon(next_action, additional_turns=1)
    # The instances are looked at, after their work: what they keep is theirs and not their class's.
    assert before == public(coordinator) == {"run", "undelivered"}
    assert type(outcome) is furcate.Outcome
    assert public(branch) == {"error", "name", "outcome", "status", "undelivered", "unwrap"}
    assert get_type_hints(furcate.Branch.undelivered.fget)["return"] == furcate.Result | None


@pytest.mark.req("S4-054", "S4-055", "S4-073", "S4-077", "S4-079")
def test_outcomes_are_two_words_about_execution() -> None:
    """Stopped and exhausted are values, not exceptions, and neither speaks of content."""
    assert {outcome.name for outcome in furcate.Outcome} == {"STOPPED", "EXHAUSTED"}
    assert issubclass(furcate.Outcome, enum.Enum)
    assert not issubclass(furcate.Outcome, BaseException)
    assert not issubclass(furcate.Stop, BaseException)


@pytest.mark.req("S4-050", "S4-049")
def test_a_callback_gets_three_facts_and_no_state_of_ours() -> None:
    """Exchange, newest result and remaining turns; what it keeps between turns is its own affair."""
    assert fields(furcate.Turn) == {"exchange", "result", "remaining"}
    assert fields(furcate.Continue) == {"request"}
    assert fields(furcate.Stop) == set()


@pytest.mark.req("S4-085", "S4-032", "S4-027")
def test_an_exchange_has_no_conversation_id() -> None:
    """Its run id and its parent's are enough: no conversation id, branch id or sequence number, no attempts."""
    assert fields(furcate.Exchange) == {"history", "run_id", "parent_run_id", "carrier"}


@pytest.mark.req("S4-117", "S4-122", "S4-121", "S4-102")
def test_a_summary_is_facts_of_execution() -> None:
    """Runs, statuses, counters and token totals; no money, no judgement; the sum of durations is called that."""
    assert fields(furcate.GroupSummary) == {
        "name",
        "runs",
        "succeeded",
        "failed",
        "cancelled",
        "running",
        "attempts",
        "repairs",
        "validation_failed",
        "run_seconds_total",
        "usage",
    }


@pytest.mark.req("S4-096", "S4-102", "S4-109", "S4-116")
def test_a_group_collects_and_does_nothing_else() -> None:
    """It hears and summarises: nothing to close or wait for, no nesting, no scheduling."""
    assert public(furcate.Group) == {"name", "on_event", "summary"}
    assert "parent" not in inspect.signature(furcate.Group).parameters


@pytest.mark.req("S4-004", "S4-005", "S4-051", "S4-123")
def test_the_parts_stand_by_themselves() -> None:
    """Continuing knows no coordinator and no group; no store, session, workflow or tree coordinator is on offer."""
    assert set(inspect.signature(furcate.Engine.continue_from).parameters) == {"self", "exchange", "request"}
    words = ("store", "session", "workflow", "tree", "resume", "persist")
    assert not [name for name in furcate.__all__ if any(word in name.lower() for word in words)]


@pytest.mark.req("S4-001")
def test_no_word_of_any_domain_is_public() -> None:
    """Neither names nor parameters nor docstrings judge what was said."""
    words = ("candidate", "accepted", "acceptance", "rejection", "withdrawal", "assessment")
    for name in furcate.__all__:
        thing = getattr(furcate, name)
        texts = [name, *public(thing), inspect.getdoc(thing) or ""]
        if callable(thing) and not isinstance(thing, type(furcate.StreamEvent)):
            texts.extend(inspect.getdoc(getattr(thing, member)) or "" for member in public(thing))
        assert not [word for word in words if word in " ".join(texts).lower()], name


@pytest.mark.req("S4-142")
def test_results_and_preparations_say_what_they_say() -> None:
    """A result's fields are its own; inspecting an exchange adds no second report of its execution."""
    assert fields(furcate.Result) == {
        "run_id",
        "message",
        "stop_reason",
        "stop_detail",
        "validation",
        "usage",
        "attempts",
        "exchange",
    }
    details = furcate.Exchange(furcate.History([furcate.Message.assistant("ok")]), "r").details()
    assert set(details) == {"run_id", "parent_run_id", "digest", "messages"}
