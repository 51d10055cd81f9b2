"""What was said, as JSON that is cut at a limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import furcate
from furcate.observers._otel_content import CUT_MARK, tell
from furcate.primitives._content import Origin, ProviderPayload, ReasoningState

ORIGIN = Origin("p", "d", "m")
SEALED = ReasoningState(ORIGIN, "f", b"OPAQUE-STATE")
PAYLOAD = ProviderPayload("p", "f", "1", b"OPAQUE-STATE")

texts = st.text(alphabet=st.characters(exclude_categories=()), max_size=300)


def read(text: str | None) -> list:
    return json.loads(text) if text is not None else []


def test_messages_have_the_form_of_the_conventions() -> None:
    """Each kind of part is told in its own form; opaque state and the bytes of media are in none."""
    sent = (
        furcate.Message.system("Be brief."),
        furcate.Message.user("Look.", furcate.Media("image/png", b"OPAQUE-STATE", name="a.png")),
        furcate.Message.user(furcate.Media("application/pdf", url="https://x.example/a.pdf")),
        furcate.Message.assistant(
            furcate.Reasoning("", SEALED),
            furcate.ToolCall("1", "add", '{"a": 1}', payload=PAYLOAD),
            furcate.ToolCall("2", "say", "not JSON", "custom"),
        ),
        furcate.Message.tool(furcate.ToolResult("1", "2")),
        furcate.Message("developer", "Now."),
    )
    received = furcate.Message.assistant(
        furcate.Reasoning("thought", SEALED),
        furcate.HostedActivity("h", "web_search", "started", input={"q": "x"}, payload=PAYLOAD),
        furcate.HostedActivity("h", "web_search", "completed", summary="2 found"),
        furcate.Refusal("no"),
        "Two.",
    )
    told = tell(sent, received, limit=10_000, finished="stop")
    assert not told.cut
    assert read(told.system) == [{"type": "text", "content": "Be brief."}]
    assert read(told.input) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "Look."},
                {
                    "type": "media",
                    "mime_type": "image/png",
                    "modality": "image",
                    "name": "a.png",
                    "size_bytes": 12,
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "type": "uri",
                    "mime_type": "application/pdf",
                    "modality": "document",
                    "uri": "https://x.example/a.pdf",
                }
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": "1", "name": "add", "arguments": {"a": 1}},
                {"type": "tool_call", "id": "2", "name": "say", "arguments": "not JSON"},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "2"}]},
        {"role": "system", "parts": [{"type": "text", "content": "Now."}]},
    ]
    call = {"type": "web_search", "input": {"q": "x"}}
    response = {"type": "web_search", "state": "completed", "summary": "2 found"}
    assert read(told.output) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "thought"},
                {"type": "server_tool_call", "id": "h", "name": "web_search", "server_tool_call": call},
                {"type": "server_tool_call_response", "id": "h", "server_tool_call_response": response},
                {"type": "refusal", "content": "no"},
                {"type": "text", "content": "Two."},
            ],
            "finish_reason": "stop",
        }
    ]


@given(st.lists(texts, max_size=5), texts, texts, st.integers(256, 2000))
def test_it_is_valid_json_within_the_limit_whatever_is_said(said, system, answered, limit) -> None:
    """Whatever was said, what is told is JSON that can be encoded, altogether no longer than the limit."""
    sent = (furcate.Message.system(system), *map(furcate.Message.user, said))
    told = tell(sent, furcate.Message.assistant(answered), limit=limit, finished="stop")
    written = [text for text in (told.system, told.input, told.output) if text is not None]
    assert sum(map(len, written)) <= limit
    for text in written:
        text.encode()
        json.loads(text)
    if not told.cut:
        assert [m["parts"][0]["content"] for m in read(told.input)] == [as_sent(text) for text in said]
        assert read(told.output)[0]["parts"][0]["content"] == as_sent(answered)


def as_sent(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize("letter", ["x", '"', "\n", "\x01", "\N{SNOWMAN}"])
def test_a_cut_is_marked_in_the_text(letter: str) -> None:
    """What is too long is cut where it has to be, with a mark, however its characters are written in JSON."""
    told = tell([furcate.Message.user(letter * 5000)], furcate.Message.assistant("short"), limit=1000, finished="stop")
    assert told.cut
    assert read(told.output)[0]["parts"] == [{"type": "text", "content": "short"}]
    text = read(told.input)[0]["parts"][0]["content"]
    assert text.endswith(CUT_MARK)
    assert len(told.input) + len(told.output) > 980
    assert text.removesuffix(CUT_MARK) == letter * (len(text) - len(CUT_MARK))


def test_an_answer_keeps_half_of_the_room() -> None:
    """A long question leaves half of the room to a long answer, and a short one all that it does not need."""
    long = furcate.Message.assistant("a" * 5000)
    told = tell([furcate.Message.user("q" * 5000)], long, limit=2000, finished="length")
    assert 950 <= len(told.output) <= 1000
    told = tell([furcate.Message.user("q")], long, limit=2000, finished="length")
    assert 1900 <= len(told.output) <= 2000
    assert read(told.output)[0]["finish_reason"] == "length"


def test_what_cannot_be_cut_is_left_out() -> None:
    """Arguments of a call are cut as a text; what has no long text at all is left out, and that is known."""
    call = furcate.ToolCall("1", "add", json.dumps({"a": "b" * 5000}))
    told = tell([], furcate.Message.assistant(call), limit=600, finished="tool_call")
    [part] = read(told.output)[0]["parts"]
    assert part["arguments"].endswith(CUT_MARK)
    search = furcate.HostedActivity("h", "web_search", "started", input={"q": "x" * 5000})
    told = tell([], furcate.Message.assistant("see", search), limit=600, finished="stop")
    assert told.cut
    assert [part["content"] for part in read(told.output)[0]["parts"]] == ["see", CUT_MARK]


@pytest.mark.parametrize("limit", range(300, 700, 7))
def test_whatever_is_left_out_has_a_mark(limit: int) -> None:
    """Calls and messages that are left out altogether leave a mark where they would have been."""
    calls = [furcate.ToolCall(str(number), "add", "{}") for number in range(40)]
    told = tell([], furcate.Message.assistant("see", *calls), limit=limit, finished="tool_call")
    assert told.cut
    assert read(told.output)[0]["parts"][-1] == {"type": "text", "content": CUT_MARK}
    told = tell([furcate.Message.user("a question")] * 40, None, limit=limit, finished="stop")
    assert told.cut
    assert read(told.input)[-1]["parts"][-1]["content"].endswith(CUT_MARK)
    assert len(told.input) <= limit


FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER F}\N{REGIONAL INDICATOR SYMBOL LETTER R}"
HAND = "\N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-3}"


@pytest.mark.parametrize("shown", [FAMILY, FLAG, HAND, "e\N{COMBINING ACUTE ACCENT}"])
@pytest.mark.parametrize("limit", range(300, 307))
def test_no_cut_parts_what_is_shown_as_one_character(shown: str, limit: int) -> None:
    """A cut lies before or after a family, a flag, a hand with its colour or a letter with its accent."""
    told = tell([furcate.Message.user(shown * 500)], None, limit=limit, finished="stop")
    text = read(told.input)[0]["parts"][0]["content"].removesuffix(CUT_MARK)
    assert text
    assert not text.replace(shown, "")


def test_numbers_that_are_no_json_stay_a_text() -> None:
    """Arguments with a number that JSON does not know are told as the model wrote them."""
    call = furcate.ToolCall("1", "add", '{"a": NaN}')
    told = tell([], furcate.Message.assistant(call), limit=600, finished="tool_call")
    assert read(told.output)[0]["parts"][0]["arguments"] == '{"a": NaN}'


def test_nothing_said_is_nothing_told() -> None:
    """Without messages there is no text at all."""
    told = tell([], None, limit=600, finished="error")
    assert (told.system, told.input, told.output, told.cut) == (None, None, None, False)
