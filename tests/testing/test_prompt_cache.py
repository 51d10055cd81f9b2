"""The model of a provider's prompt cache."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from furcate.testing import Hold, PromptCache, Send, answer, error, raw

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

MARK = {"cache_control": {"type": "ephemeral"}}
PLAIN = ("openai-chat", "openai-responses", "google-generatecontent")


def conversation(dialect: str, *texts: str) -> dict[str, Any]:
    """Give the member of a body that holds a user's messages of these texts."""
    if dialect == "google-generatecontent":
        return {"contents": [{"role": "user", "parts": [{"text": text}]} for text in texts]}
    name = "input" if dialect == "openai-responses" else "messages"
    return {name: [{"role": "user", "content": text} for text in texts]}


async def perform(steps) -> list[Any]:
    """Go through an answer's steps without a wire; give what it sends as JSON."""
    sent = []
    for step in steps:
        if isinstance(step, Hold):
            await step.wait()
        elif isinstance(step, Send):
            sent.append(step.data)
        elif hasattr(step, "duration_s"):
            await anyio.sleep(step.duration_s)
    return json.loads(b"".join(sent))


async def usage_of(script, request) -> dict[str, Any]:
    body = await perform(script(request).steps_for(request))
    return body.get("usage") or body["usageMetadata"]


@pytest.mark.parametrize("dialect", PLAIN)
async def test_the_longest_known_beginning_is_read_from_the_cache(asking, dialect) -> None:
    """A second request pays for what the first had not, in the words of its dialect."""
    cache = PromptCache(min_tokens=100)
    script = cache.before(answer("Yes."))
    first = await usage_of(script, asking(dialect, **conversation(dialect, "a " * 150, "b " * 50)))
    second = await usage_of(script, asking(dialect, **conversation(dialect, "a " * 150, "b " * 50, "c")))
    third = await usage_of(script, asking(dialect, **conversation(dialect, "a " * 150, "d " * 50)))
    names = {
        "openai-chat": ("prompt_tokens", "prompt_tokens_details"),
        "openai-responses": ("input_tokens", "input_tokens_details"),
        "google-generatecontent": ("promptTokenCount", None),
    }
    total, details = names[dialect]
    assert [one[total] for one in (first, second, third)] == [200, 201, 200]
    if details is None:
        assert [one.get("cachedContentTokenCount", 0) for one in (first, second, third)] == [0, 200, 150]
    else:
        assert [one[details]["cached_tokens"] for one in (first, second, third)] == [0, 200, 150]
    assert (cache.requests, cache.tokens_asked, cache.tokens_read, cache.tokens_cached) == (3, 601, 251, 350)


async def test_anthropic_caches_what_is_marked(asking) -> None:
    """Nothing is kept without a mark; writing and reading are reported apart from plain input."""
    script = PromptCache(min_tokens=100).before(answer("Yes."))

    def request(marked: bool, *more: str):
        block = {"type": "text", "text": "a " * 150, **(MARK if marked else {})}
        messages = [{"role": "user", "content": [block]}, *({"role": "user", "content": text} for text in more)]
        return asking("anthropic-messages", messages=messages)

    def counts(usage) -> tuple[int, ...]:
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return tuple(usage.get(name, 0) for name in names)

    assert counts(await usage_of(script, request(False, "b"))) == (151, 0, 0)
    assert counts(await usage_of(script, request(True, "b"))) == (1, 150, 0)
    assert counts(await usage_of(script, request(True, "c d"))) == (2, 0, 150)
    assert counts(await usage_of(script, request(False, "b"))) == (151, 0, 0)


async def test_a_beginning_is_there_once_its_answer_begins(asking) -> None:
    """Requests that come together each read all of it; one that comes after the first piece of an answer does not."""
    cache, begin = PromptCache(min_tokens=10), anyio.Event()
    held = cache.before(answer("Yes.", at={0: Hold(begin.wait)}))
    request = asking("openai-chat", **conversation("openai-chat", "a " * 50))
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(perform, held(request).steps_for(request))
        await anyio.wait_all_tasks_blocked()
        held(request)
        assert cache.tokens_cached == 0
        begin.set()
    held(request)
    assert cache.tokens_cached == 50


async def test_reading_takes_time(asking) -> None:
    """What is in no cache delays the answer, and becomes known only after that."""
    cache = PromptCache(min_tokens=10, read_tokens_per_s=10)
    script = cache.before(answer("Yes.", delay_s=1))
    request = asking("openai-chat", **conversation("openai-chat", "a " * 50))
    for took_s in (6, 1):
        began_s = anyio.current_time()
        await usage_of(script, request)
        assert anyio.current_time() - began_s == took_s


async def test_short_beginnings_are_not_kept(asking) -> None:
    """What is shorter than the least is read each time."""
    cache = PromptCache(min_tokens=100)
    script = cache.before(answer("Yes."))
    for _ in range(2):
        await usage_of(script, asking("openai-chat", **conversation("openai-chat", "a " * 99)))
    assert cache.tokens_cached == 0


async def test_beginnings_expire_after_their_last_use(asking) -> None:
    """Each use prolongs the life of a beginning; after that it is read again."""
    cache = PromptCache(min_tokens=10, expiry_s=60)
    script = cache.before(answer("Yes."))
    request = asking("openai-chat", **conversation("openai-chat", "a " * 50))
    found = []
    for pause_s in (0, 50, 50, 61):
        await anyio.sleep(pause_s)
        await usage_of(script, request)
        found.append(cache.tokens_cached)
    assert found == [0, 50, 100, 100]


async def test_other_models_and_instructions_share_nothing(asking) -> None:
    """A cache is of one model, and what stands in front of a conversation is part of its beginning."""
    cache = PromptCache(min_tokens=10)
    script = cache.before(answer("Yes."))
    said = conversation("openai-responses", "a " * 50)
    for more in ({}, {"model": "other"}, {"instructions": "Be brief."}, {"tools": [{"type": "function", "name": "f"}]}):
        await usage_of(script, asking("openai-responses", **said, **more))
    assert cache.tokens_cached == 0


async def test_what_is_no_turn_is_no_reading(asking) -> None:
    """Errors and fixed bodies pass as they are, and a script's own numbers stay."""
    cache = PromptCache(min_tokens=10)
    request = asking("openai-chat", **conversation("openai-chat", "a " * 50))
    for other in (error(429), raw(b"{}")):
        assert cache.before(other)(request) is other
    assert cache.requests == 0
    own = {"prompt_tokens": 7, "completion_tokens": 1}
    script = cache.before(lambda asked: answer(str(asked.number), usage=own))
    assert await usage_of(script, request) == own
    assert cache.tokens_read == 50


@pytest.mark.parametrize("wrong", [{"min_tokens": 0}, {"expiry_s": 0}, {"read_tokens_per_s": 0}])
async def test_arguments_are_looked_at(wrong) -> None:
    """A cache that could hold nothing is a mistake."""
    with pytest.raises(ValueError, match="greater than zero"):
        PromptCache(**wrong)
