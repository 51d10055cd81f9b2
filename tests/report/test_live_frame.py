"""Pictures of what goes on, looked at as text; none is larger than its terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from furcate.primitives._content import ActivityState
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptsPaused,
    AttemptStarted,
    BackendLimited,
    BackendPaused,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    RunFinished,
    RunStarted,
)
from furcate.primitives._usage import Usage
from furcate.report._live_frame import Picture, draw
from furcate.report._live_model import LiveModel
from furcate.report._live_table import Layout, Line, Room
from furcate.report._live_words import Named, age, plain_news, plain_status, tokens_in, tokens_out

USED = Usage(input_tokens=1000, cache_read_tokens=3000, output_tokens=50)


def activity(run_id: str, ident: str, name: str, state: ActivityState) -> ActivityChanged:
    return ActivityChanged(run_id=run_id, number=1, activity_id=ident, name=name, state=state)


class Story:
    """Feed a model, with a clock of its own."""

    def __init__(self, *, kept: int = 200) -> None:
        self.model = LiveModel(kept=kept)
        self.now_s = 0.0

    def opening(self, name: str = "draft", ident: str = "root") -> Story:
        self.run(ident, name=name)
        self.sent(ident)
        self.now_s += 2.5
        return self.ended(ident)

    def run(self, ident: str, *, scope: str | None = None, name: str | None = None) -> Story:
        return self.take(
            RunStarted(
                run_id=ident,
                parent_run_id=None,
                prompt=name,
                profile="p",
                backend="stub",
                model="m",
                dialect="openai-chat",
                scope_id=scope,
            )
        )

    def sent(self, ident: str, number: int = 1) -> Story:
        return self.take(AttemptStarted(run_id=ident, number=number, purpose="generate", request_id="q", waited_s=0.0))

    def ended(self, ident: str, usage: Usage = USED) -> Story:
        return self.take(
            RunFinished(
                run_id=ident,
                status="succeeded",
                duration_s=1.0,
                usage=usage,
                attempts=1,
                repairs=0,
                validation="not_requested",
            )
        )

    def branch(self, name: str, *, of: str = "root", turns: int = 3) -> Story:
        return self.take(
            CoordinatorStarted(
                scope_id=name, parent_scope_id=f"n-{of}", parent_run_id=of, name=name, additional_turns=turns
            )
        )

    def nursery(self, of: str = "root") -> Story:
        return self.take(NurseryStarted(scope_id=f"n-{of}", parent_run_id=of))

    def generating(self, name: str, *, of: str = "root") -> Story:
        return self.branch(name, of=of).run(f"run-{name}", scope=name).sent(f"run-{name}")

    def stopped(self, name: str) -> Story:
        return self.take(CoordinatorFinished(scope_id=name, status="succeeded", outcome="stopped"))

    def failed(self, name: str, error: str = "ValueError") -> Story:
        return self.take(CoordinatorFinished(scope_id=name, status="failed", outcome=None, error_type=error))

    def take(self, event: object) -> Story:
        self.model.take(event, self.now_s)  # type: ignore[arg-type]
        return self

    def picture(
        self,
        *,
        width: int = 100,
        height: int | None = 40,
        named: Named | None = None,
        last: bool = False,
        layout: Layout | None = None,
    ) -> list[str]:
        room = Room(width=width, height=height)
        return text_of(draw(self.model, self.now_s, room, named=named or Named(), last=last, layout=layout))


def text_of(lines: tuple[Line, ...]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_tree_shows_state_turn_tokens_cache_and_age() -> None:
    """Each run and each branch has a line with what is known of it."""
    story = Story().opening().nursery().generating("left").branch("right", turns=2)
    story.now_s += 65
    story.failed("right")
    story.now_s += 5
    backend, heading, opening, left, right = story.picture()
    assert backend == "stub  1 in flight"
    assert heading.split() == ["state", "for", "turn", "in", "out", "cache", "age"]
    assert opening.split() == ["draft", "done", "4,000", "50", "75", "%", "2.5", "s"]
    assert left.split() == ["├─", "left", "generating", "1:10", "1/3", "1:10"]
    assert right.split() == ["└─", "right", "failed", "0/2", "65.0", "s", "ValueError"]


def test_nested_branches_are_drawn_with_stems() -> None:
    """What stands under a branch is drawn under it, to any depth."""
    story = Story().opening().nursery().generating("left").ended("run-left").nursery("run-left")
    story.branch("deep", of="run-left").branch("deeper", of="run-left").branch("right")
    names = [line[:13].rstrip() for line in story.picture()[2:]]
    assert names == ["draft", "├─ left", "│  ├─ deep", "│  └─ deeper", "└─ right"]


def test_hosted_rows_stand_under_their_branch_while_they_run() -> None:
    """Work of the provider has a row under its branch, and goes away with its end."""
    story = Story().opening().nursery().generating("left").branch("right")
    story.take(activity("run-left", "1", "web_search", "started"))
    story.take(activity("run-left", "2", "fetch", "started"))
    rows = [line.split("  ", 2)[:2] for line in story.picture()[3:]]
    assert story.picture()[4:6] == ["│     [~] web_search · running", "│     [~] fetch · running"], rows
    story.take(activity("run-left", "1", "web_search", "completed"))
    assert [line for line in story.picture() if "[~]" in line] == ["│     [~] fetch · running"]


def test_hosted_work_is_a_detail_where_rows_are_chosen() -> None:
    """Where not all branches fit, running work stands in its branch's own line."""
    story = Story().opening().nursery()
    for number in range(30):
        story.generating(f"b{number}")
    story.take(activity("run-b0", "1", "web_search", "started"))
    story.now_s += 3
    (line,) = [line for line in story.picture(height=20) if "[~]" in line]
    assert line.split() == ["b0", "generating", "3", "s", "1/3", "3", "s", "[~]", "web_search", "·", "running"]


def test_backends_show_places_limit_and_pause() -> None:
    """A backend's line has places in use, what holds it up, and for how long."""
    story = Story().opening().run("r", name="p").sent("r")
    story.model.capacity("stub", capacity=8, limit=8)
    assert story.picture()[0] == "stub  1/8 in flight"
    story.take(BackendLimited(backend="stub", limit=4, before=8, capacity=8))
    story.take(BackendPaused(backend="stub", wait_s=3.0, failure_kind="rate_limited"))
    story.now_s += 0.5
    assert story.picture()[0] == "stub  1/8 in flight · limit 4 · paused for 3 s more (rate_limited)"
    story.now_s += 5
    assert story.picture()[0] == "stub  1/8 in flight · limit 4"


def test_pause_counts_down() -> None:
    """A run that pauses says when it tries again, and why."""
    story = Story().run("r", name="p").sent("r").take(AttemptsPaused(run_id="r", wait_s=9.0, failure_kind="overloaded"))
    story.now_s += 3
    assert story.picture()[-1].split() == ["p", "pausing", "3", "s", "3", "s", "again", "in", "6", "s", "(overloaded)"]
    story.now_s += 7
    story.model.pass_time(story.now_s)
    assert story.picture()[-1].split() == ["p", "queued", "1", "s", "10", "s", "again", "(overloaded)"]
    assert plain_status(story.model, story.now_s, Named()).startswith("after 10 s: 1 run (1 queued);")
    assert story.sent("r", 2).picture()[-1].split() == ["p", "generating", "0", "s", "10", "s", "attempt", "2"]


def test_thousands_are_folded_into_counts_failures_and_the_slowest() -> None:
    """Where not all fits, counts come first, then what failed last, then what takes longest."""
    story = Story().opening().nursery()
    for number in range(3000):
        story.branch(f"b{number}")
        if number < 1000:
            story.stopped(f"b{number}")
        elif number < 1020:
            story.failed(f"b{number}")
        elif number < 1100:
            story.run(f"r{number}", scope=f"b{number}").sent(f"r{number}")
            story.now_s += 1
    lines = story.picture(height=20)
    assert lines[0] == "3,000 branches  20 failed · 1,000 stopped · 80 generating · 1,900 callback"
    assert lines[1] == "tokens in 4,000, out 50, 75 % from cache, after 1:22"
    assert lines[2] == "stub  80 in flight"
    assert len(lines) == 20
    names = [line.split()[0] for line in lines[4:]]
    assert names[:5] == ["b1019", "b1018", "b1017", "b1016", "b1015"]
    assert names[5:] == ["b1020", "b1021", "b1022", "b1023", "b1024", "b1025", "b1026", *names[12:]]
    ages = [line.split()[2] for line in lines[9:]]
    assert ages[:2] == ["1:20", "1:19"]


def test_several_openings_have_a_line_each_where_branches_are_folded() -> None:
    """With more than one nursery open, each says how far it is."""
    story = Story().opening("one", "r1").opening("two", "r2").nursery("r1").nursery("r2")
    for number in range(50):
        story.generating(f"a{number}", of="r1").generating(f"b{number}", of="r2")
    story.stopped("a0").failed("a1")
    lines = story.picture(height=20)
    assert lines[0] == "2 runs  2 done"
    one, two = lines[5:7]
    assert one.endswith("2/50 ended, 1 failed, 48 active")
    assert two.endswith("0/50 ended, 50 active")
    assert lines[7].startswith("one / a1")


def test_trees_that_go_on_are_kept_where_others_have_ended() -> None:
    """Where only what still goes on fits, it is drawn as a tree, below what failed elsewhere."""
    story = Story()
    for root in range(8):
        story.opening(f"draft {root}", f"r{root}").nursery(f"r{root}")
        story.generating(f"left {root}", of=f"r{root}").branch(f"right {root}", of=f"r{root}")
        if root < 6:
            story.failed(f"left {root}") if root == 3 else story.stopped(f"left {root}")
            story.stopped(f"right {root}")
            story.take(NurseryFinished(scope_id=f"n-r{root}", status="succeeded", branches=2))
    lines = story.picture(height=14)
    assert lines[0] == "8 runs  8 done"
    assert lines[1] == "16 branches  1 failed · 11 stopped · 2 generating · 2 callback"
    names = [line[:16].rstrip() for line in lines[5:]]
    assert names == [
        "draft 3 / left 3",
        "draft 6",
        "├─ left 6",
        "└─ right 6",
        "draft 7",
        "├─ left 7",
        "└─ right 7",
        "draft 5",
        "draft 5 / right",
    ]


def test_expected_inputs_are_counted_before_they_begin() -> None:
    """What is still to come is counted as waiting."""
    lines = Story().opening().picture(named=Named("inputs", 12))
    assert lines[0] == "12 inputs  1 done · 11 waiting"


def test_last_picture_keeps_the_tree_or_the_account() -> None:
    """The picture that stays has all rows of few branches, and of many the counts and what failed."""
    few = Story().opening().nursery()
    for number in range(60):
        few.branch(f"b{number}").stopped(f"b{number}")
    assert len(few.picture(height=None, last=True)) == 62
    assert "in flight" not in "".join(few.picture(height=None, last=True))
    many = Story(kept=10).opening().nursery()
    for number in range(60):
        many.branch(f"b{number}")
        many.failed(f"b{number}") if number == 7 else many.stopped(f"b{number}")
    lines = many.picture(height=None, last=True)
    assert lines[0] == "60 branches  1 failed · 59 stopped"
    assert [line.split()[0] for line in lines[3:]] == ["b7"]


@pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
def test_names_and_details_are_shortened_and_numbers_are_not(width: int) -> None:
    """Long names lose their middle, long details their end; numbers are left out whole where there is no room."""
    path = "/home/somebody/projects/archive/2024/a-rather-long-folder-name/chapter-17.txt"
    story = Story().opening(path).nursery().branch("a branch with a name that goes on and on", turns=12)
    story.now_s += 101
    story.failed("a branch with a name that goes on and on", "no answer came " * 20)
    _, heading, opening, branch = story.picture(width=width)
    assert all(cell_len(line) <= width for line in (heading, opening, branch))
    if width < 200:
        assert opening.startswith("/h")
        assert "…" in opening.split()[0]
        assert opening.split()[0].endswith("7.txt")
        assert branch.startswith("└─ ")
    if width >= 60:
        assert heading.split()[0] == "state"
        assert heading.split()[-1] == "age"
        assert "failed" in branch
        assert "101 s" in branch or "1:41" in branch
        assert branch.endswith("…")
    if width >= 80:
        assert "4,000" in opening


def test_plain_characters_where_the_terminal_has_no_others() -> None:
    """Without UTF-8 the tree is drawn with ASCII."""
    story = Story().opening().nursery().branch("left").branch("right")
    lines = text_of(draw(story.model, 3.0, Room(width=80, height=20, ascii=True), named=Named()))
    assert [line[:8] for line in lines[-2:]] == ["|- left ", "`- right"]
    assert "".join(lines).isascii()


@given(
    width=st.integers(0, 140),
    height=st.integers(0, 50),
    roots=st.integers(0, 3),
    branches=st.integers(0, 40),
    ends=st.integers(0, 40),
    name=st.text(max_size=30),
)
def test_no_picture_is_larger_than_its_terminal(
    width: int, height: int, roots: int, branches: int, ends: int, name: str
) -> None:
    """Whatever goes on and however small the terminal is, the picture fits, and nothing of it moves the cursor."""
    story = Story(kept=10)
    for root in range(roots):
        story.opening(f"{name}{root}", f"r{root}").nursery(f"r{root}")
        for number in range(branches):
            story.generating(f"{root}-{number}{name}", of=f"r{root}")
            story.now_s += 0.1
        for number in range(min(ends, branches)):
            ident = f"{root}-{number}{name}"
            story.failed(ident) if number % 3 else story.stopped(ident)
    story.take(activity("run-0-0", "1", name, "started"))
    lines = story.picture(width=width, height=height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert all(line.replace("\u200c", "").replace("\u200d", "").isprintable() for line in lines)


def five_by_five() -> Story:
    """Give five openings of five branches, six of which are under way while the others wait."""
    story = Story()
    for root in range(5):
        story.opening(f"draft {root}", f"r{root}").nursery(f"r{root}")
    for number in range(25):
        name = f"b{number}"
        story.branch(name, of=f"r{number // 5}")
        if number < 6:
            story.run(f"run-{name}", scope=name).sent(f"run-{name}")
        else:
            story.model.note(name, story.now_s, waiting=True)
    return story


def names_in(lines: list[str]) -> list[str]:
    return [re.split(r" +(?:generating|waiting|done)", line)[0] for line in lines[5:]]


def begin(story: Story, name: str) -> None:
    story.model.note(name, story.now_s, waiting=False)
    story.run(f"run-{name}", scope=name).sent(f"run-{name}")


@pytest.mark.parametrize("height", [8, 11, 15, 23])
def test_folded_picture_uses_all_its_room(height: int) -> None:
    """However young everything is, no line stays empty while there is something to show."""
    story, layout = five_by_five(), Layout()
    for ending in range(19):
        lines = story.picture(width=60, height=height, layout=layout)
        assert len(lines) == height
        assert all(line.strip() for line in lines)
        story.now_s += 0.3
        story.ended(f"run-b{ending}").stopped(f"b{ending}")
        assert len(story.picture(width=60, height=height, layout=layout)) == height
        begin(story, f"b{ending + 6}")


def test_folded_picture_has_openings_then_what_runs_then_what_waits() -> None:
    """Several openings say how far they are, above what is under way; what waits comes last."""
    lines = five_by_five().picture(width=60, height=20)
    names = names_in(lines)
    assert names[:5] == [f"draft {number}" for number in range(5)]
    assert lines[5].endswith("0/5 ended, 5 active")
    assert names[5:11] == [f"draft {n // 5} / b{n}" for n in range(6)]
    assert all("generating" in line for line in lines[10:16])
    assert all("waiting" in line for line in lines[16:])


def test_rows_keep_their_places() -> None:
    """When one of many ends, another takes its place and all others stay; so does one that queues between turns."""
    story, layout = five_by_five(), Layout()
    before = story.picture(width=100, height=20, layout=layout)
    story.now_s += 1
    story.ended("run-b2").run("next", scope="b2")
    assert "queued" in story.picture(width=100, height=20, layout=layout)[12]
    story.sent("next").ended("next").stopped("b2")
    begin(story, "b9")
    after = story.picture(width=100, height=20, layout=layout)
    names = [names_in(before), names_in(after)]
    assert [number for number in range(11) if names[0][number] != names[1][number]] == [7]
    assert names[1][7] == "draft 1 / b9"


def test_what_hangs_takes_the_place_of_what_does_not() -> None:
    """A row stays only until something else has been in its state for much longer."""
    story, layout = Story().opening().nursery(), Layout()
    for number in range(20):
        story.generating(f"b{number}")
    assert "b0" in story.picture(height=8, layout=layout)[4]
    story.ended("run-b0").run("next", scope="b0").sent("next")
    story.now_s += 4
    assert "b0" in story.picture(height=8, layout=layout)[4]
    story.ended("next").run("third", scope="b0").sent("third")
    story.now_s += 6
    story.ended("third").run("fourth", scope="b0").sent("fourth")
    assert not any("b0 " in line for line in story.picture(height=8, layout=layout))


def test_tree_and_folded_picture_do_not_take_turns() -> None:
    """Once folded, trees come back only where they leave some room."""
    story, layout = Story(), Layout()
    for root in range(12):
        story.opening(f"draft {root}", f"r{root}").nursery(f"r{root}").generating(f"b{root}", of=f"r{root}")
    kinds = []
    for root in range(9):
        kinds.append(any("└─" in line for line in story.picture(height=16, layout=layout)))
        story.stopped(f"b{root}").take(NurseryFinished(scope_id=f"n-r{root}", status="succeeded", branches=1))
    assert kinds == sorted(kinds)
    assert kinds[-1]
    # Twelve lines of rows are there: six trees would fill them, so that the next would fold them again.
    assert kinds.index(True) == 8


def test_columns_stay_where_they_are_and_only_move_right() -> None:
    """A long name that goes away leaves the columns in their places."""
    story, layout = Story(kept=1).run("a", name="x" * 30), Layout()
    wide = story.picture(layout=layout)[1].index("state")
    story.ended("a").run("b", name="short").ended("b").run("c", name="c")
    assert not any("xxx" in line for line in story.picture(layout=layout))
    heading = next(line for line in story.picture(layout=layout) if "state" in line)
    assert heading.index("state") == wide == 31


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_names_leave_room_for_details(width: int) -> None:
    """Why something pauses can be read however long its name is."""
    story = Story().run("r", name="a/path/" * 20).sent("r")
    story.take(AttemptsPaused(run_id="r", wait_s=9.0, failure_kind="overloaded"))
    assert "again in 9 s" in story.picture(width=width)[-1]


@pytest.mark.parametrize("width", range(20, 60))
def test_joined_emoji_never_make_a_line_wrap(width: int) -> None:
    """Emoji of several parts are shown whole, and fit even where a terminal shows their parts one after the other."""
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    story = Story().run("r", name=f"{family} at home").sent("r")
    story.take(AttemptsPaused(run_id="r", wait_s=9.0, failure_kind=family * 9))
    lines = story.picture(width=width)
    assert all(sum(map(cell_len, line.split("\u200d"))) <= width for line in lines)
    assert family in story.picture(width=100)[-1]


def test_branches_that_never_began_have_no_age() -> None:
    """What was cancelled while it waited for its place has taken no time."""
    story = Story().opening().nursery().branch("never").branch("begun")
    for name in ("never", "begun"):
        story.model.note(name, story.now_s, waiting=True)
    story.now_s += 5
    begin(story, "begun")
    story.now_s += 2
    for name in ("never", "begun"):
        story.take(CoordinatorFinished(scope_id=name, status="cancelled", outcome=None))
    never, begun = story.picture()[-2:]
    assert never.split() == ["├─", "never", "cancelled", "0/3"]
    assert begun.split() == ["└─", "begun", "cancelled", "1/3", "2.0", "s"]
    assert "draft / never: cancelled, turn 0/3, tokens in -, out -, not begun" in list(plain_news(story.model, 0))


def test_picture_is_printed_with_its_styles() -> None:
    """Lines become text of the console's own colours, and none without colours."""
    story = Story().opening()
    lines = draw(story.model, 3.0, Room(width=80, height=20), named=Named())
    shown = []
    for colours in ("truecolor", None):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, color_system=colours, width=80)  # type: ignore[arg-type]
        console.print(Picture(lines), end="")
        shown.append(file.getvalue())
    assert "\x1b[32mdone" in shown[0]
    assert "\x1b[32m" not in shown[1]
    assert len(shown[1].splitlines()) == len(lines)


@pytest.mark.parametrize(
    ("seconds", "running", "over"),
    [(0.0, "0 s", "0.0 s"), (59.9, "59 s", "59.9 s"), (60.0, "1:00", "60.0 s"), (99.96, "1:39", "1:39")],
)
def test_ages_are_short(seconds: float, running: str, over: str) -> None:
    """What runs is shown in whole seconds, what is over to the tenth, and both in minutes where that is shorter."""
    assert (age(seconds), age(seconds, ended=True)) == (running, over)
    assert age(3725) == "1:02:05"


def test_unknown_tokens_are_question_marks() -> None:
    """What was not reported is shown as unknown, what may be too small as at least."""
    story = Story().run("r", name="p").ended("r", Usage())
    assert (tokens_in(None), tokens_out(None)) == ("", "")
    assert (tokens_in(story.model.tokens), tokens_out(story.model.tokens)) == ("?", "?")
    story.run("s", name="p").ended("s", Usage(output_tokens=7, lower_bounds={"output_tokens"}))
    assert (tokens_in(story.model.tokens), tokens_out(story.model.tokens)) == ("?", "7+")


def test_plain_lines_tell_how_all_stands() -> None:
    """One line has the counts, the tokens, the backends and what has been under way for longest."""
    story = Story().opening().nursery().generating("left")
    story.now_s += 12
    story.generating("right")
    assert plain_status(story.model, story.now_s, Named()) == (
        "after 14 s: 2 branches (2 generating); tokens in 4,000, out 50, 75 % from cache; "
        "stub 2 in flight; longest: draft / left generating for 12 s"
    )
    assert plain_status(story.model, story.now_s, Named(), last=True).endswith("75 % from cache")
    assert plain_status(LiveModel(), 0.0, Named()) == ""


def test_plain_lines_tell_what_ended_and_never_too_much() -> None:
    """What failed is told first; of very many the rest is counted."""
    story = Story().opening().nursery()
    for number in range(100):
        story.branch(f"b{number}").stopped(f"b{number}")
    story.branch("bad").failed("bad")
    lines = list(plain_news(story.model, 0))
    assert lines[0] == "draft / bad: failed, turn 0/3, tokens in -, out -, 0.0 s, ValueError"
    assert len(lines) == 11
    assert lines[-1] == "and 92 more ended"
    assert list(plain_news(story.model, story.model.ended)) == []
