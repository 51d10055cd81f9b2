"""Provider-run work and citations in answers of ``openai-responses``."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from furcate.dialects import Assembler, dialect_named
from furcate.primitives._content import Attribution, HostedActivity, Media, Origin, Source, Text
from furcate.primitives._json import thaw_object
from furcate.primitives._stream import Citation, HostedTransition, Noticed, StreamEvent, StreamFailed, TextDelta
from furcate.primitives._wire import UnknownContent

_RESPONSES = dialect_named("openai-responses")
_ORIGIN = Origin("p", "openai-responses", "m")

Json = dict[str, Any]


def _event(kind: str, **members: object) -> Json:
    return {"type": f"response.{kind}", **members}


def _search(action: object = None, status: str = "completed", **more: object) -> Json:
    return {"id": "ws", "type": "web_search_call", "status": status, "action": action, **more}


def _feed(*events: Json, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    decoder = _RESPONSES.decoder(_ORIGIN, unknown)
    return decoder.feed("".join(f"data: {json.dumps(one)}\n\n" for one in events).encode())


def _item(item: Json, unknown: UnknownContent = "fail") -> list[StreamEvent]:
    begun = {"id": item.get("id"), "type": item["type"], "status": "in_progress"}
    return _feed(
        _event("created", response={"id": "resp", "model": "m"}),
        _event("output_item.added", output_index=3, item=begun),
        _event("output_item.done", output_index=3, item=item),
        unknown=unknown,
    )


def _activities(events: list[StreamEvent]) -> list[HostedActivity]:
    return [event.activity for event in events if isinstance(event, HostedTransition)]


def _ended(item: Json) -> HostedActivity:
    started, ended = _activities(_item(item))
    assert started.state == "started"
    assert (started.id, started.name, started.position, started.scope) == (ended.id, ended.name, 3, "resp")
    return ended


@pytest.mark.req("S1-24", "S1-25", "S0-08")
def test_a_search_is_two_transitions_in_one_place() -> None:
    """A search begins with its announcement and ends with its item, at the same output position."""
    started, ended = _activities(_item(_search({"type": "search", "query": "tide"})))
    assert (started.id, started.name, started.state, started.payload) == ("ws", "web_search", "started", None)
    assert (ended.id, ended.name, ended.state, ended.position) == ("ws", "web_search", "completed", 3)
    assert ended.payload is not None
    assert (ended.payload.provider, ended.payload.format) == ("p", "openai-responses.item")
    assert json.loads(ended.payload.value)["status"] == "completed"


@pytest.mark.req("S0-02", "S0-03", "S1-32")
@pytest.mark.parametrize("unknown", ["fail", "carry"])
def test_each_hosted_kind_has_its_decision(unknown: UnknownContent) -> None:
    """File search, web search and computer call are carried, progress is let pass, and what is new is seen."""
    kinds = {"file_search_call": {"queries": ["q"]}, "web_search_call": {"action": {"type": "search", "query": "q"}}}
    for kind, members in kinds.items():
        item = {"id": "x", "type": kind, "status": "completed", **members}
        words = ("in_progress", "searching", "completed")
        progress = [_event(f"{kind}.{word}", output_index=3, item_id="x") for word in words]
        begun = _event("output_item.added", output_index=3, item={"id": "x", "type": kind, "status": "in_progress"})
        done = _event("output_item.done", output_index=3, item=item)
        events = _feed(begun, *progress, done, unknown=unknown)
        assert events == _feed(begun, done, unknown=unknown)
        assert [(one.name, one.state) for one in _activities(events)] == [
            (kind.removesuffix("_call"), "started"),
            (kind.removesuffix("_call"), "completed"),
        ]
        assert not [event for event in events if isinstance(event, Noticed)]
        # Progress of a word that nobody decided about is told of.
        new = _feed(begun, _event(f"{kind}.dreaming", output_index=3, item_id="x"), done, unknown=unknown)
        assert [event.kind for event in new if isinstance(event, Noticed)] == [f"event.response.{kind}.dreaming"]
    click = {"id": "c", "type": "computer_call", "call_id": "c1", "action": {"type": "click"}, "status": "completed"}
    assert [(one.name, one.state) for one in _activities(_item(click, unknown))] == [("computer_use", "started")]
    odd = _item({"id": "h", "type": "hologram_call", "status": "completed"}, unknown)
    assert isinstance(odd[-1], StreamFailed) is (unknown == "fail")
    assert [one.name for one in _activities(odd)][-1:] == ([] if unknown == "fail" else ["hologram_call"])


@pytest.mark.req("S1-26", "S1-27", "S1-28", "S1-30")
@pytest.mark.parametrize(
    ("action", "asked", "summary"),
    [
        ({"type": "search", "query": "a"}, {"type": "search", "queries": ["a"]}, "a"),
        ({"type": "search", "queries": ["a", "b"]}, {"type": "search", "queries": ["a", "b"]}, "a; b"),
        ({"type": "search", "query": "b", "queries": ["a", "b", "a"]}, {"type": "search", "queries": ["b", "a"]},
         "b; a"),
        ({"type": "search", "query": ""}, {"type": "search", "queries": []}, ""),
        ({"type": "search"}, {"type": "search", "queries": []}, ""),
        ({"type": "open_page", "url": "https://x.example"}, {"type": "open_page", "url": "https://x.example"},
         "opened https://x.example"),
        ({"type": "open_page", "url": None}, {"type": "open_page", "url": ""}, "opened"),
        ({"type": "find_in_page", "url": "https://x.example", "pattern": "tide"},
         {"type": "find_in_page", "url": "https://x.example", "pattern": "tide"}, "tide in https://x.example"),
        ({"type": "find_in_page", "pattern": "tide"}, {"type": "find_in_page", "url": "", "pattern": "tide"}, "tide"),
        (None, {}, ""),
    ],
)  # fmt: skip
def test_what_a_search_did_is_normalised(action: object, asked: Json, summary: str) -> None:
    """Queries, pages and patterns are told in one form, each query once; what does not say what it did is empty."""
    ended = _ended(_search(action))
    assert thaw_object(ended.input) == asked
    assert (ended.summary, ended.state) == (summary, "completed")


@pytest.mark.req("S1-29", "S1-31")
@pytest.mark.parametrize(
    ("item", "named"),
    [
        (_search({"type": "telepathy"}), "web_search_call.action:telepathy"),
        (_search({"type": "search"}, "dreaming"), "web_search_call.status:dreaming"),
    ],
)
def test_what_nobody_decided_about_breaks_the_answer(item: Json, named: str) -> None:
    """An unknown action or status fails and is named, and nothing but the beginning was told."""
    events = _item(item)
    assert [one.state for one in _activities(events)] == ["started"]
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].failure.reason == "unsupported_content"
    assert named in events[-1].failure.message
    carried = _item(item, "carry")
    assert [one.state for one in _activities(carried)] == ["started", "completed"]
    assert Noticed(named) in carried


@pytest.mark.req("S1-31")
@pytest.mark.parametrize(
    ("status", "state", "noticed"),
    [
        ("completed", "completed", False),
        ("failed", "failed", False),
        ("incomplete", "failed", False),
        ("searching", "completed", True),
        ("in_progress", "completed", True),
        ("generating", "completed", True),
    ],
)
def test_a_status_becomes_a_state(status: str, state: str, noticed: bool) -> None:
    """A final status is what it says; one that is not final was ended by the item's end, which is noticed."""
    events = _item(_search({"type": "search"}, status))
    assert _activities(events)[-1].state == state
    assert (Noticed(f"web_search_call.status:{status}") in events) is noticed


@pytest.mark.req("S1-32")
def test_progress_tells_nothing() -> None:
    """Events of work that goes on are accepted and produce nothing."""
    begun = _event("output_item.added", output_index=0, item=_search(status="in_progress"))
    progress = [_event(f"web_search_call.{word}", output_index=0) for word in ("in_progress", "searching", "completed")]
    assert len(_feed(begun, *progress)) == 1


@pytest.mark.parametrize(
    ("item", "name", "state", "asked", "summary"),
    [
        ({"type": "file_search_call", "status": "completed", "queries": ["a", "b"]}, "file_search", "completed",
         {"queries": ["a", "b"]}, "a; b"),
        ({"type": "code_interpreter_call", "status": "completed", "code": "1+1", "outputs": None}, "code_execution",
         "completed", {"code": "1+1"}, ""),
        ({"type": "mcp_call", "server_label": "s", "name": "t", "arguments": "{}", "error": {"code": 1}}, "mcp_call",
         "failed", {"server": "s", "tool": "t", "arguments": "{}"}, ""),
        ({"type": "mcp_call", "server_label": "s", "name": "t", "arguments": "{}", "error": None}, "mcp_call",
         "completed", {"server": "s", "tool": "t", "arguments": "{}"}, ""),
        ({"type": "mcp_list_tools", "server_label": "s", "tools": []}, "mcp_list_tools", "completed",
         {"server": "s"}, ""),
        ({"type": "shell_call_output", "status": "completed", "call_id": "c"}, "shell_output", "completed",
         {"call_id": "c"}, ""),
        ({"type": "tool_search_call", "status": "completed", "arguments": {"paths": ["f"]}, "execution": "server"},
         "tool_search", "completed", {"arguments": {"paths": ["f"]}}, ""),
        ({"type": "compaction", "encrypted_content": "sealed"}, "compaction", "completed", {}, ""),
        ({"type": "computer_call_output", "status": "completed", "call_id": "c"}, "computer_use_output", "completed",
         {"call_id": "c"}, ""),
        ({"type": "apply_patch_call_output", "status": "failed", "call_id": "c"}, "apply_patch_output", "failed",
         {"call_id": "c"}, ""),
        ({"type": "tool_search_output", "status": "completed", "call_id": "c"}, "tool_search_output", "completed",
         {"call_id": "c"}, ""),
        ({"type": "image_generation_call", "status": "completed", "revised_prompt": "a cat", "result": None},
         "image_generation", "completed", {"prompt": "a cat"}, ""),
    ],
)  # fmt: skip
def test_every_kind_of_work_has_a_name_of_ours(item: Json, name: str, state: str, asked: Json, summary: str) -> None:
    """Each kind of item is an activity with our name, its state and what was asked of it."""
    ended = _ended({"id": "x", **item})
    assert (ended.name, ended.state, thaw_object(ended.input), ended.summary) == (name, state, asked, summary)


def test_a_shell_in_a_container_is_hosted() -> None:
    """A shell call that says it runs in a container is the provider's work."""
    item = {"id": "x", "type": "shell_call", "action": {"commands": ["ls"]},
            "environment": {"type": "container_reference", "container_id": "c"}}  # fmt: skip
    whole = _RESPONSES.decode_whole(json.dumps({"output": [item]}).encode(), _ORIGIN)
    assert [(one.name, one.state) for one in _activities(whole)] == [("shell", "started"), ("shell", "completed")]


@pytest.mark.req("S0-15", "S1-37")
@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"type": "mcp_approval_request", "name": "t"}, "mcp_approval_request"),
        ({"type": "computer_call", "action": {"type": "click"}, "status": "completed"}, "computer_use"),
        ({"type": "local_shell_call", "action": {"type": "exec"}, "status": "completed"}, "local_shell"),
        ({"type": "apply_patch_call", "operation": {"type": "create_file"}, "status": "completed"}, "apply_patch"),
        ({"type": "shell_call", "action": {"commands": ["ls"]}, "environment": None, "status": "completed"}, "shell"),
        ({"type": "tool_search_call", "execution": "client", "status": "completed"}, "tool_search"),
    ],
)
def test_what_waits_for_the_client_is_only_started(item: Json, name: str) -> None:
    """Work that the client would have to run or allow has not been done; the ending names it, and is no tool use."""
    body = json.dumps({"id": "r", "status": "completed", "output": [{"id": "x", **item}]}).encode()
    assembler = Assembler()
    for event in _RESPONSES.decode_whole(body, _ORIGIN):
        assembler.add(event)
    (activity,) = assembler.message().parts
    assert isinstance(activity, HostedActivity)
    assert (activity.name, activity.state, activity.payload is None) == (name, "started", False)
    assert assembler.stop is not None
    assert (assembler.stop.reason, assembler.stop.detail) == ("end_turn", f"waits for the client: {item['type']}")


def test_a_made_image_is_media_too() -> None:
    """The result of image generation is an image of the message beside its activity."""
    result = base64.b64encode(b"pixels").decode()
    item = {"id": "x", "type": "image_generation_call", "status": "generating", "result": result,
            "output_format": "webp", "revised_prompt": "a gull"}  # fmt: skip
    assembler = Assembler()
    for event in _item(item):
        assembler.add(event)
    assert assembler.message().parts[-1] == Media("image/webp", b"pixels")
    assert thaw_object(_ended(item).input) == {"prompt": "a gull"}


def test_work_that_a_cut_kept_from_its_end_stays_started() -> None:
    """Of an incomplete response, an item that still goes on is begun and not ended."""
    output = [_search({"type": "search", "query": "a"}, "in_progress")]
    body = json.dumps({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": output})
    events = _RESPONSES.decode_whole(body.encode(), _ORIGIN)
    assert [one.state for one in _activities(events)] == ["started"]
    body = json.dumps({"status": "completed", "output": output})
    events = _RESPONSES.decode_whole(body.encode(), _ORIGIN)
    assert [one.state for one in _activities(events)] == ["started", "completed"]


def test_payloads_are_not_shown() -> None:
    """No native value is in the text form of an activity."""
    ended = _ended(_search({"type": "search", "query": "a"}, secret="hush"))
    assert ended.payload is not None
    assert b"hush" in ended.payload.value
    assert "hush" not in repr(ended)


def _cited(text: str, *annotations: Json) -> list[Attribution]:
    part = {"type": "output_text", "text": text, "annotations": list(annotations)}
    item = {"id": "m", "type": "message", "content": [part]}
    events = _RESPONSES.decode_whole(json.dumps({"output": [item]}).encode(), _ORIGIN)
    return [event.attribution for event in events if isinstance(event, Citation)]


def _link(start: int, end: int, url: str = "https://x.example/a") -> Json:
    return {"type": "url_citation", "start_index": start, "end_index": end, "url": url, "title": "X"}


@pytest.mark.req("S0-31", "S0-36", "S0-37", "S0-39", "S0-59")
@pytest.mark.parametrize(
    ("text", "span", "kept"),
    [
        ("See ([X](https://x.example/a)).", (4, 29), True),
        ("Grüße — ([X](https://x.example/a))!", (8, 33), True),
        ("A plain claim. And more.", (2, 13), True),
        ("See ([X](https://x.example/a)).", (4, 99), False),
        ("See ([X](https://x.example/a)).", (9, 4), False),
        ("See ([X](https://x.example/a)).", (-1, 4), False),
        ("See ([X](https://x.example/a)).", (4, 20), False),
        ("([X](https://x.example/a)) and words", (27, 36), False),
        ("\U0001f6b2 ([X](https://x.example/a))", (2, 27), False),
        ("([X](https://x.example/a)) \U0001f6b2", (0, 26), True),
        ("", (0, 0), False),
    ],
)
def test_ranges_are_kept_where_they_can_be_trusted(text: str, span: tuple[int, int], kept: bool) -> None:
    """A range counts characters of its text; where it does not fit or may mean others, the citation stays without."""
    (found,) = _cited(text, _link(*span))
    assert found.source == Source("https://x.example/a", "X")
    assert found.range == (span if kept else None)
    assert found.excerpt is None


def test_files_are_sources_without_an_address() -> None:
    """Citations of files carry the file's name, and a range where it holds the path."""
    text = "It is in sandbox:/mnt/data/t.csv now."
    container = {"type": "container_file_citation", "file_id": "f", "filename": "t.csv", "container_id": "c"}
    found = _cited(
        text,
        {**container, "start_index": 9, "end_index": 32},
        {**container, "start_index": 0, "end_index": 0},
        {"type": "file_citation", "file_id": "f", "filename": "t.txt", "index": 36},
        {"type": "file_path", "file_id": "f2", "index": 3},
    )
    assert [(one.source, one.range) for one in found] == [
        (Source("", "t.csv"), (9, 32)),
        (Source("", "t.csv"), None),
        (Source("", "t.txt"), None),
        (Source("", "f2"), None),
    ]


def _telling(text: str, annotations: list[Json], again: list[Json]) -> list[StreamEvent]:
    part = {"type": "output_text", "text": text, "annotations": again}
    item = {"id": "m", "type": "message", "content": [part]}
    told = [
        _event("output_text.annotation.added", output_index=0, content_index=0, annotation_index=n, annotation=one)
        for n, one in enumerate(annotations)
    ]
    return _feed(
        _event("output_text.delta", output_index=0, content_index=0, delta=text[:10]),
        *told,
        _event("output_text.delta", output_index=0, content_index=0, delta=text[10:]),
        _event("content_part.done", output_index=0, content_index=0, part=part),
        _event("output_item.done", output_index=0, item=item),
        _event("completed", response={"status": "completed", "output": [item]}),
    )


@pytest.mark.field(52)
def test_every_citation_is_told_once_and_in_order() -> None:
    """Five citations are five events, in order and in the record, however often the provider repeats the list."""
    text = " ".join(f"([X](https://x.example/{n}))" for n in range(5))
    links = [_link(27 * n, 27 * n + 26, f"https://x.example/{n}") for n in range(5)]
    for told in (links, links[:2], []):
        events = _telling(text, told, links)
        found = [event.attribution for event in events if isinstance(event, Citation)]
        assert [one.source.url for one in found] == [f"https://x.example/{n}" for n in range(5)]
        assert all(one.range is not None for one in found)
        assembler = Assembler()
        for event in events:
            assembler.add(event)
        (part,) = assembler.message().parts
        assert isinstance(part, Text)
        assert list(part.attributions) == found


def test_a_range_ahead_of_its_text_waits() -> None:
    """A citation whose text is still to come is told when it is there, and no later."""
    text = "See ([X](https://x.example/a))."
    events = [event for event in _telling(text, [_link(4, 29)], []) if isinstance(event, TextDelta | Citation)]
    assert [type(event).__name__ for event in events] == ["TextDelta", "TextDelta", "Citation"]


def test_a_citation_told_differently_breaks_the_answer() -> None:
    """A list that disagrees with what was streamed is a failure; a shorter one is not."""
    text = "See ([X](https://x.example/a))."
    assert isinstance(_telling(text, [_link(4, 29)], [_link(4, 28)])[-1], StreamFailed)
    assert not isinstance(_telling(text, [_link(4, 29)], [])[-1], StreamFailed)


@pytest.mark.req("S0-44")
def test_citations_that_wait_are_told_when_the_stream_breaks() -> None:
    """What was cited so far belongs to the text so far, even where its range does not fit."""
    events = _feed(
        _event("output_text.delta", output_index=0, content_index=0, delta="See"),
        _event("output_text.annotation.added", output_index=0, content_index=0, annotation=_link(4, 29)),
        {"type": "error", "message": "no", "code": "server_error"},
    )
    assembler = Assembler()
    for event in events:
        assembler.add(event)
    partial = assembler.partial()
    assert partial is not None
    (part,) = partial.parts
    assert isinstance(part, Text)
    assert ([one.range for one in part.attributions], part.attribution_complete) == ([None], False)


def test_unknown_annotations_are_noticed() -> None:
    """An annotation that names no source is told of; one that does is a citation, whatever it is called."""
    odd = {"type": "mood", "mood": "calm"}
    newer = {"type": "page_citation", "url": "https://x.example/a"}
    events = _telling("calm", [odd, newer], [odd, newer])
    assert [event.kind for event in events if isinstance(event, Noticed)] == [
        "annotation.mood",
        "annotation.page_citation",
    ]
    assert sum(isinstance(event, Citation) for event in events) == 1
