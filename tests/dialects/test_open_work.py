"""Provider-run work that one answer begins and a later one ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import HostedActivity, Origin, ProviderPayload
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
from furcate.primitives._open_work import open_activities

OLD = "0"
"""A version that no dialect gives to fresh work."""
NOW = "1"

ASKED = FrozenMap({"type": "search", "queries": ["bicycles"]})
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
CALL = {"type": "server_tool_use", "id": "srv_2", "name": "web_search", "input": {"query": "trams"}}
RESULT_OF_THE_SECOND = {"type": "web_search_tool_result", "tool_use_id": "srv_2", "content": []}


def begun(dialect: str, its_id: str, name: str = "web_search", **more: Any) -> HostedActivity:
    form = {
        "anthropic-messages": "anthropic-messages.server_tool_use",
        "openai-responses": "openai-responses.item",
        "google-generatecontent": "google-generatecontent.part",
        "openai-chat": "openai-chat.unknown",
    }[dialect]
    payload = ProviderPayload("lab", form, OLD, b'{"kept": true}')
    return HostedActivity(its_id, name, "started", **{"input": ASKED, "payload": payload, **more})


def transitions(
    dialect: str, body: Mapping[str, Any], stream: list[dict[str, Any]], *, start: HostedActivity, whole: bool
) -> list[HostedActivity]:
    """Decode an answer whose conversation holds an open start, and give what it tells of provider-run work."""
    spoken = dialect_named(dialect)
    origin = Origin("lab", dialect, "m")
    history = History([Message.user("Well?"), Message.assistant(start)])
    opened = open_activities(history)
    if whole:
        events = spoken.decode_whole(json.dumps(body).encode(), origin, open_activities=opened)
    else:
        decoder = spoken.decoder(origin, open_activities=opened)
        data = "".join(map(_framed, stream))
        events = [event for place in data.encode() for event in decoder.feed(bytes([place]))] + decoder.finish()
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    assert assembler.failure is None
    return [part for part in assembler.message().parts if isinstance(part, HostedActivity)]


def _framed(event: dict[str, Any]) -> str:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def versions(activities: list[HostedActivity]) -> list[tuple[str, str, str | None]]:
    return [(one.id, one.state, one.payload.version if one.payload else None) for one in activities]


# --- answers of each dialect: the end of the open work first, then work of their own


def _messages() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    blocks = [RESULT, CALL, RESULT_OF_THE_SECOND, {"type": "text", "text": "Found."}]
    head = {"id": "msg_2", "type": "message", "role": "assistant", "model": "m"}
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": {**head, "content": []}}]
    for index, block in enumerate(blocks):
        stream.append({"type": "content_block_start", "index": index, "content_block": block})
        stream.append({"type": "content_block_stop", "index": index})
    stream.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    stream.append({"type": "message_stop"})
    return {**head, "content": blocks, "stop_reason": "end_turn"}, stream


def _responses() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    items = [
        {"type": "web_search_call", "id": its_id, "status": "completed", "action": action}
        for its_id, action in (("srv_1", None), ("srv_2", {"type": "search", "query": "trams"}))
    ]
    body = {"id": "resp_2", "object": "response", "model": "m", "status": "completed", "output": items}
    stream: list[dict[str, Any]] = [{"type": "response.created", "response": {**body, "output": []}}]
    for index, item in enumerate(items):
        stream.append({"type": "response.output_item.added", "output_index": index, "item": item})
        stream.append({"type": "response.output_item.done", "output_index": index, "item": item})
    stream.append({"type": "response.completed", "response": body})
    return body, stream


def _google(ids: bool = True) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    def known(its_id: str) -> dict[str, str]:
        return {"id": its_id} if ids else {}

    parts = [
        {"codeExecutionResult": {**known("srv_1"), "outcome": "OUTCOME_OK", "output": "4"}},
        {"executableCode": {**known("srv_2"), "language": "PYTHON", "code": "2+2"}},
        {"codeExecutionResult": {**known("srv_2"), "outcome": "OUTCOME_OK", "output": "4"}},
    ]
    body = {
        "responseId": "g2",
        "modelVersion": "m",
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
    }
    return body, [body]


ANSWERS: Mapping[str, Callable[[], tuple[dict[str, Any], list[dict[str, Any]]]]] = {
    "anthropic-messages": _messages,
    "openai-responses": _responses,
    "google-generatecontent": _google,
}


@pytest.mark.req("S0-24")
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", ANSWERS)
def test_the_version_of_the_start_is_kept(dialect: str, whole: bool) -> None:
    """The end of work that an earlier answer began has the recorded version, and fresh work has today's."""
    body, stream = ANSWERS[dialect]()
    name = "code_execution" if dialect == "google-generatecontent" else "web_search"
    start = begun(dialect, "srv_1", name, scope="" if dialect == "anthropic-messages" else "first")
    told = transitions(dialect, body, stream, start=start, whole=whole)
    [end, *fresh] = told
    assert versions([end]) == [("srv_1", "completed", OLD)]
    assert end.scope == start.scope
    assert {one.id for one in fresh} == {"srv_2"}
    assert {one.payload.version for one in fresh if one.payload} == {NOW}
    assert open_activities(History([Message.assistant(start, *told)])) == ()


@pytest.mark.req("S0-24")
def test_the_recorded_version_holds_when_the_code_has_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that gives fresh work another version still ends what was begun under the old one with that."""
    monkeypatch.setattr("furcate.dialects.anthropic_messages._hosted.VERSION", "7")
    body, stream = _messages()
    for whole in (True, False):
        told = transitions("anthropic-messages", body, stream, start=begun("anthropic-messages", "srv_1"), whole=whole)
        assert versions(told) == [("srv_1", "completed", OLD), ("srv_2", "started", "7"), ("srv_2", "completed", "7")]


@pytest.mark.parametrize("dialect", ["anthropic-messages", "google-generatecontent"])
def test_an_end_says_what_its_start_asked(dialect: str) -> None:
    """A search that ends after a pause has the input and the summary that its start told of."""
    body, stream = ANSWERS[dialect]()
    name = "code_execution" if dialect == "google-generatecontent" else "web_search"
    [end, *_] = transitions(dialect, body, stream, start=begun(dialect, "srv_1", name), whole=True)
    assert end.input == ASKED
    assert end.summary == "bicycles"
    assert end.name == name


@pytest.mark.parametrize("dialect", ANSWERS)
def test_the_start_is_not_told_again(dialect: str) -> None:
    """Work that was begun earlier only ends here."""
    body, stream = ANSWERS[dialect]()
    name = "code_execution" if dialect == "google-generatecontent" else "web_search"
    told = transitions(dialect, body, stream, start=begun(dialect, "srv_1", name), whole=False)
    assert [one.state for one in told if one.id == "srv_1"] == ["completed"]


def test_a_result_without_an_id_ends_the_code_that_waits_longest() -> None:
    """Where no call of this answer waits for it, it belongs to the open one of its kind."""
    body, stream = _google(ids=False)
    start = begun("google-generatecontent", "code_execution_1", "code_execution", scope="first")
    told = transitions("google-generatecontent", body, stream, start=start, whole=True)
    assert [(one.scope, one.id, one.state) for one in told] == [
        ("first", "code_execution_1", "completed"),
        ("g2", "code_execution_1", "started"),
        ("g2", "code_execution_1", "completed"),
    ]
    assert [one.payload.version for one in told if one.payload] == [OLD, NOW, NOW]


def test_chat_passes_open_work_over() -> None:
    """What a server of this dialect ran, it tells in one answer."""
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop"}]}
    start = begun("openai-chat", "unknown_1")
    assert transitions("openai-chat", body, [], start=start, whole=True) == []
