"""The live view while it draws: on terminals, elsewhere, and where nobody looks any more."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

import furcate
from furcate.primitives._content import ActivityState
from furcate.primitives._errors import MisuseError
from furcate.primitives._observations import ActivityChanged, AttemptStarted, RunFinished, RunStarted
from furcate.primitives._usage import Usage
from furcate.report import LiveView
from furcate.report._live_pens import _takes_text
from furcate.testing import StubProvider, answer

STARTED = RunStarted(
    run_id="r", parent_run_id=None, prompt="draft", profile="p", backend="stub", model="m", dialect="openai-chat"
)
SENT = AttemptStarted(run_id="r", number=1, purpose="generate", request_id="q", waited_s=0.0)
FINISHED = RunFinished(
    run_id="r",
    status="succeeded",
    duration_s=1.0,
    usage=Usage(input_tokens=5, output_tokens=3),
    attempts=1,
    repairs=0,
    validation="not_requested",
)


def activity(run_id: str, ident: str, name: str, state: ActivityState) -> ActivityChanged:
    return ActivityChanged(run_id=run_id, number=1, activity_id=ident, name=name, state=state)


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    """A terminal that is there at first and then no more."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.tried = 0

    def write(self, text: str) -> int:
        self.tried += 1
        if self.tried > 3:
            raise self.error
        return super().write(text)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say what terminals are like."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.virtual_time
async def test_terminal_is_drawn_over_and_the_last_picture_stays() -> None:
    """What goes on is drawn while it goes on, and its end stays; the cursor is never hidden."""
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        view.on_event(SENT)
        view.on_event(activity("r", "1", "web_search", "started"))
        view.note("r", name="a.txt")
        await anyio.sleep(1)
        assert "generating" in file.getvalue()
        assert "[~] web_search · running" in file.getvalue()
        view.on_event(FINISHED)
    last = file.getvalue()[file.getvalue().rindex("state") :]
    assert "a.txt" in last
    assert "done" in last
    assert "generating" not in last
    assert "\x1b[?25" not in file.getvalue()


@pytest.mark.virtual_time
async def test_equal_pictures_are_drawn_once() -> None:
    """While nothing changes that can be seen, nothing is written."""
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        view.on_event(FINISHED)
        await anyio.sleep(1)
        before = len(file.getvalue())
        await anyio.sleep(60)
        assert len(file.getvalue()) == before


@pytest.mark.virtual_time
async def test_others_write_above_the_picture() -> None:
    """What is written aside stands above the picture, which is drawn again below."""
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
        with view.aside():
            file.write("RESULT\n")
        view.on_event(FINISHED)
    before, after = file.getvalue().split("RESULT\n")
    assert "queued" in before
    assert "done" in after
    # Nothing after the result goes up beyond the picture's own lines.
    assert after.index("draft") < after.index("\x1b[1A")
    with view.aside():
        pass


@pytest.mark.virtual_time
async def test_resized_terminal_is_wiped_where_the_picture_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that became narrower has wrapped the old picture: the view goes up to where that begins."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name)
    size = os.terminal_size((80, 24))
    monkeypatch.setattr(os, "get_terminal_size", lambda *file: size)
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
        size = os.terminal_size((30, 24))
        before = len(file.getvalue())
        await anyio.sleep(1)
        drawn = file.getvalue()[before:]
    # The heading and the row took two lines each.
    assert drawn.startswith("\x1b[2A\r\x1b[J")
    assert "draft" in drawn


@pytest.mark.virtual_time
@pytest.mark.parametrize("then", ["aside", "end"])
async def test_resize_just_before_a_picture_goes_away_is_heeded(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that is taken away or replaced by the last one is wiped from where it begins by then."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name)
    size = os.terminal_size((80, 24))
    monkeypatch.setattr(os, "get_terminal_size", lambda *file: size)
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
        size = os.terminal_size((30, 24))
        before = len(file.getvalue())
        if then == "aside":
            with view.aside():
                drawn = file.getvalue()[before:]
    if then == "end":
        drawn = file.getvalue()[before:]
    assert drawn.startswith("\x1b[2A\r\x1b[J")


@pytest.mark.virtual_time
async def test_second_view_on_the_same_terminal_shows_nothing() -> None:
    """Two pictures would overwrite each other; when the first view has ended, another may draw."""
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
        async with LiveView(file=file) as second:
            second.on_event(STARTED)
            second.note("r", name="unseen")
            with second.aside():
                await anyio.sleep(1)
        assert "unseen" not in file.getvalue()
    async with LiveView(file=file) as third:
        third.on_event(STARTED)
        third.note("r", name="seen")
        await anyio.sleep(1)
    assert "seen" in file.getvalue()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"every_s": "x"}, TypeError, "every_s is 'x'; give a number of seconds"),
        ({"every_s": True}, TypeError, "every_s is True"),
        ({"every_s": float("inf")}, ValueError, "every_s is inf; give a finite number"),
        ({"every_s": float("nan")}, ValueError, "every_s is nan"),
        ({"expected": -1}, ValueError, "expected is -1; give 0 or more"),
        ({"expected": 1.5}, TypeError, "expected is 1.5; give a whole number"),
        ({"roots": 5}, TypeError, "roots is 5; give a word in the plural"),
        ({"roots": " "}, ValueError, "roots is empty"),
    ],
    ids=str,
)
def test_nonsense_is_told_at_once(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    """Arguments that could only fail later are refused, with what would be right."""
    with pytest.raises(error, match=re.escape(said)):
        LiveView(**arguments)


_FIRST_LINE = re.compile(r"(?<!\x1b\[2K)(?<!\n)\x1b\[1mstub")
"""How a picture begins that is drawn over no other."""


async def pictures_begun(reader: int, number: int) -> None:
    """Read a terminal's other side until so many pictures began where the cursor was."""
    shown = ""
    with anyio.fail_after(20):
        while len(_FIRST_LINE.findall(shown)) < number:
            await anyio.sleep(0.01)
            if select.select([reader], [], [], 0)[0]:
                shown += os.read(reader, 65536).decode(errors="replace")


@pytest.mark.skipif(sys.platform == "win32", reason="knows no such signal")
async def test_stopped_program_draws_below_what_its_shell_wrote() -> None:
    """When a stopped program goes on, it leaves what stands above the cursor as it is."""
    ours, theirs = pty.openpty()
    with io.TextIOWrapper(io.FileIO(theirs, "w"), encoding="utf-8", write_through=True) as file:
        async with LiveView(file=file) as view:
            view.on_event(STARTED)
            await pictures_begun(ours, 1)
            os.kill(os.getpid(), signal.SIGCONT)
            await pictures_begun(ours, 1)
        os.close(ours)
    assert signal.getsignal(signal.SIGCONT) == signal.SIG_DFL


@pytest.mark.virtual_time
@pytest.mark.parametrize("setting", ["TERM=dumb", "file"])
async def test_elsewhere_lines_are_written_at_intervals(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal to draw on, what ended and how all stands is told in plain lines."""
    file = Terminal() if setting == "TERM=dumb" else io.StringIO()
    if setting == "TERM=dumb":
        monkeypatch.setenv("TERM", "dumb")
    async with LiveView(file=file, every_s=10) as view:
        view.on_event(STARTED)
        view.on_event(SENT)
        with view.aside():
            pass
        await anyio.sleep(11)
        assert (
            file.getvalue()
            == "after 10 s: 1 run (1 generating); stub 1 in flight; longest: draft generating for 10 s\n"
        )
        view.on_event(FINISHED)
    assert file.getvalue().splitlines()[1:] == [
        "draft: done, tokens in 5, out 3, 11.0 s",
        "after 11 s: 1 run (1 done); tokens in 5, out 3",
    ]


@pytest.mark.virtual_time
async def test_colours_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR leaves the picture as it is, without its colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    file = Terminal()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        view.on_event(FINISHED)
        await anyio.sleep(1)
    assert "done" in file.getvalue()
    assert "\x1b[32m" not in file.getvalue()


@pytest.mark.field(76)
@pytest.mark.parametrize(
    "error", [BrokenPipeError("gone"), OSError(5, "gone"), ValueError("I/O operation on closed file")], ids=repr
)
@pytest.mark.virtual_time
async def test_terminal_that_goes_away_is_no_error(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    """A terminal that is closed meanwhile changes nothing for what is watched, and stdout is left alone."""
    file = Gone(error)
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
        view.on_event(FINISHED)
        await anyio.sleep(1)
        with view.aside():
            pass
    sys.stdout.write("still there\n")
    assert file.tried > 3
    assert capfd.readouterr().out == "still there\n"


@pytest.mark.virtual_time
async def test_program_without_stderr_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no stderr at all, nothing is written."""
    monkeypatch.setattr(sys, "stderr", None)
    async with LiveView() as view:
        view.on_event(STARTED)
        with view.aside():
            await anyio.sleep(1)


@pytest.mark.virtual_time
async def test_broken_line_file_is_no_error() -> None:
    """Plain lines that cannot be written are passed over."""
    file = io.StringIO()
    async with LiveView(file=file) as view:
        view.on_event(STARTED)
        file.close()
        await anyio.sleep(30)


@pytest.mark.virtual_time
async def test_fault_of_the_drawing_is_logged_and_harmless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes wrong with a picture is in the log, and what is watched goes on."""

    def broken(*arguments: object, **more: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("furcate.report._live_pens.draw", broken)
    async with LiveView(file=Terminal()) as view:
        view.on_event(STARTED)
        await anyio.sleep(1)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "a fault of ours" in str(record.exc_info)


@pytest.mark.virtual_time
async def test_errors_of_the_block_pass_as_they_are() -> None:
    """What the block raises comes out unwrapped, be it one error or a group."""
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as raised:
        async with LiveView(file=Terminal()):
            await anyio.sleep(1)
            raise mine
    assert raised.value is mine
    group = ExceptionGroup("two", [mine, KeyError("x")])
    with pytest.raises(ExceptionGroup) as several:
        async with LiveView(file=Terminal()):
            raise group
    assert several.value is group


@pytest.mark.virtual_time
async def test_cancellation_passes_and_leaves_the_terminal_in_order() -> None:
    """A cancelled block ends at once, with its last picture, and never hides the cursor."""
    file = Terminal()
    with anyio.move_on_after(1) as scope:
        async with LiveView(file=file) as view:
            view.on_event(STARTED)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert "queued" in file.getvalue()
    assert "\x1b[?25" not in file.getvalue()


async def test_view_is_entered_once() -> None:
    """Wrong use is told."""
    view = LiveView(file=io.StringIO())
    with pytest.raises(MisuseError, match="only after it was entered"):
        await view.__aexit__(None, None, None)
    async with view:
        with pytest.raises(MisuseError, match="entered once"):
            await view.__aenter__()
    with pytest.raises(ValueError, match="every_s is 0"):
        LiveView(every_s=0)


@pytest.fixture
def paused_terminal() -> Iterator[io.TextIOWrapper]:
    """Give a terminal whose other side takes nothing any more."""
    ours, theirs = pty.openpty()
    file = io.TextIOWrapper(io.FileIO(theirs, "w"), encoding="utf-8", write_through=True)
    os.set_blocking(theirs, False)
    while select.select([], [theirs], [], 0.05)[1]:
        with suppress(BlockingIOError):
            os.write(theirs, b"x" * 1000)
    os.set_blocking(theirs, True)
    yield file
    # Both sides go at once, so that closing waits for nobody.
    os.close(ours)
    file.close()


async def test_terminal_that_takes_nothing_does_not_stop_the_loop(paused_terminal: io.TextIOWrapper) -> None:
    """While a terminal is paused no picture is written to it, and everything else goes on."""
    assert not _takes_text(paused_terminal)


async def test_engine_is_watched_from_python(capfd: pytest.CaptureFixture[str]) -> None:
    """An engine's runs and branches are seen, with the capacity of its backend, and stdout stays free."""
    file = io.StringIO()

    async def once(turn: furcate.Turn) -> furcate.Action:
        if turn.result is not None:
            return furcate.Stop()
        return furcate.Continue(furcate.Request(messages="more", profile="p"))

    async with StubProvider(answer("hello")) as stub:
        view = LiveView(file=file)
        engine = furcate.Engine(
            backends=[furcate.Backend("stub", base_url=stub.base_url, capacity=2)],
            profiles=[furcate.Profile("p", "stub", "m")],
            observers=[view],
        )
        async with view, engine:
            view.show_capacity(engine.statistics())
            opening = await engine.run(furcate.Request(messages="hi", profile="p", capture=True))
            async with furcate.open_branches(engine, opening.exchange, name="angles") as branches:
                branches.start_soon(once, additional_turns=2, name="left")
                branches.start_soon(once, additional_turns=2, name="right")
    told = file.getvalue().splitlines()
    assert any(line.startswith("angles / left: stopped, turn 1/2, tokens in ") for line in told)
    assert "2 branches (2 stopped)" in told[-1]
    backend = view.model.backends["stub"]
    assert (backend.in_flight, backend.capacity) == (0, 2)
    assert capfd.readouterr().out == ""
