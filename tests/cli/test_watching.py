"""Text and rows on a terminal, seen through a small terminal of the test's own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from furcate.cli._output import Screen
from furcate.cli._watching import Watching
from furcate.primitives._content import Attribution, HostedActivity, Source
from furcate.primitives._stream import AttemptRestarted, Citation, HostedTransition, Noticed, StreamEvent, TextDelta

Terminal = Callable[[], list[str]]
_TOKEN = re.compile(r"\x1b[78]|\x1b\[[0-9;]*[AKm]|.", re.DOTALL)


def replay(written: str, width: int, height: int) -> list[str]:
    """Give the lines that a terminal shows, those that scrolled off included."""
    lines: list[str] = [""]
    row = column = 0
    saved = (0, 0)
    for token in _TOKEN.findall(written):
        if token == "\x1b7":
            saved = (row, column)
        elif token == "\x1b8":
            row, column = saved
        elif token.endswith("A") and token.startswith("\x1b"):
            row = max(len(lines) - height, row - int(token[2:-1]))
        elif token == "\x1b[2K":
            lines[row] = ""
        elif token.startswith("\x1b"):
            continue
        elif token == "\r":
            column = 0
        else:
            if token == "\n" or column == width:
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            if token != "\n":
                lines[row] = lines[row][:column].ljust(column) + token + lines[row][column + 1 :]
                column += 1
    return lines[:-1] if lines[-1] == "" else lines


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    """Stand in for a terminal of 40 by 8 cells, and give the lines that it shows so far."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    written = ""

    def lines() -> list[str]:
        nonlocal written
        written += capsysbinary.readouterr().out.decode()
        return replay(written, 40, 8)

    return lines


def search(state: str, its_id: str = "a", query: str = "tides") -> HostedTransition:
    told = {"type": "search", "queries": [query]} if state != "started" else {}
    return HostedTransition(HostedActivity(its_id, "web_search", state, input=told))


def show(*events: StreamEvent) -> Watching:
    watching = Watching(Screen())
    for event in events:
        watching.take(event)
    return watching


@pytest.mark.req("S1-53")
def test_row_changes_where_it_stands(terminal: Terminal) -> None:
    """A row that runs is there by the tool's name between the texts, and its end takes its place."""
    watching = show(TextDelta(0, "I look."), search("started"), TextDelta(1, "Well, " * 9))
    assert terminal() == ["I look.", "[~] web_search · running", ("Well, " * 9)[:40], ("Well, " * 9)[40:]]
    watching.take(search("completed"))
    watching.take(TextDelta(1, "found."))
    watching.end()
    assert terminal() == ["I look.", "[+] web_search · tides", ("Well, " * 9)[:40], ("Well, " * 9)[40:] + "found."]


def test_rows_end_in_any_order(terminal: Terminal) -> None:
    """Each of several rows keeps its own place."""
    ends = [search("failed", "b"), search("completed", "a", "x" * 60)]
    show(search("started"), search("started", "b"), TextDelta(0, "Text."), *ends).end()
    assert terminal() == [f"[+] web_search · {'x' * 19}…", "[!] web_search · failed", "Text."]


@pytest.mark.req("S1-50")
def test_row_without_an_end_fails_with_its_answer(terminal: Terminal) -> None:
    """When the answer is over, whole or not, what still ran is shown as failed."""
    show(search("started"), TextDelta(0, "Text.")).end()
    assert terminal() == ["[!] web_search · failed", "Text."]


@pytest.mark.parametrize("far", ["line\n" * 9, "1234567890" * 30, "🚲" * 30])
def test_row_out_of_reach_is_told_at_the_end(terminal: Terminal, far: str) -> None:
    """Where a row has left the screen, or nobody knows where it is, its end is told under the answer."""
    show(search("started"), TextDelta(0, far), search("completed")).end()
    lines = terminal()
    assert lines[0] == "[~] web_search · running"
    assert lines[-1] == "[+] web_search · tides"
    assert "".join(lines[1:-1]) == far.replace("\n", "")


def test_resized_terminal_is_not_guessed_at(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines may wrap anew when a window changes, so that rows of before are not looked for."""
    watching = show(search("started"), TextDelta(0, "Text."))
    monkeypatch.setenv("COLUMNS", "60")
    watching.take(search("completed"))
    watching.end()
    assert terminal() == ["[~] web_search · running", "Text.", "[+] web_search · tides"]


def test_narrow_terminal_keeps_marker_and_name(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A row that is wider than the terminal changes in place all the same."""
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    show(search("started"), TextDelta(0, "Text."), search("completed")).end()
    assert replay(capsysbinary.readouterr().out.decode(), 10, 8) == ["[+] web_se", "arch", "Text."]


@pytest.mark.req("S1-58")
def test_colours_of_rows(terminal: Terminal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Markers of running and completed rows have a colour of their own, failed rows are red all over."""
    show(search("started"), search("completed"), search("failed", "b"))
    written = capsysbinary.readouterr().out.decode()
    assert "\x1b[36m[~]\x1b[0m web_search · running" in written
    assert "\x1b[36m[+]\x1b[0m web_search · tides" in written
    assert "\x1b[1;31m[!] web_search · failed\x1b[0m" in written


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colours_where_none_are_wanted(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    name: str,
    value: str,
) -> None:
    """Neither rows nor text are coloured; a terminal that cannot move gets a line for each change."""
    monkeypatch.setenv(name, value)
    show(search("started"), TextDelta(0, "\x1b[31mText."), search("completed")).end()
    written = capsysbinary.readouterr().out.decode()
    assert not re.search(r"\x1b\[[0-9;]*m", written)
    if value == "dumb":
        assert written == "[~] web_search · running\nText.\n[+] web_search · tides\n"


def test_text_is_cleaned_piece_by_piece(terminal: Terminal, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A sequence that is spread over pieces is still seen, and what one part leaves open does not swallow the next."""
    pieces = ["a\x1b", "[2", "Jb\x1b[1", "mc\x1b]0;open"]
    show(
        *(TextDelta(0, piece) for piece in pieces), TextDelta(1, "\u202ed"), search("started"), TextDelta(1, "e")
    ).end()
    written = capsysbinary.readouterr().out.decode()
    # Neither the row nor what comes after it wears the colours of the text.
    assert written.startswith("ab\x1b[1mcd\x1b[0m\n\x1b[36m[~]")
    assert written.count("\x1b]") == 0


def test_sources_stand_under_every_cited_text(terminal: Terminal) -> None:
    """An answer that a repair replaces was seen with its text, so it is seen with its sources too."""

    def cite(url: str) -> Citation:
        return Citation(0, Attribution(Source(url)))

    repair = AttemptRestarted(2, "repair")
    first = [TextDelta(0, "One."), cite("https://a.example"), cite("https://a.example")]
    show(*first, Noticed("ping"), repair, TextDelta(0, "Two."), cite("https://b.example")).end()
    assert terminal() == [
        *("One.", "", "Sources:", "[1] https://a.example"),
        *("Two.", "", "Sources:", "[1] https://b.example"),
    ]


def test_paused_answer_goes_on(terminal: Terminal) -> None:
    """Where a provider paused and was resumed, work that began before the pause ends in its row after it."""
    show(TextDelta(0, "One."), search("started"), AttemptRestarted(2, "resume"), search("completed")).end()
    assert terminal() == ["One.", "[+] web_search · tides"]


def test_work_of_a_replaced_attempt_has_failed(terminal: Terminal) -> None:
    """An attempt that is made anew has rows of its own, also where the ids are the same."""
    show(search("started"), AttemptRestarted(2, "generate"), search("started"), search("completed")).end()
    assert terminal() == ["[!] web_search · failed", "[+] web_search · tides"]
