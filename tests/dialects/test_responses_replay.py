"""What an ``openai-responses`` answer held goes back as it came."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import (
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Text,
    ToolCall,
)
from furcate.primitives._errors import PayloadError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._wire import ModelCall

_RESPONSES = dialect_named("openai-responses")
_ORIGIN = Origin("p", "openai-responses", "m")

Json = dict[str, Any]


def _thought(number: int, **more: object) -> Json:
    sealed = f"sealed {number} \u2603=="
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": sealed, **more}


def _search(number: int, action: Json | None, status: str = "completed") -> Json:
    return {"id": f"ws_{number}", "type": "web_search_call", "status": status, "action": action}


def _said(*texts: str, number: int = 1, **more: object) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant", "content": content,
            **more}  # fmt: skip


def _answered(*output: Json, unknown: str = "fail") -> Message:
    body = json.dumps({"id": "r", "status": "completed", "output": output}).encode()
    assembler = Assembler()
    for event in _RESPONSES.decode_whole(body, _ORIGIN, "carry" if unknown == "carry" else "fail"):
        assembler.add(event)
    assert assembler.failure is None
    return assembler.message()


def _sent(answer: Message, *, ids: bool = False) -> list[Json]:
    history = History([Message.user("a"), answer, Message.user("b")])
    request = _RESPONSES.encode(ModelCall(model="m", history=history, replay_item_ids=ids))
    items: list[Json] = json.loads(b"".join(request.body))["input"]
    return items[1:-1]


def _without_ids(*items: Json) -> list[Json]:
    return [{key: value for key, value in item.items() if key != "id"} for item in items]


@pytest.mark.req("S0-40", "S1-41", "S1-64", "S2-24", "S2-25", "S2-31")
@pytest.mark.field(41, 43)
def test_every_kind_of_item_goes_back_in_its_order() -> None:
    """Reasoning, provider-run work, texts with phase and citations, and calls are sent as they came, but for ids."""
    cite = {"type": "url_citation", "start_index": 0, "end_index": 3, "url": "https://x.example", "title": "X"}
    answer = _said("See", "it", phase="commentary")
    answer["content"][0]["annotations"] = [cite]
    output = [
        _thought(1),
        {"id": "ci", "type": "code_interpreter_call", "status": "completed", "code": "1", "container_id": "c",
         "outputs": None},
        _thought(2, summary=[{"type": "summary_text", "text": "So."}],
                 content=[{"type": "reasoning_text", "text": "h"}]),
        answer,
        _said("And.", number=2),
        {"id": "fs", "type": "file_search_call", "status": "completed", "queries": ["q"], "results": None},
        {"id": "cm", "type": "compaction", "encrypted_content": "sealed past"},
        {"id": "m", "type": "message", "status": "completed", "role": "assistant",
         "content": [{"type": "refusal", "refusal": "No."}]},
    ]  # fmt: skip
    sent = _sent(_answered(*output))
    # Refusals carry nothing of their provider's, so a message of a refusal alone has no status.
    output[-1] = {key: value for key, value in output[-1].items() if key != "status"}
    assert sent == _without_ids(*output)


def test_a_call_goes_back_with_its_namespace() -> None:
    """Calls keep what their provider wants back with them."""
    call = {"id": "fc", "type": "function_call", "status": "completed", "call_id": "c", "name": "f",
            "arguments": "{}", "namespace": "n"}  # fmt: skip
    answer = _answered(call)
    history = History([Message.user("a"), answer])
    items = json.loads(b"".join(_RESPONSES.encode(ModelCall(model="m", history=history)).body))["input"]
    assert items[-1] == {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"}


@pytest.mark.req("S1-35", "S1-61", "S1-62", "S1-63")
@pytest.mark.parametrize(
    ("came", "goes"),
    [
        ({"type": "search", "query": "a"}, {"type": "search", "query": "a", "queries": ["a"]}),
        ({"type": "search", "queries": ["a", "b"], "sources": [{"type": "url", "url": "u"}]},
         {"type": "search", "queries": ["a", "b"]}),
        ({"type": "search"}, {"type": "search", "queries": []}),
        ({"type": "open_page", "url": "https://x"}, {"type": "open_page", "url": "https://x"}),
        ({"type": "open_page", "url": None}, {"type": "open_page", "url": None}),
        ({"type": "find_in_page", "url": "https://x", "pattern": "p"},
         {"type": "find_in_page", "url": "https://x", "pattern": "p"}),
        (None, None),
    ],
)  # fmt: skip
def test_searches_are_rebuilt_from_the_record(came: Json | None, goes: Json | None) -> None:
    """A search goes back ahead of the text it informed, its action from the record, its status as it came."""
    sent = _sent(_answered(_search(1, came, "failed"), _said("t")))
    assert sent[0] == {"type": "web_search_call", "status": "failed", "action": goes}
    assert sent[1]["content"][0]["text"] == "t"


@pytest.mark.req("S1-35")
@pytest.mark.field(42)
def test_ids_go_back_only_where_that_is_wanted() -> None:
    """No item names what the provider does not keep, unless the backend says that it does."""
    call = {"id": "fc", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    answer = _answered(_thought(1), _search(1, {"type": "search", "query": "a"}), _said("t"), call)
    assert not any("id" in item for item in _sent(answer))
    assert [item.get("id") for item in _sent(answer, ids=True)] == ["rs_1", "ws_1", "msg_1", "fc"]
    bare = _answered({"id": "rs_9", "type": "reasoning", "summary": []}, _said("t"))
    assert [item["type"] for item in _sent(bare)] == ["message"]


@pytest.mark.req("S0-28", "S1-44")
@pytest.mark.field(41)
def test_reasoning_goes_with_its_follower_or_not_at_all() -> None:
    """Thought whose next item is not sent stays away too, and so does thought that nothing followed."""
    waiting = {"id": "x", "type": "mcp_approval_request", "name": "t", "server_label": "s", "arguments": "{}"}
    answer = _answered(_thought(1), _thought(2), _said("t"), _thought(3), waiting, _said("u", number=2), _thought(4))
    assert [item.get("encrypted_content", item["type"]) for item in _sent(answer)] == [
        "sealed 1 \u2603==", "sealed 2 \u2603==", "message", "message",
    ]  # fmt: skip
    stripped = tuple(
        attrs.evolve(part, payload=None) if isinstance(part, HostedActivity) else part
        for part in _answered(_thought(1), _search(1, {"type": "search"}), _said("t")).parts
    )
    assert [item["type"] for item in _sent(Message("assistant", stripped))] == ["message"]


@pytest.mark.req("S1-47")
def test_work_stands_where_it_began() -> None:
    """A search whose end was told after the text goes back ahead of it, once."""
    begun, ended, text = _answered(_search(1, {"type": "search", "query": "a"}), _said("t")).parts
    moved: tuple[Part, ...] = (begun, text, ended)
    assert [item["type"] for item in _sent(Message("assistant", moved))] == ["web_search_call", "message"]


def test_work_that_never_ended_is_not_sent() -> None:
    """A transition that only began leaves no item."""
    begun, _, text = _answered(_search(1, {"type": "search", "query": "a"}), _said("t")).parts
    assert [item["type"] for item in _sent(Message("assistant", (begun, text)))] == ["message"]


def test_a_made_image_goes_back_within_its_item() -> None:
    """The image beside its activity is not sent a second time."""
    item = {"id": "i", "type": "image_generation_call", "status": "completed", "result": "cHg=", "output_format": "png"}
    answer = _answered(item, _said("t"))
    assert any(isinstance(part, Media) for part in answer.parts)
    assert [one["type"] for one in _sent(answer)] == ["image_generation_call", "message"]


def test_carried_items_go_back_and_carried_pieces_do_not() -> None:
    """An unknown item is sent to its provider again; an unknown event or part cannot stand alone."""
    item = {"id": "h", "type": "hologram_call", "beams": [1, 2]}
    odd = {"id": "m", "type": "message", "content": [{"type": "smell"}, *_said("t")["content"]]}
    assert [one["type"] for one in _sent(_answered(item, odd, unknown="carry"))] == ["hologram_call", "message"]


@pytest.mark.req("S0-56")
def test_what_another_provider_said_is_plain_text() -> None:
    """Texts without a payload are one simple message; reasoning and work without state are left out."""
    answer = Message.assistant(Reasoning("hm"), HostedActivity("x", "web_search", "completed"), Text("a"), Text("b"))
    (item,) = _sent(answer)
    assert (item["type"], [part["text"] for part in item["content"]]) == ("message", ["a", "b"])
    assert _sent(Message.assistant("a")) == [{"role": "assistant", "content": "a"}]


@pytest.mark.req("S0-26", "S0-27")
@pytest.mark.parametrize(
    "part",
    [
        HostedActivity("x", "shell", "completed", payload=ProviderPayload("p", "openai-responses.item", "9", b"{}")),
        HostedActivity("x", "shell", "completed", payload=ProviderPayload("p", "other", "1", b"{}")),
        HostedActivity("x", "shell", "completed", payload=ProviderPayload("p", "openai-responses.item", "1", b"[")),
        Text("t", payload=ProviderPayload("p", "other", "1", b"{}")),
        ToolCall("c", "f", payload=ProviderPayload("p", "other", "1", b"{}")),
        Reasoning("", ReasoningState(_ORIGIN, "other", b"{}")),
        Reasoning("", ReasoningState(_ORIGIN, "openai-responses.reasoning", b"\xff")),
    ],
)  # fmt: skip
def test_payloads_that_cannot_be_read_are_errors(part: Part) -> None:
    """A payload of an unknown format or version, or a broken one, is a typed error that names the message."""
    with pytest.raises(PayloadError, match=r"message 2 \(assistant\)"):
        _sent(Message("assistant", (part, Text("t"))))


def test_replaying_twice_changes_nothing() -> None:
    """Encoding leaves the answer as it is, and gives the same bytes again from a fresh history."""
    answer = _answered(_thought(1), _search(1, {"type": "search", "query": "a"}), _said("t"))
    copy = Message("assistant", answer.parts)
    assert _sent(answer) == _sent(answer)
    assert answer == copy
