"""Trees of forks, however they grow."""

from __future__ import annotations

import copy

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import furcate
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.testing import StubProvider, StubRequest, answer

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5).filter(str.strip)

# Each entry forks from one of the conversations before it, taken modulo their number.
TREES = st.lists(st.tuples(st.integers(0, 99), WORDS), max_size=12)


def from_scratch(messages: list[Message]) -> str:
    """Digest a conversation that was made anew, in one piece, out of copies."""
    return History(copy.deepcopy(messages)).digest.hex()


@pytest.mark.req("S4-023", "S4-024")
@given(TREES, WORDS, st.data())
def test_each_fork_keeps_exactly_its_own_history(tree: list[tuple[int, str]], first: str, data: st.DataObject) -> None:
    """In any tree, each exchange holds what its path said and nothing else, whichever digests were asked for."""
    start = [Message.user(first), Message.assistant("Yes?")]
    exchanges = [Exchange(History(start), "0")]
    paths = [start]
    for number, (place, said) in enumerate(tree, 1):
        parent = place % len(exchanges)
        added = [Message.user(said), Message.assistant(f"{said}!")]
        source = exchanges[parent]
        exchanges.append(Exchange(source.history.extend(added), str(number), source.run_id))
        paths.append([*paths[parent], *added])
        if data.draw(st.booleans(), label="ask for a digest"):
            assert exchanges[place % len(exchanges)].digest == from_scratch(paths[place % len(exchanges)])
    for exchange, path in zip(exchanges, paths, strict=True):
        assert exchange.messages == tuple(path)
        assert len(exchange.history) == len(path)
        assert exchange.digest == from_scratch(path)
    for one, said in zip(exchanges, paths, strict=True):
        for other, also_said in zip(exchanges, paths, strict=True):
            assert (one.digest == other.digest) == (said == also_said)


@pytest.mark.anyio
@pytest.mark.req("S4-023", "S4-052", "S4-084")
@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["left", "right", "on"])), max_size=6))
async def test_an_engine_sends_each_fork_its_own_history(tree: list[tuple[int, str]]) -> None:
    """Forks that run at once in any tree are sent, and capture, what their own path said."""

    def script(request: StubRequest):
        return answer(f"{request.body['messages'][-1]['content']}!")

    exchanges: dict[int, furcate.Exchange] = {}
    known = [anyio.Event() for _ in range(len(tree) + 1)]
    async with (
        StubProvider(script) as stub,
        furcate.Engine(
            backends=[furcate.Backend("stub", base_url=stub.base_url, capacity=3)],
            profiles=[furcate.Profile("p", "stub", "m")],
        ) as engine,
    ):

        async def grow(number: int, parent: int, said: str) -> None:
            await known[parent].wait()
            result = await engine.continue_from(exchanges[parent], furcate.Request(messages=said, profile="p"))
            exchanges[number] = result.exchange
            known[number].set()

        begun = await engine.run(furcate.Request(messages="begin", profile="p", capture=True))
        exchanges[0] = begun.exchange
        known[0].set()
        async with anyio.create_task_group() as tasks:
            for number, (place, said) in enumerate(tree, 1):
                tasks.start_soon(grow, number, place % number, said)
        sent = sorted([message["content"] for message in request.body["messages"]] for request in stub.requests)

    paths = [["begin", "begin!"]]
    for number, (place, said) in enumerate(tree, 1):
        paths.append([*paths[place % number], said, f"{said}!"])
        assert exchanges[number].parent_run_id == exchanges[place % number].run_id
    for number, path in enumerate(paths):
        assert [message.text for message in exchanges[number].messages] == path
        assert exchanges[number].digest == from_scratch(list(exchanges[number].messages))
    assert sent == sorted(path[:-1] for path in paths)
    assert len({exchange.digest for exchange in exchanges.values()}) == len({tuple(path) for path in paths})
