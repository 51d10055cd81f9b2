"""Every kind of part and of stream event, wherever kinds are told apart: handled by name, or refused by type."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from furcate.cli._watching import Watching
from furcate.dialects import DIALECTS, Assembler, dialect_named
from furcate.orchestrator._attempt import NO_CONTENT
from furcate.primitives import _content, _stream
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._describe import exact, portable
from furcate.primitives._errors import UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._message import Message, Role
from furcate.primitives._stream import (
    AttemptRestarted,
    Citation,
    HostedTransition,
    MediaArrived,
    Noticed,
    PartEnded,
    PartPayload,
    Paused,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, ModelCall
from furcate.report import entries
from furcate.transport import partition_reasoning
from furcate.transport._canonical import provider_request

SRC = Path(_content.__file__).parents[1]
ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool")
HERE = Origin("here", "openai-chat", "m")
THERE = Origin("there", "anthropic-messages", "n")
PAYLOAD = ProviderPayload("there", "anthropic-messages.result", "1", b'{"sealed": 1}')

PARTS: Mapping[type, Part] = {
    Text: Text("words", (Attribution(Source("https://s.example"), replay=PAYLOAD),), payload=PAYLOAD),
    Refusal: Refusal("words"),
    Reasoning: Reasoning("words", ReasoningState(THERE, "sealed", b"x")),
    ToolCall: ToolCall("call-1", "words", "{}", payload=PAYLOAD),
    ToolResult: ToolResult("call-1", "words"),
    HostedActivity: HostedActivity("act-1", "words", "completed", payload=PAYLOAD),
    Media: Media("image/png", b"words"),
}
EVENTS: Mapping[type, StreamEvent] = {
    ResponseStarted: ResponseStarted("r", "m"),
    TextDelta: TextDelta(0, "words"),
    RefusalDelta: RefusalDelta(0, "words"),
    ReasoningDelta: ReasoningDelta(0, "words"),
    ReasoningSealed: ReasoningSealed(0, ReasoningState(THERE, "sealed", b"x")),
    ToolCallDelta: ToolCallDelta(0, "c", "words"),
    PartPayload: PartPayload(0, PAYLOAD),
    Citation: Citation(0, Attribution(Source("https://s.example"))),
    HostedTransition: HostedTransition(HostedActivity("act-1", "words", "completed")),
    MediaArrived: MediaArrived(0, Media("image/png", b"words")),
    PartEnded: PartEnded(0),
    UsageReported: UsageReported(Usage(input_tokens=1)),
    Stopped: Stopped("end_turn"),
    Paused: Paused(),
    StreamFailed: StreamFailed(Failure(kind="provider", reason="r", message="m")),
    Noticed: Noticed("n"),
    AttemptRestarted: AttemptRestarted(2, "repair"),
}


def _roles_of(part: Part) -> list[Role]:
    taken: list[Role] = []
    for role in ROLES:
        with suppress(TypeError):
            Message(role, (part,))
            taken.append(role)
    return taken


def _in_a_message(part: Part) -> Message:
    """Put a part into a message of the role that takes it, an assistant's where it may."""
    return Message("tool" if isinstance(part, ToolResult) else "assistant", (part,))


def test_the_samples_are_all_there_are() -> None:
    """Whoever adds a kind of part or of event has to come by here and say what becomes of it."""
    assert set(PARTS) == set(get_args(Part))
    assert set(EVENTS) == set(get_args(StreamEvent))


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_has_a_role(kind: type) -> None:
    """Each kind of part is taken by some roles and refused by the others, and the refusal names it."""
    taken = _roles_of(PARTS[kind])
    assert taken
    for role in ROLES:
        if role not in taken:
            with pytest.raises(TypeError, match=f"a {role} message takes .*, not {kind.__name__}"):
                Message(role, (PARTS[kind],))


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_is_described(kind: type) -> None:
    """Both plain forms and the canonical one name each kind, and only the exact ones hold what is opaque."""
    message = _in_a_message(PARTS[kind])
    shown, whole = (json.dumps(form(message)) for form in (portable, exact))
    (packed,) = msgspec.msgpack.decode(b"".join(provider_request(ModelCall(model="m", history=History([message])))))[
        "messages"
    ]
    names = {form["parts"][0]["type"] for form in (json.loads(shown), json.loads(whole), packed)}
    assert len(names) == 1
    opaque = kind in (Text, Reasoning, ToolCall, HostedActivity, Media)
    assert (whole != shown) == opaque
    assert "sealed" not in shown


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_is_sorted_by_where_it_may_go(kind: type) -> None:
    """For another provider each kind loses what is opaque in it, and keeps everything else."""
    answered = [Message.assistant(ToolCall("call-1", "f"))] if kind is ToolResult else []
    history = History([*answered, _in_a_message(PARTS[kind]), Message.user("and then?")])
    parted = partition_reasoning(history, HERE)
    assert [portable(message) for message in parted.history] == [portable(message) for message in history]
    dropped = (parted.reasoning_dropped, parted.payloads_dropped)
    assert dropped == {Reasoning: (1, 0), Text: (0, 2), ToolCall: (0, 1), HostedActivity: (0, 1)}.get(kind, (0, 0))
    kept = partition_reasoning(history, THERE)
    assert (kept.reasoning_dropped, kept.payloads_dropped, kept.history) == (0, 0, history)


@pytest.mark.req("S0-19", "S1-46")
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_encoder_knows_every_kind(dialect: str, kind: type) -> None:
    """Once nothing foreign is in it, each kind is sent, left out, or refused by an error that names its message."""
    answered = [Message.assistant(ToolCall("call-1", "f"))] if kind is ToolResult else []
    asked = [Message.user("Hello"), *answered, _in_a_message(PARTS[kind])]
    if kind is ToolCall:
        asked.append(Message.tool(ToolResult("call-1", "done")))
    history = partition_reasoning(History([*asked, Message.user("Go on.")]), Origin("here", dialect, "m")).history
    decided = {
        Text: "sent",
        Refusal: "sent",
        Reasoning: "left out",
        ToolCall: "sent",
        ToolResult: "sent",
        HostedActivity: "left out",
        Media: "sent" if dialect == "google-generatecontent" else "refused",
    }
    call = ModelCall(model="m", history=history)
    if decided[kind] == "refused":
        with pytest.raises(UnsupportedError, match=r"message 2 \(assistant\) holds an image"):
            dialect_named(dialect).encode(call)
        return
    body = b"".join(dialect_named(dialect).encode(call).body)
    json.loads(body)
    word = b"d29yZHM=" if kind is Media else b"words"
    assert (word in body) == (decided[kind] == "sent")


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_is_shown_or_not(kind: type) -> None:
    """What a message shows has an entry for each kind that people see, and none for the others."""
    shown = entries(_in_a_message(PARTS[kind]))
    assert bool(shown) == (kind in (Text, Refusal, HostedActivity))


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_assembled(kind: type) -> None:
    """Each kind of event is content, a fact beside it, or no more than a notice; the assembler refuses all else."""
    before, after = Assembler(), Assembler()
    after.add(EVENTS[kind])
    after.add(PartEnded(0))
    states = [{key: value for key, value in vars(one).items() if key[0] != "_"} for one in (before, after)]
    content = after.message().parts != ()
    assert content == (kind in _CONTENT)
    assert (states[0] != states[1]) == (kind in (ResponseStarted, UsageReported, Stopped, Paused, StreamFailed))


_CONTENT = (
    TextDelta,
    RefusalDelta,
    ReasoningDelta,
    ReasoningSealed,
    ToolCallDelta,
    Citation,
    HostedTransition,
    MediaArrived,
)


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_watched(kind: type) -> None:
    """Whoever follows an answer on a terminal takes each kind."""
    watching = Watching(None)
    watching.take(EVENTS[kind])
    assert len(watching.activities.rows) == (kind is HostedTransition)


def test_what_shows_nothing_is_no_content() -> None:
    """No event that bears content counts as showing nothing, so that no answer is begun anew behind people's backs."""
    assert not set(NO_CONTENT) & set(_CONTENT)
    assert {kind for kind in EVENTS if kind not in (*NO_CONTENT, *_CONTENT)} == {
        PartPayload,
        PartEnded,
        Paused,
        AttemptRestarted,
    }


class _New:
    """A kind that nobody knows."""


@pytest.mark.req("S0-19", "S1-46")
@pytest.mark.parametrize(
    "take",
    [
        lambda new: Assembler().add(new),
        lambda new: Watching(None).take(new),
        lambda new: entries(_holding(new)),
        lambda new: portable(_holding(new)),
        lambda new: exact(_holding(new)),
        lambda new: provider_request(ModelCall(model="m", history=History([_holding(new)]))),
        lambda new: partition_reasoning(History([_holding(new)]), HERE),
    ],
    ids=["assembler", "watching", "entries", "portable", "exact", "canonical", "partition"],
)
def test_no_place_swallows_a_new_kind(take: Callable[[Any], object]) -> None:
    """A kind that was forgotten somewhere breaks there; it does not pass in silence."""
    with pytest.raises(AssertionError):
        take(_New())


@pytest.mark.req("S0-19", "S1-46")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_encoder_swallows_a_new_kind(dialect: str) -> None:
    """An encoder that meets a kind of part it has no rule for breaks."""
    history = History([Message.user("Hello"), _holding(_New()), Message.user("Go on.")])
    with pytest.raises(AssertionError):
        dialect_named(dialect).encode(ModelCall(model="m", history=history))


def _holding(new: object) -> Message:
    message = Message.assistant("x")
    object.__setattr__(message, "parts", (new,))
    return message


def _kinds_matched(node: ast.Match) -> set[str]:
    found = set()
    for case in node.cases:
        for inner in ast.walk(case.pattern):
            if isinstance(inner, ast.MatchClass) and isinstance(inner.cls, ast.Name):
                found.add(inner.cls.id)
    return found


def _is_wild(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


@pytest.mark.req("S0-19", "S1-46")
def test_no_branch_on_kinds_has_a_wildcard() -> None:
    """Wherever kinds are matched, each one is named, and what is left over is nothing."""
    parts, events = ({kind.__name__ for kind in get_args(union)} for union in (Part, StreamEvent))
    sites = []
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Match):
                continue
            matched = _kinds_matched(node)
            union = next((kinds for kinds in (parts, events) if len(matched & kinds) > 1), None)
            if union is None:
                continue
            sites.append(path.relative_to(SRC).as_posix())
            assert matched >= union, f"{path.name}:{node.lineno} says nothing of {union - matched}"
            for case in node.cases:
                assert not _is_wild(case) or "assert_never" in ast.unparse(case), f"{path.name}:{node.lineno}"
    assert {
        "cli/_watching.py",
        "dialects/anthropic_messages/_blocks.py",
        "dialects/openai_chat/_messages.py",
        "primitives/_describe.py",
        "report/_written.py",
        "transport/_canonical.py",
        "transport/_partition.py",
    } <= set(sites)


def test_samples_are_of_their_modules() -> None:
    """The kinds are all defined in one place each, so that none is overlooked."""
    assert {kind.__module__ for kind in PARTS} == {_content.__name__}
    assert {kind.__module__ for kind in EVENTS} == {_stream.__name__}
