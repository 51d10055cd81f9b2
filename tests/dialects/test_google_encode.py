"""Requests of ``google-generatecontent``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from furcate.dialects import Assembler
from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent
from furcate.primitives._content import (
    ActivityState,
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
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap, Json
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ModelCall

_GOOGLE = GoogleGenerateContent()
_ORIGIN = Origin("p", "google-generatecontent", "m")
_USER = Message.user("hi")
_DATA = Path(__file__).parent.parent / "data" / "google-generatecontent"
_ADD = Tool("add", "Adds.", FrozenMap({"type": "object", "properties": {"a": {"type": "integer"}}}))


def _body(*messages: Message, **options: Any) -> dict[str, Any]:
    call = ModelCall(model="m", history=History(messages or (_USER,)), **options)
    loaded: dict[str, Any] = json.loads(b"".join(_GOOGLE.encode(call).body))
    return loaded


def _sent(*messages: Message) -> list[Any]:
    sent: list[Any] = _body(*messages)["contents"]
    return sent


def _signed(form: str, signature: bytes = b"U0lH", text: str = "") -> Reasoning:
    return Reasoning(text, ReasoningState(_ORIGIN, f"google-generatecontent.signature.{form}", signature))


def _hosted(state: ActivityState, native: dict[str, Any], form: str = "part", version: str = "1") -> HostedActivity:
    payload = ProviderPayload("p", f"google-generatecontent.{form}", version, json.dumps(native).encode())
    return HostedActivity("h", "code_execution", state, payload=payload, scope="r")


def test_plain_request() -> None:
    """A bare call has its contents alone; the model and the way to answer are in the path."""
    wire = _GOOGLE.encode(ModelCall(model="gemini-x", history=History([_USER])))
    assert (wire.path, wire.stream) == ("/models/gemini-x:streamGenerateContent?alt=sse", True)
    assert wire.headers == (("content-type", "application/json"), ("accept", "text/event-stream"))
    assert _body() == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    whole = _GOOGLE.encode(ModelCall(model="tunedModels/x y?", history=History([_USER]), stream=False))
    assert (whole.path, whole.stream) == ("/tunedModels/x%20y%3F:generateContent", False)
    assert _GOOGLE.auth_headers("AIza1") == (("x-goog-api-key", "AIza1"),)
    assert _GOOGLE.auth_headers("ya29.x") == (("authorization", "Bearer ya29.x"),)


def test_settings() -> None:
    """Settings are spelled as the generation config has them, and what is not set is not sent."""
    settings = Settings(max_output_tokens=9, temperature=0.0, top_p=0.5, seed=0, stop=("x",), reasoning_effort="low")
    assert _body(settings=settings)["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.0,
        "topP": 0.5,
        "seed": 0,
        "stopSequences": ["x"],
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
    }


@pytest.mark.parametrize(
    ("effort", "thinking"),
    [
        ("2048", {"includeThoughts": True, "thinkingBudget": 2048}),
        ("dynamic", {"includeThoughts": True, "thinkingBudget": -1}),
        ("none", {"thinkingBudget": 0}),
        ("0", {"thinkingBudget": 0}),
    ],
)
def test_efforts_that_are_budgets(effort: str, thinking: dict[str, Any]) -> None:
    """An effort that is a number is a budget of tokens, for models that know no levels."""
    body = _body(settings=Settings(reasoning_effort=effort))
    assert body["generationConfig"] == {"thinkingConfig": thinking}


def test_extra_body_is_merged() -> None:
    """Members of extra_body are added, key by key where the request has an object of that name."""
    extra = FrozenMap({"generationConfig": {"topK": 3, "seed": 2}, "safetySettings": [{"category": "X"}]})
    assert _body(settings=Settings(seed=1, temperature=0.5, extra_body=extra)) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"temperature": 0.5, "seed": 2, "topK": 3},
        "safetySettings": [{"category": "X"}],
    }
    with pytest.raises(RequestError, match="extra_body holds 'contents'"):
        _body(settings=Settings(extra_body=FrozenMap({"contents": []})))


def test_system_messages() -> None:
    """System messages at the beginning are the instruction, in their order, over several nodes too."""
    history = History([Message.system("a")]).extend([Message("developer", (Text("b"),)), _USER])
    body = json.loads(b"".join(_GOOGLE.encode(ModelCall(model="m", history=history)).body))
    assert body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


@pytest.mark.field(33)
def test_late_system_messages_are_refused() -> None:
    """A system message behind others is refused with its number, and nothing of the caller's is changed."""
    history = History([Message.system("s"), _USER, Message.assistant("a")])
    late = history.extend([Message.system("late"), _USER])
    digest = late.digest
    with pytest.raises(UnsupportedError, match=r"^message 4 \(system\) stands behind other messages"):
        _GOOGLE.encode(ModelCall(model="m", history=late))
    assert late.digest == digest
    assert [message.role for message in late] == ["system", "user", "assistant", "system", "user"]


def test_nothing_to_answer() -> None:
    """A conversation of system messages alone is refused before the provider does it."""
    for messages in ([Message.system("s")], [Message.system("s"), Message.assistant()]):
        with pytest.raises(RequestError, match="add a user message"):
            _body(*messages)


def test_results_of_one_turn_stand_together() -> None:
    """Results are one content whatever messages and nodes they came in, named after their calls."""
    asked = Message.assistant(ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "sub", ""))
    history = History([_USER, asked]).extend([Message.tool(ToolResult("c1", "1"))])
    history = history.extend([Message.tool(ToolResult("c2", "no", is_error=True)), _USER])
    body = json.loads(b"".join(_GOOGLE.encode(ModelCall(model="m", history=history)).body))
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}},
                {"functionCall": {"id": "c2", "name": "sub", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "add", "response": {"result": "1"}}},
                {"functionResponse": {"id": "c2", "name": "sub", "response": {"error": "no"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "hi"}]},
    ]


@pytest.mark.parametrize(
    ("content", "response"),
    [
        ("plain", {"result": "plain"}),
        ('{"a": [1]}', {"a": [1]}),
        ("[1, 2]", {"result": [1, 2]}),
        ("{no json", {"result": "{no json"}),
        ("7", {"result": "7"}),
        ("", {"result": ""}),
    ],
)
def test_results_are_objects(content: str, response: dict[str, Any]) -> None:
    """A result that is a JSON object goes as it is; anything else stands in one."""
    sent = _sent(_USER, Message.assistant(ToolCall("c", "f")), Message.tool(ToolResult("c", content)))
    assert sent[2]["parts"][0]["functionResponse"]["response"] == response


def test_made_ids_stay_here() -> None:
    """Ids that were made here are not sent, so results stand in the order of their calls."""
    asked = Message.assistant(ToolCall("gcall_1_r", "f", "{}"), ToolCall("gcall_2_r", "g", "{}"))
    answered = Message.tool(ToolResult("gcall_2_r", "second"), ToolResult("gcall_1_r", "first"))
    sent = _sent(_USER, asked, answered)
    assert sent[1]["parts"][0] == {"functionCall": {"name": "f", "args": {}}}
    assert [part["functionResponse"] for part in sent[2]["parts"]] == [
        {"name": "f", "response": {"result": "first"}},
        {"name": "g", "response": {"result": "second"}},
    ]


def test_calls_that_cannot_go() -> None:
    """Results without a call, free-form calls and calls that were cut off are refused with their message."""
    with pytest.raises(RequestError, match=r"^message 2 \(tool\) answers the call 'c'"):
        _body(_USER, Message.tool(ToolResult("c", "1")))
    with pytest.raises(UnsupportedError, match=r"^message 1 \(assistant\) holds a call of 'sh' with free-form input"):
        _body(Message.assistant(ToolCall("c", "sh", "ls", "custom")))
    with pytest.raises(RequestError, match=r"^message 1 \(assistant\) holds a call of 'f' whose arguments"):
        _body(Message.assistant(ToolCall("c", "f", '{"a":"x"')))


@pytest.mark.field(48)
@pytest.mark.parametrize(
    ("parts", "sent"),
    [
        (
            (_signed("next", text="hm"), ToolCall("c", "f", "{}"), ToolCall("d", "f", "{}")),
            [
                {"text": "hm", "thought": True},
                {"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": "U0lH"},
                {"functionCall": {"id": "d", "name": "f", "args": {}}},
            ],
        ),
        ((Text("a"), _signed("previous")), [{"text": "a", "thoughtSignature": "U0lH"}]),
        ((_signed("previous"),), [{"text": "", "thoughtSignature": "U0lH"}]),
        (
            (Text("a"), _signed("previous"), _signed("alone", b"QQ==")),
            [{"text": "a", "thoughtSignature": "U0lH"}, {"text": "", "thoughtSignature": "QQ=="}],
        ),
        (
            (_signed("thought", text="hm"), Text("a")),
            [{"text": "hm", "thought": True, "thoughtSignature": "U0lH"}, {"text": "a"}],
        ),
        (
            (_signed("next"), _signed("next", b"QQ=="), Text("a")),
            [
                {"text": "", "thoughtSignature": "U0lH"},
                {"text": "a", "thoughtSignature": "QQ=="},
            ],
        ),
        (
            (_signed("next"), Media("image/png", b"\x01")),
            [{"inlineData": {"mimeType": "image/png", "data": "AQ=="}, "thoughtSignature": "U0lH"}],
        ),
    ],
)
def test_signatures_go_where_they_were(parts: tuple[Part, ...], sent: list[Any]) -> None:
    """A signature goes back on the part that it came on, unchanged."""
    assert _sent(_USER, Message.assistant(*parts))[1]["parts"] == sent


def test_what_is_not_sent() -> None:
    """Thoughts without a signature, empty texts, citations, and work that was only told of are not sent."""
    grounding = ProviderPayload("p", "google-generatecontent.grounding", "1", b'{"OPAQUE":1}')
    hidden: tuple[Part, ...] = (
        Reasoning("OPAQUE"),
        HostedActivity("h", "web_search", "completed", summary="OPAQUE"),
        _hosted("completed", {"OPAQUE": 1}, "grounding"),
        _hosted("completed", {"OPAQUE": 1}, "fetched"),
        Text(""),
    )
    cited = Text("said", (Attribution(Source("OPAQUE"), "OPAQUE"),), payload=grounding)
    sent = _sent(_USER, Message.assistant(*hidden, cited), Message.assistant(*hidden), Message.assistant(Refusal("no")))
    assert sent[1:] == [
        {"role": "model", "parts": [{"text": "said"}]},
        {"role": "model", "parts": [{"text": "no"}]},
    ]


def test_provider_run_work_goes_back() -> None:
    """Parts of work that ended go back as they came; work that never ended does not, unless calls wait beside it."""
    result: dict[str, Any] = {"codeExecutionResult": {}}
    code = {"executableCode": {"code": "1"}, "thoughtSignature": "QQ=="}
    both = (_hosted("started", code), _hosted("completed", result), Text("x"))
    assert _sent(_USER, Message.assistant(*both))[1]["parts"] == [code, result, {"text": "x"}]
    assert _sent(_USER, Message.assistant(_hosted("started", code), Text("x")))[1]["parts"] == [{"text": "x"}]
    mixed = (_hosted("started", code), ToolCall("c", "f"))
    assert _sent(_USER, Message.assistant(*mixed))[1]["parts"][0] == code
    unknown = _hosted("completed", {"hologram": 1}, "unknown")
    assert _sent(_USER, Message.assistant(unknown))[1]["parts"] == [{"hologram": 1}]


@pytest.mark.req("S0-26", "S0-27")
@pytest.mark.parametrize(
    "part",
    [
        _hosted("completed", {}, "newer"),
        _hosted("completed", {}, version="2"),
        _signed("elsewhere"),
        _signed("next", b"\xff"),
        Text("x", payload=ProviderPayload("p", "openai-responses.message", "1", b"{}")),
        ToolCall("c", "f", payload=ProviderPayload("p", "openai-responses.item", "1", b"{}")),
    ],
)
def test_payloads_that_cannot_be_decoded(part: Part) -> None:
    """A payload of the call's own provider that is not understood is an error, and its value stays out of it."""
    with pytest.raises(PayloadError, match=r"^message 2 \(assistant\) holds "):
        _body(_USER, Message.assistant(part))


def test_media() -> None:
    """Media go by value or by address, between the texts where they stood."""
    sent = _sent(
        Message.user(
            "see",
            Media("image/png", b"\x01"),
            Media("application/pdf", url="https://f.example/a.pdf"),
            Media("image/*", url="https://f.example/b"),
        )
    )
    assert sent[0]["parts"] == [
        {"text": "see"},
        {"inlineData": {"mimeType": "image/png", "data": "AQ=="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://f.example/a.pdf"}},
        {"fileData": {"fileUri": "https://f.example/b"}},
    ]
    with pytest.raises(UnsupportedError, match=r"^message 2 \(user\) holds image/\* by value"):
        _body(_USER, Message.user(Media("image/*", b"\x01")))


def test_half_characters_are_refused() -> None:
    """A lone surrogate is refused with the number of its message, counted over the whole history."""
    history = History([Message.system("s"), _USER]).extend([Message.user("b"), Message.user("\ud83d")])
    with pytest.raises(RequestError, match=r"^message 4 \(user\) holds half a character"):
        _GOOGLE.encode(ModelCall(model="m", history=history))
    with pytest.raises(RequestError, match=r"^message 1 \(system\) holds half a character"):
        _body(Message.system("\udc00"), _USER)
    with pytest.raises(RequestError, match=r"^tools holds half a character"):
        _body(tools=(Tool("t", "\udc00"),))


def test_shared_history_is_shared_bytes() -> None:
    """Branches of one conversation send the very same bytes for what they share, and bodies stay valid JSON."""
    base = History([]).extend([Message.system("s")]).extend([_USER, Message.assistant("a")])
    bodies = [
        _GOOGLE.encode(
            ModelCall(model="m", history=base.extend([Message.assistant()]).extend([Message.user(word)]))
        ).body
        for word in ("left", "right")
    ]
    assert bodies[0][1] is bodies[1][1]
    for body, word in zip(bodies, ("left", "right"), strict=True):
        assert [one["parts"][0]["text"] for one in json.loads(b"".join(body))["contents"]] == ["hi", "a", word]


def test_long_chains_do_not_recurse() -> None:
    """A conversation of thousands of turns is encoded like any other."""
    history = History()
    for turn in range(3000):
        history = history.extend([Message.user(str(turn))])
    assert len(json.loads(b"".join(_GOOGLE.encode(ModelCall(model="m", history=history)).body))["contents"]) == 3000


def test_cache_hints_are_left_to_the_provider() -> None:
    """The provider caches by itself; a hint changes nothing."""
    assert _body(Message.user("hi", cache=CacheHint(60))) == _body()


def test_tools_and_choice() -> None:
    """Tools are one list of declarations with JSON Schemas, and a choice is a mode."""
    body = _body(tools=(_ADD, Tool("bare")), tool_choice="add")
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "add",
                    "description": "Adds.",
                    "parametersJsonSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
                },
                {"name": "bare", "parametersJsonSchema": {"type": "object", "properties": {}}},
            ]
        }
    ]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}
    assert body["toolConfig"] == config
    for choice, mode in (("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")):
        assert _body(tools=(_ADD,), tool_choice=choice)["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert "toolConfig" not in _body(tools=(_ADD,))
    assert "toolConfig" not in _body(tool_choice="auto")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tool_choice": "required"}, "'required' but the request declares no function tools"),
        (
            {"tool_choice": "required", "server_tools": ("web_search",)},
            "'required' but the request declares no function",
        ),
        ({"tools": (_ADD,), "tool_choice": "sub"}, "names 'sub', which is not declared; there are: add"),
        ({"tools": (_ADD, _ADD)}, "'add' is declared twice"),
    ],
)
def test_tools_that_do_not_fit(options: dict[str, Any], problem: str) -> None:
    """Tools and a choice that contradict each other are refused."""
    with pytest.raises(RequestError, match=problem):
        _body(**options)


@pytest.mark.req("S1-17", "S1-18")
def test_server_tools() -> None:
    """Provider-run tools stand behind the function tools in declared order, and are shown beside them as parts."""
    body = _body(tools=(_ADD,), tool_choice="required", server_tools=("code_execution", "web_search"))
    assert body["tools"][1:] == [{"code_execution": {}}, {"google_search": {}}]
    assert body["toolConfig"] == {
        "functionCallingConfig": {"mode": "ANY"},
        "includeServerSideToolInvocations": True,
    }
    alone = _body(server_tools=("web_search",), tool_choice="auto")
    assert alone["tools"] == [{"google_search": {}}]
    assert "toolConfig" not in alone  # the provider refuses one without functions
    with pytest.raises(AssertionError, match="cannot spell it"):
        _body(server_tools=("teleport",))


@pytest.mark.req("S1-20", "S1-22")
def test_no_declaration_changes_nothing() -> None:
    """Without a declaration no request holds a provider-run tool, whatever the model is called."""
    assert _body(server_tools=()) == _body()
    assert "tools" not in _body()


def test_a_history_with_server_side_parts_is_announced() -> None:
    """A history that holds calls of provider-run tools is sent with the switch under which they are read."""
    call, answer = ({kind: {"toolType": "FILE_SEARCH", "id": "h"}} for kind in ("toolCall", "toolResponse"))
    steps: tuple[tuple[ActivityState, Any], ...] = (("started", call), ("completed", answer))
    parts = [
        HostedActivity(
            "h",
            "file_search",
            state,
            payload=ProviderPayload(
                "p", "google-generatecontent.part", "1", json.dumps(native, separators=(",", ":")).encode()
            ),
        )
        for state, native in steps
    ]
    body = _body(_USER, Message.assistant(*parts, "x"), _USER)
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert body["contents"][1]["parts"] == [call, answer, {"text": "x"}]


_DEEP: dict[str, Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "rating": {"type": "integer", "minimum": 1, "exclusiveMaximum": 6, "multipleOf": 1},
        "kind": {"const": "note", "default": "note"},
        "odd": {"enum": ["a", None]},
        "word": {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 5},
        "const": {"allOf": [{"$ref": "#/definitions/B"}], "description": "d"},
        "any": True,
        "list": {"type": "array", "items": False, "uniqueItems": True, "maxItems": 3},
        "pair": {"anyOf": [{"type": ["string", "null"]}, {"type": "object", "additionalProperties": {"not": {}}}]},
    },
    "required": ["rating"],
    "additionalProperties": False,
    "definitions": {"B": {"type": "boolean", "$comment": "c"}},
}


@pytest.mark.field(45)
def test_parallel_calls_go_back_in_one_turn() -> None:
    """Two calls of one turn, the first alone signed, are one turn again, in order, the signature on the first."""
    body = (_DATA / "parallel-calls-signed" / "response.sse").read_bytes()
    decoder = _GOOGLE.decoder(_ORIGIN)
    assembler = Assembler()
    for event in decoder.feed(body) + decoder.finish():
        assembler.add(event)
    answer = assembler.message()
    results = [ToolResult(call.id, text) for call, text in zip(answer.tool_calls, ("rain", "sun"), strict=True)]
    _, model, user = _sent(_USER, answer, Message.tool(*results))
    assert model == {
        "role": "model",
        "parts": [
            {
                "functionCall": {"name": "weather", "args": {"city": "Köln", "days": 2}},
                "thoughtSignature": "c2lnLW9uZQ+/==",
            },
            {"functionCall": {"name": "weather", "args": {"city": "Bonn"}}},
        ],
    }
    assert user["role"] == "user"
    assert [part["functionResponse"]["name"] for part in user["parts"]] == ["weather", "weather"]
    assert [("rain" in json.dumps(part), "sun" in json.dumps(part)) for part in user["parts"]] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.field(38)
def test_schemas_are_adapted() -> None:
    """A schema goes in words that the provider knows, on a copy, and allows all that it allowed."""
    schema = FrozenMap(_DEEP)
    config = _body(schema=("answer", schema))["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"] == {
        "type": "object",
        "properties": {
            "rating": {"type": "integer", "minimum": 1, "maximum": 6},
            "kind": {"enum": ["note"]},
            "odd": {},
            "word": {"type": "string"},
            "const": {"$ref": "#/$defs/B"},
            "any": {},
            "list": {"type": "array", "items": {}, "maxItems": 3},
            "pair": {"anyOf": [{"type": ["string", "null"]}, {"type": "object", "additionalProperties": {}}]},
        },
        "required": ["rating"],
        "additionalProperties": False,
        "$defs": {"B": {"type": "boolean"}},
    }
    assert schema == FrozenMap(_DEEP)


def test_a_conversation_that_goes_on() -> None:
    """What a decoded answer holds goes back with the next request in its own order, and nothing is added."""
    native: list[dict[str, Any]] = [
        {"executableCode": {"language": "PYTHON", "code": "2+2", "id": "k"}, "thoughtSignature": "QQ=="},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4", "id": "k"}},
        {"text": "It is 4; I note it.", "thoughtSignature": "Qg=="},
        {"functionCall": {"id": "c1", "name": "note", "args": {"n": 4}}, "thoughtSignature": "Qw=="},
        {"functionCall": {"id": "c2", "name": "note", "args": {"n": 5}}},
    ]
    answer = {"candidates": [{"content": {"role": "model", "parts": native}, "finishReason": "STOP"}]}
    assembler = Assembler()
    for event in _GOOGLE.decode_whole(json.dumps(answer, indent=2).encode(), _ORIGIN):
        assembler.add(event)
    results = Message.tool(ToolResult("c1", "ok"), ToolResult("c2", "ok"))
    sent = _sent(_USER, assembler.message(), results, Message.user("go on"))
    assert sent[1] == {"role": "model", "parts": native}
    assert [one["role"] for one in sent] == ["user", "model", "user", "user"]
