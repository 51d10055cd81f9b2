"""Text of others in a line of ours: nothing in it may move the cursor, hide, or begin another line."""

from __future__ import annotations

_JOINERS = "\u200c\u200d"


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Replace what is not printable, but for what joins or parts its two neighbours in emoji and in many scripts.

    Arguments:
        text: what somebody else wrote.
        instead: what to put in place of each character that is not printable.
    """
    if text.isprintable():
        return text
    # Python counts joiners among what is not printable; at a word's edge they have nothing to join.
    return "".join(
        char if char.isprintable() or (char in _JOINERS and _between_letters(text, at)) else instead
        for at, char in enumerate(text)
    )


def _between_letters(text: str, at: int) -> bool:
    neighbours = text[at - 1 : at], text[at + 1 : at + 2]
    return all(char.isprintable() and not char.isspace() and char for char in neighbours)
