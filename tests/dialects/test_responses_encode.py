"""Calls as ``openai-responses`` requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._content import Media, ToolCall, ToolResult
from furcate.primitives._errors import RequestError, UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ModelCall

_RESPONSES = dialect_named("openai-responses")
_ASK = Message.user("When is high tide?")
_NAMED = [{"type": "function", "name": "tide"}, {"type": "function", "name": "moon"}]
_TOOLS = (Tool("tide", "Looks it up.", FrozenMap({"type": "object", "properties": {}})), Tool("moon"))

Json = dict[str, Any]


def _call(*messages: Message, **more: Any) -> ModelCall:
    return ModelCall(model="m", history=History(messages or (_ASK,)), **more)


def _body(call: ModelCall) -> Json:
    body: Json = json.loads(b"".join(_RESPONSES.encode(call).body))
    return body


def _input(*messages: Message) -> list[Json]:
    items: list[Json] = _body(_call(*messages))["input"]
    return items


@pytest.mark.req("S1-20", "S1-21", "S1-22")
def test_a_plain_call_keeps_nothing_at_the_provider() -> None:
    """A call without anything special is stateless, asks for sealed reasoning, and declares no tool."""
    request = _RESPONSES.encode(_call())
    assert (request.path, request.stream) == ("/responses", True)
    assert json.loads(b"".join(request.body)) == {
        "model": "m",
        "input": [{"role": "user", "content": "When is high tide?"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }
    whole = _RESPONSES.encode(_call(stream=False))
    assert (json.loads(b"".join(whole.body))["stream"], dict(whole.headers)["accept"]) == (False, "application/json")


def test_the_first_system_message_is_the_instructions() -> None:
    """A system message at the beginning goes into its own member; any other keeps its role and its place."""
    body = _body(
        _call(Message.system("Be brief."), Message("developer", "Use feet."), _ASK, Message.system("In Dutch."))
    )
    assert body["instructions"] == "Be brief."
    assert [item["role"] for item in body["input"]] == ["developer", "user", "system"]


def test_user_messages_hold_texts_images_and_files() -> None:
    """Several parts are a list; images go by address or by value, files too."""
    (item,) = _input(
        Message.user(
            "What is this?",
            Media("image/png", b"px"),
            Media("image/jpeg", url="https://x.example/a.jpg"),
            Media("application/pdf", b"pdf", name="t.pdf"),
            Media("application/pdf", url="https://x.example/t.pdf"),
        )
    )
    assert item["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,cHg=", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x.example/a.jpg", "detail": "auto"},
        {"type": "input_file", "filename": "t.pdf", "file_data": "data:application/pdf;base64,cGRm"},
        {"type": "input_file", "file_url": "https://x.example/t.pdf"},
    ]


@pytest.mark.parametrize(
    "message",
    [Message.user(Media("audio/wav", b"x")), Message.assistant("See:", Media("image/png", b"x"))],
)
def test_media_that_cannot_go_are_refused(message: Message) -> None:
    """Sound, and images said to be the model's own, are typed errors that name the message."""
    with pytest.raises(UnsupportedError, match="message 2"):
        _RESPONSES.encode(_call(_ASK, message))


def test_tool_exchanges_are_items() -> None:
    """Calls and results are items of their own; results of free-form calls are of another type."""
    items = _input(
        _ASK,
        Message.assistant("Looking.", ToolCall("c1", "tide", '{"a": 1}'), ToolCall("c2", "sql", "x", "custom")),
        Message.tool(ToolResult("c1", "nine"), ToolResult("c2", "ten")),
    )
    assert items[1:] == [
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "tide", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "nine"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ten"},
    ]


def test_the_kind_of_a_call_is_known_across_nodes() -> None:
    """A result in a later node of the history still finds that its call was free-form."""
    history = History([_ASK, Message.assistant(ToolCall("c", "sql", "x", "custom"))])
    history = history.extend([Message.tool(ToolResult("c", "ten"))])
    assert _body(ModelCall(model="m", history=history))["input"][-1]["type"] == "custom_tool_call_output"


def test_ids_of_other_providers_are_made_fit() -> None:
    """An id that this dialect would refuse is replaced, the same way in the call and in its result."""
    odd = "toolu/" + "x" * 80
    call, result = _input(_ASK, Message.assistant(ToolCall(odd, "f")), Message.tool(ToolResult(odd, "1")))[1:]
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) <= 64
    assert call["call_id"].replace("_", "").isalnum()
    assert call["arguments"] == "{}"


@pytest.mark.field(37)
def test_empty_answers_are_not_sent() -> None:
    """An assistant message that says nothing leaves no item."""
    assert len(_input(_ASK, Message("assistant", ()), Message.assistant(""), Message.user("Well?"))) == 2


@pytest.mark.req("S1-14", "S1-18", "S1-19")
def test_server_tools_follow_the_functions() -> None:
    """Declared capabilities come after function tools in their order; alone, they come with a tool choice."""
    body = _body(_call(tools=_TOOLS, server_tools=("code_execution", "web_search")))
    assert [tool.get("name", tool["type"]) for tool in body["tools"]] == [
        "tide", "moon", "code_interpreter", "web_search",
    ]  # fmt: skip
    assert body["tools"][2] == {"type": "code_interpreter", "container": {"type": "auto"}}
    assert "tool_choice" not in body
    alone = _body(_call(server_tools=("web_search",)))
    assert (alone["tools"], alone["tool_choice"]) == ([{"type": "web_search"}], "auto")


@pytest.mark.parametrize(
    ("choice", "functions", "hosted", "sent"),
    [
        ("auto", True, False, "auto"),
        ("none", True, True, "none"),
        ("none", False, True, "none"),
        ("none", False, False, None),
        ("required", True, False, "required"),
        ("required", True, True, {"type": "allowed_tools", "mode": "required", "tools": _NAMED}),
        ("moon", True, True, {"type": "function", "name": "moon"}),
        (None, True, True, None),
    ],
)  # fmt: skip
def test_tool_choices(choice: str | None, functions: bool, hosted: bool, sent: object) -> None:
    """A choice is sent as it is meant; one that calls for a tool is never satisfied by the provider's own work."""
    tools = _TOOLS if functions else ()
    call = _call(tools=tools, server_tools=("web_search",) if hosted else (), tool_choice=choice)
    assert _body(call).get("tool_choice") == sent


@pytest.mark.parametrize(
    ("tools", "choice", "said"),
    [
        ((), "required", "no function tools"),
        (_TOOLS, "sun", "not declared"),
        (_TOOLS, "web_search", "not declared"),
        ((*_TOOLS, Tool("moon")), None, "declared twice"),
    ],
)
def test_tools_that_do_not_fit_are_refused(tools: Iterable[Tool], choice: str | None, said: str) -> None:
    """A choice of nothing, of a stranger or of the provider's own work is an error before any request."""
    with pytest.raises(RequestError, match=said):
        _RESPONSES.encode(_call(tools=tuple(tools), tool_choice=choice, server_tools=("web_search",)))


def test_settings_have_their_members() -> None:
    """Limits, sampling and effort are sent; the effort joins what the extra body says of reasoning."""
    settings = Settings(
        max_output_tokens=99,
        temperature=0.5,
        top_p=0.9,
        reasoning_effort="low",
        extra_body={"reasoning": {"summary": "auto"}, "truncation": "auto", "include": []},
    )
    body = _body(_call(settings=settings))
    assert (body["max_output_tokens"], body["temperature"], body["top_p"]) == (99, 0.5, 0.9)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (body["truncation"], body["include"]) == ("auto", [])


@pytest.mark.parametrize(("settings", "name"), [(Settings(seed=1), "seed"), (Settings(stop="x"), "stop")])
def test_settings_that_do_not_exist_are_refused(settings: Settings, name: str) -> None:
    """A setting that the dialect lacks is an error that names it."""
    with pytest.raises(UnsupportedError, match=f"setting {name}"):
        _RESPONSES.encode(_call(settings=settings))


@pytest.mark.parametrize("key", ["input", "stream", "model"])
def test_the_extra_body_cannot_replace_the_call(key: str) -> None:
    """Members that the call itself makes cannot be given a second time."""
    with pytest.raises(RequestError, match=key):
        _RESPONSES.encode(_call(settings=Settings(extra_body={key: 1})))


def test_half_a_character_is_refused() -> None:
    """A lone surrogate is an error that names the message."""
    with pytest.raises(RequestError, match="message 1"):
        _RESPONSES.encode(_call(Message.user("\ud83d")))


def _format(schema: Json) -> Json:
    found: Json = _body(_call(schema=("My answer", FrozenMap(schema))))["text"]["format"]
    return found


@pytest.mark.field(38)
def test_schemas_lose_what_strict_servers_refuse() -> None:
    """Bounds go into the description of a copy; a closed schema is strict, and the caller's is unchanged."""
    schema: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "rating": {"type": "integer", "minimum": 1, "maximum": 5, "description": "Stars"},
            "place": {"$ref": "#/$defs/Place"},
        },
        "required": ["rating", "place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"name": {"type": "string", "minLength": 1}},
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }
    before = json.dumps(schema)
    found = _format(schema)
    assert (found["type"], found["name"], found["strict"]) == ("json_schema", "My_answer", True)
    assert found["schema"]["properties"]["rating"] == {
        "type": "integer",
        "description": "Stars (minimum: 1, maximum: 5)",
    }
    assert found["schema"]["$defs"]["Place"]["properties"]["name"] == {
        "type": "string",
        "description": "minLength: 1",
    }
    assert "$schema" not in found["schema"]
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"], "additionalProperties": False},
        {"type": "object", "properties": {"a": True}, "required": ["a"], "additionalProperties": False},
    ],
)
def test_open_schemas_are_not_strict(schema: Json) -> None:
    """A schema with optional members, open objects or open values is sent, and not as a strict one."""
    assert _format(schema)["strict"] is False


def test_choices_are_spelled_as_the_dialect_knows_them() -> None:
    """A choice of exactly one is sent as a choice of any, which is checked here."""
    options = [{"type": "string"}, {"type": "null"}]
    found = _format({"type": "object", "properties": {"a": {"oneOf": options}}, "required": ["a"],
                     "additionalProperties": False})  # fmt: skip
    assert (found["schema"]["properties"]["a"], found["strict"]) == ({"anyOf": options}, True)


def test_a_schema_of_something_else_is_only_checked_here() -> None:
    """A root that is no object cannot be asked for, and is left out."""
    assert "text" not in _body(_call(schema=("answer", FrozenMap({"type": "array", "items": {"type": "string"}}))))


def test_a_cache_hint_names_the_beginning() -> None:
    """The key is the same in all that share the hinted beginning, and differs where it differs."""
    hinted = Message.user("A long text.", cache=CacheHint())
    one = _body(_call(hinted, Message.user("a")))["prompt_cache_key"]
    two = ModelCall(model="m", history=History([hinted]).extend([Message.user("b", cache=CacheHint(60))]))
    assert _body(two)["prompt_cache_key"] == one
    other = _body(_call(Message.user("Another.", cache=CacheHint())))["prompt_cache_key"]
    assert other != one


def test_branches_share_the_bytes_of_their_beginning() -> None:
    """What a node encodes is encoded once, and the pieces always make one JSON document."""
    begun = History([Message.system("s"), _ASK])
    first, second = (begun.extend([Message.user(text)]) for text in ("a", "b"))
    bodies = [_RESPONSES.encode(ModelCall(model="m", history=history)).body for history in (first, second)]
    assert bodies[0][1] is bodies[1][1]
    for empty in (History(), History([Message.system("s")]), History([Message.system("s")]).extend([_ASK])):
        _body(ModelCall(model="m", history=empty))


def _recordings() -> Path | None:
    places = (parent.parent / "shared" / "corpus" / "openai-responses" for parent in Path(__file__).parents)
    return next((place for place in places if place.is_dir()), None)


def test_recorded_requests_are_encoded_alike() -> None:
    """Where the dialect leaves no choice, members equal those of requests that were recorded."""
    found = _recordings()
    if found is None:
        pytest.skip("the recorded traffic is not on this machine")
    for case, keys in (
        ("refusal", ("input", "text", "model", "stream")),
        ("parallel-function-calls", ("input", "tools", "model", "stream")),
        ("json-web-search-reasoning", ("input", "tools", "tool_choice", "include", "stream")),
        ("mcp-call", ("instructions", "input", "include")),
    ):
        sent = json.loads((found / case / "request.json").read_bytes())
        body = _body(_equivalent(sent))
        assert {key: body[key] for key in keys} == {key: sent[key] for key in keys}, case


def _equivalent(sent: Json) -> ModelCall:
    told = [Message(item["role"], item["content"]) for item in sent["input"]]
    if sent.get("instructions"):
        told.insert(0, Message.system(sent["instructions"]))
    shape = sent.get("text", {}).get("format")
    tools = sent.get("tools", [])
    return ModelCall(
        model=sent["model"],
        history=History(told),
        tools=tuple(Tool(t["name"], t["description"], FrozenMap(t["parameters"])) for t in tools if "name" in t),
        server_tools=tuple(t["type"] for t in tools if t["type"] == "web_search"),
        schema=(shape["name"], FrozenMap(shape["schema"])) if shape else None,
        stream=sent["stream"],
    )
