"""What is left of somebody else's text before a terminal sees it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from furcate.report import Cleaner, clean, clean_line

# Pieces that sequences are made of, so that random texts hold many of them.
PIECES = st.one_of(
    st.sampled_from("\x1b[]P\\\x07;mH? aé潮\n\t\r\x00\x18\x7f\x9b\x9d\x9c\x85\u202e\u2066\u200f"),
    st.sampled_from(["31", "8", "\x1b[1m", "\x1b[8m", "\x1b]0;t\x07"]),
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
HARMLESS = re.compile(
    r"(?:\x1b\[[0-9;:]*m|[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069])*"
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain, é 潮 🚲\n\ttabbed", "plain, é 潮 🚲\n\ttabbed"),
        ("a\x1b[31mred\x1b[0m", "a\x1b[31mred\x1b[0m"),
        ("\x1b[1;38;5;8mgrey\x1b[m", "\x1b[1;38;5;8mgrey\x1b[m"),
        ("\x1b[48;2;1;2;3mx", "\x1b[48;2;1;2;3mx"),
        ("\x1b[38:2::1:2:3mx\x1b[4:3m", "\x1b[38:2::1:2:3mx\x1b[4:3m"),
        ("\x1b[8mhidden", "hidden"),
        ("\x1b[08mhidden", "hidden"),
        ("\x1b[1;8;31mhidden", "\x1b[1;31mhidden"),
        ("\x1b[38;8mhidden", "hidden"),
        ("\x1b[38;5mhidden", "hidden"),
        ("\x1b[38;5;1;8mhidden", "\x1b[38;5;1mhidden"),
        ("\x1b[8:1mhidden", "hidden"),
        ("\x1b[5mblink", "blink"),
        ("\x1b[>4;2mx\x1b[?25lx\x1b[1 mx", "xxx"),
        ("a\x1b[2Jb\x1b[10;10Hc\x1b[6nd", "abcd"),
        ("a\x1b]0;title\x07b\x1b]8;;https://a.example\x1b\\c\x1b]8;;\x1b\\", "abc"),
        ("a\x1bPq#0\x1b\\b\x1b_app\x1b\\c\x1b^pm\x1b\\d\x1bXsos\x1b\\e", "abcde"),
        ("a\x1bPno \x07 end\x1b\\b", "ab"),
        ("a\x1bcb\x1b(0c\x1b#8d\x1b7e", "abcde"),
        ("a\x9b2Jb\x9b31mc\x9d0;t\x9cd\x90q\x9ce\x85f", "abcdef"),
        ("a\rb\r\nc\x00d\x08e\x7ff\x0bg\x0ch", "ab\ncdefgh"),
        ("a\u202eb\u2066c\u2069d\u200ee\u200ff\u061cg", "abcdefg"),
        ("a\x1b[31", "a"),
        ("a\x1b", "a"),
        ("a\x1b]0;never ends\nreally", "a"),
        ("a\x1b]0;t\x18b\x1b[3\x1ac", "abc"),
        ("a\x1b]0;t\x1b[31mred", "a\x1b[31mred"),
        ("a\x1b[3\x1b[31mred", "a\x1b[31mred"),
        ("a\x1b[3\n1mred", "a\n\x1b[31mred"),
        ("a\x1b[3é", "aé"),
        ("a\x1bé", "aé"),
        ("\x1b[" + "1;" * 1000 + "1mx", "x"),
    ],
)
def test_what_is_kept(text: str, left: str) -> None:
    """Letters, line feeds, tabs and colours are kept; whatever else a terminal obeys is not, nor what conceals."""
    assert clean(text) == left


@given(TEXTS, st.booleans())
def test_nothing_harmful_is_left(text: str, visualise: bool) -> None:
    """Whatever comes, all that is left can be shown, and cleaning it again changes nothing."""
    left = clean(text, visualise=visualise)
    assert HARMLESS.fullmatch(left)
    assert clean(left) == left


@given(TEXTS, st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_pieces_give_what_the_whole_gives(text: str, cuts: list[int], visualise: bool) -> None:
    """Where a text is cut makes no difference, also in the middle of a sequence."""
    cleaner = Cleaner(visualise=visualise)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [cleaner.feed(text[one:other]) for one, other in pairwise(edges)]
    assert "".join(pieces) + cleaner.end() == clean(text, visualise=visualise)


def test_visible_mode_shows_what_it_takes_out() -> None:
    """Escapes and controls are shown as pictures, bidirectional controls by their number, colours as colours."""
    text = "\x1b[2Ja\x1b[31mb\x1b]0;t\x07\r\x7f\x9b5n\u202ec\x1b"
    shown = "␛[2Ja\x1b[31mb␛]0;t␇␍␡␛[5n<U+202E>c␛"
    assert clean(text, visualise=True) == shown


def test_cleaner_serves_another_text_after_the_end() -> None:
    """What one text left open does not swallow the next."""
    cleaner = Cleaner()
    assert cleaner.feed("a\x1b]0;open") == "a"
    assert cleaner.end() == ""
    assert cleaner.feed("b") == "b"


def test_a_sequence_without_end_is_not_kept() -> None:
    """A sequence that goes on for ever takes no memory."""
    cleaner = Cleaner()
    cleaner.feed("\x1b[")
    for _ in range(100):
        assert cleaner.feed("1;" * 500) == ""
    assert len(cleaner._begun) < 200


def test_line_of_ours_stays_one_line() -> None:
    """A title or a URL is one line without any control, colours included."""
    assert clean_line(" A\n\x1b[1mtitle\x1b[0m\t\x1b]8;;x\x07 of \u2028 \u202emany\r lines ") == "A title of many lines"
