"""What an engine is made of: backends, profiles and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import field, frozen
from attrs.validators import instance_of, optional

from furcate.primitives._checks import optional_seconds, seconds, whole
from furcate.primitives._contract import Contract
from furcate.primitives._message import CacheHint, Role
from furcate.primitives._settings import Settings, Tool, as_tools
from furcate.primitives._wire import ChatSwitches, UnknownContent

Cache: TypeAlias = Literal["shared", "per-slot", "none"]
"""How far what a server has read of a conversation serves others that begin alike."""

CredentialSource: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A key, or a callable (sync or async) that gives one, asked afresh for each attempt."""


def _as_pairs(value: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(dict(value).items())


def _as_names(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"found the str {value!r} where a list of names is wanted; write [{value!r}]")
    return tuple(value)


@frozen(kw_only=True)
class TimeLimits:
    """Bound one attempt by phase, in seconds; None is no limit.

    Attributes:
        connect_s: until a connection stands.
        first_event_s: from sending until the first content event; comments and pings are no events.
        idle_s: between two events; the consumer's own time does not count.
        total_s: the whole attempt, after admission.
    """

    connect_s: float | None = field(default=10.0, validator=optional_seconds)
    first_event_s: float | None = field(default=300.0, validator=optional_seconds)
    idle_s: float | None = field(default=120.0, validator=optional_seconds)
    total_s: float | None = field(default=None, validator=optional_seconds)


@frozen(kw_only=True)
class RetryPolicy:
    """Bound how often and how soon a failed attempt is repeated.

    Attributes:
        attempts: most attempts of one generation, the first included.
        first_backoff_s: upper end of the first wait in seconds; it doubles with each further one.
        max_backoff_s: the longest wait in seconds that is chosen without a hint of the server.
        resumes: how often an answer that the provider paused is sent back for it to go on.
        retry_for_s: how long after the first attempt began a further one may begin, in seconds, whoever asked for the
            wait; None sets no limit. A run that comes upon a pause of its backend longer than this fails at once.
    """

    attempts: int = field(default=3, validator=whole(1))
    first_backoff_s: float = field(default=0.5, validator=seconds)
    max_backoff_s: float = field(default=30.0, validator=seconds)
    resumes: int = field(default=5, validator=whole(0))
    retry_for_s: float | None = field(default=600.0, validator=optional_seconds)


@frozen
class Backend:
    """Describe one endpoint.

    Attributes:
        name: how profiles name it.
        kind: ``remote``, or ``embedded`` for the small model that furcate starts itself.
        dialect: the wire language.
        base_url: where the dialect's paths are appended; None takes the dialect's own default.
        api_key: a key given directly; never shown.
        api_key_env: name of the environment variable that holds the key; a set variable wins over `api_key`.
        credential: a callable that gives the key, asked afresh for each attempt; wins over both.
        provider: identity of the realm in which opaque state may be replayed; defaults to the name.
        capacity: most requests at once; 8 by default, 1 for the embedded model.
        adaptive: whether fewer than `capacity` go out at once after the server said that it is asked too much.
        requests_per_minute: how many requests may begin in a minute; None sets no limit.
        tokens_per_minute: how many tokens may be used in a minute, estimated before and corrected after; None sets
            no limit.
        extra_headers: further header pairs, sent as they are.
        unknown_content: ``fail``, or ``carry`` to keep content of an unknown kind as an opaque part of its origin.
        replay_item_ids: whether ids of earlier output items are sent back with them (``openai-responses``).
        max_result_bytes: how large a result may be, in bytes of its MessagePack form; None sets no limit.
        retry_stale_connection: whether a call on a connection that was used before, and that the server closed without
            an answer, goes out again at once; a server that keeps connections open closes one now and then just as
            it is used.
        cache: what becomes of a beginning that the server has read: ``shared`` serves any later request that begins
            alike, ``per-slot`` those that come to the same slot (llama.cpp), ``none`` nobody.
        limits: time limits of an attempt.
        retry: how failed attempts are repeated.
        switches: what a server of the ``openai-chat`` dialect differs in.
    """

    name: str = field(validator=instance_of(str))
    kind: Literal["remote", "embedded"] = field(default="remote", kw_only=True)
    dialect: str = field(default="openai-chat", kw_only=True)
    base_url: str | None = field(default=None, kw_only=True, validator=optional(instance_of(str)))
    api_key: str | None = field(default=None, kw_only=True, repr=False)
    api_key_env: str | None = field(default=None, kw_only=True)
    credential: CredentialSource | None = field(default=None, kw_only=True, repr=False)
    provider: str = field(kw_only=True)
    capacity: int = field(kw_only=True, validator=whole(1))
    adaptive: bool = field(default=True, kw_only=True)
    requests_per_minute: int | None = field(default=None, kw_only=True, validator=optional(whole(1)))
    tokens_per_minute: int | None = field(default=None, kw_only=True, validator=optional(whole(1)))
    extra_headers: tuple[tuple[str, str], ...] = field(default=(), kw_only=True, converter=_as_pairs, repr=False)
    unknown_content: UnknownContent = field(default="fail", kw_only=True)
    replay_item_ids: bool = field(default=False, kw_only=True)
    max_result_bytes: int | None = field(default=None, kw_only=True, validator=optional(whole(1)))
    retry_stale_connection: bool = field(default=True, kw_only=True)
    cache: Cache = field(kw_only=True)
    limits: TimeLimits = field(factory=TimeLimits, kw_only=True)
    retry: RetryPolicy = field(factory=RetryPolicy, kw_only=True)
    switches: ChatSwitches = field(factory=ChatSwitches, kw_only=True)

    @provider.default
    def _provider(self) -> str:
        return self.name

    @capacity.default
    def _capacity(self) -> int:
        # The embedded model has one slot: several would each read a shared beginning again.
        return 1 if self.kind == "embedded" else 8

    @cache.default
    def _cache(self) -> Cache:
        return "per-slot" if self.kind == "embedded" else "shared"


@frozen
class Profile:
    """Describe a model on a backend with its settings.

    Attributes:
        name: how requests and prompts name it.
        backend: name of the backend.
        model: the model's name on the wire; an embedded backend has but one, which need not be named.
        settings: sampling and limits.
        reasoning_efforts: the efforts that requests may ask for; empty allows any word.
        tools: function tools that every request on this profile offers.
        server_tools: capabilities that the provider runs on its own side; declaring one is the owner's claim that the
            route serves it.
        tool_choice: ``auto``, ``none``, ``required``, or a declared tool's name.
        repeat_safe: whether a request that was sent but not answered may be sent again.
        stream: whether answers are fetched as streams even where nobody watches, which finds dead connections sooner.
    """

    name: str
    backend: str
    model: str = ""
    settings: Settings = field(factory=Settings, kw_only=True)
    tools: tuple[Tool, ...] = field(default=(), converter=as_tools, kw_only=True)
    server_tools: tuple[str, ...] = field(default=(), converter=_as_names, kw_only=True)
    reasoning_efforts: tuple[str, ...] = field(default=(), converter=_as_names, kw_only=True)
    tool_choice: str | None = field(default=None, kw_only=True)
    repeat_safe: bool = field(default=False, kw_only=True, validator=instance_of(bool))
    stream: bool = field(default=True, kw_only=True, validator=instance_of(bool))


@frozen
class MessageTemplate:
    """Hold a message's role and the template of its text."""

    role: Role
    template: str
    cache: CacheHint | None = None


def _as_inputs(
    value: Mapping[str, str | Path | None] | Iterable[str | tuple[str, Path | None]],
) -> tuple[tuple[str, Path | None], ...]:
    if isinstance(value, str):
        raise TypeError("inputs is a str; give a list of names, or names with their paths")
    pairs = value.items() if isinstance(value, Mapping) else ((i, None) if isinstance(i, str) else i for i in value)
    return tuple((name, None if path is None else Path(path)) for name, path in pairs)


def _as_templates(value: Iterable[MessageTemplate]) -> tuple[MessageTemplate, ...]:
    return tuple(value)


@frozen
class Prompt:
    """Describe named message templates with the defaults of what runs them.

    Attributes:
        name: how requests name it.
        messages: the templates, in order (Jinja syntax, undefined variables are errors).
        profile: default profile.
        contract: what the answer must look like.
        session: template of the session id.
        inputs: files read when the prompt is rendered, as ``inputs.<name>``; a name without a path must be given
            by the request.
        tools: function tools offered beside the profile's.
        tool_choice: overrides the profile's.
    """

    name: str
    messages: tuple[MessageTemplate, ...] = field(converter=_as_templates)
    profile: str | None = field(default=None, kw_only=True)
    contract: Contract | None = field(default=None, kw_only=True)
    session: str | None = field(default=None, kw_only=True)
    inputs: tuple[tuple[str, Path | None], ...] = field(default=(), converter=_as_inputs, kw_only=True)
    tools: tuple[Tool, ...] = field(default=(), converter=as_tools, kw_only=True)
    tool_choice: str | None = field(default=None, kw_only=True)
