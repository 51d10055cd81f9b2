"""The form of version 1, which may never change."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import attrs
import msgspec
import pytest

from furcate.primitives import _content, _message, _receipt, _result, _usage, _wire
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._observations import Purpose, RunStatus, ValidationStatus
from furcate.primitives._result import Result
from furcate.storage import _form, from_bytes, to_bytes

DATA = Path(__file__).resolve().parents[1] / "data" / "storage"

FORMS: dict[type, type[msgspec.Struct]] = {
    _content.Origin: _form.StoredOrigin,
    _content.ProviderPayload: _form.StoredPayload,
    _content.Source: _form.StoredSource,
    _content.Attribution: _form.StoredAttribution,
    _content.ReasoningState: _form.StoredReasoningState,
    _content.Text: _form.StoredText,
    _content.Refusal: _form.StoredRefusal,
    _content.Reasoning: _form.StoredReasoning,
    _content.ToolCall: _form.StoredToolCall,
    _content.ToolResult: _form.StoredToolResult,
    _content.HostedActivity: _form.StoredHostedActivity,
    _content.Media: _form.StoredMedia,
    _message.CacheHint: _form.StoredCacheHint,
    _message.Message: _form.StoredMessage,
    _usage.Usage: _form.StoredUsage,
    _result.Fault: _form.StoredFault,
    _result.Validation: _form.StoredValidation,
    _result.Attempt: _form.StoredAttempt,
    _wire.Failure: _form.StoredFailure,
    _receipt.ReceiptUsage: _form.StoredReceiptUsage,
    _receipt.Completed: _form.StoredCompleted,
    _receipt.Failed: _form.StoredFailed,
    _receipt.TransportReceipt: _form.StoredReceipt,
    Exchange: _form.StoredExchange,
    Result: _form.StoredResult,
}

WORDS = [
    (_message.Role, _form.StoredRole),
    (_content.ActivityState, _form.StoredState),
    (Purpose, _form.StoredPurpose),
    (RunStatus, _form.StoredRunStatus),
    (ValidationStatus, _form.StoredValidationStatus),
    (_wire.StopReason, _form.StoredStopReason),
    (_wire.FailureKind, _form.StoredFailureKind),
]


WORDS_OF_THE_FORM = (
    "StoredCallKind",
    "StoredFailureKind",
    "StoredPurpose",
    "StoredRole",
    "StoredRunStatus",
    "StoredState",
    "StoredStopReason",
    "StoredValidationStatus",
)


@pytest.mark.parametrize("value", FORMS, ids=lambda value: value.__name__)
def test_the_form_knows_every_member(value: type) -> None:
    """A class that gains or loses a member needs a new version of the form, and this test until it has one."""
    members = {member.name.lstrip("_") for member in attrs.fields(value)}
    assert set(FORMS[value].__struct_fields__) == members


def test_the_form_knows_every_kind_of_part_and_outcome() -> None:
    """A new kind of part, or of a receipt's outcome, needs a new version of the form."""
    assert {FORMS[kind] for kind in get_args(_content.Part)} == set(get_args(_form.StoredPart))
    assert {FORMS[kind] for kind in get_args(_receipt.ReceiptOutcome)} == {
        _form.StoredCompleted,
        _form.StoredFailed,
    }


@pytest.mark.parametrize(("ours", "stored"), WORDS)
def test_the_form_knows_every_word(ours: object, stored: object) -> None:
    """A new word where one of a few is said needs a new version of the form."""
    assert set(get_args(ours)) == set(get_args(stored))


def described() -> str:
    """Write down the schema: each class with its tag, its members with types and defaults, and the words."""
    lines = []
    for form in sorted(_structs(), key=lambda one: one.__name__):
        config = form.__struct_config__
        assert config.omit_defaults
        assert config.forbid_unknown_fields
        lines.append(f"{form.__name__} ({config.tag_field}: {config.tag})" if config.tag_field else form.__name__)
        for member in msgspec.structs.fields(form):
            default = "" if member.default is msgspec.NODEFAULT else f" = {member.default!r}"
            default += "" if member.default_factory is msgspec.NODEFAULT else " = {}"
            lines.append(f"    {member.encode_name}: {form.__annotations__[member.name]}{default}")
    lines.extend(f"{name}: {', '.join(get_args(getattr(_form, name)))}" for name in sorted(WORDS_OF_THE_FORM))
    return "\n".join(lines) + "\n"


def _structs() -> set[type[msgspec.Struct]]:
    return {
        one
        for one in vars(_form).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__name__.startswith("Stored")
    }


def test_no_class_of_the_form_escapes_the_comparison() -> None:
    """Every class of the form stands for one of ours."""
    assert _structs() == {*FORMS.values(), _form.StoredHistory}


def test_the_schema_of_version_1_is_what_it_was() -> None:
    """The members, kinds, words, types and defaults of version 1 are those that were published."""
    assert (_form.VERSION, _form.MAGIC, _form.BIG) == (1, b"\xc1furcate", 1)
    assert described() == (DATA / "form.v1.txt").read_text(encoding="utf-8")


@pytest.mark.req("S0-20", "S0-23", "S0-29", "S0-41")
def test_committed_bytes_load(kept: tuple[str, Exchange | History | Message | Result, History | None]) -> None:
    """What the first release wrote is read for ever, and as the very same values."""
    name, value, base = kept
    loaded = from_bytes((DATA / f"{name}.v1.bin").read_bytes(), type(value), base=base)
    assert loaded == value
    if isinstance(value, Exchange) and isinstance(loaded, Exchange):
        assert loaded.digest == value.digest


def test_the_digest_of_a_conversation_is_what_it_was(exchange: Exchange) -> None:
    """Digests are kept beside conversations and name what others continue, so they may not change either."""
    assert exchange.digest == (DATA / "digest.txt").read_text(encoding="utf-8").strip()


def test_committed_bytes_are_what_is_written(
    kept: tuple[str, Exchange | History | Message | Result, History | None],
) -> None:
    """The same values still have the same bytes."""
    name, value, base = kept
    assert to_bytes(value, base=base) == (DATA / f"{name}.v1.bin").read_bytes()
