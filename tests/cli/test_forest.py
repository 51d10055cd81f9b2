"""What people are shown is a pure fold over what was heard."""

from __future__ import annotations

import pytest

from furcate.cli._forest import Begun, Ended, Forest, Heard, Key, fold, plant
from furcate.primitives._observations import (
    AttemptsPaused,
    AttemptStarted,
    CoordinatorFinished,
    CoordinatorStarted,
    RunFinished,
    RunStarted,
    RunStatus,
    TurnDelivered,
)
from furcate.primitives._usage import Usage

OPENING = Key(0)
BRANCH = Key(0, 1)


def run_started() -> RunStarted:
    return RunStarted(
        run_id="r", parent_run_id=None, prompt=None, profile="p", backend="b", model="m", dialect="openai-chat"
    )


def attempt_started(number: int = 1, *, repair: bool = False) -> AttemptStarted:
    purpose = "repair" if repair else "generate"
    return AttemptStarted(run_id="r", number=number, purpose=purpose, request_id="q", waited_s=0.0)


def run_finished(usage: Usage, status: RunStatus = "succeeded") -> RunFinished:
    return RunFinished(
        run_id="r", status=status, duration_s=1.0, usage=usage, attempts=1, repairs=0, validation="not_requested"
    )


def grown(key: Key, *heard: Heard) -> Forest:
    forest = plant(["a.txt", "b.txt"], [("left", 2), ("right", 3)])
    for second, event in enumerate(heard):
        forest = fold(forest, key, event, at_s=float(second))
    return forest


def test_everything_waits_at_first() -> None:
    """A forest that was just planted holds every branch of every input, waiting."""
    forest = plant(["a.txt", "b.txt"], [("left", 2)])
    assert [view.opening.name for view in forest.inputs] == ["a.txt", "b.txt"]
    assert {node.state for node in forest.nodes()} == {"waiting"}
    assert forest.at(Key(1, 0)).turns == 2
    assert forest.at(Key(1)).turns is None


def test_opening_is_followed_from_queue_to_end() -> None:
    """An opening queues, generates and is done, with its tokens and its time."""
    usage = Usage(input_tokens=3, output_tokens=4)
    states = [grown(OPENING, *heard).at(OPENING).state for heard in _prefixes(usage)]
    assert states == ["waiting", "queued", "queued", "generating", "done"]
    node = grown(OPENING, *_prefixes(usage)[-1]).at(OPENING)
    assert node.usage == usage
    assert node.seconds(99.0) == 3.0


def _prefixes(usage: Usage) -> list[tuple[Heard, ...]]:
    story = (Begun(), run_started(), attempt_started(), run_finished(usage))
    return [story[:length] for length in range(len(story) + 1)]


def test_branch_is_followed_turn_by_turn() -> None:
    """A branch counts the turns it begins, adds up its tokens, and returns to its callback between them."""
    turn = (
        run_started(),
        attempt_started(),
        run_finished(Usage(output_tokens=5)),
        TurnDelivered(scope_id="s", remaining=1),
    )
    node = grown(BRANCH, Begun(), *turn, *turn).at(BRANCH)
    assert (node.state, node.turn) == ("callback", 2)
    assert node.usage is not None
    assert node.usage.output_tokens == 10
    assert node.usage.input_tokens is None


def test_only_the_place_that_was_heard_of_changes() -> None:
    """Other inputs and branches stay the very same objects."""
    before = grown(BRANCH)
    after = fold(before, BRANCH, Begun(), at_s=1.0)
    assert after.inputs[1] is before.inputs[1]
    assert after.inputs[0].branches[0] is before.inputs[0].branches[0]
    assert before.at(BRANCH).state == "waiting"


def test_what_changes_nothing_gives_the_same_forest() -> None:
    """An observation without a part to play is passed over."""
    before = grown(BRANCH)
    told = CoordinatorStarted(scope_id="s", parent_scope_id=None, parent_run_id="r", name="right", additional_turns=3)
    assert fold(before, BRANCH, told, at_s=1.0) is before


def test_branch_without_a_place_waits_through_its_first_delivery() -> None:
    """A callback that was not yet given its place is still waiting, and no time runs."""
    node = grown(BRANCH, TurnDelivered(scope_id="s", remaining=3)).at(BRANCH)
    assert node.state == "waiting"
    assert node.seconds(9.0) is None


def test_repairs_and_pauses_are_told_apart() -> None:
    """A repair and a wait before a retry are states of their own."""
    assert grown(BRANCH, run_started(), attempt_started(2, repair=True)).at(BRANCH).state == "repairing"
    paused = grown(BRANCH, run_started(), AttemptsPaused(run_id="r", wait_s=2.0, failure_kind="rate_limited"))
    assert paused.at(BRANCH).state == "pausing"
    assert paused.at(BRANCH).detail == "2.0 s, rate_limited"


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (CoordinatorFinished(scope_id="s", status="succeeded", outcome="stopped"), "stopped"),
        (CoordinatorFinished(scope_id="s", status="succeeded", outcome="exhausted"), "exhausted"),
        (CoordinatorFinished(scope_id="s", status="failed", outcome=None, error_type="X"), "failed"),
        (CoordinatorFinished(scope_id="s", status="cancelled", outcome=None), "cancelled"),
    ],
)
def test_ends_are_told_apart(told: CoordinatorFinished, state: str) -> None:
    """Every way for a branch to end is a state of its own, and its clock stops."""
    node = grown(BRANCH, Begun(), told).at(BRANCH)
    assert node.state == state
    assert node.ended
    assert node.seconds(50.0) == 1.0


def test_later_word_adds_detail_and_keeps_the_time() -> None:
    """What is learnt of an end afterwards replaces its detail, not its time."""
    failed = CoordinatorFinished(scope_id="s", status="failed", outcome=None, error_type="ProviderError")
    node = grown(BRANCH, Begun(), failed, Ended("failed", "timeout: too slow")).at(BRANCH)
    assert (node.detail, node.ended_s) == ("timeout: too slow", 1.0)


def test_failed_opening_says_so() -> None:
    """An opening that fails ends as failed."""
    node = grown(OPENING, Begun(), run_started(), run_finished(Usage(), "failed")).at(OPENING)
    assert node.state == "failed"
