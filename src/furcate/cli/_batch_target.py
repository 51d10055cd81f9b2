"""What a batch job does with each item: a function of the user's, a configured prompt, or messages given with -m."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TypeAlias

import attrs
from attrs import frozen

from furcate.batch import ItemJob, Target
from furcate.batch._target import target_name
from furcate.cli._callables import find_object
from furcate.cli._files import module_file
from furcate.cli._setup import Setup
from furcate.orchestrator._config import check_resources
from furcate.orchestrator._engine import Engine
from furcate.primitives._errors import RequestError
from furcate.primitives._json import Json, Plain
from furcate.primitives._resources import Backend, MessageTemplate, Prompt

Doing: TypeAlias = Target | Prompt

_INLINE = "(message)"


@frozen(kw_only=True)
class Aim:
    """Hold what the command line says about the target.

    Attributes:
        name: ``module:function`` or a prompt's id; None where messages are given instead.
        messages: templates of user messages.
        system: the template of a system message before them.
        profile: wins over the prompt's.
    """

    name: str | None
    messages: tuple[str, ...] = ()
    system: str | None = None
    profile: str | None = None

    def find(self, setup: Setup) -> Doing:
        """Give what it names.

        Raises:
            RequestError: it names nothing, or what is no target.
            ConfigError: a template of a message cannot be read.
        """
        if self.name is None:
            return self._inline(setup)
        if self.system is not None:
            raise RequestError("--system goes with -m: a target has messages of its own")
        prompt = setup.resources.prompts.get(self.name)
        if prompt is not None:
            return self._with_profile(prompt, setup)
        if ":" not in self.name:
            known = ", ".join(map(repr, setup.resources.prompts)) or "none"
            raise RequestError(
                f"target {self.name!r} is no configured prompt (there are: {known}) and no module:function; "
                "name one of the two, or give a message with -m"
            )
        if self.profile is not None:
            raise RequestError("--profile goes with a prompt or -m: a function names profiles in its own requests")
        return _function(self.name)

    def _inline(self, setup: Setup) -> Prompt:
        if not all(text.strip() for text in self.messages):
            raise RequestError("a message is empty; give -m some text")
        system = [MessageTemplate("system", self.system)] if self.system else []
        prompt = Prompt(_INLINE, [*system, *(MessageTemplate("user", text) for text in self.messages)])
        known = setup.resources
        # A template that cannot be read would let each item fail, one after the other.
        check_resources(known.backends.values(), known.profiles.values(), [prompt], where="-m")
        return self._with_profile(prompt, setup)

    def _with_profile(self, prompt: Prompt, setup: Setup) -> Prompt:
        profile = self.profile or prompt.profile or setup.only_profile
        profiles = ", ".join(map(repr, setup.resources.profiles)) or "none"
        if profile is None:
            what = "the messages have" if prompt.name == _INLINE else f"prompt {prompt.name!r} has"
            raise RequestError(f"{what} no profile; give --profile, one of {profiles}")
        if profile not in setup.resources.profiles:
            raise RequestError(f"there is no profile {profile!r}; there are: {profiles}")
        return attrs.evolve(prompt, profile=profile)


def _function(name: str) -> Target:
    _check_form(name)
    found = find_object(name)
    if isinstance(found, str):
        raise RequestError(f"target {name}: {found}")
    if inspect.isasyncgenfunction(found):
        raise RequestError(f"target {name} is an async generator, which yields; let it return one value")
    if not callable(found):
        raise RequestError(f"target {name} is no function, but of the type {type(found).__name__}")
    target: Target = found
    try:
        told = target_name(target)
    except TypeError as error:
        raise RequestError(f"target {name}: {error}") from error
    return target if told == name else _called(name, target)


def _check_form(name: str) -> None:
    """Check that it is a module and a function, and not a file and a function.

    Raises:
        RequestError: it is not; the sentence says what to write instead, where that can be guessed.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        missing = "function after" if module else "module before"
        raise RequestError(f"target {name!r} has no {missing} the colon; write it as module:function")
    path = Path(module)
    if len(path.parts) > 1 or (path.suffix == ".py" and path.is_file()):
        inside = not path.is_absolute() and ".." not in path.parts
        right = f"write {'.'.join(path.with_suffix('').parts)}:{function}" if inside else "go to its folder"
        raise RequestError(f"target {name} names a file, where the name of a module is wanted; {right}")


def _called(name: str, target: Target) -> Target:
    """Give a target the name that it has on the command line, by which the journal knows it."""

    async def called(item: Plain, job: ItemJob) -> Json:
        return await target(item, job)

    called.__module__, called.__qualname__ = name.split(":", 1)
    called.__wrapped__ = target  # type: ignore[attr-defined]  # where inspect looks for it
    return called


def backends_of(doing: Doing, engine: Engine) -> tuple[Backend, ...]:
    """Give the backends that a target is known to use: a prompt's own; of a function's, all that there are."""
    resources = engine._resources
    if isinstance(doing, Prompt):
        assert doing.profile is not None
        return (resources.backends[resources.profiles[doing.profile].backend],)
    return tuple(resources.backends.values())


def file_of(doing: Doing) -> Path | None:
    """Give the file in which a function's module stands; None for a prompt."""
    return None if isinstance(doing, Prompt) else module_file(inspect.unwrap(doing))
