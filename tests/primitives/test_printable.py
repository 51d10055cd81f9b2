"""Text of others in one line: nothing in it moves the cursor, and joined letters stay whole."""

from __future__ import annotations

import pytest

from furcate.primitives._printable import printable

FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
WANTS = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@pytest.mark.parametrize("text", ["plain", "", FAMILY, f"the {FAMILY} at home", WANTS, "\N{HEAVY BLACK HEART}\ufe0f"])
def test_what_can_be_read_stays(text: str) -> None:
    """Letters, emoji and what joins or parts them are kept."""
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb\n", "a?[2Jb?"),
        ("\u200da", "?a"),
        ("a\u200c", "a?"),
        ("a\u200d\u200db", "a??b"),
        ("a \u200d b", "a ? b"),
        ("a\u200d\x1bb", "a??b"),
        ("\u202eabc\u2066", "?abc?"),
    ],
)
def test_what_cannot_be_read_is_replaced(text: str, shown: str) -> None:
    """Controls are replaced, and so are joiners that have nothing to join."""
    assert printable(text, "?") == shown
    assert printable(text) == shown.replace("?", "\N{REPLACEMENT CHARACTER}")
