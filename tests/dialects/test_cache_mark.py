"""How each dialect asks its provider to cache what a call has in common with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from furcate.dialects import dialect_named
from furcate.primitives._content import Reasoning, Text, ToolCall, ToolResult
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._wire import ModelCall

SHARED = History((Message.user("A long text."), Message.assistant("I read it.")))
ASKED = SHARED.extend((Message.user("And now?"),))
MARK = {"type": "ephemeral"}


def body(dialect: str, history: History, shared: int = 0) -> dict[str, Any]:
    wire = dialect_named(dialect).encode(ModelCall(model="m", history=history, shared=shared))
    return json.loads(b"".join(wire.body))


def marks(history: History, shared: int) -> list[tuple[int, int, dict[str, str]]]:
    """Give the places (message, block) of the marks in a request, with the marks."""
    return [
        (place, number, block["cache_control"])
        for place, message in enumerate(body("anthropic-messages", history, shared)["messages"])
        for number, block in enumerate(message["content"] if isinstance(message["content"], list) else [])
        if "cache_control" in block
    ]


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_openai_gets_a_key_of_what_is_shared(dialect) -> None:
    """The key is made of the beginning alone, so that whatever follows has the same."""
    key = SHARED.digest.hex()[:32]
    assert body(dialect, ASKED, 2)["prompt_cache_key"] == key
    assert body(dialect, ASKED.extend((Message.assistant("Yes."), Message.user("So?"))), 2)["prompt_cache_key"] == key
    assert "prompt_cache_key" not in body(dialect, ASKED)


def test_google_is_asked_for_nothing() -> None:
    """Gemini caches by itself, so the request is the same."""
    assert body("google-generatecontent", ASKED, 2) == body("google-generatecontent", ASKED)


def test_anthropic_gets_a_breakpoint_at_the_end_of_what_is_shared() -> None:
    """The last block of the beginning is marked, in every request that continues it, and nothing else is changed."""
    longer = ASKED.extend((Message.assistant("Yes."), Message.user("So?")))
    assert marks(ASKED, 2) == [(1, 0, MARK)]
    assert marks(longer, 2) == [(1, 0, MARK)]
    assert marks(ASKED, 0) == []
    with_mark, without = body("anthropic-messages", ASKED, 2), body("anthropic-messages", ASKED)
    del with_mark["messages"][1]["content"][0]["cache_control"]
    assert with_mark == without


def test_branches_share_the_bytes_of_a_marked_beginning() -> None:
    """What is marked is encoded once for all branches."""
    dialect = dialect_named("anthropic-messages")
    one, other = (
        dialect.encode(ModelCall(model="m", history=SHARED.extend((Message.user(text),)), shared=2)).body
        for text in ("one", "other")
    )
    [long] = [chunk for chunk in one if b"A long text." in chunk]
    assert any(chunk is long for chunk in other)


def test_a_breakpoint_is_kept_free_for_it() -> None:
    """Of the authored hints the latest three are sent beside it, wherever they stand."""
    hint = CacheHint()
    before = History((*(Message.user(f"{n}", cache=hint) for n in range(3)), Message.assistant("Yes.")))
    after = before.extend(Message.user(f"{n}", cache=hint) for n in range(3))
    assert marks(after, 4) == [(3, 0, MARK), (4, 0, MARK), (5, 0, MARK), (6, 0, MARK)]
    assert marks(before.extend((Message.user("plain"),)), 4) == [(n, 0, MARK) for n in range(4)]


def test_a_hint_in_the_same_place_is_enough() -> None:
    """An authored hint at the end of what is shared keeps its lifetime, and no second breakpoint is made."""
    shared = History((Message.user("A long text."), Message("assistant", (Text("Yes."),), CacheHint(3600))))
    assert marks(shared.extend((Message.user("So?"),)), 2) == [(1, 0, {"type": "ephemeral", "ttl": "1h"})]


def test_no_lifetime_is_shorter_than_one_behind_it() -> None:
    """The provider refuses a breakpoint of an hour behind one of five minutes, so the mark takes the longer one."""
    long = {"type": "ephemeral", "ttl": "1h"}
    assert marks(SHARED.extend((Message.user("So?", cache=CacheHint(3600)),)), 2) == [(1, 0, long), (2, 0, long)]


def test_the_mark_is_put_where_the_provider_takes_it() -> None:
    """A thought carries no breakpoint; a call does."""
    call = ToolCall("c1", "look_up", "{}")
    shared = History((Message.user("A text."), Message("assistant", (call, Reasoning("Hm.")))))
    history = shared.extend((Message.tool(ToolResult("c1", "found")),))
    assert marks(history, 2) == [(1, 0, MARK)]
    silent = History((Message.user("A text."), Message("assistant", (Reasoning("Hm."),))))
    assert marks(silent.extend((Message.user("So?"),)), 2) == [(0, 0, MARK)]
