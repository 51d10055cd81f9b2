"""The tree on the terminal, looked at as text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from furcate.cli._forest import Begun, Ended, Forest, Key, fold, plant
from furcate.cli._tree import PlainScreen, TreeScreen, change_line, render, screen_for, tokens_in, tokens_out
from furcate.primitives._observations import RunFinished
from furcate.primitives._usage import Usage


def finished(usage: Usage) -> RunFinished:
    return RunFinished(
        run_id="r",
        status="succeeded",
        duration_s=1.0,
        usage=usage,
        attempts=1,
        repairs=0,
        validation="not_requested",
    )


def drawn(forest: Forest, *, now_s: float = 10.0, lines: int | None = None, width: int = 90) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=False).print(render(forest, now_s, lines))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_tree_shows_state_turn_tokens_and_time() -> None:
    """Each opening and each branch has a line with what is known of it."""
    forest = plant(["a.txt"], [("left", 2), ("right", 3)])
    forest = fold(forest, Key(0), Begun(), at_s=1.0)
    forest = fold(forest, Key(0), finished(Usage(input_tokens=1200, cache_read_tokens=34, output_tokens=5)), at_s=3.5)
    forest = fold(forest, Key(0, 0), Begun(), at_s=4.0)
    forest = fold(forest, Key(0, 1), Ended("failed", "timeout: no answer"), at_s=5.0)
    heading, opening, left, right = drawn(forest)
    assert heading.split() == ["state", "turn", "in", "out", "time"]
    assert opening.split() == ["a.txt", "done", "1,234", "5", "2.5", "s"]
    assert left.split() == ["├─", "left", "callback", "0/2", "6.0", "s"]
    assert right.split() == ["└─", "right", "failed", "0/3", "timeout:", "no", "answer"]


def test_unknown_tokens_are_question_marks() -> None:
    """What was not reported is shown as unknown, what may be too small as at least."""
    assert (tokens_in(None), tokens_out(None)) == ("", "")
    assert (tokens_in(Usage()), tokens_out(Usage())) == ("?", "?")
    part = Usage(input_tokens=0, output_tokens=7, lower_bounds={"output_tokens"})
    assert (tokens_in(part), tokens_out(part)) == ("0", "7+")


def test_small_terminal_shows_what_goes_on() -> None:
    """Where not all fits, ended inputs go first, then those that wait, and both are counted."""
    forest = plant([f"{n}.txt" for n in range(6)], [("only", 1)])
    for number in range(2):
        forest = fold(forest, Key(number), Ended("done"), at_s=1.0)
        forest = fold(forest, Key(number, 0), Ended("stopped"), at_s=1.0)
    shown = drawn(forest, lines=7)
    assert len(shown) <= 7
    assert shown[0] == "2 more inputs have ended"
    assert shown[2].startswith("2.txt")
    assert shown[-1] == "2 more inputs below"


def test_names_do_nothing_to_the_terminal() -> None:
    """Control characters and markup in names are shown, not obeyed."""
    forest = plant(["\x1b[31mred\n.txt"], [("[bold]b[/bold]", 1)])
    text = "\n".join(drawn(forest))
    assert "\x1b" not in text
    assert "[bold]b[/bold]" in text


def test_change_is_one_plain_line() -> None:
    """A change is told in one line that names input and branch."""
    forest = plant(["a.txt"], [("left", 2)])
    assert change_line(forest, Key(0, 0), 1.0) == "a.txt / left: waiting, turn 0/2"
    forest = fold(fold(forest, Key(0), Begun(), at_s=1.0), Key(0), finished(Usage(output_tokens=3)), at_s=2.0)
    assert change_line(forest, Key(0), 9.0) == "a.txt: opening: done, tokens in ?, out 3, 1.0 s"


def test_plain_screen_tells_a_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Equal lines are not repeated, and a moment's states are not told at all."""
    forest = plant(["a.txt"], [("left", 2)])
    screen = PlainScreen()
    screen.changed(forest, Key(0, 0), 1.0)
    forest = fold(forest, Key(0, 0), Ended("cancelled"), at_s=1.0)
    screen.changed(forest, Key(0, 0), 2.0)
    screen.changed(forest, Key(0, 0), 3.0)
    assert capsys.readouterr().err == "a.txt / left: cancelled, turn 0/2, tokens in -, out -, not begun\n"


def test_terminal_gets_the_tree_and_others_get_lines() -> None:
    """A tree is only drawn where it can be drawn over."""
    forest = plant(["a.txt"], [("left", 2)])
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, force_interactive=True, _environ={"TERM": "xterm"})
    dumb = Console(file=file, force_terminal=True, force_interactive=True, _environ={"TERM": "dumb"})
    assert isinstance(screen_for(terminal, forest), TreeScreen)
    assert isinstance(screen_for(dumb, forest), PlainScreen)
    assert isinstance(screen_for(Console(file=file, force_terminal=False), forest), PlainScreen)


async def test_last_tree_stays_and_others_may_write_in_between() -> None:
    """What is written aside stands above the tree, whose last picture stays."""
    forest = plant(["a.txt"], [("left", 2)])
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    screen = TreeScreen(console, forest)
    with screen.opened():
        with screen.aside():
            file.write("RESULT\n")
        screen.changed(fold(forest, Key(0, 0), Ended("stopped"), at_s=1.0), Key(0, 0), 1.0)
    before, after = file.getvalue().split("RESULT\n")
    assert "waiting" in before
    assert "stopped" in after.rsplit("a.txt", 1)[1]
    # The cursor is shown again, and nothing after the result goes up beyond the tree's own three lines.
    assert after.rstrip().endswith("\x1b[?25h")
    assert after.index("a.txt") < after.index("\x1b[1A")


@pytest.mark.parametrize("width", [60, 80])
def test_numbers_keep_their_room(width: int) -> None:
    """Long details, paths and names are shortened in place of the numbers; of names the ends are kept."""
    path = "/home/somebody/projects/archive/2024/a-rather-long-folder-name/chapter-17.txt"
    forest = plant([path], [("a branch with a name that goes on and on", 2), ("short", 12)])
    forest = fold(forest, Key(0), Begun(), at_s=1.0)
    forest = fold(forest, Key(0), finished(Usage(input_tokens=123_456, output_tokens=7890)), at_s=3.5)
    forest = fold(forest, Key(0, 0), Begun(), at_s=4.0)
    forest = fold(forest, Key(0, 1), Begun(), at_s=4.0)
    forest = fold(forest, Key(0, 1), Ended("failed", "timeout: " + "no answer came " * 20), at_s=105.0)
    heading, opening, first, second = drawn(forest, width=width)
    assert heading.split() == ["state", "turn", "in", "out", "time"]
    assert opening.split()[-5:] == ["done", "123,456", "7,890", "2.5", "s"]
    assert opening.startswith("/h")
    assert "…" in opening.split()[0]
    assert opening.split()[0].endswith("-17.txt")
    assert first.split()[-4:] == ["callback", "0/2", "6.0", "s"]
    assert "101.0 s timeout" in second
    assert second.endswith("…")
    assert all(len(line) <= width for line in (heading, opening, first, second))


def test_names_have_all_the_room_that_details_leave() -> None:
    """Nothing is shortened where it fits."""
    forest = plant(["docs/a-file-of-some-length.txt"], [("left", 2)])
    assert drawn(forest, width=80)[1].split()[0] == "docs/a-file-of-some-length.txt"
