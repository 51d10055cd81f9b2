"""What the application asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import field, frozen

from furcate.primitives._budget import Spending, checked_budgets
from furcate.primitives._contract import Contract
from furcate.primitives._json import FrozenMap, Json
from furcate.primitives._message import Message
from furcate.primitives._observations import Listener, checked_listeners
from furcate.primitives._resources import CredentialSource, Prompt
from furcate.primitives._settings import Settings, Tool, as_tools


def _as_messages(value: str | Message | Iterable[Message]) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message.user(value),)
    if isinstance(value, Message):
        return (value,)
    messages = tuple(value)
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"messages holds a {type(message).__name__}; give furcate.Message values")
    return messages


def _as_paths(value: Mapping[str, str | Path] | Iterable[tuple[str, str | Path]]) -> tuple[tuple[str, Path], ...]:
    if value == ():
        return ()
    return tuple((name, Path(path)) for name, path in dict(value).items())


def _as_variables(value: Mapping[str, Json]) -> FrozenMap:
    try:
        return FrozenMap(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"vars: {error}") from error


def _check_profile(_instance: object, _attribute: object, value: str | None) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"profile is of type {type(value).__name__}; give a profile's name")


def _check_contract(_instance: object, _attribute: object, value: Contract | None) -> None:
    if value is not None and not isinstance(value, Contract):
        raise TypeError(
            f"contract is of type {type(value).__name__}; give a furcate.Contract, as furcate.Contract(schema)"
        )


def _check_prompt(_instance: object, _attribute: object, value: str | Prompt | None) -> None:
    if value is not None and not isinstance(value, (str, Prompt)):
        raise TypeError(f"prompt is of type {type(value).__name__}; give a prompt's name or a furcate.Prompt")


@frozen
class Request:
    """Ask for one execution. Nothing in it is inherited from an earlier one.

    Attributes:
        prompt: a configured prompt's name, or a `Prompt` itself; None where `messages` say it all.
        vars: the templates' variables; JSON-like data, copied.
        messages: messages after the prompt's; a plain ``str`` is one user message.
        profile: name of the profile; wins over the prompt's default.
        contract: replaces the prompt's contract completely.
        session_id: replaces the prompt's session template.
        credential: a key for this execution alone, or a callable that gives one; kept nowhere.
        inputs: paths of the prompt's declared input files, by name.
        settings: laid over the profile's settings.
        tools: function tools beside the profile's and the prompt's.
        tool_choice: wins over the prompt's and the profile's.
        capture: whether the result carries an exchange; a continuation always does.
        observers: told of this execution beside the engine's observers.
        groups: groups that count this execution.
        budgets: budgets that it is paid from; where one is used up, it is refused before anything is sent.

    Raises:
        TypeError: a value of a wrong type; the message names it.
    """

    prompt: str | Prompt | None = field(default=None, validator=_check_prompt)
    vars: FrozenMap = field(factory=FrozenMap, converter=_as_variables, kw_only=True, repr=False)
    messages: tuple[Message, ...] = field(default=(), converter=_as_messages, kw_only=True, repr=False)
    profile: str | None = field(default=None, kw_only=True, validator=_check_profile)
    contract: Contract | None = field(default=None, kw_only=True, validator=_check_contract)
    session_id: str | None = field(default=None, kw_only=True)
    credential: CredentialSource | None = field(default=None, kw_only=True, repr=False)
    inputs: tuple[tuple[str, Path], ...] = field(default=(), converter=_as_paths, kw_only=True)
    settings: Settings | None = field(default=None, kw_only=True)
    tools: tuple[Tool, ...] = field(default=(), converter=as_tools, kw_only=True)
    tool_choice: str | None = field(default=None, kw_only=True)
    capture: bool = field(default=False, kw_only=True)
    observers: tuple[Listener, ...] = field(default=(), converter=checked_listeners, kw_only=True, repr=False)
    groups: tuple[Listener, ...] = field(default=(), converter=checked_listeners, kw_only=True, repr=False)
    budgets: tuple[Spending, ...] = field(default=(), converter=checked_budgets, kw_only=True, repr=False)
