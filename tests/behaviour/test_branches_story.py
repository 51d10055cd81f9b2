"""Many branches in a block."""

from __future__ import annotations

from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

import furcate
from furcate.testing import StubProvider, answer, error, no_head

pytestmark = pytest.mark.anyio


async def begin(engine: furcate.Engine, ask) -> furcate.Exchange:
    return (await engine.run(ask("begin", capture=True))).exchange


def follow(ask, *texts: str):
    """Make a callback that asks one text after the other, then stops."""
    left = list(texts)

    async def next_action(turn: furcate.Turn):
        return furcate.Continue(ask(left.pop(0))) if left else furcate.Stop()

    return next_action


@pytest.mark.field(8)
async def test_one_failure_takes_nothing_from_the_others(engine_for, ask) -> None:
    """Of five branches four give their exchanges, in the order given, and their usage is counted beside the failure."""
    group, ends = furcate.Group(), {}

    def script(request):
        said = request.body["messages"][-1]["content"]
        usage = {"prompt_tokens": 10, "completion_tokens": 2}
        return error(400, "bad") if said == "b2" else answer(f"to {said}", usage=usage)

    def keeping(name: str):
        async def next_action(turn: furcate.Turn):
            if turn.result is None:
                return furcate.Continue(ask(name))
            ends[name] = turn.result
            return furcate.Stop()

        return next_action

    async with StubProvider(script) as stub, engine_for(stub, capacity=5) as engine:
        async with furcate.open_branches(engine, await begin(engine, ask), groups=[group]) as branches:
            for n in range(5):
                branches.start_soon(keeping(f"b{n}"), additional_turns=1, name=f"b{n}")
    exchanges = [ends[branch.name].exchange for branch in branches if branch.outcome]
    assert [exchange.messages[-1].text for exchange in exchanges] == ["to b0", "to b1", "to b3", "to b4"]
    assert [branch.name for branch in branches if branch.error] == ["b2"]
    assert isinstance(list(branches)[2].error, furcate.ProviderError)
    assert [ends[name].usage.input_tokens for name in sorted(ends)] == [10] * 4
    summary = group.summary()
    assert (summary.succeeded, summary.failed) == (4, 1)
    assert (summary.usage.input_tokens.known, summary.usage.output_tokens.known) == (40, 8)
    assert summary.usage.input_tokens.unknown == 1


@pytest.mark.field(8)
@pytest.mark.req("S4-044", "S4-129")
async def test_isolated_branches_end_on_their_own(engine_for, ask, caplog) -> None:
    """One of five fails: the block raises nothing, four end well, handles keep their order, the log has the error."""

    def script(request):
        return error(400, "bad") if request.body["messages"][-1]["content"] == "b2" else answer("ok")

    async with StubProvider(script) as stub, engine_for(stub, capacity=5) as engine:
        async with furcate.open_branches(engine, await begin(engine, ask)) as branches:
            for n in range(5):
                branches.start_soon(follow(ask, f"b{n}"), additional_turns=1, name=f"branch {n}")
    handles = list(branches)
    assert [handle.name for handle in handles] == [f"branch {n}" for n in range(5)]
    assert [handle.status for handle in handles] == ["succeeded"] * 2 + ["failed"] + ["succeeded"] * 2
    assert handles[0].unwrap() is furcate.Outcome.STOPPED
    assert isinstance(handles[2].error, furcate.ProviderError)
    with pytest.raises(furcate.ProviderError) as caught:
        handles[2].unwrap()
    assert caught.value is handles[2].error
    assert "branch branch 2 failed" in caplog.text


async def test_a_callbacks_error_is_logged_with_its_traceback(engine_for, ask, caplog) -> None:
    """Isolation is not silence: what an application's callback raised can be found."""

    async def broken(turn: furcate.Turn):
        raise LookupError("a mistake in the callback")

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        async with furcate.open_branches(engine, await begin(engine, ask)) as branches:
            branch = branches.start_soon(broken, additional_turns=1)
    assert isinstance(branch.error, LookupError)
    assert "a mistake in the callback" in caplog.text


@pytest.mark.field(7)
async def test_the_first_failure_cancels_the_siblings_where_asked(engine_for, ask) -> None:
    """The block ends with the error in a group, siblings are closed and cancelled, and nothing is sent afterwards."""
    recorder = furcate.Recorder()

    def script(request):
        said = request.body["messages"][-1]["content"]
        return {"begin": answer("ok"), "bad": error(400, "bad")}.get(said, no_head(silent=True))

    async with StubProvider(script) as stub, engine_for(stub, capacity=3, observers=[recorder]) as engine:
        exchange = await begin(engine, ask)
        with pytest.raises(ExceptionGroup) as caught:
            async with furcate.open_branches(engine, exchange, on_failure="cancel") as branches:
                branches.start_soon(follow(ask, "slow"), additional_turns=1)
                branches.start_soon(follow(ask, "slow too"), additional_turns=1)
                await stub.wait_until(lambda s: s.in_flight == 2)
                branches.start_soon(follow(ask, "bad"), additional_turns=1)
        await stub.wait_until(lambda s: s.disconnects == 2)
        sent = len(stub.requests)
        assert engine.statistics()["stub"].in_use == 0
        await anyio.sleep(0.05)
        assert len(stub.requests) == sent == 4
    assert [type(error) for error in caught.value.exceptions] == [furcate.ProviderError]
    assert [branch.status for branch in branches] == ["cancelled", "cancelled", "failed"]
    with pytest.raises(furcate.BranchCancelled):
        next(iter(branches)).unwrap()
    ends = [e.status for e in recorder.events if isinstance(e, furcate.RunFinished)]
    assert sorted(ends) == ["cancelled", "cancelled", "failed", "succeeded"]


async def test_a_bounded_number_of_branches_is_active(engine_for, ask) -> None:
    """With max_active=2 never more than two callbacks run, and all of forty branches end."""
    active, most = 0, 0

    async def busy(turn: furcate.Turn):
        nonlocal active, most
        active += 1
        most = max(most, active)
        await anyio.lowlevel.checkpoint()
        active -= 1
        return furcate.Stop()

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await begin(engine, ask)
        async with furcate.open_branches(engine, exchange, max_active=2) as branches:
            for _ in range(40):
                branches.start_soon(busy, additional_turns=0)
    assert most == 2
    assert {branch.outcome for branch in branches} == {furcate.Outcome.STOPPED}
    assert len(branches) == 40


async def test_a_branchs_name_forges_no_line_of_the_log(engine_for, ask, caplog) -> None:
    """Names come from files and users: what would begin a line or move the cursor is shown as something else."""

    async def fails(turn: furcate.Turn) -> furcate.Stop:
        raise ValueError("no")

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
        async with furcate.open_branches(engine, exchange) as branches:
            branches.start_soon(fails, additional_turns=0, name="n\nWARNING forged\x1b[2J")
    [record] = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.getMessage().isprintable()
    assert "forged" in record.getMessage()


async def test_a_branch_that_waited_has_the_context_it_was_started_in(engine_for, ask) -> None:
    """Whoever lets it in has set other variables by then; what stood around `start_soon` is what it sees."""
    place: ContextVar[str] = ContextVar("place")
    seen = {}

    def looking(name: str):
        async def look(turn: furcate.Turn) -> furcate.Stop:
            seen[name] = place.get()
            place.set(f"inside {name}")
            return furcate.Stop()

        return look

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = (await engine.run(ask(capture=True))).exchange
        async with furcate.open_branches(engine, exchange, max_active=1) as branches:
            for name in ("first", "second", "third"):
                place.set(f"around {name}")
                branches.start_soon(looking(name), additional_turns=0, name=name)
            place.set("later")
    assert seen == {name: f"around {name}" for name in ("first", "second", "third")}


async def test_branches_may_start_late_and_nest(engine_for, ask) -> None:
    """A callback starts siblings and opens a nursery of its own; all of it ends inside the outer block."""
    inner_names = []

    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await begin(engine, ask)

        async def nesting(turn: furcate.Turn):
            if turn.remaining:
                return furcate.Continue(ask("one more"))
            async with furcate.open_branches(engine, turn.exchange) as inner:
                inner.start_soon(follow(ask, "inner"), additional_turns=1, name="inner")
            inner_names.extend(branch.name for branch in inner if branch.outcome)
            outer.start_soon(follow(ask), additional_turns=0, name="late")
            return furcate.Stop()

        async with furcate.open_branches(engine, exchange) as outer:
            outer.start_soon(nesting, additional_turns=1, name="first")
        assert len(stub.requests) == 3
    assert inner_names == ["inner"]
    assert [(branch.name, branch.outcome) for branch in outer] == [
        ("first", furcate.Outcome.STOPPED),
        ("late", furcate.Outcome.STOPPED),
    ]


async def test_misuse_of_a_nursery_is_told(engine_for, ask) -> None:
    """Taken names, words and numbers that are none, and starting after the block are clear errors."""
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await begin(engine, ask)
        async with furcate.open_branches(engine, exchange) as branches:
            branch = branches.start_soon(follow(ask), additional_turns=0, name="twin")
            with pytest.raises(furcate.MisuseError, match="not ended yet"):
                branch.unwrap()
            with pytest.raises(ValueError, match="'twin' already"):
                branches.start_soon(follow(ask), additional_turns=0, name="twin")
            with pytest.raises(ValueError, match="additional_turns"):
                branches.start_soon(follow(ask), additional_turns=-1)
        with pytest.raises(furcate.MisuseError, match="not after it"):
            branches.start_soon(follow(ask), additional_turns=0)
        with pytest.raises(furcate.MisuseError, match="entered once"):
            await branches.__aenter__()
        with pytest.raises(ValueError, match="'isolate' or 'cancel'"):
            furcate.open_branches(engine, exchange, on_failure="ignore")
        with pytest.raises(ValueError, match="max_active"):
            furcate.open_branches(engine, exchange, max_active=0)
    assert len(branches) == 1


@pytest.mark.parametrize("on_failure", ["isolate", "cancel"])
async def test_an_error_of_the_block_itself_cancels_its_branches(engine_for, ask, on_failure) -> None:
    """Leaving the block by an error ends the branches; where no branch can raise, the error comes unwrapped."""
    async with StubProvider([answer("ok"), no_head(silent=True)]) as stub, engine_for(stub) as engine:
        exchange = await begin(engine, ask)
        wrapped = furcate.open_branches(engine, exchange, on_failure=on_failure)
        raised = LookupError if on_failure == "isolate" else ExceptionGroup
        with pytest.raises(raised):
            async with wrapped as branches:
                branch = branches.start_soon(follow(ask, "slow"), additional_turns=1)
                await stub.wait_until(lambda s: len(s.requests) == 2)
                raise LookupError("of the block")
    assert branch.status == "cancelled"
    assert branch.undelivered is None


async def test_the_nursery_is_told_around_its_branches(engine_for, ask) -> None:
    """Nursery, coordinators and turns frame the runs, and runs name their coordinator."""
    recorder = furcate.Recorder()
    async with StubProvider(answer("ok")) as stub, engine_for(stub) as engine:
        exchange = await begin(engine, ask)
        async with furcate.open_branches(engine, exchange, observers=[recorder], name="all") as branches:
            branches.start_soon(follow(ask, "x"), additional_turns=1, name="a")
    names = [type(event).__name__ for event in recorder.events]
    assert names == [
        "NurseryStarted",
        "CoordinatorStarted",
        "TurnDelivered",
        "RunStarted",
        "AttemptStarted",
        "AttemptFinished",
        "RunFinished",
        "TurnDelivered",
        "CoordinatorFinished",
        "NurseryFinished",
    ]
    nursery, coordinator, run = recorder.events[0], recorder.events[1], recorder.events[3]
    assert coordinator.parent_scope_id == nursery.scope_id
    assert run.scope_id == coordinator.scope_id
    assert run.parent_run_id == coordinator.parent_run_id == exchange.run_id
    assert recorder.events[-2].outcome == "stopped"
    assert recorder.events[-1].branches == 1
