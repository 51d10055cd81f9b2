"""The strict stub takes the histories that real providers take, and refuses what they refuse."""

from __future__ import annotations

import copy
import json
import ssl
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from furcate.dialects._assemble import Assembler
from furcate.dialects._base import Dialect
from furcate.dialects.anthropic_messages._codec import AnthropicMessages
from furcate.dialects.google_generatecontent._codec import GoogleGenerateContent
from furcate.dialects.openai_chat._codec import OpenAIChat
from furcate.dialects.openai_responses._codec import OpenAIResponses
from furcate.primitives._content import Origin, ToolResult
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._settings import Tool
from furcate.primitives._wire import ModelCall
from furcate.testing import (
    Answer,
    Send,
    StubCitation,
    StubProvider,
    StubRequest,
    StubSearch,
    StubSource,
    StubToolCall,
    answer,
    events,
)
from furcate.testing._strict import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    Asking = Callable[..., StubRequest]
    Change = Callable[[dict[str, Any]], object]

CHAT, RESPONSES = "openai-chat", "openai-responses"
MESSAGES, GOOGLE = "anthropic-messages", "google-generatecontent"
DIALECTS: dict[str, Dialect] = {
    CHAT: OpenAIChat(),
    RESPONSES: OpenAIResponses(),
    MESSAGES: AnthropicMessages(),
    GOOGLE: GoogleGenerateContent(),
}

CALLING = answer(
    "I look.",
    reasoning="Where is it?",
    searches=[StubSearch("rivers", [StubSource("https://a.example", "A")])],
    citations=[StubCitation("https://a.example", "A", quote="look")],
    tool_calls=[StubToolCall("look", {"at": "me"}), StubToolCall("look", {"at": "you"})],
)


class Talk:
    """Hold a conversation of one dialect with a strict stub, without a wire."""

    def __init__(self, asking: Asking, name: str, *, stream: bool = False, ids: bool = False) -> None:
        self.watch = Watch()
        self.history = History([Message.system("Be brief."), Message.user("Where?")])
        self.body: dict[str, Any] = {}
        self._asking, self._name, self._stream, self._ids, self._number = asking, name, stream, ids, 0

    def request(self) -> StubRequest:
        call = ModelCall(
            model="m",
            history=self.history,
            tools=(Tool("look"),),
            stream=self._stream,
            replay_item_ids=self._ids,
        )
        self._number += 1
        raw = b"".join(DIALECTS[self._name].encode(call).body)
        return self._asking(self._name, stream=self._stream, number=self._number, raw=raw)

    def refused(self, request: StubRequest) -> str | None:
        refusal = self.watch.refusal(request)
        if refusal is None:
            return None
        assert refusal.status == 400
        data = b"".join(step.data for step in refusal.steps_for(request) if isinstance(step, Send))
        message: str = json.loads(data)["error"]["message"]
        return message

    def say(self, chosen: Answer) -> Message:
        """Send the history, which has to be taken, and add what comes back to it."""
        request = self.request()
        assert self.refused(request) is None
        self.body = request.body
        self.watch.remember(chosen, request)
        data = b"".join(step.data for step in chosen.steps_for(request) if isinstance(step, Send))
        origin = Origin("stub", self._name, "m")
        if self._stream:
            decoder = DIALECTS[self._name].decoder(origin)
            told = decoder.feed(data) + decoder.finish()
        else:
            told = DIALECTS[self._name].decode_whole(data, origin)
        made = Assembler()
        for event in told:
            made.add(event)
        message = made.message()
        self.history = self.history.extend([message])
        return message

    def reply(self, message: Message) -> None:
        """Answer the calls of a message."""
        results = [ToolResult(call.id, "found") for call in message.tool_calls]
        self.history = self.history.extend([Message.tool(*results)])

    def after(self, change: Change) -> str | None:
        """Say why the history as it is now is refused once it was changed; None where it is not."""
        request = self.request()
        changed = copy.deepcopy(request.body)
        change(changed)
        return self.refused(self._asking(self._name, raw=json.dumps(changed).encode()))


def called(asking: Asking, name: str, chosen: Answer = CALLING, *, ids: bool = False) -> Talk:
    """Bring a conversation to where the calls of its answer are to be answered."""
    talk = Talk(asking, name, ids=ids)
    talk.reply(talk.say(chosen))
    assert talk.refused(talk.request()) is None
    return talk


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_conversation_with_everything_is_taken(name: str, stream: bool, asking: Asking) -> None:
    """Thought, searches, citations and parallel calls go back over several turns as the provider wants them."""
    talk = Talk(asking, name, stream=stream)
    talk.reply(talk.say(CALLING))
    talk.reply(talk.say(answer("More.", reasoning="Hm.", tool_calls=[StubToolCall("look", {"at": "him"})])))
    talk.say(answer("There.", reasoning="Done."))
    talk.history = talk.history.extend([Message.user("Really?")])
    talk.say(answer("Yes."))
    assert len(talk.body.get("messages") or talk.body.get("input") or talk.body["contents"]) >= 6


def test_item_ids_are_taken_where_they_are_replayed(asking: Asking) -> None:
    """openai-responses takes items with the ids that it gave."""
    talk = called(asking, RESPONSES, ids=True)
    assert any("id" in item for item in talk.request().body["input"])
    talk.say(answer("There."))


def test_a_paused_answer_is_taken_and_goes_on(asking: Asking) -> None:
    """anthropic-messages takes back an answer that ends inside a search, and later its two halves."""
    talk = Talk(asking, MESSAGES)
    searches = [StubSearch("rivers", [StubSource("https://a.example", "A")]), StubSearch("ships")]
    talk.say(answer("I look.", searches=searches, pause=True))
    talk.say(answer("There.", searches=searches[1:]))
    talk.history = talk.history.extend([Message.user("Really?")])
    talk.say(answer("Yes."))
    assert [message["role"] for message in talk.body["messages"]].count("assistant") >= 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_search_stays_open_beside_a_call(stream: bool, asking: Asking) -> None:
    """anthropic-messages runs a search on after the application answered the call that was made beside it."""
    talk = Talk(asking, MESSAGES, stream=stream)
    message = talk.say(answer(searches=[StubSearch("rivers")], tool_calls=[StubToolCall("look")], pause=True))
    talk.reply(message)
    found = StubSearch("rivers", [StubSource("https://a.example", "A")])
    talk.say(answer("There.", searches=[found]))
    talk.history = talk.history.extend([Message.user("Really?")])
    talk.say(answer("Yes."))


def item(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one for one in body["input"] if one.get("type") == kind)


def place(body: dict[str, Any], kind: str) -> int:
    return int(body["input"].index(item(body, kind)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body["input"].pop(place(body, "web_search_call")), "without its required following item"),
        (
            lambda body: body["input"].insert(place(body, "reasoning") + 1, {"role": "user", "content": "?"}),
            "following",
        ),
        (lambda body: item(body, "web_search_call")["action"].update(query="x"), "without its required following item"),
        (lambda body: item(body, "reasoning").update(encrypted_content="eA=="), "could not be verified"),
        (lambda body: item(body, "reasoning").pop("encrypted_content"), "Items are not persisted"),
        (lambda body: item(body, "reasoning").pop("summary"), "summary"),
        (lambda body: item(body, "web_search_call").update(id="ws_other"), "Item with id 'ws_other' not found"),
        (lambda body: body["input"].append(dict(item(body, "function_call"))), "Duplicate item"),
        (lambda body: body["input"].pop(), "No tool output found for function call call_1_2"),
        (lambda body: body["input"].pop(place(body, "function_call")), "No tool call found"),
        (lambda body: body.update(previous_response_id="resp_other"), "Previous response with id 'resp_other'"),
        (lambda body: body.update(input=[]), "Missing required parameter: 'input'"),
    ],
)
def test_what_responses_refuse(change: Change, why: str, asking: Asking) -> None:
    """Reasoning apart from its item, changed state, foreign and repeated items, and unpaired calls are refused."""
    assert why in str(called(asking, RESPONSES).after(change))


def test_responses_want_the_reasoning_of_an_item_with_an_id(asking: Asking) -> None:
    """An item that names itself is refused without the reasoning that led to it, or under another's name."""
    talk = called(asking, RESPONSES, ids=True)
    why = talk.after(lambda body: body["input"].pop(place(body, "reasoning")))
    assert "without its required 'reasoning' item: 'rs_stub_1_0'" in str(why)
    why = talk.after(lambda body: item(body, "function_call").update(id="msg_stub_1_2"))
    assert "of another type" in str(why)


def test_responses_refuse_the_history_beside_a_previous_response(asking: Asking) -> None:
    """What a stored response holds already may not come again, and goes on without it."""
    watch = Watch()
    first = asking(RESPONSES)
    watch.remember(answer("Yes.", reasoning="Hm."), first)
    follow = {"previous_response_id": "resp_stub_1"}
    assert watch.refusal(asking(RESPONSES, input="And?", **follow)) is None
    kept = [{"type": "reasoning", "id": "rs_stub_1_0", "summary": []}, {"role": "assistant", "content": "Yes."}]
    assert watch.refusal(asking(RESPONSES, input=kept)) is None
    assert watch.refusal(asking(RESPONSES, input=kept, **follow)) is not None


def blocks(body: dict[str, Any], role: str = "assistant") -> list[dict[str, Any]]:
    return next(one["content"] for one in body["messages"] if one["role"] == role and isinstance(one["content"], list))


def block(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one for one in blocks(body) if one["type"] == kind)


def drop(body: dict[str, Any], kind: str) -> None:
    blocks(body).remove(block(body, kind))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: block(body, "thinking").update(signature="eA=="), "Invalid `signature` in `thinking` block"),
        (lambda body: block(body, "thinking").update(thinking="x"), "Invalid `signature` in `thinking` block"),
        (lambda body: drop(body, "thinking"), "Expected `thinking` or `redacted_thinking`"),
        (lambda body: blocks(body).append(blocks(body).pop(0)), "cannot be modified"),
        (lambda body: drop(body, "web_search_tool_result"), "without a corresponding `web_search_tool_result`"),
        (lambda body: drop(body, "server_tool_use"), "unexpected `tool_use_id`"),
        (
            lambda body: block(body, "web_search_tool_result")["content"][0].update(encrypted_content="eA=="),
            "Invalid `encrypted_content`",
        ),
        (
            lambda body: next(one for one in blocks(body) if one.get("citations"))["citations"][0].update(url="x"),
            "Invalid `encrypted_index`",
        ),
        (lambda body: blocks(body).append({"type": "text", "text": ""}), "text content blocks must be non-empty"),
        (lambda body: blocks(body).append({"type": "text", "text": " \n"}), "non-whitespace"),
        (lambda body: blocks(body, "user").pop(), "without `tool_result` blocks immediately after: toolu_stub_1_2"),
        (lambda body: blocks(body, "user").insert(0, {"type": "text", "text": "so"}), "immediately after"),
        (lambda body: body["messages"].pop(), "without `tool_result` blocks immediately after"),
        (lambda body: blocks(body).append(dict(block(body, "tool_use"))), "must be unique"),
        (
            lambda body: blocks(body, "user")[0].update(tool_use_id="x"),
            "unexpected `tool_use_id` found in `tool_result`",
        ),
        (lambda body: body["messages"].pop(0), 'first message must use the "user" role'),
        (lambda body: body["messages"].insert(1, {"role": "system", "content": "x"}), "Unexpected role 'system'"),
        (lambda body: body["messages"].append({"role": "assistant", "content": "so "}), "trailing whitespace"),
        (lambda body: body["messages"][0].update(content=[]), "must have non-empty content"),
        (lambda body: body.pop("max_tokens"), "max_tokens: Field required"),
    ],
)
def test_what_messages_refuse(change: Change, why: str, asking: Asking) -> None:
    """Changed or missing thought, unpaired calls, changed opaque values and empty blocks are refused."""
    assert why in str(called(asking, MESSAGES).after(change))


def test_messages_look_at_redacted_thought_too(asking: Asking) -> None:
    """Redacted thought comes back byte for byte, whatever turn it is of; thought that is switched off may be left."""
    talk = called(asking, MESSAGES, answer("I look.", reasoning_state="c2VhbGVk", tool_calls=[StubToolCall("look")]))
    why = talk.after(lambda body: block(body, "redacted_thinking").update(data="eA=="))
    assert "Invalid `data` in `redacted_thinking` block" in str(why)
    assert "Expected" in str(talk.after(lambda body: drop(body, "redacted_thinking")))

    def without(body: dict[str, Any]) -> None:
        drop(body, "redacted_thinking")
        body["thinking"] = {"type": "disabled"}

    assert talk.after(without) is None


def test_a_pause_comes_back_last(asking: Asking) -> None:
    """A search without results is taken at the end of the conversation only."""
    talk = Talk(asking, MESSAGES)
    talk.say(answer("I look.", searches=[StubSearch("rivers")], pause=True))
    assert talk.after(lambda body: None) is None
    why = talk.after(lambda body: body["messages"].append({"role": "user", "content": "So?"}))
    assert "was found without a corresponding" in str(why)


def contents(body: dict[str, Any], role: str, number: int = 0) -> list[dict[str, Any]]:
    return [one["parts"] for one in body["contents"] if one["role"] == role][number]


def calls(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in contents(body, "model") if "functionCall" in part]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: calls(body)[0].pop("thoughtSignature"), "missing a thought_signature in functionCall parts"),
        (lambda body: calls(body)[0].update(thoughtSignature="eA=="), "Thought signature is not valid"),
        (lambda body: calls(body)[1].update(calls(body)[0] | calls(body)[1]), "came with another part"),
        (lambda body: contents(body, "user", 1).pop(), "equal to the number of function call parts"),
        (lambda body: contents(body, "user", 1)[0]["functionResponse"].update(name="x"), "names the function"),
        (lambda body: body["contents"].pop(), "equal to the number of function call parts"),
        (lambda body: body["contents"].pop(1), "immediately after a function call turn"),
        (lambda body: body["contents"].pop(0), "immediately after a user turn"),
        (lambda body: contents(body, "user").clear(), "must not be empty"),
        (lambda body: body["contents"][0].update(role="assistant"), "valid role"),
        (lambda body: body.update(contents=[]), "contents is not specified"),
    ],
)
def test_what_google_refuses(change: Change, why: str, asking: Asking) -> None:
    """Missing, changed and moved signatures, and results that do not match the calls, are refused."""
    assert why in str(called(asking, GOOGLE).after(change))


def test_google_looks_at_the_turn_that_goes_on(asking: Asking) -> None:
    """Signatures of earlier turns may be left out, and Base64 may be spelled in its other alphabet."""
    talk = called(asking, GOOGLE, answer(reasoning_state="+/+/", tool_calls=[StubToolCall("look")]))
    assert talk.after(lambda body: calls(body)[0].update(thoughtSignature="-_-_")) is None
    talk.say(answer("There."))
    talk.history = talk.history.extend([Message.user("Really?")])
    assert talk.after(lambda body: calls(body)[0].pop("thoughtSignature")) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: body["messages"].append({"role": "assistant", "content": ""}), "must say or call something"),
        (lambda body: body["messages"].pop(), "These have no response: call_2"),
        (lambda body: body["messages"].insert(3, {"role": "user", "content": "?"}), "no response: call_1, call_2"),
        (lambda body: body["messages"].append(body["messages"][-1]), "none of its calls waits for 'call_2'"),
        (lambda body: body["messages"][2]["tool_calls"].append({"id": "call_1"}), "an id of its own"),
        (lambda body: body["messages"][0].update(role="model"), "role: 'model'"),
        (lambda body: body.update(messages=[]), "empty array"),
    ],
)
def test_what_chat_refuses(change: Change, why: str, asking: Asking) -> None:
    """Empty assistant messages and unpaired calls are refused."""
    chosen = answer(tool_calls=[StubToolCall("look"), StubToolCall("look")])
    assert why in str(called(asking, CHAT, chosen).after(change))


async def test_a_strict_stub_refuses_aside_from_its_script() -> None:
    """Over the wire a refusal is status 400 in the dialect's form and takes no answer; what was sent is taken back."""
    headers = {"anthropic-version": "2023-06-01"}
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Where?"}]}
    script = [answer("Riga.", reasoning="Hm."), answer("Yes.")]
    async with (
        StubProvider(script, strict=True) as stub,
        httpx2.AsyncClient(timeout=20, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client,
    ):
        url = f"{stub.base_url}/messages"
        said = (await client.post(url, json=asked, headers=headers)).json()["content"]
        follow = {"role": "user", "content": "Really?"}
        asked["messages"] += [{"role": "assistant", "content": copy.deepcopy(said)}, follow]
        asked["messages"][1]["content"][0]["signature"] = "eA=="
        refused = await client.post(url, json=asked, headers=headers)
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert (await client.post(url, json=asked)).json()["error"]["message"].startswith("anthropic-version")
        asked["messages"][1]["content"] = said
        assert (await client.post(url, json=asked, headers=headers)).json()["content"][0]["text"] == "Yes."


def test_what_a_script_served_by_itself_is_foreign(asking: Asking) -> None:
    """Answers that are no completions teach the strict stub nothing."""
    watch = Watch()
    watch.remember(events("data"), asking(MESSAGES))
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "eA=="}
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [thought]}]
    assert watch.refusal(asking(MESSAGES, messages=messages)) is not None
