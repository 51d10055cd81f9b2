"""Branches that share the price of their beginning."""

from __future__ import annotations

import anyio
import pytest

import furcate
from furcate.primitives._history import History
from furcate.testing import Hold, PromptCache, StubProvider, StubRequest, answer, error, no_head

pytestmark = pytest.mark.anyio

DIALECTS = ("anthropic-messages", "openai-responses", "openai-chat", "google-generatecontent")
WORDS = 2000


def shared(words: int = WORDS, **how) -> furcate.Exchange:
    """Make an exchange of so many words, four bytes each with the space after them."""
    asked = furcate.Message.user("abc " * words, **how)
    return furcate.Exchange(History((asked, furcate.Message.assistant("Yes."))), "opening")


def said(request: StubRequest) -> str:
    return request.body["messages"][-1]["content"]


def ask_once(ask, text: str):
    async def next_action(turn: furcate.Turn):
        return furcate.Continue(ask(text)) if turn.result is None else furcate.Stop()

    return next_action


class Together:
    """Hold every answer back until so many requests have come, or until it is told to go on."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._come = 0
        self._all = anyio.Event()

    async def wait(self) -> None:
        self._come += 1
        if self._come >= self._number:
            self._all.set()
        await self._all.wait()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_branches_read_their_beginning_once(engine_for, ask, dialect) -> None:
    """One branch reads the exchange and the others find it in the cache; the group's summary shows the saving."""
    cache, group = PromptCache(), furcate.Group()
    exchange = shared()
    async with StubProvider(cache.before(answer("Done."))) as stub:
        async with engine_for(stub, dialect=dialect, capacity=20) as engine:
            async with furcate.open_branches(engine, exchange, prime=True, groups=[group]) as branches:
                for number in range(20):
                    branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    summary = group.summary()
    assert summary.succeeded == 20
    assert cache.tokens_cached == 19 * (WORDS + 1)
    assert cache.tokens_read == WORDS + 1 + 20 * 2
    assert summary.usage.cache_read_tokens.known == cache.tokens_cached
    assert summary.cached_share == pytest.approx(0.95, abs=0.01)
    assert f"cache read {cache.tokens_cached:,} tokens (95% of all input" in str(summary)


async def test_unprimed_branches_each_read_it(engine_for, ask) -> None:
    """Branches that go out together find nothing in the cache, since no answer has begun."""
    cache, together = PromptCache(), Together(20)
    script = cache.before(answer("Done.", at={0: Hold(together.wait)}))
    async with StubProvider(script) as stub, engine_for(stub, dialect="openai-responses", capacity=20) as engine:
        async with furcate.open_branches(engine, shared(), prime=False) as branches:
            for number in range(20):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert cache.tokens_cached == 0
    assert cache.tokens_read == 20 * (WORDS + 1 + 2)
    assert not any("prompt_cache_key" in request.body for request in stub.requests)


async def test_many_branches_read_it_once(engine_for, ask) -> None:
    """However many branches there are, and however few at once, their beginning is read once."""
    cache = PromptCache()
    async with StubProvider(cache.before(answer("Done."))) as stub:
        async with engine_for(stub, dialect="anthropic-messages", capacity=8) as engine:
            async with furcate.open_branches(engine, shared(1100)) as branches:
                for number in range(50):
                    branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert [branch.status for branch in branches] == ["succeeded"] * 50
    assert cache.tokens_read == 1100 + 1 + 50 * 2


async def test_the_others_wait_for_the_beginning_of_an_answer_not_for_its_end(engine_for, ask) -> None:
    """While the first answer is under way, the others are sent."""
    together = Together(5)
    script = answer("One two three.", deltas=["One ", "two ", "three."], at={3: Hold(together.wait)})
    async with StubProvider(script) as stub, engine_for(stub, capacity=5) as engine:
        async with furcate.open_branches(engine, shared()) as branches:
            for number in range(5):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert stub.most_in_flight == 5
    assert all(branch.outcome for branch in branches)


async def test_the_first_is_alone_until_its_answer_begins(engine_for, ask) -> None:
    """Until then no other request is sent, no run is told of, and no place is taken or waited for."""
    begin, recorder = anyio.Event(), furcate.Recorder()
    script = answer("Done.", at={0: Hold(begin.wait)})
    async with StubProvider(script) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=5, observers=[recorder]) as engine:
            async with furcate.open_branches(engine, shared()) as branches:
                for number in range(5):
                    branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
                await stub.wait_until(lambda s: s.requests_read == 1)
                await anyio.wait_all_tasks_blocked()
                assert engine.statistics()["stub"].in_use == 1
                assert engine.statistics()["stub"].waiting == 0
                assert sum(isinstance(event, furcate.RunStarted) for event in recorder.events) == 1
                begin.set()
    assert stub.requests_read == 5


async def test_a_short_exchange_is_forked_at_once(engine_for, ask) -> None:
    """Where no provider caches anything, nobody waits and nothing is marked."""
    together = Together(5)
    script = answer("Done.", at={0: Hold(together.wait)})
    async with StubProvider(script) as stub, engine_for(stub, dialect="anthropic-messages", capacity=5) as engine:
        async with furcate.open_branches(engine, shared(900)) as branches:
            for number in range(5):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert stub.most_in_flight == 5
    assert not any(b"cache_control" in request.raw for request in stub.requests)


@pytest.mark.parametrize("word", ["none", "per-slot"])
async def test_a_backend_without_a_common_cache_is_asked_at_once(engine_for, ask, word) -> None:
    """Where one reading serves nobody else, nobody waits for it."""
    together = Together(5)
    script = answer("Done.", at={0: Hold(together.wait)})
    async with StubProvider(script) as stub, engine_for(stub, cache=word, capacity=5) as engine:
        async with furcate.open_branches(engine, shared()) as branches:
            for number in range(5):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert stub.most_in_flight == 5


async def test_a_slow_callback_holds_nobody_up(engine_for, ask) -> None:
    """Who reads first is settled when turns are asked for: a branch that thinks, or never asks, is not waited for."""
    thought = anyio.Event()

    async def thinks(turn: furcate.Turn):
        if turn.result is None:
            await thought.wait()
            return furcate.Continue(ask("after all"))
        return furcate.Stop()

    async def stops(turn: furcate.Turn):
        return furcate.Stop()

    async with StubProvider(answer("Done.")) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=5) as engine:
            async with furcate.open_branches(engine, shared()) as branches:
                branches.start_soon(thinks, additional_turns=1)
                branches.start_soon(stops, additional_turns=1)
                for number in range(3):
                    branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
                await stub.wait_until(lambda s: s.requests_read == 3)
                thought.set()
    assert all(branch.outcome for branch in branches)


async def test_a_first_branch_that_fails_takes_nothing_from_the_others(engine_for, ask) -> None:
    """Under ``isolate`` the others start when the first has failed, and end well."""

    def script(request: StubRequest):
        return error(400, "bad") if request.number == 1 else answer("Done.")

    async with StubProvider(script) as stub, engine_for(stub, dialect="openai-responses", capacity=5) as engine:
        async with furcate.open_branches(engine, shared()) as branches:
            for number in range(5):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert sorted(branch.status for branch in branches) == ["failed"] + ["succeeded"] * 4


async def test_a_first_branch_that_fails_cancels_the_others_where_asked(engine_for, ask) -> None:
    """Under ``cancel`` those that wait are cancelled by the first one's failure, and send nothing."""
    async with StubProvider(error(400, "bad")) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=5) as engine:
            with pytest.raises(ExceptionGroup):
                async with furcate.open_branches(engine, shared(), on_failure="cancel") as branches:
                    for number in range(5):
                        branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    assert sorted(branch.status for branch in branches) == ["cancelled"] * 4 + ["failed"]
    assert stub.requests_read == 1


async def test_waiting_branches_are_cancelled_with_their_nursery(engine_for, ask) -> None:
    """Nobody is left waiting for a first branch that is gone; the exchange can be forked again afterwards."""
    answers = iter([no_head(silent=True)])
    exchange = shared()
    async with StubProvider(lambda request: next(answers, answer("Done."))) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=5) as engine:
            async with furcate.open_branches(engine, exchange) as branches:
                for number in range(5):
                    branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
                await stub.wait_until(lambda s: s.requests_read == 1)
                branches.cancel()
            assert [branch.status for branch in branches] == ["cancelled"] * 5
            assert stub.requests_read == 1
            async with furcate.open_branches(engine, exchange) as again:
                again.start_soon(ask_once(ask, "again"), additional_turns=1)
    assert [branch.status for branch in again] == ["succeeded"]


async def test_no_more_branches_run_than_allowed(engine_for, ask) -> None:
    """Branches that wait for the first one count as running, so `max_active` holds."""
    begin = anyio.Event()
    script = answer("Done.", at={0: Hold(begin.wait)})
    async with StubProvider(script) as stub, engine_for(stub, dialect="openai-responses", capacity=9) as engine:
        async with furcate.open_branches(engine, shared(), max_active=3) as branches:
            for number in range(6):
                branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
            await stub.wait_until(lambda s: s.requests_read == 1)
            assert sorted(branch.status for branch in branches) == ["running"] * 3 + ["waiting"] * 3
            begin.set()
    assert stub.requests_read == 6
    assert stub.most_in_flight <= 3


async def test_a_nursery_in_a_branch_shares_its_own_exchange(engine_for, ask) -> None:
    """Branches of a branch mark and read first what they share, which is longer than what their parents did."""
    cache = PromptCache(min_tokens=100)

    def outer(number: int):
        async def next_action(turn: furcate.Turn):
            if turn.result is None:
                return furcate.Continue(ask(f"part {number} " + "xyz " * WORDS))
            async with furcate.open_branches(engine, turn.exchange) as inner:
                for angle in range(5):
                    inner.start_soon(ask_once(ask, f"angle {angle}"), additional_turns=1)
            assert all(branch.outcome for branch in inner)
            return furcate.Stop()

        return next_action

    async with StubProvider(cache.before(answer("Done."))) as stub:
        async with engine_for(stub, dialect="anthropic-messages", capacity=20) as engine:
            async with furcate.open_branches(engine, shared()) as branches:
                for number in range(3):
                    branches.start_soon(outer(number), additional_turns=1)
    assert [branch.error for branch in branches] == [None] * 3
    # The exchange once, and each part twice: when it was said, and by the first of those that share it.
    assert cache.tokens_read == WORDS + 1 + 3 * (WORDS + 2) + 3 * (WORDS + 2 + 1) + 15 * 2


async def test_runs_that_a_callback_starts_by_hand_wait_as_well(engine_for, ask) -> None:
    """`continue_from` on the shared exchange, called in a callback, is a turn like others."""
    cache, numbers = PromptCache(), iter(range(5))

    async def by_hand(turn: furcate.Turn):
        await engine.continue_from(turn.exchange, ask(f"number {next(numbers)}"))
        return furcate.Stop()

    async with StubProvider(cache.before(answer("Done."))) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=5) as engine:
            async with furcate.open_branches(engine, shared()) as branches:
                for _ in range(5):
                    branches.start_soon(by_hand, additional_turns=0)
    assert cache.tokens_read == WORDS + 1 + 5 * 2


async def test_the_end_of_the_exchange_is_marked_once_beside_authored_hints(engine_for, ask) -> None:
    """Anthropic takes four breakpoints: one is kept for the shared end, which later turns of a branch keep marking."""
    hint = furcate.CacheHint()
    asked = [furcate.Message.user(f"{n} " + "abc " * 600, cache=hint) for n in range(5)]
    messages = [one for message in asked for one in (message, furcate.Message.assistant("Yes."))]
    exchange = furcate.Exchange(History(messages), "opening")

    async def twice(turn: furcate.Turn):
        return furcate.Continue(ask(f"turn {turn.remaining}")) if turn.remaining else furcate.Stop()

    async with StubProvider(answer("Done.")) as stub, engine_for(stub, dialect="anthropic-messages") as engine:
        async with furcate.open_branches(engine, exchange) as branches:
            branches.start_soon(twice, additional_turns=2)
    for request in stub.requests:
        blocks = [
            (place, block)
            for place, message in enumerate(request.body["messages"])
            for block in (message["content"] if isinstance(message["content"], list) else [])
        ]
        assert [place for place, block in blocks if "cache_control" in block] == [4, 6, 8, 9]
    # What was captured is as it was said: the mark is not in the conversation.
    assert [message.cache for message in exchange.messages if message.role == "assistant"] == [None] * 5


async def test_branches_of_one_exchange_have_one_cache_key(engine_for, ask) -> None:
    """OpenAI gets the same key from all branches, made of what they share, unless a hint has made one already."""
    exchange = shared()
    hinted = shared(cache=furcate.CacheHint())
    async with StubProvider(answer("Done.")) as stub:
        async with engine_for(stub, dialect="openai-responses", capacity=3) as engine:
            for one in (exchange, hinted):
                async with furcate.open_branches(engine, one) as branches:
                    for number in range(3):
                        branches.start_soon(ask_once(ask, f"angle {number}"), additional_turns=1)
    keys = [request.body["prompt_cache_key"] for request in stub.requests]
    assert set(keys[:3]) == {exchange.digest[:32]}
    assert len(set(keys[3:])) == 1
    assert keys[3] != keys[0]


async def test_unknown_words_are_refused(engine_for) -> None:
    """A misspelt choice or keyword is told at once."""
    async with StubProvider(answer("Done.")) as stub, engine_for(stub) as engine:
        with pytest.raises(ValueError, match="prime is 'yes'; give 'auto', True or False"):
            furcate.open_branches(engine, shared(), prime="yes")
        with pytest.raises(TypeError, match="unexpected keyword argument 'group'"):
            furcate.open_branches(engine, shared(), group=furcate.Group())
