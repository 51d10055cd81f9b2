"""An exploration under way: openings, branches, and a line for each branch that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import anyio
import anyio.abc
import attrs
from attrs import frozen

from furcate.cli._asking import Asking
from furcate.cli._callables import Function
from furcate.cli._lines import Facts, LineWriter, branch_line
from furcate.cli._plan import BranchPlan
from furcate.cli._told import leaves, one_line, sentence, unmet
from furcate.groups import Group
from furcate.orchestrator._branches import Branch, open_branches
from furcate.orchestrator._coordinator import Action, NextAction, Turn
from furcate.orchestrator._engine import Engine
from furcate.primitives._observations import (
    CoordinatorFinished,
    CoordinatorStarted,
    Observation,
    RunFinished,
    RunStarted,
)
from furcate.primitives._result import Result
from furcate.primitives._usage import Usage
from furcate.report import LiveView

MOST_PROBLEMS = 20
"""How many of the failures are told one by one at the end; the results tell of all."""


@frozen
class Source:
    """Name an input of the exploration.

    Attributes:
        name: as it was given on the command line; None where the plan runs without input.
        path: the file.
    """

    name: str | None
    path: Path | None = None


@frozen
class Key:
    """Name a branch by numbers: its input's, and its own in the plan."""

    input: int
    branch: int


@frozen(kw_only=True)
class Limits:
    """Bound what goes on at once.

    Attributes:
        inputs: most inputs between their opening and their last branch.
        active: most openings and branches in all; None leaves it to the backends' capacity.
    """

    inputs: int
    active: int | None = None


class Remark(TypedDict, total=False):
    """Say what observations do not tell, as for `LiveView.note`."""

    name: str
    text: str
    waiting: bool


class BranchRun:
    """Follow one branch of one input from outside.

    Attributes:
        plan: what it is to do.
        key: its place.
        handle: the nursery's handle, once it is started.
        scope_id: the id that observers know it by; empty before it has begun.
        usage: the sum over its own runs; None before the first has ended.
        latest: the newest result of its conversation.
        checked: the newest one that was to meet a contract.
        turns: how many turns it completed.
        placed: whether it occupies one of the places that ``--max-active`` leaves.
    """

    def __init__(self, plan: BranchPlan, key: Key, opening: Result, *, drive: NextAction) -> None:
        self.plan = plan
        self.key = key
        self.handle: Branch | None = None
        self.scope_id = ""
        self.usage: Usage | None = None
        self.latest = self._opening = opening
        self.checked = opening if opening.validation.status != "not_requested" else None
        self.turns = 0
        self.placed = False
        self._drive = drive

    def take(self, result: Result) -> None:
        """Note a completed turn."""
        self.turns += 1
        self.latest = result
        if result.validation.status != "not_requested":
            self.checked = result

    def hear(self, heard: Observation) -> None:
        """Note what observers are told of the branch."""
        if isinstance(heard, CoordinatorStarted):
            self.scope_id = heard.scope_id
        elif isinstance(heard, RunFinished):
            self.usage = heard.usage if self.usage is None else Usage.total((self.usage, heard.usage))

    async def next_action(self, turn: Turn) -> Action:
        """Pass the turn on to what drives the branch."""
        if turn.result is not None:
            self.take(turn.result)
        return await self._drive(turn)

    @property
    def unmet(self) -> str:
        """How the last answer that was to meet a contract does not; empty where it does, or where there is none."""
        if self.checked is None or not unmet(self.checked):
            return ""
        answer = "opening's answer" if self.checked is self._opening else "last answer under a contract"
        if self.checked.validation.status == "failed":
            return f"the {answer} does not meet its contract"
        ended = "is a refusal" if self.checked.stop_reason == "refusal" else "was cut off"
        return f"the {answer} {ended}, so it was not checked"


class Exploration:
    """Run a plan over its inputs: one opening each, then all branches from its answer.

    Arguments:
        engine: an open engine.
        asking: makes the requests.
        sources: the inputs, at least one.
        functions: the branches' callables by branch name.
        limits: what may go on at once.

    Attributes:
        group: counts all runs.
        endings: how many branches ended in which way.
        problems: one sentence for each opening or branch that failed, of the first `MOST_PROBLEMS`.
        more_problems: how many failed beside those.
        unmet: how many branches ended without an answer that meets its contract.
        undelivered: why results could not be written, where they could not.
    """

    def __init__(
        self,
        engine: Engine,
        asking: Asking,
        sources: tuple[Source, ...],
        *,
        functions: Mapping[str, Function],
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._asking = asking
        self._sources = sources
        self._functions = functions
        self._branches = asking.plan.branches
        self._inputs = anyio.CapacityLimiter(limits.inputs)
        self._active = anyio.CapacityLimiter(limits.active) if limits.active is not None else None
        self._openings: dict[int, Result] = {}
        self._opening_ids: dict[int, str] = {}
        self._told: set[Key] = set()
        self._view: LiveView | None = None
        self._writer: LineWriter | None = None
        self._writers: anyio.abc.TaskGroup | None = None
        self._scope = anyio.CancelScope()
        self.group = Group(asking.plan.path.stem)
        self.endings: Counter[str] = Counter()
        self.problems: list[str] = []
        self.more_problems = 0
        self.unmet = 0
        self.undelivered: OSError | None = None

    async def run(self, view: LiveView, writer: LineWriter, scope: anyio.CancelScope) -> None:
        """Run everything to its end, each branch's line being written as soon as the branch has ended.

        Arguments:
            view: shows what goes on; it is an observer of the engine.
            writer: takes the lines.
            scope: ends the work when it is cancelled. Lines of what had ended are written then, the others are
                written as cancelled. It is cancelled here where the writer fails.
        """
        self._view, self._writer, self._scope = view, writer, scope
        async with view:
            view.show_capacity(self._engine.statistics())
            # Outside the scope, so that what has ended is written even when all else is cancelled.
            async with anyio.create_task_group() as self._writers:
                with scope:
                    async with anyio.create_task_group() as tasks:
                        for number, source in enumerate(self._sources):
                            # Taken here, so that inputs begin in their order.
                            await self._inputs.acquire_on_behalf_of(source)
                            tasks.start_soon(self._explore, number, source)
            await self._tell_rest()

    async def _explore(self, number: int, source: Source) -> None:
        try:
            self._openings[number] = opening = await self._open(number, source)
        except Exception as error:
            await self._tell_unopened(number, error)
        else:
            await self._fork(number, source, opening)
        finally:
            self._inputs.release_on_behalf_of(source)

    async def _fork(self, number: int, source: Source, opening: Result) -> None:
        async with open_branches(self._engine, opening.exchange, groups=[self.group], name=source.name) as nursery:
            for place, plan in enumerate(self._branches):
                drive = self._asking.driver(plan, self._functions.get(plan.name), source.path)
                run = BranchRun(plan, Key(number, place), opening, drive=drive)
                run.handle = nursery.start_soon(
                    partial(self._drive, run),
                    additional_turns=plan.turns,
                    name=plan.name,
                    observers=[partial(self._hear_branch, run)],
                )

    async def _open(self, number: int, source: Source) -> Result:
        def call_by_its_input(heard: Observation) -> None:
            if isinstance(heard, RunStarted):
                self._opening_ids[number] = heard.run_id
                self._remark(heard.run_id, name=source.name or "(no input)")

        request = attrs.evolve(
            self._asking.request(self._asking.plan.opening, source.path),
            capture=True,
            groups=[self.group],
            observers=[call_by_its_input],
        )
        async with self._active or nullcontext():
            return await self._engine.run(request)

    async def _drive(self, run: BranchRun, turn: Turn) -> Action:
        if turn.result is None and self._active is not None:
            self._remark(run.scope_id, waiting=True)
            await self._active.acquire_on_behalf_of(run)
            run.placed = True
            self._remark(run.scope_id, waiting=False)
        return await run.next_action(turn)

    def _remark(self, ident: str, **remark: Unpack[Remark]) -> None:
        assert self._view is not None
        self._view.note(ident, **remark)

    def _hear_branch(self, run: BranchRun, heard: Observation) -> None:
        run.hear(heard)
        if not isinstance(heard, CoordinatorFinished):
            return
        if run.placed and self._active is not None:
            self._active.release_on_behalf_of(run)
        # The handle is filled in before any other task gets its turn.
        assert self._writers is not None
        self._writers.start_soon(self._tell, run)

    async def _tell(self, run: BranchRun) -> None:
        """Show how a branch ended, and write its line."""
        handle = run.handle
        assert handle is not None
        if handle.undelivered is not None:
            run.take(handle.undelivered)
        error: tuple[str, str] | None = None
        detail = ""
        if handle.outcome is not None:
            detail = run.unmet
            self.unmet += bool(detail)
        elif handle.status == "failed" and handle.error is not None:
            error, detail = described(handle.error), sentence(handle.error)
            self._note(run.key.input, run.plan.name, detail)
        if detail:
            self._remark(run.scope_id, text=detail)
        await self._write(
            run.key,
            status=handle.status,
            outcome=handle.outcome.value if handle.outcome is not None else None,
            error=error,
            turns=run.turns,
            result=run.latest,
            usage=run.usage,
        )

    async def _tell_unopened(self, number: int, error: Exception) -> None:
        """Write the lines of branches that no opening came before."""
        detail = sentence(error)
        self._note(number, "opening", detail)
        if number in self._opening_ids:
            self._remark(self._opening_ids[number], text=detail)
        kind, message = described(error)
        for place in range(len(self._branches)):
            await self._write(Key(number, place), status="failed", error=(kind, f"the opening failed: {message}"))

    async def _tell_rest(self) -> None:
        """Write the lines of branches that never came to their turn."""
        for number in range(len(self._sources)):
            for place in range(len(self._branches)):
                if Key(number, place) not in self._told:
                    await self._write(Key(number, place), status="cancelled", result=self._openings.get(number))

    async def _write(self, key: Key, *, usage: Usage | None = None, **facts: Unpack[Facts]) -> None:
        self._told.add(key)
        self.endings[facts.get("outcome") or facts["status"]] += 1
        assert self._writer is not None
        if self.undelivered is not None:
            return
        line = branch_line(self._sources[key.input].name, self._branches[key.branch].name, usage=usage, **facts)
        try:
            await self._writer.write(line)
        except OSError as error:
            # Nobody would ever see what else is generated.
            self.undelivered = error
            self._scope.cancel()

    def _note(self, number: int, what: str, detail: str) -> None:
        if len(self.problems) == MOST_PROBLEMS:
            self.more_problems += 1
            return
        name = self._sources[number].name
        self.problems.append(f"{name} / {what}: {detail}" if name is not None else f"{what}: {detail}")


def described(error: BaseException) -> tuple[str, str]:
    """Give an error's type and its message in one line; of a group, those of the first error in it."""
    first = next(leaves(error))
    return type(first).__name__, one_line(str(first)) or type(first).__name__
