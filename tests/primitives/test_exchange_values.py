"""A captured conversation: immutable, inspectable, and free of anything to close."""

import copy
import json
from typing import Any

import attrs
import pytest

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message

_OPAQUE = b"opaque-value"
_PAYLOAD = ProviderPayload("p", "f", "1", _OPAQUE)
_MESSAGES = (
    Message.system("be brief", cache=CacheHint(300)),
    Message.user("look", Media("image/png", _OPAQUE, name="x.png"), Media("image/gif", url="https://e.example/")),
    Message.assistant(ToolCall("c", "find", '{"q": 1}')),
    Message.tool(ToolResult("c", "nothing", is_error=True)),
    Message.assistant(
        Reasoning("thinking", ReasoningState(Origin("p", "d", "m"), "sig", _OPAQUE)),
        HostedActivity("h", "web_search", "completed", input={"q": ["a"]}, summary="searched", payload=_PAYLOAD),
        Text("found", (Attribution(Source("u", "t"), "quoted", (0, 5), _PAYLOAD),), attribution_complete=False),
        Refusal("no more"),
    ),
)


def _exchange(run_id: str = "run-2") -> Exchange:
    return Exchange(History(_MESSAGES), run_id, "run-1", {"traceparent": "00-aa-bb-01"})


@pytest.mark.req("S4-089")
def test_details_give_messages_run_and_parent() -> None:
    """Everything that was said is there in order, the final content last, with the run and its parent."""
    assert _exchange().details() == {
        "run_id": "run-2",
        "parent_run_id": "run-1",
        "digest": _exchange().digest,
        "messages": [
            {"role": "system", "parts": [{"type": "text", "text": "be brief"}], "cache": {"ttl_s": 300}},
            {
                "role": "user",
                "parts": [
                    {"type": "text", "text": "look"},
                    {"type": "media", "media_type": "image/png", "url": None, "name": "x.png", "size_bytes": 12},
                    {
                        "type": "media",
                        "media_type": "image/gif",
                        "url": "https://e.example/",
                        "name": None,
                        "size_bytes": None,
                    },
                ],
            },
            {
                "role": "assistant",
                "parts": [
                    {"type": "tool_call", "id": "c", "name": "find", "arguments": '{"q": 1}', "kind": "function"}
                ],
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_result", "call_id": "c", "content": "nothing", "is_error": True}],
            },
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "text": "thinking"},
                    {
                        "type": "hosted_activity",
                        "id": "h",
                        "name": "web_search",
                        "state": "completed",
                        "input": {"q": ["a"]},
                        "summary": "searched",
                    },
                    {
                        "type": "text",
                        "text": "found",
                        "attributions": [{"url": "u", "title": "t", "excerpt": "quoted", "range": [0, 5]}],
                        "attribution_complete": False,
                    },
                    {"type": "refusal", "text": "no more"},
                ],
            },
        ],
    }


@pytest.mark.req("S4-090")
def test_details_go_through_an_ordinary_encoder() -> None:
    """They are plain data that comes back from JSON as it was."""
    details = _exchange().details()
    assert json.loads(json.dumps(details)) == details


@pytest.mark.req("S4-025", "S4-091")
def test_changing_details_changes_nothing() -> None:
    """Neither the exchange, nor a branch of it, nor later details notice what is done to earlier ones."""
    exchange = _exchange()
    branch = Exchange(exchange.history.extend([Message.user("on"), Message.assistant("so")]), "run-3", "run-2")
    before = [copy.deepcopy(each.details()) for each in (exchange, branch)]
    details: Any = exchange.details()
    details["messages"][4]["parts"][1]["input"]["q"].append("b")
    details["messages"][4]["parts"][2]["attributions"].clear()
    details["messages"].clear()
    details.clear()
    assert [each.details() for each in (exchange, branch)] == before
    assert exchange.messages == _MESSAGES


@pytest.mark.req("S4-022")
def test_an_exchange_cannot_be_changed() -> None:
    """Its attributes are read only, and a copy, deep or not, is the same object."""
    exchange = _exchange()
    for name in ("history", "run_id", "parent_run_id", "carrier"):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(exchange, name, None)
    assert copy.copy(exchange) is exchange
    assert copy.deepcopy(exchange) is exchange
    assert copy.deepcopy([exchange])[0] is exchange


@pytest.mark.req("S4-028")
def test_an_exchange_needs_no_closing() -> None:
    """It offers nothing to close, discard, dispose of or leave."""
    offered = {name.strip("_") for name in dir(_exchange())}
    assert not offered & {"close", "aclose", "discard", "dispose", "release", "exit", "aexit", "del"}


@pytest.mark.req("S4-032")
def test_an_exchange_holds_no_attempts() -> None:
    """What it holds is the conversation, where it came from, and a trace carrier."""
    assert [field.name for field in attrs.fields(Exchange)] == ["history", "run_id", "parent_run_id", "carrier"]


@pytest.mark.req("S4-086")
def test_an_initial_exchange_has_no_parent() -> None:
    """Where no parent is given there is none, in the details too."""
    exchange = Exchange(History([Message.user("a"), Message.assistant("b")]), "run-1")
    assert exchange.parent_run_id is None
    assert exchange.details()["parent_run_id"] is None


def test_opaque_values_and_content_stay_out_of_sight() -> None:
    """Details and text forms contain no opaque value, and text forms no content and no carrier either."""
    exchange = _exchange()
    shown = json.dumps(exchange.details())
    for hidden in ("opaque", "b3BhcXVl"):
        assert hidden not in shown
    for hidden in ("opaque", "b3BhcXVl", "be brief", "found", "00-aa"):
        assert hidden not in repr(exchange)
        assert hidden not in str(exchange)


def test_forks_of_an_early_exchange_leave_later_ones_alone() -> None:
    """A branch from the first of three exchanges shows in neither of the others nor in their digests."""
    first = Exchange(History([Message.user("one"), Message.assistant("1")]), "run-1")
    second = Exchange(first.history.extend([Message.user("two"), Message.assistant("2")]), "run-2", "run-1")
    third = Exchange(second.history.extend([Message.user("three"), Message.assistant("3")]), "run-3", "run-2")
    digests = (second.digest, third.digest)
    fork = first.history.extend([Message.user("ZEBRA")])
    following = third.history.extend([Message.user("four")])
    assert "ZEBRA" in [message.text for message in fork]
    assert "ZEBRA" not in [message.text for message in following]
    assert (second.digest, third.digest) == digests


def test_a_digest_tells_conversations_not_runs_apart() -> None:
    """Equal messages have an equal digest in hex whatever run they come from, though the exchanges differ."""
    one, other = _exchange("run-2"), _exchange("run-9")
    assert one.digest == other.digest
    assert len(bytes.fromhex(one.digest)) == 32
    assert one != other
    assert one == _exchange("run-2")
    assert hash(one) == hash(_exchange("run-2"))


@pytest.mark.parametrize("messages", [(), (Message.user("a"),), (Message.assistant("a"), Message.user("b"))])
def test_an_exchange_ends_in_an_assistant_s_message(messages: tuple[Message, ...]) -> None:
    """Anything else is no exchange."""
    with pytest.raises(ValueError, match="an exchange ends in an assistant message"):
        Exchange(History(messages), "run-1")
    assert Exchange(History((Message.assistant("a"),)).extend([]), "run-1").messages[-1].text == "a"
