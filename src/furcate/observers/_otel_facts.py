"""What an observation says, as attributes; pure functions that know no telemetry library."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from furcate.observers import _otel_names as names
from furcate.primitives._observations import (
    AttemptFinished,
    AttemptStarted,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryStarted,
    RunFinished,
    RunStarted,
)
from furcate.primitives._usage import Usage

Attributes: TypeAlias = dict[str, str | bool | int | float | tuple[str, ...]]

_LONGEST_WORD = 512


def word(value: str) -> str:
    """Make a text from an application or a provider fit for a span: of bounded length, and encodable as UTF-8."""
    cut = value[:_LONGEST_WORD]
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


@lru_cache(maxsize=256)
def server_of(base_url: str) -> tuple[str, int] | None:
    """Give host and port of a base URL, and nothing else of it; None where it has none."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return word(parts.hostname), port or (80 if parts.scheme == "http" else 443)


@lru_cache(maxsize=256)
def provider_of(dialect: str, base_url: str | None) -> str:
    """Say whose form of telemetry it is, by the host where that tells, else by the dialect.

    A server that furcate starts itself is nobody's: what it says costs nothing at any provider's prices.
    """
    if base_url is None:
        return names.EMBEDDED_PROVIDER
    server = server_of(base_url)
    for suffix, provider in names.PROVIDER_HOSTS:
        if server is not None and f".{server[0]}".endswith(suffix):
            return provider
    return names.PROVIDERS.get(dialect, dialect)


def run_attributes(event: RunStarted) -> Attributes:
    """Give what is known of a run when it begins; samplers see it."""
    server = server_of(event.base_url) if event.base_url is not None else None
    found: Attributes = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_of(event.dialect, event.base_url),
        names.REQUEST_MODEL: word(event.model),
        names.RUN_ID: event.run_id,
        names.PROFILE: word(event.profile),
        names.BACKEND: word(event.backend),
        names.DIALECT: event.dialect,
    }
    if server is not None:
        found[names.SERVER_ADDRESS], found[names.SERVER_PORT] = server
    if event.streamed:
        found[names.REQUEST_STREAM] = True
    if event.session_id is not None:
        found[names.CONVERSATION] = word(event.session_id)
    if event.prompt is not None:
        found[names.PROMPT] = word(event.prompt)
    if event.scope_id is not None:
        found[names.SCOPE_ID] = event.scope_id
    settings = event.settings
    if settings.max_output_tokens is not None:
        found[names.MAX_TOKENS] = settings.max_output_tokens
    if settings.temperature is not None:
        found[names.TEMPERATURE] = float(settings.temperature)
    if settings.top_p is not None:
        found[names.TOP_P] = float(settings.top_p)
    if settings.seed is not None:
        found[names.SEED] = settings.seed
    if settings.stop:
        found[names.STOP_SEQUENCES] = tuple(map(word, settings.stop))
    if settings.reasoning_effort is not None:
        found[names.REASONING_LEVEL] = word(settings.reasoning_effort)
    return found


def ending_attributes(event: RunFinished) -> Attributes:
    """Give what is known of a run when it has ended."""
    found: Attributes = {
        names.STATUS: event.status,
        names.ATTEMPTS: event.attempts,
        names.REPAIRS: event.repairs,
        names.VALIDATION: event.validation,
    }
    if event.stop_reason is not None:
        found[names.STOP_REASON] = event.stop_reason
        found[names.FINISH_REASONS] = (names.FINISHED.get(event.stop_reason, event.stop_reason),)
    elif event.attempts:
        found[names.FINISH_REASONS] = (names.FINISHED_BADLY,)
    if event.failure_kind is not None:
        found[names.FAILURE_KIND] = event.failure_kind
    if event.failure_reason is not None:
        found[names.FAILURE_REASON] = word(event.failure_reason)
    if event.status == "failed":
        found[names.ERROR_TYPE] = run_error(event)
    found.update(usage_attributes(event.usage))
    return found


def run_error(event: RunFinished) -> str:
    """Give the class of error that a failed run ended with: one of few words."""
    return event.failure_kind or event.failure_reason or names.OTHER_ERROR


def input_tokens(usage: Usage) -> int | None:
    """Count input as the conventions do, with what was read from and written to a cache; None is unknown."""
    if usage.input_tokens is None:
        return None
    return usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def usage_attributes(usage: Usage) -> Attributes:
    """Give the token counts that are known, and the names of those that may be too small."""
    found: Attributes = {}
    bounds: list[str] = []
    total = input_tokens(usage)
    if total is not None:
        found[names.INPUT_TOKENS] = total
        if usage.lower_bounds & _INPUT_FIELDS:
            bounds.append(names.INPUT_TOKENS)
    for field, name in _OTHER_FIELDS:
        count: int | None = getattr(usage, field)
        if count is not None:
            found[name] = count
            if field in usage.lower_bounds:
                bounds.append(name)
    if usage.cache_write_tokens is not None:
        found[names.CACHE_CREATION_TOKENS] = usage.cache_write_tokens
    if bounds:
        found[names.LOWER_BOUNDS] = tuple(bounds)
    return found


_INPUT_FIELDS = frozenset(("input_tokens", "cache_read_tokens", "cache_write_tokens"))
_OTHER_FIELDS = (
    ("output_tokens", names.OUTPUT_TOKENS),
    ("cache_read_tokens", names.CACHE_READ_TOKENS),
    ("cache_write_tokens", names.CACHE_WRITE_TOKENS),
    ("reasoning_tokens", names.REASONING_TOKENS),
)


def attempt_attributes(event: AttemptStarted) -> Attributes:
    """Give what is known of an attempt when it is sent."""
    return {
        names.SPAN_KIND: names.CHAIN,
        names.RUN_ID: event.run_id,
        names.ATTEMPT_NUMBER: event.number,
        names.ATTEMPT_PURPOSE: event.purpose,
        names.ATTEMPT_REQUEST_ID: event.request_id,
        names.ATTEMPT_WAITED: event.waited_s,
    }


def attempt_ending_attributes(event: AttemptFinished) -> Attributes:
    """Give what is known of an attempt when it has ended; tokens are told by the run alone."""
    found: Attributes = {names.STATUS: event.status, names.ATTEMPT_BODY_SHA256: event.body_sha256}
    if event.first_event_s is not None:
        found[names.ATTEMPT_FIRST_EVENT] = event.first_event_s
    if event.stop_reason is not None:
        found[names.STOP_REASON] = event.stop_reason
    if event.response_id is not None:
        found[names.ATTEMPT_RESPONSE_ID] = word(event.response_id)
    if event.receipt is not None and event.receipt.foreign_reasoning_dropped:
        found[names.ATTEMPT_FOREIGN_DROPPED] = event.receipt.foreign_reasoning_dropped
    if event.failure_kind is not None:
        found[names.FAILURE_KIND] = event.failure_kind
    if event.failure_reason is not None:
        found[names.FAILURE_REASON] = word(event.failure_reason)
    if event.status == "failed":
        found[names.ERROR_TYPE] = event.failure_kind or names.OTHER_ERROR
    return found


def scope_attributes(event: CoordinatorStarted | NurseryStarted) -> Attributes:
    """Give what is known of a coordinator or a nursery when it begins."""
    found: Attributes = {
        names.OPERATION: names.WORKFLOW,
        names.SPAN_KIND: names.CHAIN,
        names.SCOPE_ID: event.scope_id,
    }
    if event.name is not None:
        found[names.AGENT_NAME] = word(event.name)
    if isinstance(event, CoordinatorStarted):
        found[names.SCOPE_KIND] = names.COORDINATOR
        found[names.TURNS_ALLOWED] = event.additional_turns
    else:
        found[names.SCOPE_KIND] = names.NURSERY
    return found


def coordinator_ending_attributes(event: CoordinatorFinished) -> Attributes:
    """Give what is known of a coordinator when it has ended."""
    found: Attributes = {names.STATUS: event.status}
    if event.outcome is not None:
        found[names.OUTCOME] = event.outcome
    if event.status == "failed":
        found[names.ERROR_TYPE] = word(event.error_type) if event.error_type is not None else names.OTHER_ERROR
    return found


def failure_text(kind: str | None, reason: str | None) -> str:
    """Say why something failed, in words of ours only."""
    if kind is None:
        return word(reason) if reason is not None else "failed"
    return kind if reason in (None, kind) else f"{kind}: {word(reason)}"
