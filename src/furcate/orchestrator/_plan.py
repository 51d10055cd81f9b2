"""From a request to everything that one execution needs: a pure choice, but for the declared input files.

Nothing is taken over from the exchange that is continued: its messages are history, its settings are past.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from attrs import field, frozen

from furcate.orchestrator._config import Resources
from furcate.orchestrator._later import compile_contract, render
from furcate.primitives._checks import check_instance
from furcate.primitives._contract import Contract
from furcate.primitives._describe import portable
from furcate.primitives._errors import (
    ConfigError,
    MissingProfileError,
    RequestError,
    UnknownNameError,
)
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import Plain, thaw
from furcate.primitives._message import Message
from furcate.primitives._request import Request
from furcate.primitives._resources import Backend, CredentialSource, Profile, Prompt
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._tool_turns import check_tool_turns
from furcate.primitives._wire import ModelCall

if TYPE_CHECKING:
    from furcate.validation import Checker

_Thing = TypeVar("_Thing")


@frozen(kw_only=True)
class Plan:
    """Hold what one execution was decided to be.

    Attributes:
        call: what the dialect encodes.
        parent: the exchange that is continued, if any.
        credential: where the key comes from; None sends none.
        capture: whether the result carries an exchange.
    """

    request: Request
    prompt: str | None
    profile: Profile
    backend: Backend
    call: ModelCall
    parent: Exchange | None
    contract: Contract | None
    checker: Checker | None
    session_id: str | None
    credential: CredentialSource | None = field(repr=False)
    capture: bool


def make_plan(resources: Resources, request: Request, parent: Exchange | None) -> Plan:
    """Choose prompt, profile, backend, contract, credential and session, and render the messages.

    Raises:
        RequestError: the request cannot be executed; its subclasses say why. Nobody was called.
        TypeError: the request or the exchange is something else.
        ConfigError: the backend's key is to come from a variable that is not set.
    """
    check_instance("request", request, Request)
    if parent is not None:
        check_instance("exchange", parent, Exchange)
    prompt = _prompt(resources, request)
    profile = _profile(resources, request, prompt)
    backend = resources.backends[profile.backend]
    rendered: tuple[Message, ...] = ()
    session_id = request.session_id
    if prompt is not None:
        made = render(prompt, request)
        rendered, session_id = made.messages, made.session_id
    added = (*rendered, *request.messages)
    if not added:
        raise RequestError("the request has neither a prompt nor messages; there is nothing to send")
    history = parent.history.extend(added) if parent is not None else History(added)
    check_tool_turns(history)
    settings = _settings(profile, request)
    contract = request.contract or (prompt.contract if prompt is not None else None)
    tools, choice = _tools(request, prompt, profile)
    return Plan(
        request=request,
        prompt=prompt.name if prompt is not None else None,
        profile=profile,
        backend=backend,
        call=ModelCall(
            model=profile.model,
            history=history,
            settings=settings,
            tools=tools,
            tool_choice=choice,
            schema=(contract.name, contract.schema) if contract is not None else None,
            server_tools=profile.server_tools,
            stream=profile.stream,
            replay_item_ids=backend.replay_item_ids,
            switches=backend.switches,
        ),
        parent=parent,
        contract=contract,
        checker=compile_contract(contract) if contract is not None else None,
        session_id=session_id,
        credential=request.credential or _credential(backend, resources.where),
        capture=request.capture or parent is not None,
    )


def _prompt(resources: Resources, request: Request) -> Prompt | None:
    if request.prompt is None or isinstance(request.prompt, Prompt):
        return request.prompt
    return named(resources.prompts, "prompt", request.prompt)


def _profile(resources: Resources, request: Request, prompt: Prompt | None) -> Profile:
    name = request.profile or (prompt.profile if prompt is not None else None)
    if name is None:
        place = f"prompt {prompt.name!r} has no default profile" if prompt is not None else "there is no prompt"
        known = ", ".join(sorted(resources.profiles)) or "none"
        raise MissingProfileError(f"no profile: the request names none and {place}; there are: {known}")
    return named(resources.profiles, "profile", name)


def named(things: Mapping[str, _Thing], what: str, name: str) -> _Thing:
    try:
        return things[name]
    except KeyError:
        raise UnknownNameError(what, name, tuple(things)) from None


def _settings(profile: Profile, request: Request) -> Settings:
    settings = profile.settings.overlaid(request.settings)
    effort, allowed = settings.reasoning_effort, profile.reasoning_efforts
    if effort is not None and allowed and effort not in allowed:
        raise RequestError(
            f"the request asks for the reasoning effort {effort!r}; "
            f"profile {profile.name!r} allows {', '.join(allowed)}"
        )
    return settings


def _tools(request: Request, prompt: Prompt | None, profile: Profile) -> tuple[tuple[Tool, ...], str | None]:
    offered = (*profile.tools, *(prompt.tools if prompt is not None else ()), *request.tools)
    # The same declaration named in two places is one tool; two that differ under one name are a mistake.
    tools = tuple(dict.fromkeys(offered))
    names = [tool.name for tool in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestError(
            f"tool {twice[0]!r} is declared in two ways among the profile's, prompt's and request's tools"
        )
    choice = request.tool_choice or (prompt.tool_choice if prompt is not None else None) or profile.tool_choice
    return tools, choice


def _credential(backend: Backend, where: str) -> CredentialSource | None:
    if backend.credential is not None:
        return backend.credential
    if backend.api_key_env is not None:
        key = os.environ.get(backend.api_key_env)
        if key:
            return key
        if backend.api_key is None:
            raise ConfigError(
                f"the environment variable {backend.api_key_env} is not set",
                where=where,
                table=f"backends.{backend.name}",
                key="api_key_env",
                remedy="set it to the key of that backend",
            )
    return backend.api_key


def describe_plan(plan: Plan) -> dict[str, Plain]:
    """Describe a plan as fresh plain data without credentials or opaque state: what ``prepared.details()`` gives."""
    call = plan.call
    messages: list[Plain] = [portable(message) for message in call.history]
    tools: list[Plain] = [tool.name for tool in call.tools]
    settings: dict[str, Plain] = {
        "max_output_tokens": call.settings.max_output_tokens,
        "temperature": call.settings.temperature,
        "top_p": call.settings.top_p,
        "seed": call.settings.seed,
        "stop": list[Plain](call.settings.stop),
        "reasoning_effort": call.settings.reasoning_effort,
        "extra_body": thaw(call.settings.extra_body),
    }
    return {
        "prompt": plan.prompt,
        "profile": plan.profile.name,
        "backend": plan.backend.name,
        "dialect": plan.backend.dialect,
        "model": call.model,
        "session_id": plan.session_id,
        "parent_run_id": plan.parent.run_id if plan.parent is not None else None,
        "capture": plan.capture,
        "messages": messages,
        "schema": thaw(plan.contract.schema) if plan.contract is not None else None,
        "repairs": plan.contract.repairs if plan.contract is not None else 0,
        "settings": settings,
        "server_tools": list[Plain](call.server_tools),
        "tools": tools,
        "tool_choice": call.tool_choice,
    }
