"""Tool calls of ``openai-chat``, with what servers leave out or repeat."""

from __future__ import annotations

import json

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Origin, ToolCall

_CHAT = dialect_named("openai-chat")
_ORIGIN = Origin("p", "openai-chat", "m")


def _streamed(*deltas: list[dict[str, object]]) -> Assembler:
    assembler = Assembler()
    decoder = _CHAT.decoder(_ORIGIN)
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": pieces}}]} for pieces in deltas]
    for chunk in (*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}):
        for event in decoder.feed(f"data: {json.dumps(chunk)}\n\n".encode()):
            assembler.add(event)
    for event in decoder.finish():
        assembler.add(event)
    return assembler


def _piece(arguments: object = None, name: str | None = None, **more: object) -> dict[str, object]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def _calls(*deltas: list[dict[str, object]]) -> list[tuple[str, str, str]]:
    assembler = _streamed(*deltas)
    assert assembler.failure is None
    return [(call.id, call.name, call.arguments) for call in assembler.message().tool_calls]


def test_interleaved_by_index() -> None:
    """Pieces of several calls are told apart by their index."""
    assert _calls(
        [_piece("", "f", index=0, id="a"), _piece("", "g", index=1, id="b")],
        [_piece('{"x"', index=0)],
        [_piece("{}", index=1), _piece(": 1}", index=0)],
    ) == [("a", "f", '{"x": 1}'), ("b", "g", "{}")]


def test_repeated_name_and_id() -> None:
    """A name and an id that come with every piece count once."""
    assert _calls(
        [_piece("", "f", index=0, id="a")], [_piece('{"x":', "f", index=0, id="a")], [_piece("1}", index=0)]
    ) == [("a", "f", '{"x":1}')]


def test_every_call_numbered_zero() -> None:
    """Named calls with ids of their own are calls of their own, whatever the index says."""
    assert _calls([_piece("{}", "f", index=0, id="a")], [_piece("{}", "f", index=0, id="b")]) == [
        ("a", "f", "{}"),
        ("b", "f", "{}"),
    ]


def test_no_index() -> None:
    """Without an index the id tells calls apart, and pieces without either belong to the last one."""
    assert _calls(
        [_piece("", "f", id="a")],
        [_piece('{"x"')],
        [_piece(":1}")],
        [_piece("{}", "g", id="b")],
        [_piece(" ", None, id="a")],
    ) == [("a", "f", '{"x":1} '), ("b", "g", "{}")]


def test_no_index_and_no_id() -> None:
    """Without either, a new name, or a name after whole arguments, begins a call; ids are made up."""
    assert _calls(
        [_piece('{"x":', "f")],
        [_piece("1}", "f")],
        [_piece("{}", "f")],
        [_piece("{", "g")],
        [_piece("}")],
        [_piece("", "h"), _piece("", "h")],
    ) == [
        ("call_0", "f", '{"x":1}'),
        ("call_1", "f", "{}"),
        ("call_2", "g", "{}"),
        ("call_3", "h", ""),
        ("call_4", "h", ""),
    ]


@pytest.mark.parametrize(("arguments", "text"), [(None, ""), ("", ""), ({"x": [1]}, '{"x": [1]}'), ("{}", "{}")])
def test_arguments_of_any_form(arguments: object, text: str) -> None:
    """Arguments may be null, missing, text, or the object itself."""
    assert _calls([_piece(arguments, "f", index=0, id="a")]) == [("a", "f", text)]
    assert _streamed([{"index": 0, "id": "a", "function": {"name": "f"}}]).message().tool_calls[0].parsed() == {}


def test_whole_calls() -> None:
    """In a whole answer the place in the list tells calls apart, with or without ids and indexes."""
    calls = [_piece("{}", "f", index=0), _piece("{}", "f", index=0), _piece('{"x": 1}', "f", id="c")]
    message = {"content": None, "tool_calls": calls}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assembler = Assembler()
    for event in _CHAT.decode_whole(json.dumps(body).encode(), _ORIGIN):
        assembler.add(event)
    assert assembler.message().tool_calls == (
        ToolCall("call_0", "f", "{}"),
        ToolCall("call_1", "f", "{}"),
        ToolCall("c", "f", '{"x": 1}'),
    )
    assert assembler.stop is not None
    assert assembler.stop.reason == "tool_use"


def test_legacy_function_call() -> None:
    """The older single function call is a call like any other."""
    decoder = _CHAT.decoder(_ORIGIN)
    assembler = Assembler()
    for delta, finish in (
        ({"function_call": {"name": "f", "arguments": '{"x"'}}, None),
        ({"function_call": {"arguments": ": 1}"}}, "function_call"),
    ):
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for event in decoder.feed(f"data: {json.dumps(chunk)}\n\n".encode()):
            assembler.add(event)
    for event in decoder.finish():
        assembler.add(event)
    assert assembler.message().tool_calls == (ToolCall("call_0", "f", '{"x": 1}'),)


def test_custom_calls() -> None:
    """A custom tool's input is free-form text."""
    piece: dict[str, object] = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    assert _streamed([piece]).message().tool_calls == (ToolCall("a", "sh", "ls", "custom"),)


def test_a_call_of_nothing() -> None:
    """A call that never says what it calls fails the answer; an empty piece is no call."""
    failure = _streamed([_piece("{}", index=0, id="a")]).failure
    assert failure is not None
    assert (failure.reason, failure.message) == ("malformed", "the answer holds a tool call without a name")
    assert _calls([{}]) == []
