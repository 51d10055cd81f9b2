"""Rules about hosted work, citations and cut answers that hold in every dialect alike."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from furcate.dialects import DIALECTS, Assembler, dialect_named
from furcate.primitives import _content
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Origin,
    Reasoning,
    ReasoningState,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._describe import exact
from furcate.primitives._errors import UnansweredToolCallError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._stream import (
    Citation,
    HostedTransition,
    Noticed,
    Paused,
    ReasoningDelta,
    ReasoningSealed,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    UsageReported,
)
from furcate.primitives._tool_turns import check_tool_turns
from furcate.primitives._usage import USAGE_FIELDS
from furcate.primitives._wire import ModelCall
from furcate.report import Row, entries, written

SRC = Path(_content.__file__).parents[1]
DATA = Path(__file__).parent.parent / "data"
STREAMS = [(path.parent.parent.name, path) for path in sorted(DATA.glob("*/*/response.sse"))]
IDS = [f"{dialect}-{path.parent.name}" for dialect, path in STREAMS]
SEARCHES = {
    "openai-responses": "web-search",
    "openai-chat": "executed-tools",
    "anthropic-messages": "web-search",
    "google-generatecontent": "grounding-bytes",
}


def _origin(dialect: str) -> Origin:
    return Origin("own", dialect, "m")


def _stream(dialect: str, body: bytes) -> list[StreamEvent]:
    decoder = dialect_named(dialect).decoder(_origin(dialect))
    return [*decoder.feed(body), *decoder.finish()]


def _search(dialect: str) -> tuple[bytes, list[StreamEvent]]:
    body = (DATA / dialect / SEARCHES[dialect] / "response.sse").read_bytes()
    return body, _stream(dialect, body)


def _whole(dialect: str, body: dict[str, Any]) -> list[StreamEvent]:
    return dialect_named(dialect).decode_whole(json.dumps(body).encode(), _origin(dialect))


def _assembled(events: list[StreamEvent]) -> Assembler:
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    return assembler


def _body(dialect: str, *messages: Message) -> bytes:
    return b"".join(dialect_named(dialect).encode(ModelCall(model="m", history=History(messages))).body)


@pytest.mark.req("S0-01")
def test_an_answer_gives_all_three_families() -> None:
    """Work that the provider ran, citations of its text, and the count of that work are each there after decoding."""
    _, events = _search("anthropic-messages")
    parts = _assembled(events).message().parts
    assert [part.state for part in parts if isinstance(part, HostedActivity)] == ["started", "completed"]
    assert [len(part.attributions) for part in parts if isinstance(part, Text)] == [0, 1, 0, 0]
    assert "usage.web_search_requests=1" in [event.kind for event in events if isinstance(event, Noticed)]


@pytest.mark.req("S1-39")
@pytest.mark.parametrize("dialect", SEARCHES)
def test_a_search_is_the_same_event_everywhere(dialect: str) -> None:
    """Each dialect tells a search as the one kind of transition, under one name and with the same form of input."""
    _, events = _search(dialect)
    told = [event.activity for event in events if isinstance(event, HostedTransition)]
    searched = [one for one in told if one.name == "web_search" and one.state == "completed" and one.input]
    assert searched
    assert {type(event) for event in events if "Hosted" in type(event).__name__} == {HostedTransition}
    assert searched[0].input["type"] == "search"
    queries = searched[0].input["queries"]
    assert isinstance(queries, tuple)
    assert all(isinstance(query, str) for query in queries)
    assert searched[0].summary == "; ".join(map(str, queries))


@pytest.mark.req("S1-42")
@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic-messages"])
def test_ids_of_hosted_work_are_the_providers(dialect: str) -> None:
    """An activity is known by what its provider calls it; decoded again it is the same, as nothing of ours is in it."""
    body, events = _search(dialect)
    told = [event.activity for event in events if isinstance(event, HostedTransition)]
    for one in told:
        assert f'"{one.id}"'.encode() in body
        assert f'"{one.scope}"'.encode() in body or not one.scope
    assert [event.activity for event in _search(dialect)[1] if isinstance(event, HostedTransition)] == told
    assert _assembled(events).message().tool_calls == ()


@pytest.mark.req("S0-16")
@pytest.mark.parametrize("state", ["started", "completed", "failed"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_hosted_work_leaves_the_pairing_of_calls_alone(dialect: str, state: Any) -> None:
    """Work with the very id of a call answers nothing, asks for nothing, and takes no result away."""
    activity = HostedActivity("c1", "web_search", state)
    call, result = ToolCall("c1", "measure", "{}"), Message.tool(ToolResult("c1", "9 m"))
    ask, go_on = Message.user("How deep?"), Message.user("Go on.")
    for parts in ((activity, call), (call, activity)):
        said = Message.assistant("Well.", *parts)
        with pytest.raises(UnansweredToolCallError) as unanswered:
            check_tool_turns([ask, said])
        assert unanswered.value.call_ids == ("c1",)
        check_tool_turns([ask, said, result])
        plain = _body(dialect, ask, Message.assistant("Well.", call), result, go_on)
        assert _body(dialect, ask, said, result, go_on) == plain
        assert said.parts[1:] == parts
    alone = _body(dialect, ask, Message.assistant("Well.", activity), go_on)
    assert alone == _body(dialect, ask, Message.assistant("Well."), go_on)


CLAIM = "Low water is at six."
QUOTED = "At 06:00 the tide turns."


def _cited_answers() -> dict[str, dict[str, Any]]:
    page = {"url": "https://t.example", "title": "Tides"}
    link = {"type": "url_citation", **page, "start_index": 0, "end_index": 20}
    located = {"type": "web_search_result_location", "cited_text": QUOTED, "encrypted_index": "eA==", **page}
    segment = {"startIndex": 0, "endIndex": 20, "text": CLAIM}
    grounded = {
        "groundingChunks": [{"web": {"uri": page["url"], "title": page["title"]}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    message = {"type": "message", "content": [{"type": "output_text", "text": CLAIM, "annotations": [link]}]}
    nested = {"type": "url_citation", "url_citation": {**page, "start_index": 0, "end_index": 20, "content": QUOTED}}
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": CLAIM, "annotations": [nested]}}
    candidate = {"content": {"parts": [{"text": CLAIM}]}, "finishReason": "STOP", "groundingMetadata": grounded}
    return {
        "openai-responses": {"status": "completed", "output": [message]},
        "openai-chat": {"choices": [choice]},
        "anthropic-messages": {
            "content": [{"type": "text", "text": CLAIM, "citations": [located]}],
            "stop_reason": "end_turn",
        },
        "google-generatecontent": {"candidates": [candidate]},
    }


@pytest.mark.req("S0-34")
@pytest.mark.parametrize(
    ("dialect", "excerpt", "span"),
    [
        ("openai-responses", None, (0, 20)),
        ("openai-chat", QUOTED, (0, 20)),
        ("anthropic-messages", QUOTED, None),
        ("google-generatecontent", None, (0, 20)),
    ],
)
def test_excerpts_are_the_sources_and_ranges_the_answers(
    dialect: str, excerpt: str | None, span: tuple[int, int] | None
) -> None:
    """What is quoted comes from the source, what is marked lies in the answer, and neither is made from the other."""
    (text,) = _assembled(_whole(dialect, _cited_answers()[dialect])).message().parts
    assert isinstance(text, Text)
    (cited,) = text.attributions
    assert (cited.source, cited.excerpt, cited.range) == (Source("https://t.example", "Tides"), excerpt, span)
    assert text.text == CLAIM


@pytest.mark.req("S0-38")
def test_a_range_that_the_text_outgrew_is_gone() -> None:
    """Where less text came than a citation was for, it loses its range, whole answer or cut one, and stays itself."""
    cited = Attribution(Source("https://t.example"), "quoted", (4, 9))
    for text, kept in (("Low water", (4, 9)), ("Low wate", None), ("Low", None)):
        events: list[StreamEvent] = [TextDelta(0, text), Citation(0, cited)]
        for message in (_assembled([*events, Stopped("end_turn")]).message(), _assembled(events).partial()):
            assert message is not None
            (part,) = message.parts
            assert isinstance(part, Text)
            assert part.attributions == (attrs.evolve(cited, range=kept),)


@pytest.mark.req("S0-38")
def test_no_text_changes_after_it_was_cited() -> None:
    """No code of ours writes another text into a part that is there, so no range can come to mean other words."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("evolve", "replace")):
                assert "text" not in [word.arg for word in node.keywords], f"{path.name}:{node.lineno}"


@pytest.mark.req("S0-38", "S0-58")
@pytest.mark.parametrize(("dialect", "path"), STREAMS, ids=IDS)
def test_ranges_of_recorded_answers_lie_in_their_texts(dialect: str, path: Path) -> None:
    """However an answer goes on and wherever it is cut, each range that is kept lies in the text that holds it."""
    body = path.read_bytes()
    for end in {len(body), *range(0, len(body), max(1, len(body) // 12))}:
        message = _assembled(_stream_of(dialect, body[:end])).partial()
        for part in message.parts if message is not None else ():
            if isinstance(part, Text):
                assert all(one.range is None or one.range[1] <= len(part.text) for one in part.attributions)


def _stream_of(dialect: str, body: bytes) -> list[StreamEvent]:
    decoder = dialect_named(dialect).decoder(_origin(dialect))
    return decoder.feed(body)  # the body's end is not told, as where somebody leaves


@pytest.mark.req("S0-58")
def test_each_part_of_an_answer_counts_from_its_own_beginning() -> None:
    """Offsets of a second content part refer to that part's text, which is a text of its own here too."""
    link = {"type": "url_citation", "url": "https://t.example", "title": "T", "start_index": 4, "end_index": 9}
    content = [
        {"type": "output_text", "text": "High water at noon.", "annotations": []},
        {"type": "output_text", "text": "Low water at six.", "annotations": [link]},
    ]
    output = [{"type": "message", "content": content}]
    parts = _assembled(_whole("openai-responses", {"status": "completed", "output": output})).message().parts
    assert [part.text for part in parts if isinstance(part, Text)] == ["High water at noon.", "Low water at six."]
    first, second = parts
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert first.attributions == ()
    assert [one.range for one in second.attributions] == [(4, 9)]


@pytest.mark.req("S0-58")
def test_places_of_other_kinds_are_sources_too() -> None:
    """A place in a document, by characters, pages or blocks, and one in a search result name source and quotation."""
    body = (DATA / "anthropic-messages" / "json-document-citations" / "response.json").read_bytes()
    events = dialect_named("anthropic-messages").decode_whole(body, _origin("anthropic-messages"))
    cited = [event.attribution for event in events if isinstance(event, Citation)]
    assert [(one.source.url, one.excerpt, one.range) for one in cited] == [
        ("", "Grass is green.", None),
        ("", "Fun.", None),
        ("", "Sky.", None),
        ("https://s.example/ruby", "Ruby.", None),
    ]


STATES = {
    "openai-responses": ("openai-responses.reasoning", b'{"type":"reasoning","encrypted_content":"SEALED"}'),
    "openai-chat": ("openai-chat.reasoning_content", b"SEALED"),
    "anthropic-messages": ("anthropic-messages.thinking", b"SEALED"),
    "google-generatecontent": ("google-generatecontent.thought", b"SEALED"),
}


@pytest.mark.req("S0-47")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_thought_of_a_cut_answer_goes_back_unsigned(dialect: str) -> None:
    """Sealed thought of an answer that broke off keeps its words alone, and no request holds its seal."""
    form, data = STATES[dialect]
    sealed = ReasoningSealed(0, ReasoningState(_origin(dialect), form, data))
    broken = _assembled([ReasoningDelta(0, "Let me see."), sealed, TextDelta(1, "Low water is")]).partial()
    assert broken == Message.assistant(Reasoning("Let me see."), Text("Low water is", attribution_complete=False))
    body = _body(dialect, Message.user("When?"), broken, Message.user("Go on."))
    assert b"SEALED" not in body
    assert b"Low water is" in body


@pytest.mark.req("S1-43")
def test_hosted_work_stays_beside_a_summary() -> None:
    """Where the provider sums up what came before, the search stays in the record, and has its row beside the text."""
    _, events = _search("anthropic-messages")
    summary, lit = {"type": "compaction", "content": "So far."}, {"type": "text", "text": "Lit in 1859."}
    more = _whole("anthropic-messages", {"id": "msg_2", "content": [summary, lit]})
    first, second = (_assembled(one).message() for one in (events, more))
    before = exact(first)
    history = History([Message.user("When?"), first, Message.user("Sum up."), second])
    joined = Message("assistant", (*first.parts, *second.parts))
    rows = [entry.name for entry in entries(joined) if isinstance(entry, Row)]
    assert rows == ["web_search", "compaction"]
    assert "[+] web_search · north lighthouse first lit" in written(joined)
    assert written(joined).index("web_search") < written(joined).index("compaction") < written(joined).index("Lit in")
    assert exact(list(history)[1]) == before


def _has_one_end(events: list[StreamEvent]) -> bool:
    ends = [event for event in events if isinstance(event, Stopped | StreamFailed)]
    return len(ends) == 1 and events[-1] is ends[0]


@pytest.mark.parametrize(("dialect", "path"), STREAMS, ids=IDS)
def test_every_recorded_answer_ends_once(dialect: str, path: Path) -> None:
    """An answer ends with one ending behind everything else, a pause just before it."""
    events = _stream(dialect, path.read_bytes())
    assert _has_one_end(events)
    assert [event for event in events if isinstance(event, Paused)] in ([], events[-2:-1])


@pytest.mark.req("S0-50", "S0-52")
@pytest.mark.parametrize(("dialect", "path"), STREAMS, ids=IDS)
def test_counts_stay_out_of_the_message(dialect: str, path: Path) -> None:
    """Taking usage and notices out of a recorded answer changes nothing of the message that it makes."""
    events = _stream(dialect, path.read_bytes())
    fewer = [event for event in events if not isinstance(event, UsageReported | Noticed)]
    assert _assembled(fewer).partial() == _assembled(events).partial()
    message = _assembled(events).partial()
    assert not any(name in json.dumps(exact(message)) for name in USAGE_FIELDS if message is not None)
