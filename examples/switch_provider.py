"""Begin a conversation with one provider, go on with another, and tell what came along and what stayed behind.

Texts go wherever the conversation goes. Citations and the names of the tools that a provider ran are kept with them,
for people to read. What only its own provider understands (sealed reasoning, native results of searches) is left out of
requests to any other, and counted. It is not lost: back with the first provider, it is sent again as it came.

    python examples/switch_provider.py "When is high water in Bergen today?" "Say it in one short sentence."
    python examples/switch_provider.py --config furcate.toml --first searcher --then writer

Without ``--config`` it asks furcate's embedded model, fetched at its first use, in two of the languages that its server
speaks. That model is very small, and searches nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import click
from attrs import frozen

import furcate
from furcate.local import MODEL_NAME, EmbeddedServer
from furcate.report import cited_in, clean_line, tool_counts, unfinished, written

FIRST, THEN = "first", "then"


@frozen
class Switch:
    """Hold both sides of a change of providers.

    Attributes:
        before: the first provider's answer.
        after: the other provider's answer, to the conversation so far and one message more.
    """

    before: furcate.Result
    after: furcate.Result

    def carried(self) -> str:
        """Say what of the conversation came along."""
        messages = self.before.exchange.messages
        names = ", ".join(f"{clean_line(name)} ({count})" for name, count in tool_counts(messages).items())
        facts = [
            counted(sum(1 for message in messages if message.text), "text"),
            counted(len(cited_in(*messages)), "citation"),
            f"activities: {names or 'none'}",
        ]
        open_ends = unfinished(messages)
        if open_ends:
            facts.append(f"{len(open_ends)} of them without an end")
        return ", ".join(facts)

    def dropped(self) -> str:
        """Say what was left out of the request to the other provider, since only the first one can read it."""
        # Each attempt leaves out the same, so the last one speaks for all.
        attempt = self.after.attempts[-1]
        reasoning = attempt.receipt.foreign_reasoning_dropped if attempt.receipt is not None else 0
        return f"{counted(reasoning, 'piece')} of sealed reasoning, {counted(attempt.payloads_dropped, 'payload')}"


def counted(number: int, word: str) -> str:
    """Say how many there are of something."""
    return f"{number} {word}{'' if number == 1 else 's'}"


async def switch(engine: furcate.Engine, question: str, follow_up: str, *, first: str, then: str) -> Switch:
    """Ask one profile, and go on from its answer with another."""
    before = await engine.run(furcate.Request(profile=first, messages=question, capture=True))
    after = await engine.continue_from(before.exchange, furcate.Request(profile=then, messages=follow_up))
    return Switch(before, after)


@asynccontextmanager
async def opened(config: Path | None) -> AsyncIterator[furcate.Engine]:
    """Give the engine of a configuration file, or one that speaks two languages with the embedded model's server."""
    if config is not None:
        async with furcate.Engine.from_config(config) as engine:
            yield engine
        return
    async with EmbeddedServer() as server:
        where = await server.address()
        backends = [
            furcate.Backend(name, dialect=dialect, base_url=where.base_url, api_key=where.api_key, capacity=1)
            for name, dialect in ((FIRST, "openai-chat"), (THEN, "anthropic-messages"))
        ]
        settings = furcate.Settings(max_output_tokens=100)
        profiles = [furcate.Profile(name, name, MODEL_NAME, settings=settings) for name in (FIRST, THEN)]
        async with furcate.Engine(backends=backends, profiles=profiles) as engine:
            yield engine


@click.command(help="Ask a QUESTION of one provider and a FOLLOW_UP of another.")
@click.argument("question", default="What makes the tides?")
@click.argument("follow_up", default="Say that again in one short sentence.")
@click.option("--first", default=FIRST, show_default=True, help="The profile to begin with.")
@click.option("--then", default=THEN, show_default=True, help="The profile to go on with.")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration. [default: the embedded model]")
@click.option("--loop", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
def main(question: str, follow_up: str, *, first: str, then: str, config: Path | None, loop: str) -> None:
    async def work() -> Switch:
        async with opened(config) as engine:
            return await switch(engine, question, follow_up, first=first, then=then)

    try:
        done = anyio.run(work, backend=loop)
    except (furcate.FurcateError, OSError) as error:
        raise click.ClickException(str(error)) from None
    # What a model says, and the titles of what it cites, are shown without what could drive the terminal.
    print(f"{first}:\n{written(done.before.message)}\n")
    print(f"carried: {done.carried()}")
    print(f"dropped: {done.dropped()}\n")
    print(f"{then}:\n{written(done.after.message)}")


if __name__ == "__main__":
    main()
