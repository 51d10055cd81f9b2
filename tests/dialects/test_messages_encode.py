"""Requests of ``anthropic-messages``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from furcate.dialects import dialect_named
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
from furcate.primitives._errors import PayloadError, RequestError, UnsupportedError
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ModelCall

_MESSAGES = dialect_named("anthropic-messages")
_ORIGIN = Origin("own", "anthropic-messages", "m")
_USER = Message.user("hi")
_ADD = Tool("add", "Adds.", FrozenMap({"type": "object", "properties": {"a": {"type": "integer"}}}))
_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def _encoded(history: History, **options: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        b"".join(_MESSAGES.encode(ModelCall(model="m", history=history, **options)).body)
    )
    return loaded


def _body(*messages: Message, **options: Any) -> dict[str, Any]:
    return _encoded(History(messages or (_USER,)), **options)


def _sent(*messages: Message) -> list[Any]:
    sent: list[Any] = _body(*messages)["messages"]
    return sent


def _blocks(*parts: Part) -> list[Any]:
    """Give what is sent of an assistant's parts, with the user speaking after them."""
    messages = _sent(_USER, Message.assistant(*parts), _USER)
    blocks: list[Any] = messages[1]["content"] if len(messages) == 3 else []
    return blocks


def _payload(form: str, value: object, version: str = "1") -> ProviderPayload:
    written = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ProviderPayload("own", f"anthropic-messages.{form}", version, written)


def _call(its_id: str) -> HostedActivity:
    native = {"type": "server_tool_use", "id": its_id, "name": "web_search", "input": {}}
    return HostedActivity(its_id, "web_search", "started", payload=_payload("call", native))


def _result(its_id: str) -> HostedActivity:
    native = {"type": "web_search_tool_result", "tool_use_id": its_id, "content": []}
    return HostedActivity(its_id, "web_search", "completed", payload=_payload("result", native))


def _kinds(*messages: Message) -> list[list[str]]:
    history = History(messages)
    return [
        [block["type"] for block in one["content"]] if isinstance(one["content"], list) else ["text"]
        for one in _encoded(history)["messages"]
    ]


def test_plain_request() -> None:
    """A bare call has model, messages and a token limit, and goes to the one path with our version."""
    wire = _MESSAGES.encode(ModelCall(model="m", history=History([_USER])))
    assert (wire.path, wire.stream) == ("/messages", True)
    assert wire.headers == (
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
        ("anthropic-version", "2023-06-01"),
    )
    assert _body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4096,
        "stream": True,
    }
    assert _body(stream=False)["stream"] is False
    assert _MESSAGES.auth_headers("k") == (("x-api-key", "k"),)
    assert _MESSAGES.default_base_url == "https://api.anthropic.com/v1"


def test_settings() -> None:
    """Settings are spelled as the dialect does, and what is not set is not sent."""
    settings = Settings(max_output_tokens=9, temperature=0.0, top_p=0.5, stop=("x",), reasoning_effort="low")
    assert _body(settings=settings) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "stop_sequences": ["x"],
        "output_config": {"effort": "low"},
        "stream": True,
    }
    with pytest.raises(UnsupportedError, match="sets seed, which anthropic-messages does not have"):
        _body(settings=Settings(seed=1))


@pytest.mark.field(33)
def test_system_text_goes_to_the_top() -> None:
    """System messages in front become the top-level system text, as often as the same history is sent."""
    history = History([Message.system("be brief"), _USER])
    for _ in range(2):
        body = _encoded(history)
        assert (body["system"], body["messages"]) == ("be brief", [{"role": "user", "content": "hi"}])
    several = _body(Message.system("a"), Message("developer", (Text("b"),)), Message.system(" "), _USER)
    assert several["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    apart = History([Message.system("a")]).extend([Message.system("b"), _USER])
    assert [block["text"] for block in _encoded(apart)["system"]] == ["a", "b"]
    assert "system" not in _body(Message.system(""), _USER)


@pytest.mark.parametrize(
    "history",
    [
        History([_USER, Message.system("late")]),
        History([_USER]).extend([Message("developer", (Text("late"),))]),
        History([Message.system("a"), _USER]).extend([Message.system("late"), _USER]),
    ],
)
def test_late_system_text_is_refused(history: History) -> None:
    """A system message behind others is refused with its number, and is not moved."""
    with pytest.raises(UnsupportedError, match=r"^message [23] \((system|developer)\) is a system text behind"):
        _encoded(history)


def test_tool_turns() -> None:
    """The results of one turn are one message, before what the user says to them."""
    asked = Message.assistant("Both.", ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "now"))
    sent = _sent(
        _USER,
        asked,
        Message.tool(ToolResult("c1", "1")),
        Message.tool(ToolResult("c2", "", is_error=True)),
        Message.user("and?"),
        Message.user("well?"),
    )
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "user", "content": "well?"},
    ]


def test_calls_of_other_dialects() -> None:
    """Ids that the provider refuses are hashed alike in call and result; inputs that are no objects are wrapped."""
    calls = (ToolCall("call|1/ü", "sh", "ls", "custom"), ToolCall("", "add", '{"a": 1'), ToolCall("x", "add", "[1]"))
    sent = _sent(_USER, Message.assistant(*calls), Message.tool(ToolResult("call|1/ü", "ok")))
    first, second, third = sent[1]["content"]
    assert first["id"] == sent[2]["content"][0]["tool_use_id"]
    assert first["id"].startswith("call_")
    assert second["id"].startswith("call_")
    assert (first["input"], second["input"]) == ({"input": "ls"}, {"INVALID_JSON": '{"a": 1'})
    assert (third["id"], third["input"]) == ("x", {"INVALID_JSON": "[1]"})


def test_callers_go_back() -> None:
    """A call that code of the provider made goes back with its caller."""
    caller = {"type": "code_execution_20250825", "tool_id": "s"}
    (block,) = _blocks(ToolCall("t", "roll", "{}", payload=_payload("tool_use", {"caller": caller})))
    assert block == {"type": "tool_use", "id": "t", "name": "roll", "input": {}, "caller": caller}


@pytest.mark.field(37)
def test_nothing_is_not_sent() -> None:
    """Empty texts are never sent, white space only beside words, and an assistant that said nothing is left out."""
    assert _blocks(Text("")) == []
    assert _blocks(Text(" "), Text("")) == []
    assert _blocks(Text("a"), Text(" "), Text(""), Text("b")) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": " "},
        {"type": "text", "text": "b"},
    ]
    assert _blocks(Text("\n"), ToolCall("t", "n"))[0]["type"] == "tool_use"
    assert _blocks() == []
    with pytest.raises(RequestError, match=r"^message 1 \(user\) says nothing"):
        _body(Message.user(" "))


def test_the_end_to_go_on_from() -> None:
    """An assistant message that comes last loses the white space at its end, and nothing else does."""
    sent = _sent(_USER, Message.assistant("one \n"), _USER, Message.assistant("two \n"))
    assert [one["content"][0]["text"] for one in sent if one["role"] == "assistant"] == ["one \n", "two"]
    assert len(_sent(_USER, Message.assistant(ToolCall("t", "n"), "x "), Message.tool(ToolResult("t", "r")))) == 3


@pytest.mark.field(48)
def test_thought_goes_back_signed_or_not_at_all() -> None:
    """Signed and redacted thought goes back as it came; thought without its state is left out."""
    signed = Reasoning("Hm", ReasoningState(_ORIGIN, "anthropic-messages.thinking", b"sig"))
    hidden = Reasoning("", ReasoningState(_ORIGIN, "anthropic-messages.redacted_thinking", b"data"))
    assert _blocks(signed, Reasoning("plain"), hidden, Text("a")) == [
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "data"},
        {"type": "text", "text": "a"},
    ]


@pytest.mark.req("S0-40")
def test_citations_go_back_with_their_text() -> None:
    """Citations of this provider go back as they came, others do not."""
    native = {"type": "web_search_result_location", "url": "u", "encrypted_index": "I1"}
    own = Attribution(Source("u"), replay=_payload("citation", native))
    (block,) = _blocks(Text("a", (own, Attribution(Source("v")))))
    assert block == {"type": "text", "text": "a", "citations": [native]}
    assert _blocks(Text("a", (Attribution(Source("v")),))) == [{"type": "text", "text": "a"}]


@pytest.mark.req("S0-28")
def test_hosted_work_goes_back_in_pairs() -> None:
    """A call and its result go back where they stood; without native forms, or without each other, they do not."""
    bare = HostedActivity("h", "web_search", "completed", summary="q")
    assert [
        block["type"] for block in _blocks(_call("a"), _call("b"), _result("a"), bare, _result("b"), Text("x"))
    ] == [
        "server_tool_use",
        "server_tool_use",
        "web_search_tool_result",
        "web_search_tool_result",
        "text",
    ]
    assert _blocks(_call("a"), bare) == []
    assert _blocks(_result("a"), Text("x")) == [{"type": "text", "text": "x"}]
    assert _blocks(_call("a"), HostedActivity("a", "web_search", "failed"), Text("x")) == [
        {"type": "text", "text": "x"}
    ]


@pytest.mark.field(49)
def test_open_work_goes_back_while_its_turn_is_open() -> None:
    """A call without a result goes back at a pause and in a tool turn, and not once the user has spoken."""
    paused = Message.assistant("Let me see.", _call("a"))
    mixed = Message.assistant(_call("a"), ToolCall("t", "n"))
    answer = Message.tool(ToolResult("t", "r"))
    assert _kinds(_USER, paused) == [["text"], ["text", "server_tool_use"]]
    assert _kinds(_USER, paused, _USER) == [["text"], ["text"], ["text"]]
    assert _kinds(_USER, mixed, answer) == [["text"], ["server_tool_use", "tool_use"], ["tool_result"]]
    spoken = Message.user("and?")
    assert _kinds(_USER, mixed, answer, spoken) == [["text"], ["tool_use"], ["tool_result", "text"]]
    rest = Message.assistant(_result("a"), "Done.")
    ended = [["text"], ["server_tool_use", "tool_use"], ["tool_result"], ["web_search_tool_result", "text"], ["text"]]
    assert _kinds(_USER, mixed, answer, rest, _USER) == ended
    apart = History([_USER]).extend([mixed]).extend([answer]).extend([rest]).extend([_USER])
    assert [len(one["content"]) for one in _encoded(apart)["messages"]] == [2, 2, 1, 2, 2]
    late = History([_USER]).extend([paused]).extend([_USER, rest, _USER])
    assert "_tool_" not in json.dumps(_encoded(late))


def test_pausing_leaves_shared_bytes_alone() -> None:
    """What a paused turn sends of its own open work does not leak into what a branch of it sends later."""
    paused = History([_USER]).extend([Message.assistant("Let me see.", _call("a"))])
    before = _encoded(paused.extend([_USER]))
    assert "server_tool_use" in json.dumps(_encoded(paused))
    assert _encoded(paused.extend([_USER])) == before
    assert "server_tool_use" not in json.dumps(before)


def test_containers_go_back_with_open_work() -> None:
    """The container of unfinished code is named while its turn is open, and is no block of the message."""
    container = HostedActivity("container", "container", "completed", payload=_payload("container", b"c_1"))
    turn = (Message.assistant(_call("a"), ToolCall("t", "n"), container), Message.tool(ToolResult("t", "r")))
    body = _body(_USER, *turn)
    assert (body["container"], len(body["messages"][1]["content"])) == ("c_1", 2)
    assert _encoded(History([_USER]).extend(turn[:1]).extend(turn[1:]))["container"] == "c_1"
    assert "container" not in _body(_USER, *turn, _USER)


def test_single_and_unknown_blocks_go_back() -> None:
    """Blocks that stand for themselves and carried unknown ones go back; pieces that nobody can join do not."""
    compaction = HostedActivity("c", "compaction", "completed", payload=_payload("block", {"type": "compaction"}))
    unknown = HostedActivity("u", "hologram", "completed", payload=_payload("unknown", {"type": "hologram"}))
    pieces = HostedActivity("v", "mist", "completed", payload=_payload("pieces", {}))
    assert _blocks(compaction, unknown, pieces) == [{"type": "compaction"}, {"type": "hologram"}]


@pytest.mark.req("S0-26")
@pytest.mark.parametrize(
    "part",
    [
        HostedActivity("h", "web_search", "completed", payload=_payload("result", {}, "2")),
        HostedActivity(
            "h", "web_search", "completed", payload=ProviderPayload("own", "openai-responses", "1", b"SECRET")
        ),
        HostedActivity("h", "compaction", "completed", payload=_payload("block", b"SECRET")),
        HostedActivity("h", "compaction", "completed", payload=_payload("block", b'{"a":"\xff"}')),
        Reasoning("", ReasoningState(_ORIGIN, "other.form", b"SECRET")),
        Reasoning("", ReasoningState(_ORIGIN, "anthropic-messages.thinking", b"\xff")),
        Text("a", (Attribution(Source("u"), replay=_payload("other", {})),)),
        Text("a", (Attribution(Source("u"), replay=_payload("citation", b"[]")),)),
        Text("a", payload=_payload("text", {})),
        ToolCall("t", "n", payload=_payload("other", {})),
    ],
)
def test_own_payloads_that_cannot_be_decoded(part: Part) -> None:
    """A native value of the call's own provider that cannot be decoded is refused, without showing it."""
    with pytest.raises(PayloadError) as caught:
        _blocks(part, Text("x"))
    assert "message 2 (assistant)" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_refusals_go_back_as_text() -> None:
    """What another provider said in declining goes back as text."""
    assert _blocks(Refusal("no")) == [{"type": "text", "text": "no"}]


def test_media() -> None:
    """Images and pdf files go by value or address, texts by value, between the texts where they stood."""
    sent = _sent(
        Message.user(
            "see",
            Media("image/png", b"\x01"),
            Media("image/*", url="https://i.example/x"),
            Media("application/pdf", b"\x02", name="a.pdf"),
            Media("application/pdf", url="https://i.example/b.pdf"),
            Media("text/markdown; charset=utf-8", b"# a"),
        )
    )
    assert sent[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQ=="}},
        {"type": "image", "source": {"type": "url", "url": "https://i.example/x"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "Ag=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://i.example/b.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "# a"}},
    ]


@pytest.mark.parametrize(
    "media",
    [
        Media("video/mp4", b"v"),
        Media("image/tiff", b"t"),
        Media("text/plain", url="https://f.example"),
        Media("text/plain", b"\xff"),
    ],
)
def test_media_that_cannot_go(media: Media) -> None:
    """A medium without a form here is refused with the number of its message."""
    with pytest.raises(UnsupportedError, match=r"^message 2 \(user\) holds "):
        _body(_USER, Message.user("see", media))
    with pytest.raises(UnsupportedError, match=r"^message 2 \(assistant\) holds an image or a file"):
        _body(_USER, Message.assistant(Media("image/png", b"i")))


def test_half_characters_are_refused() -> None:
    """A lone surrogate is refused with the number of its message, counted over the whole history."""
    history = History([_USER]).extend([Message.assistant("a")]).extend([Message.user("b"), Message.user("\ud83d")])
    with pytest.raises(RequestError, match=r"^message 4 \(user\) holds half a character"):
        _encoded(history)
    with pytest.raises(RequestError, match=r"^message 2 \(assistant\) holds half a character"):
        _body(_USER, Message.assistant(ToolCall("t", "n", '{"a": "\ud83d"}')))
    with pytest.raises(RequestError, match=r"^the system text holds half a character"):
        _body(Message.system("\ud83d"), _USER)
    with pytest.raises(RequestError, match=r"^extra_body\.x holds half a character"):
        _body(settings=Settings(extra_body=FrozenMap({"x": "\udc00"})))


def test_shared_history_is_shared_bytes() -> None:
    """Branches of one conversation send the very same bytes for what they share, and bodies stay valid JSON."""
    base = History([Message.assistant()]).extend([_USER]).extend([Message.assistant("a", _call("c"), _result("c"))])
    bodies = [
        _MESSAGES.encode(ModelCall(model="m", history=base.extend([Message.user(word)]))).body
        for word in ("left", "right")
    ]
    assert bodies[0][1] is bodies[1][1]
    assert bodies[0][3] is bodies[1][3]
    for body, word in zip(bodies, ("left", "right"), strict=True):
        assert [one["role"] for one in json.loads(b"".join(body))["messages"]] == ["user", "assistant", "user"]
        assert json.loads(b"".join(body))["messages"][-1]["content"] == word


def test_long_chains_do_not_recurse() -> None:
    """A conversation of thousands of turns is encoded like any other."""
    history = History()
    for turn in range(3000):
        history = history.extend([Message.user(str(turn))])
    assert [one["content"] for one in _encoded(history)["messages"]] == [str(turn) for turn in range(3000)]


def _hinted(*messages: Message, nodes: bool) -> list[str]:
    history = History()
    for message in messages:
        history = history.extend([message])
    body = _encoded(history if nodes else History(messages))
    blocks = [*body.get("system", ()), *(b for one in body["messages"] for b in one["content"] if isinstance(b, dict))]
    return [block["text"] for block in blocks if "cache_control" in block]


@pytest.mark.parametrize("nodes", [True, False])
def test_cache_hints(nodes: bool) -> None:
    """A hint is put on the last block of its message; of more than the provider takes, the latest are kept."""
    hint = CacheHint()
    few = [Message.system("s", cache=hint), Message.user("u1", cache=hint)]
    assert _hinted(*few, nodes=nodes) == ["s", "u1"]
    many = [*few, *(Message.user(f"u{n}", cache=hint if n != 4 else None) for n in range(2, 7))]
    assert _hinted(*many, nodes=nodes) == ["u2", "u3", "u5", "u6"]
    assert _hinted(*many[:4], nodes=nodes) == ["s", "u1", "u2", "u3"]
    assert [message.cache for message in many].count(hint) == 6


def test_lifetimes_of_hints() -> None:
    """Lifetimes beyond the provider's default of five minutes become an hour."""
    controls = [
        _sent(Message.user("a", cache=CacheHint(ttl_s)))[0]["content"][0]["cache_control"]
        for ttl_s in (None, 60, 300, 301)
    ]
    assert controls == [{"type": "ephemeral"}] * 3 + [{"type": "ephemeral", "ttl": "1h"}]


def test_hints_on_what_cannot_carry_them() -> None:
    """A hint goes to the last block that can carry one, and to none where there is no such block."""
    signed = Reasoning("Hm", ReasoningState(_ORIGIN, "anthropic-messages.thinking", b"sig"))
    message = Message("assistant", (Text("a"), signed), CacheHint())
    assert _sent(_USER, message, _USER)[1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(_sent(_USER, Message("assistant", (signed,), CacheHint()), _USER))
    results = Message("tool", (ToolResult("t", "r"),), CacheHint())
    turn = _sent(_USER, Message.assistant(ToolCall("t", "n")), results, _USER)
    assert "cache_control" in turn[2]["content"][0]


def test_tools_and_choice() -> None:
    """Tools have their schema under the dialect's name, and a choice is an object."""
    body = _body(tools=(_ADD, Tool("bare", parameters=FrozenMap())), tool_choice="add")
    assert body["tools"] == [
        {
            "name": "add",
            "description": "Adds.",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
        {"name": "bare", "input_schema": {"type": "object"}},
    ]
    assert body["tool_choice"] == {"type": "tool", "name": "add"}
    assert _body(tools=(_ADD,), tool_choice="required")["tool_choice"] == {"type": "any"}
    assert _body(tools=(_ADD,), tool_choice="none")["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in _body(tools=(_ADD,))
    assert "tool_choice" not in _body(tool_choice="auto")


@pytest.mark.req("S1-15", "S1-18", "S1-19", "S1-20", "S1-22")
def test_server_tools() -> None:
    """Tools of the provider come after the request's own, in declared order, with a choice where they are alone."""
    body = _body(tools=(_ADD,), server_tools=("web_search",))
    assert (body["tools"][1:], "tool_choice" in body) == ([_SEARCH], False)
    alone = _body(server_tools=("web_search",))
    assert (alone["tools"], alone["tool_choice"]) == ([_SEARCH], {"type": "auto"})
    assert "tools" not in _body()
    call = ModelCall(model="m", history=History([_USER]), server_tools=("web_fetch", "web_search", "code_execution"))
    wire = _MESSAGES.encode(call)
    assert [tool["name"] for tool in json.loads(b"".join(wire.body))["tools"]] == list(call.server_tools)
    assert dict(wire.headers)["anthropic-beta"] == "web-fetch-2025-09-10,code-execution-2025-08-25"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tool_choice": "required"}, "'required' but the request declares no tools"),
        ({"tool_choice": "required", "server_tools": ("web_search",)}, "'required' but the request declares no tools"),
        ({"tool_choice": "web_search", "server_tools": ("web_search",), "tools": (_ADD,)}, "which is not declared"),
        ({"tools": (_ADD,), "tool_choice": "sub"}, "names 'sub', which is not declared; there are: add"),
        ({"tools": (_ADD, _ADD)}, "'add' is declared twice"),
        ({"tools": (Tool("web_search"),), "server_tools": ("web_search",)}, "'web_search' is declared twice"),
    ],
)
def test_tools_that_do_not_fit(options: dict[str, Any], problem: str) -> None:
    """Tools and a choice that contradict each other are refused."""
    with pytest.raises(RequestError, match=problem):
        _body(**options)


def test_a_required_call_is_one_of_the_requests_own() -> None:
    """A required call beside tools of the provider is kept to the request's own, or refused where it cannot be."""
    body = _body(tools=(_ADD,), tool_choice="required", server_tools=("web_search",))
    assert body["tool_choice"] == {"type": "tool", "name": "add"}
    with pytest.raises(UnsupportedError, match="cannot be kept to the request's own tools"):
        _body(tools=(_ADD, Tool("sub")), tool_choice="required", server_tools=("web_search",))


@pytest.mark.req("S1-17")
def test_a_tool_without_spelling_is_a_fault_of_ours() -> None:
    """A capability that the table cannot spell never reaches the wire in silence."""
    with pytest.raises(AssertionError, match="file_search"):
        _body(server_tools=("file_search",))


def test_extra_body_comes_last() -> None:
    """Members of extra_body are added, and stand in the place of ours, but not of the request itself."""
    extra = FrozenMap({"model": "other", "max_tokens": 5, "thinking": {"type": "adaptive"}})
    body = _body(settings=Settings(max_output_tokens=9, extra_body=extra))
    assert (body["model"], body["max_tokens"], body["thinking"]) == ("other", 5, {"type": "adaptive"})
    for key in ("messages", "stream", "system"):
        with pytest.raises(RequestError, match=f"extra_body holds '{key}'"):
            _body(settings=Settings(extra_body=FrozenMap({key: None})))
