"""From a plan to requests: which profile, which input file, and what drives each branch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import anyio
import attrs
from attrs import frozen
from minijinja import Environment, TemplateError

from furcate.cli._callables import CallableError, Function
from furcate.cli._plan import Ask, BranchPlan, ExplorePlan, default_profile
from furcate.cli._setup import Setup
from furcate.orchestrator._coordinator import Action, Continue, NextAction, Stop, Turn
from furcate.primitives._errors import RequestError
from furcate.primitives._request import Request
from furcate.primitives._resources import Prompt

_INPUTS = "inputs"
_SYNTAX = Environment()


@frozen
class Asking:
    """Make the requests of a plan under a configuration.

    Attributes:
        plan: the plan.
        setup: its configuration.
        interrupt: ends all work as Ctrl-C does, for a callable that raises KeyboardInterrupt; None lets it through.
    """

    plan: ExplorePlan
    setup: Setup
    interrupt: Callable[[], None] | None = None

    def request(self, ask: Ask, source: Path | None) -> Request:
        """Make the request for one place of the plan.

        Arguments:
            ask: what is asked there.
            source: the input file, if there is one.
        """
        name = self.plan.input
        if isinstance(ask.prompt, str):
            declared = dict(self.setup.resources.prompts[ask.prompt].inputs)
            inputs = {name: source} if source is not None and name in declared else {}
            return Request(ask.prompt, vars=ask.vars, profile=self.profile(ask), contract=ask.contract, inputs=inputs)
        # Rendering reads declared files, so a follow-up that does not look at the input does not declare it.
        if not _looks_at_inputs(ask.prompt):
            return Request(ask.prompt, vars=ask.vars, profile=self.profile(ask))
        prompt = attrs.evolve(ask.prompt, inputs={name: source})
        return Request(prompt, vars=ask.vars, profile=self.profile(ask))

    def check_source(self, ask: Ask, source: Path | None) -> None:
        """Check that an opening or a follow-up that wants an input file gets one, and the other way round.

        Raises:
            RequestError: it does not.
        """
        name, where = self.plan.input, f"{self.plan.path}: "
        if isinstance(ask.prompt, str):
            declared = dict(self.setup.resources.prompts[ask.prompt].inputs)
            if source is not None and name not in declared and ask is self.plan.opening:
                known = ", ".join(declared) or "none"
                raise RequestError(
                    f"{where}[opening] input: prompt {ask.prompt!r} declares no input {name!r}; it declares: {known}"
                )
            if source is None and name in declared and declared[name] is None:
                raise RequestError(f"{where}prompt {ask.prompt!r} reads an input {name!r}; give an INPUT file")
        elif source is None and _looks_at_inputs(ask.prompt):
            raise RequestError(f"{where}{ask.prompt.name} reads inputs.{name}; give an INPUT file")

    def profile(self, ask: Ask) -> str | None:
        """Give the profile to name in a request; None leaves it to the prompt's own."""
        if ask.profile is not None:
            return ask.profile
        return None if default_profile(ask, self.setup.resources.prompts) is not None else self.default

    @property
    def default(self) -> str | None:
        """The profile of everything that names none."""
        return self.plan.profile or self.setup.only_profile

    def with_default(self, request: Request) -> Request:
        """Give a callable's request the plan's profile where it would have none."""
        if request.profile is not None or self.default is None:
            return request
        prompt = request.prompt
        if isinstance(prompt, str):
            prompt = self.setup.resources.prompts.get(prompt)
        if prompt is not None and prompt.profile is not None:
            return request
        return attrs.evolve(request, profile=self.default)

    def driver(self, branch: BranchPlan, function: Function | None, source: Path | None) -> NextAction:
        """Make what drives a branch, with state of its own.

        Arguments:
            branch: the branch.
            function: its callable, loaded; None where it has follow-ups.
            source: the input file, if there is one.
        """
        if function is not None:
            return self._called(function)
        return self._asked_in_turn(branch.follow_ups, source)

    def _called(self, function: Function) -> NextAction:
        async def drive(turn: Turn) -> Action:
            try:
                action = await function(turn)
            except SystemExit as leaving:
                # The event loop would drop everything for it, the branches of others included.
                raise CallableError(
                    f"the callable tried to leave the program (SystemExit {leaving.code}); let it raise an error, or "
                    "return Stop()"
                ) from leaving
            except KeyboardInterrupt:
                if self.interrupt is None:
                    raise
                self.interrupt()
                await anyio.sleep_forever()
                raise  # not reached: the work is cancelled
            return Continue(self.with_default(action.request)) if isinstance(action, Continue) else action

        return drive

    def _asked_in_turn(self, follow_ups: tuple[Ask, ...], source: Path | None) -> NextAction:
        left = iter(follow_ups)

        async def drive(_turn: Turn) -> Action:
            ask = next(left, None)
            return Stop() if ask is None else Continue(self.request(ask, source))

        return drive


_READS_INPUTS = re.compile(r"\{[{%][^{}]*\binputs\s*[.\[]")


def _looks_at_inputs(prompt: Prompt) -> bool:
    return any(_INPUTS in _names(message.template) for message in prompt.messages)


def _names(template: str) -> set[str]:
    """Give the variables that a template takes from outside; none where it is no template, which is told elsewhere."""
    try:
        found = set(_SYNTAX.undeclared_variables_in_str(template))
    except TemplateError:
        return set()
    # minijinja forgets the name before a slice, as in `inputs.document[:100]`.
    return found | {_INPUTS} if _READS_INPUTS.search(template) else found
