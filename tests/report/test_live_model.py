"""What a live view knows is folded from observations alone, and most of what has ended is only counted."""

from __future__ import annotations

import gc

import pytest

from furcate.primitives._content import ActivityState
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    BackendLimited,
    BackendPaused,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    Purpose,
    RunFinished,
    RunStarted,
    RunStatus,
    TurnDelivered,
    ValidationStatus,
)
from furcate.primitives._usage import Usage
from furcate.report._live_model import LiveModel
from furcate.report._live_nodes import Node, State, Tokens

USED = Usage(input_tokens=100, cache_read_tokens=300, output_tokens=20)


def activity(run_id: str, ident: str, name: str, state: ActivityState) -> ActivityChanged:
    return ActivityChanged(run_id=run_id, number=1, activity_id=ident, name=name, state=state)


def started(run_id: str, *, scope_id: str | None = None, prompt: str | None = None, backend: str = "b") -> RunStarted:
    return RunStarted(
        run_id=run_id,
        parent_run_id=None,
        prompt=prompt,
        profile="p",
        backend=backend,
        model="m",
        dialect="openai-chat",
        scope_id=scope_id,
    )


def sent(run_id: str, number: int = 1, purpose: Purpose = "generate") -> AttemptStarted:
    return AttemptStarted(run_id=run_id, number=number, purpose=purpose, request_id="q", waited_s=0.0)


def attempt_failed(run_id: str) -> AttemptFinished:
    return AttemptFinished(
        run_id=run_id,
        number=1,
        purpose="generate",
        request_id="q",
        status="failed",
        duration_s=1.0,
        first_event_s=None,
        body_sha256="",
        failure_kind="provider",
        failure_reason="cut_off",
    )


def paused(run_id: str) -> AttemptsPaused:
    return AttemptsPaused(run_id=run_id, wait_s=4.0, failure_kind="rate_limited")


def finished(
    run_id: str, status: RunStatus = "succeeded", *, usage: Usage = USED, validation: ValidationStatus = "not_requested"
) -> RunFinished:
    failed = status == "failed"
    return RunFinished(
        run_id=run_id,
        status=status,
        duration_s=1.0,
        usage=usage,
        attempts=1,
        repairs=0,
        validation=validation,
        failure_kind="timeout" if failed else None,
        failure_reason="idle_timeout" if failed else None,
    )


def nursery(scope_id: str = "n", *, of: str = "root", name: str | None = None) -> NurseryStarted:
    return NurseryStarted(scope_id=scope_id, parent_run_id=of, name=name)


def nursery_closed(scope_id: str = "n") -> NurseryFinished:
    return NurseryFinished(scope_id=scope_id, status="succeeded", branches=1)


def branch(scope_id: str, *, under: str | None = "n", of: str = "root", name: str | None = None) -> CoordinatorStarted:
    return CoordinatorStarted(
        scope_id=scope_id, parent_scope_id=under, parent_run_id=of, name=name or scope_id, additional_turns=2
    )


def branch_ended(scope_id: str, *, error: str | None = None, status: RunStatus | None = None) -> CoordinatorFinished:
    told: RunStatus = status or ("succeeded" if error is None else "failed")
    return CoordinatorFinished(
        scope_id=scope_id, status=told, outcome="stopped" if told == "succeeded" else None, error_type=error
    )


def heard(*events: Observation, kept: int = 200, kept_failed: int = 50) -> LiveModel:
    """Give a model that heard one event a second."""
    model = LiveModel(kept=kept, kept_failed=kept_failed)
    for second, event in enumerate(events):
        model.take(event, float(second))
    return model


def tree(model: LiveModel) -> list[str]:
    return [f"{'  ' * depth}{node.name}: {node.state}" for node, depth, _ in model.walk(model.roots.values())]


def node_of(model: LiveModel, name: str) -> Node:
    return next(node for node, _, _ in model.walk(model.roots.values()) if node.name == name)


OPENED = (started("root", prompt="draft"), sent("root"), finished("root"), nursery(name="angles"))


def test_run_is_followed_from_queue_to_end() -> None:
    """A run queues, generates and is done, with its tokens and its time."""
    told = (started("r", prompt="draft"), sent("r"), finished("r"))
    assert [tree(heard(*told[:n])) for n in range(4)] == [
        [],
        ["draft: queued"],
        ["draft: generating"],
        ["draft: done"],
    ]
    node = node_of(heard(*told), "draft")
    assert (node.seconds(99.0), node.tokens and node.tokens.read) == (2.0, 400)


def test_branches_stand_under_the_run_that_they_come_from() -> None:
    """What is forked from an answer stands under that answer's run, and a nursery inside a branch under the branch."""
    model = heard(
        *OPENED,
        branch("left"),
        branch("right"),
        started("r1", scope_id="left"),
        sent("r1"),
        finished("r1"),
        nursery("inner", of="r1"),
        branch("deep", under="inner", of="r1"),
    )
    assert tree(model) == ["draft: done", "  left: callback", "    deep: callback", "  right: callback"]


def test_nursery_of_an_exchange_from_elsewhere_stands_alone() -> None:
    """Where the run of the exchange is not known, the nursery has a row of its own."""
    model = heard(nursery(of="yesterday", name="angles"), branch("left", of="yesterday"))
    assert tree(model) == ["angles: open", "  left: callback"]
    model.take(branch_ended("left"), 9.0)
    model.take(nursery_closed(), 9.0)
    assert tree(model) == ["angles: done", "  left: stopped"]


def test_coordinator_without_a_nursery_stands_under_its_run() -> None:
    """A single coordinator needs no nursery to be seen."""
    assert tree(heard(*OPENED[:3], branch("alone", under=None))) == ["draft: done", "  alone: callback"]


def test_nursery_names_a_run_that_has_no_name() -> None:
    """A run of plain messages is called by the nursery that it led to; a name that was given stays."""
    assert tree(heard(started("root"), nursery(name="angles"))) == ["angles: queued"]
    assert tree(heard(started("0123456789abcdef"))) == ["run 89abcdef: queued"]
    assert tree(heard(started("root", prompt="draft"), nursery(name="angles"))) == ["draft: queued"]


def test_branch_is_followed_turn_by_turn() -> None:
    """A branch counts the turns it begins, adds up its tokens, and returns to its callback between them."""
    turn = (started("r1", scope_id="left"), sent("r1"), finished("r1"), TurnDelivered(scope_id="left", remaining=1))
    again = (started("r2", scope_id="left"), sent("r2"), finished("r2"))
    node = node_of(heard(*OPENED, branch("left"), *turn, *again), "left")
    assert (node.state, node.turn, node.turns) == ("callback", 2, 2)
    assert node.tokens is not None
    assert (node.tokens.read, node.tokens.made, node.tokens.cache_share) == (800, 40, 0.75)


@pytest.mark.parametrize(
    ("purpose", "state"), [("generate", "generating"), ("repair", "repairing"), ("resume", "resuming")]
)
def test_purposes_are_told_apart(purpose: Purpose, state: State) -> None:
    """What an attempt is for is a state of its own."""
    assert node_of(heard(started("r", prompt="p"), sent("r", 2, purpose)), "p").state == state


@pytest.mark.parametrize(
    ("told", "state", "problem"),
    [
        (branch_ended("left"), "stopped", ""),
        (branch_ended("left", status="cancelled"), "cancelled", ""),
        (branch_ended("left", error="ValueError"), "failed", "ValueError"),
    ],
)
def test_ends_of_branches_are_told_apart(told: CoordinatorFinished, state: State, problem: str) -> None:
    """A branch that ended says how, and no later turn brings it back."""
    model = heard(*OPENED, branch("left"), told, TurnDelivered(scope_id="elsewhere", remaining=0))
    node = node_of(model, "left")
    assert (node.state, node.problem, node.ended_s) == (state, problem, 5.0)


def test_failure_of_a_run_says_more_than_the_error() -> None:
    """A branch that a run ended tells what went wrong with the run."""
    story = (branch("left"), started("r1", scope_id="left"), sent("r1"), finished("r1", "failed"))
    node = node_of(heard(*OPENED, *story, branch_ended("left", error="ProviderError")), "left")
    assert node.problem == "timeout, idle_timeout"


def test_places_are_counted_from_first_attempt_to_pause_or_end() -> None:
    """A run holds its backend's place from its first attempt on, repairs included, and none while it pauses."""
    story = (started("r"), sent("r"), sent("r", 2, "repair"), paused("r"), sent("r", 3), finished("r"))
    in_flight = [heard(*story[:n]).backends["b"].in_flight for n in range(1, 7)]
    assert in_flight == [0, 1, 1, 0, 1, 0]
    # One that was cancelled while it paused has nothing to give back.
    assert heard(*story[:4], finished("r", "cancelled")).backends["b"].in_flight == 0


def test_backends_have_capacity_limit_and_pause() -> None:
    """Changes of a backend are taken as they are told, what it has at first from its statistics."""
    model = heard(started("r"), BackendPaused(backend="b", wait_s=3.0, failure_kind="rate_limited"))
    view = model.backends["b"]
    assert (view.capacity, view.limit, view.paused_until_s, view.paused_by) == (None, None, 4.0, "rate_limited")
    model.capacity("b", capacity=8, limit=8)
    model.take(BackendLimited(backend="b", limit=4, before=8, capacity=8), 5.0)
    assert (view.capacity, view.limit) == (8, 4)


def test_what_waits_longest_is_first_in_its_state() -> None:
    """Of all in one state, what came into it first stands first, whatever else happened meanwhile."""
    told = (started("a"), started("b"), started("c"), sent("b"), sent("a"), sent("c"), sent("b", 2, "repair"))
    model = heard(*told)
    assert list(model.living["generating"]) == ["a", "c"]
    assert list(model.living["repairing"]) == ["b"]
    assert not model.living["queued"]


def test_hosted_work_is_known_while_its_attempt_runs() -> None:
    """Work of the provider belongs to the attempt that is out, and is gone with it."""
    model = heard(started("r", prompt="p"), sent("r"))
    model.take(activity("r", "1", "web_search", "started"), 2.0)
    model.take(activity("unknown", "1", "web_search", "started"), 2.0)
    activities = node_of(model, "p").activities
    assert activities is not None
    assert [row.name for row in activities.rows] == ["web_search"]
    model.take(attempt_failed("r"), 3.0)
    assert node_of(model, "p").activities is None
    assert node_of(model, "p").problem == "provider, cut_off"


def test_notes_name_explain_and_hold() -> None:
    """An application may name what is still to come, say more of what ended, and hold a branch back."""
    model = LiveModel()
    model.note("root", 0.0, name="a.txt")
    for event in (*OPENED, branch("left")):
        model.take(event, 1.0)
    model.note("left", 2.0, waiting=True)
    model.take(TurnDelivered(scope_id="left", remaining=2), 3.0)
    assert tree(model) == ["a.txt: done", "  left: waiting"]
    assert node_of(model, "left").seconds(5.0) is None
    model.note("left", 6.0, waiting=False)
    assert (node_of(model, "left").state, node_of(model, "left").seconds(8.0)) == ("callback", 2.0)
    model.note("left", 8.0, text="why")
    assert node_of(model, "left").note == "why"
    # What the next turn brings makes the note old.
    model.take(started("r1", scope_id="left"), 9.0)
    assert node_of(model, "left").note == ""


def test_texts_of_others_are_made_harmless() -> None:
    """Names and reasons lose what a terminal would obey, and are cut where they go on and on."""
    model = heard(
        started("r", prompt="\x1b[31mred\x1b]0;title\x07\nname \u202e\ud800" + "x" * 5000, backend="\x1b[2Jb")
    )
    (node,) = model.roots.values()
    assert node.name.startswith("red name \N{REPLACEMENT CHARACTER}x")
    assert node.name.isprintable()
    assert len(node.name) <= 400
    assert [view.name for view in model.backends.values()] == ["b"]


def test_what_was_never_heard_of_changes_nothing() -> None:
    """Ends and steps of what began before the view was there are passed over."""
    late = (sent("x"), attempt_failed("x"), paused("x"), finished("x"), branch_ended("y"), nursery_closed("z"))
    model = heard(*late, TurnDelivered(scope_id="y", remaining=1))
    assert (tree(model), model.tokens.read, model.ended) == ([], None, 0)


def test_ended_branches_are_counted_and_few_are_remembered() -> None:
    """However many end, the newest and the failed ones are remembered, and the counts have them all."""
    ended: list[Observation] = []
    for number in range(100):
        name = f"b{number}"
        ended += (branch(name), branch_ended(name, error="ValueError" if number % 10 == 0 else None))
    model = heard(*OPENED, *ended, kept=5, kept_failed=3)
    (root,) = model.roots.values()
    assert list(root.children) == ["b70", "b80", "b90", "b95", "b96", "b97", "b98", "b99"]
    assert (root.forgotten, model.forgotten, model.ended) == (92, 92, 101)
    assert model.counts["branch"] == {"callback": 0, "failed": 10, "stopped": 90}
    assert root.states["stopped"] == 90
    assert len(model) == 9


def test_run_stays_while_its_branches_go_on() -> None:
    """An opening is remembered as long as anything under it goes on, and forgotten with all that it holds."""
    others = [event for n in range(9) for event in (started(f"r{n}", prompt=f"p{n}"), finished(f"r{n}"))]
    model = heard(*OPENED, branch("left"), *others, kept=3)
    assert tree(model)[:2] == ["draft: done", "  left: callback"]
    for event in (branch_ended("left"), nursery_closed()):
        model.take(event, 50.0)
    assert "draft: done" in tree(model)
    for event in [event for n in range(9, 18) for event in (started(f"r{n}", prompt=f"p{n}"), finished(f"r{n}"))]:
        model.take(event, 60.0)
    assert tree(model) == ["p15: done", "p16: done", "p17: done"]


def test_ended_run_is_opened_again_by_a_later_nursery() -> None:
    """Branches that come long after their opening ended still stand under it, and keep it from being forgotten."""
    others = [event for n in range(9) for event in (started(f"r{n}", prompt=f"p{n}"), finished(f"r{n}"))]
    model = heard(*OPENED[:3], nursery(), branch("left"), *others, kept=2)
    assert tree(model)[:2] == ["draft: done", "  left: callback"]


def test_memory_does_not_grow_with_what_has_ended() -> None:
    """After thousands of branches the model holds no more objects than after hundreds."""
    model = heard(*OPENED, kept=20, kept_failed=5)

    def wave(first: int) -> int:
        for number in range(first, first + 500):
            name, run = f"b{number}", f"r{number}"
            model.take(branch(name), 1.0)
            model.take(started(run, scope_id=name), 1.0)
            model.take(sent(run), 1.0)
            model.take(finished(run, "failed" if number % 3 == 0 else "succeeded"), 1.0)
            model.take(branch_ended(name), 1.0)
        gc.collect()
        nodes = sum(isinstance(value, Node) for value in gc.get_objects())
        return nodes + sum(len(value) for value in vars(model).values() if hasattr(value, "__len__"))

    assert wave(0) == wave(1000) == wave(5000)


def test_tokens_know_what_they_do_not_know() -> None:
    """What was not reported is unknown, what may be too small is marked, and the cached part needs both."""
    tokens = Tokens()
    assert (tokens.read, tokens.made, tokens.cache_share) == (None, None, None)
    tokens.add(Usage(input_tokens=0, output_tokens=7, lower_bounds={"output_tokens"}))
    assert (tokens.read, tokens.read_short, tokens.made, tokens.made_short) == (0, False, 7, True)
    tokens.add(Usage())
    assert (tokens.read_short, tokens.cache_share) == (True, None)
    tokens.add(Usage(input_tokens=10, cache_read_tokens=30))
    assert (tokens.read, tokens.cache_share) == (40, 0.75)


def test_answer_that_fails_its_contract_says_so() -> None:
    """A run that ended well with an answer that did not says that."""
    assert node_of(heard(started("r", prompt="p"), finished("r", validation="failed")), "p").problem == (
        "validation failed"
    )
