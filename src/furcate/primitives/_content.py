"""What a message is made of: parts, and what may be attached to them.

Opaque provider values are bytes here and stay out of every `repr`: they are untrusted, and only the provider that
wrote them may interpret them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal, TypeAlias

from attrs import field, frozen

from furcate.primitives._json import FrozenMap, Plain

ActivityState: TypeAlias = Literal["started", "completed", "failed"]
_STATES = ("started", "completed", "failed")


@frozen
class Origin:
    """Name the realm in which opaque state means something.

    Attributes:
        provider: the identity the operator configured for the backend; never guessed.
        dialect: the wire language that carried the state.
        model: the model that produced it.
    """

    provider: str
    dialect: str
    model: str


@frozen
class ProviderPayload:
    """Carry a provider's native value, byte for byte, for that provider alone.

    Attributes:
        provider: identity of the provider that wrote it.
        format: discriminator that the provider's dialect defines.
        version: format version fixed when the activity started.
        value: the native payload; never shown.
    """

    provider: str
    format: str
    version: str
    value: bytes = field(repr=False)


@frozen
class Source:
    """Name what a citation points at."""

    url: str
    title: str = ""


def _check_range(_instance: object, _attribute: object, value: tuple[int, int] | None) -> None:
    if value is not None and not 0 <= value[0] <= value[1]:
        raise ValueError(f"range {value} is not start <= end from 0 on")


@frozen
class Attribution:
    """Cite a source for assistant text.

    Attributes:
        source: where the cited material is.
        excerpt: text quoted from the source; never text of the answer.
        range: start (inclusive) and end (exclusive) in the answer's text part, in code points of its ``str``.
        replay: the provider's opaque citation value.
    """

    source: Source
    excerpt: str | None = None
    range: tuple[int, int] | None = field(default=None, validator=_check_range)
    replay: ProviderPayload | None = None


def _as_attributions(value: Iterable[Attribution]) -> tuple[Attribution, ...]:
    return tuple(value)


@frozen
class Text:
    """Hold text of any role, with the citations that annotate it.

    Attributes:
        attribution_complete: False where the text was cut off, so that citations may be missing.
        payload: what its provider wants back with the text, such as a phase or an item id.
    """

    text: str
    attributions: tuple[Attribution, ...] = field(default=(), converter=_as_attributions)
    attribution_complete: bool = True
    payload: ProviderPayload | None = field(default=None, kw_only=True)


@frozen
class Refusal:
    """Hold the text in which a model declined, where the dialect has a channel of its own for it."""

    text: str


@frozen
class ReasoningState:
    """Hold opaque reasoning state: sealed, signed or redacted thought.

    Attributes:
        origin: where it may be sent back to.
        format: which native form the bytes have; the dialect defines it.
        data: the state, byte for byte; never shown.
    """

    origin: Origin
    format: str
    data: bytes = field(repr=False)


@frozen
class Reasoning:
    """Hold a model's reasoning: what it showed, and the state that only its origin understands."""

    text: str = ""
    state: ReasoningState | None = None


@frozen
class ToolCall:
    """Hold a call that the model wants the application to answer.

    Attributes:
        id: the id to answer with.
        arguments: the arguments as the model wrote them, mostly a JSON object.
        kind: ``function`` with JSON arguments, or ``custom`` with free-form input.
        payload: what its provider wants back with the call, such as an item id.
    """

    id: str
    name: str
    arguments: str = ""
    kind: Literal["function", "custom"] = "function"
    payload: ProviderPayload | None = field(default=None, kw_only=True)

    def parsed(self) -> Plain:
        """Parse the arguments afresh; no arguments are an empty object.

        Raises:
            ValueError: the arguments are no JSON, as a cut-off answer may leave them.
        """
        if not self.arguments.strip():
            return {}
        parsed: Plain = json.loads(self.arguments)
        return parsed


@frozen
class ToolResult:
    """Answer a tool call.

    Attributes:
        call_id: the id of the call that is answered.
        content: the result as text; JSON for structured results.
        is_error: whether the tool failed.
    """

    call_id: str
    content: str
    is_error: bool = False


def _check_state(_instance: object, _attribute: object, value: str) -> None:
    if value not in _STATES:
        raise ValueError(f"state {value!r} is none of {', '.join(_STATES)}")


@frozen
class HostedActivity:
    """Record one transition of work that the provider runs on its own side.

    A later state is a further transition with the same id; an earlier one never changes.

    Attributes:
        id: correlation key assigned by the provider, unique within `scope`.
        name: capability name, such as ``web_search``.
        state: ``started``, ``completed`` or ``failed``.
        input: the invocation in normalised form.
        summary: one short line for people.
        payload: the native form, for exact replay to its provider.
        position: the provider's output index.
        scope: the response that the id belongs to.
    """

    id: str
    name: str
    state: ActivityState = field(validator=_check_state)
    input: FrozenMap = field(factory=FrozenMap, converter=FrozenMap, kw_only=True)
    summary: str = field(default="", kw_only=True)
    payload: ProviderPayload | None = field(default=None, kw_only=True)
    position: int | None = field(default=None, kw_only=True)
    scope: str = field(default="", kw_only=True)


def _check_place(instance: Media, _attribute: object, value: str | None) -> None:
    if (value is None) == (instance.data is None):
        raise ValueError("media has either data or a url")


@frozen
class Media:
    """Hold an image or a file, by value or by address.

    Attributes:
        media_type: the IANA media type, such as ``image/png``.
        data: the bytes; exactly one of `data` and `url` is given.
        url: where the provider fetches it.
        name: a file name, where the dialect carries one.
    """

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    url: str | None = field(default=None, validator=_check_place)
    name: str | None = None


Part: TypeAlias = Text | Refusal | Reasoning | ToolCall | ToolResult | HostedActivity | Media
