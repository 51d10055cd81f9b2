"""Following a cursor through lines that wrap."""

from __future__ import annotations

import pytest

from furcate.cli._cursor import Cursor


@pytest.mark.parametrize(
    ("text", "line", "wrapped"),
    [
        ("", 0, 0),
        ("abc", 0, 0),
        ("abc\n", 1, 0),
        ("1234567890", 0, 0),
        ("1234567890\n", 1, 0),
        ("12345678901", 0, 1),
        ("12345678901\nx", 2, 0),
        ("123456789潮", 0, 1),
        ("\tx", 0, 0),
        ("\tx\t\t\tx", 0, 0),
        ("\tx\t\t\txy", 0, 1),
        ("\x1b[31m1234567890\x1b[0m", 0, 0),
        ("\n\n", 2, 0),
    ],
)
def test_lines_are_counted(text: str, line: int, wrapped: int) -> None:
    """A line as wide as the terminal does not wrap yet; wide letters, tabs and colours take the cells they take."""
    cursor = Cursor(10)
    cursor.write(text)
    assert (cursor.line, cursor.wrapped, cursor.doubts) == (line, wrapped, 0)


def test_letters_that_terminals_disagree_on_raise_doubts() -> None:
    """Where nobody knows whether a line wrapped, its lines are not counted; short of the edge it does not matter."""
    cursor = Cursor(10)
    cursor.write("ab🚲\n")
    assert (cursor.line, cursor.doubts) == (1, 0)
    cursor.write("12345678🚲🚲")
    assert cursor.wrapped is None
    cursor.write("\nx")
    assert (cursor.wrapped, cursor.doubts) == (0, 1)
