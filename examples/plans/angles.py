"""The branch of ``angles.toml`` that decides by what was answered."""

from __future__ import annotations

from attrs import field, frozen

import furcate


@frozen
class Keywords:
    """Hold words that the model thinks a text is to be found by."""

    keywords: tuple[str, ...] = field(
        metadata={
            "schema": {"minItems": 3, "maxItems": 5, "items": {"type": "string", "minLength": 3, "maxLength": 20}}
        }
    )


async def keywords(turn: furcate.Turn) -> furcate.Action:
    """Ask for keywords, and once more where the text has none of them in it.

    It keeps nothing between two turns, since one function serves the branches of all inputs.
    """
    if turn.result is None:
        return ask("Name the keywords of the text.")
    if turn.result.validation.status == "passed":
        found = turn.result.value_as(Keywords)
        text = turn.exchange.messages[0].text.casefold()
        if any(word.casefold() in text for word in found.keywords):
            return furcate.Stop()
    return ask("Those are not in the text. Name words that it really uses.") if turn.remaining else furcate.Stop()


def ask(text: str) -> furcate.Continue:
    """Continue with a request for keywords; the plan gives it a profile."""
    form = 'Answer as JSON: {"keywords": three to five words}'
    return furcate.Continue(furcate.Request(messages=f"{text} {form}", contract=furcate.Contract.of(Keywords)))
