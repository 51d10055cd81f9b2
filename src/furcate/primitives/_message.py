"""A message: a role, ordered parts, and a cache hint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from attrs import field, frozen

from furcate.primitives._content import (
    HostedActivity,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)

_set = object.__setattr__

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]

_ALLOWED: dict[str, tuple[type[object], ...]] = {
    "system": (Text,),
    "developer": (Text,),
    "user": (Text, Media),
    "assistant": (Text, Refusal, Reasoning, ToolCall, HostedActivity, Media),
    "tool": (ToolResult,),
}


@frozen
class CacheHint:
    """Mark a message up to which a provider may cache the beginning of a conversation.

    Attributes:
        ttl_s: wished lifetime in seconds; None leaves it to the provider.
    """

    ttl_s: int | None = None


def _as_parts(value: str | Part | Iterable[Part]) -> tuple[Part, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, Iterable):
        return tuple(value)
    return (value,)


def _check_role(_instance: object, _attribute: object, value: str) -> None:
    if value not in _ALLOWED:
        raise ValueError(f"role {value!r} is none of {', '.join(_ALLOWED)}")


def _check_parts(instance: Message, _attribute: object, value: tuple[Part, ...]) -> None:
    allowed = _ALLOWED[instance.role]
    for part in value:
        if not isinstance(part, allowed):
            names = ", ".join(kind.__name__ for kind in allowed)
            raise TypeError(f"a {instance.role} message takes {names}, not {type(part).__name__}")
    if not value and instance.role != "assistant":
        raise ValueError(f"a {instance.role} message without parts says nothing")


@frozen
class Message:
    """Hold one message of a conversation.

    Attributes:
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        parts: what it is made of, in order; a plain ``str`` is taken as one text part.
        cache: a hint that the beginning of the conversation up to here is worth caching.

    Raises:
        TypeError: a part does not fit the role.
        ValueError: the role is unknown, or a message other than an assistant's is empty.
    """

    role: Role = field(validator=_check_role)
    parts: tuple[Part, ...] = field(converter=_as_parts, validator=_check_parts)
    cache: CacheHint | None = None

    @classmethod
    def system(cls, text: str, *, cache: CacheHint | None = None) -> Message:
        """Make a system message."""
        return cls("system", text, cache)

    @classmethod
    def user(cls, *parts: str | Text | Media, cache: CacheHint | None = None) -> Message:
        """Make a user message of texts and media."""
        return cls("user", tuple(Text(p) if isinstance(p, str) else p for p in parts), cache)

    @classmethod
    def assistant(cls, *parts: str | Part) -> Message:
        """Make an assistant message, as if the model had said it."""
        return cls("assistant", tuple(Text(p) if isinstance(p, str) else p for p in parts))

    @classmethod
    def tool(cls, *results: ToolResult) -> Message:
        """Make the message that answers tool calls."""
        return cls("tool", results)

    @property
    def text(self) -> str:
        """The text parts, joined with nothing between; reasoning and refusals are not text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def refusal(self) -> str | None:
        """What the model said in declining, or None where it did not use that channel."""
        texts = [part.text for part in self.parts if isinstance(part, Refusal)]
        return "".join(texts) if texts else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that wait for the application's answer, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def plain_text(message: Message) -> str | None:
    """Give the text of a message that is nothing but one plain text; None of any other."""
    if type(message) is not Message or message.cache is not None or len(message.parts) != 1:
        return None
    [part] = message.parts
    if type(part) is not Text or part.attributions or not part.attribution_complete or part.payload is not None:
        return None
    return part.text


def text_message(role: str, text: str) -> Message:
    """Make the message of one plain text, from what was checked when there was such a message before.

    Histories do this for each text that is read, and it takes a quarter of the time of the public way.
    """
    part, message = Text.__new__(Text), Message.__new__(Message)
    _set(part, "text", text)
    _set(part, "attributions", ())
    _set(part, "attribution_complete", True)
    _set(part, "payload", None)
    _set(message, "role", role)
    _set(message, "parts", (part,))
    _set(message, "cache", None)
    return message
