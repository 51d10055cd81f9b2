"""What providers do on their own side, as values: made by hand, with no dialect anywhere near."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs
import pytest

from furcate.dialects import Assembler
from furcate.dialects._server_tools import CAPABILITIES
from furcate.primitives import _content, _stream
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Origin,
    Part,
    ProviderPayload,
    Source,
    Text,
    ToolCall,
)
from furcate.primitives._describe import exact, portable
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import Citation, HostedTransition, PartEnded, Stopped, StreamEvent, TextDelta
from furcate.report import entries, reopened, unfinished, written
from furcate.transport import partition_reasoning

SRC = Path(_content.__file__).parents[1]
NATIVE = b"\x00\xffnative"
PAYLOAD = ProviderPayload("lab", "anthropic-messages.result", "1", NATIVE)
ASKED = {"type": "search", "queries": ["tides"]}
STARTED = HostedActivity("s1", "web_search", "started", input=ASKED, payload=PAYLOAD)
ENDED = HostedActivity("s1", "web_search", "completed", input=ASKED, summary="tides", payload=PAYLOAD)
CITED = Attribution(Source("https://t.example", "Tides"), "at noon", (0, 4), PAYLOAD)
ANSWER = Message.assistant(STARTED, ENDED, Text("High at noon.", [CITED], payload=PAYLOAD))


def _assembled(*events: StreamEvent) -> Message:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler.message()


@pytest.mark.req("S0-07", "S0-42")
def test_artifacts_need_no_provider() -> None:
    """Events of hosted work and of citations, made by hand, become a message that views and descriptions show."""
    message = _assembled(
        HostedTransition(STARTED),
        HostedTransition(ENDED),
        Citation(0, CITED),
        TextDelta(0, "High at noon."),
        PartEnded(0),
        Stopped("end_turn"),
    )
    assert message.parts == (STARTED, ENDED, Text("High at noon.", [CITED]))
    assert written(message) == "[+] web_search · tides\nHigh at noon.\n\nSources:\n[1] Tides · https://t.example"
    plain = _assembled(TextDelta(0, "High at noon."), Stopped("end_turn"))
    assert plain == Message.assistant("High at noon.")
    assert written(plain) == "High at noon."


@pytest.mark.req("S0-42")
def test_the_stream_has_a_kind_for_each_artifact() -> None:
    """One kind of event carries a transition, another one citation together with the index of its block."""
    assert {HostedTransition, Citation} <= set(get_args(StreamEvent))
    assert {one.name: one.type for one in attrs.fields(HostedTransition)} == {"activity": "HostedActivity"}
    assert {one.name: one.type for one in attrs.fields(Citation)} == {"index": "int", "attribution": "Attribution"}


@pytest.mark.req("S0-06")
def test_artifacts_are_values_and_nothing_else() -> None:
    """Where they are defined nobody configures, encodes, lists a provider's capabilities, or renders."""
    for module in (_content, _stream):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        said = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
        }
        assert not said & {*CAPABILITIES, "server_tools", "openai-responses", "anthropic-messages"}
        public = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
        assert public == []
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {name for name in imported if name and name.startswith("furcate")} <= {
            "furcate.primitives._content",
            "furcate.primitives._json",
            "furcate.primitives._usage",
            "furcate.primitives._wire",
        }


@pytest.mark.req("S0-22")
def test_a_payload_cannot_be_changed() -> None:
    """Neither its members nor what holds it can be set, and no code of ours makes a payload of another one."""
    for holder, name in ((PAYLOAD, "value"), (ENDED, "payload"), (CITED, "replay"), (ANSWER, "parts")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(holder, name, None)
    makers, changers = set(), set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "ProviderPayload":
                makers.add(path.relative_to(SRC).parts[0])
            if called.endswith(("evolve", "setattr")) and any(word.arg == "value" for word in node.keywords):
                changers.add(path.name)
    assert makers == {"dialects", "storage"}  # which gives back what it was given
    assert changers == set()


@pytest.mark.req("S0-22", "S0-53")
@pytest.mark.parametrize("provider", ["lab", "elsewhere"])
def test_nothing_that_handles_a_message_touches_its_payloads(provider: str) -> None:
    """Copies, histories, views, descriptions and the partition for a provider leave every payload the same object."""
    exchange = Exchange(History([Message.user("Tides?"), ANSWER]), "run-1")
    before = json.dumps([exact(message) for message in exchange.messages])
    portable(ANSWER)
    entries(ANSWER)
    written(ANSWER)
    reopened([ANSWER])
    exchange.details()
    origin = Origin(provider, "anthropic-messages", "m")
    partition_reasoning(exchange.history.extend([Message.user("And low?")]), origin)
    copied = copy.deepcopy(exchange).messages[1].parts
    assert all(one is other for one, other in zip(copied, ANSWER.parts, strict=True))
    assert json.dumps([exact(message) for message in exchange.messages]) == before
    assert ENDED.payload is PAYLOAD
    assert PAYLOAD.value == NATIVE


@pytest.mark.req("S0-60")
def test_repairs_are_appended() -> None:
    """What a provider says later of earlier work is added behind it; what it is about stays byte for byte."""
    history = History([Message.user("Tides?"), Message.assistant(STARTED, "I am looking.")])
    before = [exact(message) for message in history]
    digest = history.digest
    ending = Message.assistant(ENDED, HostedActivity("c1", "compaction", "completed", payload=PAYLOAD), "High at noon.")
    later = history.extend([ending])
    assert [exact(message) for message in later][:2] == before
    assert history.digest == digest
    assert list(later)[1] is list(history)[1]
    (search, compaction) = reopened(later).rows
    assert (search.first, search.latest, search.state) == (STARTED, ENDED, "completed")
    assert compaction.name == "compaction"
    assert unfinished(later) == ()
    assert unfinished(history) == ("s1",)


@pytest.mark.req("S0-29")
def test_a_payload_holds_its_value_itself() -> None:
    """The value is bytes inside the payload, so that nothing has to be fetched; a further member would find room."""
    assert [one.name for one in attrs.fields(ProviderPayload)] == ["provider", "format", "version", "value"]
    assert get_type_hints(ProviderPayload)["value"] is bytes
    named = ProviderPayload(provider="lab", format="f", version="1", value=NATIVE)
    assert named == ProviderPayload("lab", "f", "1", NATIVE)
    wider = attrs.make_class("Wider", {"reference": attrs.field(default=None)}, bases=(ProviderPayload,), frozen=True)
    held = attrs.evolve(ENDED, payload=wider("lab", "anthropic-messages.result", "1", NATIVE))
    assert exact(Message.assistant(held)) == exact(Message.assistant(ENDED))


@pytest.mark.req("S0-30")
def test_native_identity_is_in_one_value() -> None:
    """Whatever holds native data holds one payload, and no member beside it repeats its provider, format or version."""
    for holder in (HostedActivity, Text, ToolCall, Attribution):
        fields = {one.name: str(one.type) for one in attrs.fields(holder)}
        assert sum("ProviderPayload" in kind for kind in fields.values()) == 1
        assert not {"provider", "format", "version", "metadata", "extra", "raw"} & set(fields)
    assert not {"provider", "format", "version"} & _keys(portable(ANSWER))


def _keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


@pytest.mark.req("S0-32")
def test_citations_belong_to_text() -> None:
    """Text alone has room for citations, and one that arrives beside hosted work goes to the text of its index."""
    holders = [kind for kind in get_args(Part) if any("Attribution" in str(one.type) for one in attrs.fields(kind))]
    assert holders == [Text]
    message = _assembled(HostedTransition(ENDED), Citation(0, CITED), TextDelta(0, "High"), Stopped("end_turn"))
    assert message.parts == (ENDED, Text("High", [CITED]))


@pytest.mark.req("S0-52")
def test_a_conversation_records_no_accounts() -> None:
    """No message, part or history has a place for token counts, or for which answer of the provider it is made of."""
    held = {
        one.name: str(one.type)
        for kind in (*get_args(Part), Message, Exchange, Attribution, Source)
        for one in attrs.fields(kind)
    }
    assert not any("Usage" in kind or "tokens" in name for name, kind in held.items())
    assert not {"response_id", "usage", "model", "receipt", "attempts"} & set(held)


@pytest.mark.req("S0-53")
def test_the_portable_form_goes_everywhere() -> None:
    """Name, state, input, summary, text and citations come through JSON, views and a switch of provider unharmed."""
    described = portable(ANSWER)
    assert described["parts"][1] == {  # type: ignore[index]
        "type": "hosted_activity",
        "id": "s1",
        "name": "web_search",
        "state": "completed",
        "input": ASKED,
        "summary": "tides",
    }
    assert described["parts"][2] == {  # type: ignore[index]
        "type": "text",
        "text": "High at noon.",
        "attributions": [{"url": "https://t.example", "title": "Tides", "excerpt": "at noon", "range": [0, 4]}],
    }
    assert json.loads(json.dumps(described)) == described
    there = Origin("elsewhere", "openai-chat", "m")
    (_, switched, _) = partition_reasoning(History([Message.user("a"), ANSWER, Message.user("b")]), there).history
    assert portable(switched) == described
    assert written(switched) == written(ANSWER)
