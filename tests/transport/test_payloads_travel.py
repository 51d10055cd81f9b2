"""Native values on their way: to the provider that wrote them byte for byte, to nobody else at all."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from furcate.dialects import DIALECTS, Assembler, dialect_named
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._describe import exact
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._wire import ModelCall
from furcate.transport import TransportService

DATA = Path(__file__).parent.parent / "data"
SEARCHES = {
    "anthropic-messages": "web-search",
    "google-generatecontent": "server-side-search",
    "openai-responses": "web-search",
}


def _sent(message: Message, origin: Origin, *after: Message) -> bytes:
    """Give the body that a backend of `origin` sends for a conversation that holds `message`."""
    history = History([Message.user("Hello"), message, *(after or (Message.user("Go on."),))])
    call = ModelCall(model=origin.model, history=history)
    begun = TransportService(origin, "r").begin(call, request_id="1", native_request_sha256=bytes(32))
    return b"".join(dialect_named(origin.dialect).encode(begun.request).body)


def _bare(message: Message) -> Message:
    return Message("assistant", tuple(map(_without_native, message.parts)))


def _without_native(part: Part) -> Part:
    if isinstance(part, Text):
        cited = tuple(attrs.evolve(one, replay=None) for one in part.attributions)
        return attrs.evolve(part, attributions=cited, payload=None)
    if isinstance(part, HostedActivity | ToolCall):
        return attrs.evolve(part, payload=None)
    return attrs.evolve(part, state=None) if isinstance(part, Reasoning) else part


@pytest.mark.req("S0-21")
@pytest.mark.parametrize("kind", ["hosted work", "text", "citation", "call"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_its_provider_reads_a_payload(dialect: str, kind: str) -> None:
    """What nobody else can read is never opened: the request is that without it, and the conversation keeps it."""
    other = next(name for name in DIALECTS if name != dialect)
    for payload in (
        ProviderPayload("elsewhere", f"{dialect}.item", "1", b"\xffnative"),
        ProviderPayload("here", f"{other}.item", "1", b"\xffnative"),
    ):
        part: Part = {
            "hosted work": HostedActivity("a", "web_search", "completed", payload=payload),
            "text": Text("words", payload=payload),
            "citation": Text("words", [Attribution(Source("https://s.example"), replay=payload)]),
            "call": ToolCall("c", "f", "{}", payload=payload),
        }[kind]
        message = Message.assistant("First.", part)
        before = json.dumps(exact(message))
        after = (Message.tool(ToolResult("c", "1")),) if kind == "call" else ()
        origin = Origin("here", dialect, "m")
        body = _sent(message, origin, *after)
        assert body == _sent(_bare(message), origin, *after)
        assert b"native" not in body
        assert json.dumps(exact(message)) == before


@pytest.mark.req("S0-54", "S0-56")
@pytest.mark.parametrize("dialect", SEARCHES)
def test_native_values_serve_the_replay_alone(dialect: str) -> None:
    """A recorded search goes back to its origin natively; to another provider go its text and nothing else of it."""
    origin = Origin("here", dialect, "m")
    decoder = dialect_named(dialect).decoder(origin)
    assembler = Assembler()
    body = (DATA / dialect / SEARCHES[dialect] / "response.sse").read_bytes()
    for event in [*decoder.feed(body), *decoder.finish()]:
        assembler.add(event)
    message = assembler.message()
    hosted = [part for part in message.parts if isinstance(part, HostedActivity) and part.payload is not None]
    assert hosted
    own = _sent(message, origin)
    for part in hosted:
        assert part.payload is not None
        if dialect == "openai-responses":
            native = json.loads(part.payload.value)
            items = [item for item in json.loads(own)["input"] if item.get("type") == native["type"]]
            assert native["status"] in [item["status"] for item in items]
        elif part.payload.format != "google-generatecontent.grounding":  # for which requests have no place
            assert part.payload.value in own
    foreign = _sent(message, Origin("elsewhere", dialect, "m"))
    assert foreign == _sent(_bare(message), Origin("elsewhere", dialect, "m"))
    assert foreign != own
    assert all(part.text.encode() in foreign for part in message.parts if isinstance(part, Text))
