"""An answer watched while it arrives: its text, the rows of provider-run work, its sources."""

from __future__ import annotations

from typing import Protocol, assert_never

from furcate.cli._output import Output, Screen
from furcate.cli._told import say
from furcate.orchestrator._streaming import Stream
from furcate.primitives._content import Attribution
from furcate.primitives._stream import (
    AttemptRestarted,
    Citation,
    HostedTransition,
    MediaArrived,
    Noticed,
    PartEnded,
    PartPayload,
    Paused,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.report import Activities, Cleaner, Row, RowKey, row_role, row_text, sources_text


class Rows(Protocol):
    """Show rows."""

    def show(self, row: Row) -> None:
        """Show a row that is new or has changed."""

    def settle(self) -> None:
        """Show what could not be shown yet: the answer is over."""


class PlainRows:
    """Write a line to stderr for each change of a row."""

    def show(self, row: Row) -> None:
        """Write the row."""
        say(row_text(row))

    def settle(self) -> None:
        """Do nothing: every line is written at once."""


class RowsInPlace:
    """Keep rows up to date between the text of a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._late: dict[RowKey, Row] = {}

    def show(self, row: Row) -> None:
        """Draw the row where it stands; one that cannot be reached there is written once the answer is over."""
        text, role = row_text(row, self._screen.width), row_role(row)
        if row.revision == 0 or not self._screen.moves:
            self._screen.draw(row.key, text, role)
        elif not self._screen.redraw(row.key, text, role):
            self._late[row.key] = row

    def settle(self) -> None:
        """Write the rows that could not be reached."""
        for row in self._late.values():
            self._screen.draw(row.key, row_text(row, self._screen.width), row_role(row))
        self._late.clear()


class Watching:
    """Show an answer while it arrives.

    Arguments:
        screen: where its text and its rows go; None where only the rows are told, on stderr.

    Attributes:
        activities: the rows, which are told as they change.
    """

    def __init__(self, screen: Screen | None) -> None:
        self.activities = Activities()
        self._screen = screen
        self._rows: Rows = RowsInPlace(screen) if screen is not None else PlainRows()
        self._cleaners: dict[int, Cleaner] = {}
        self._cited: list[Attribution] = []
        self._answer = 1

    async def follow(self, stream: Stream) -> None:
        """Take an answer's events to their end."""
        async for event in stream:
            self.take(event)

    def take(self, event: StreamEvent) -> None:
        """Take one event."""
        match event:
            case TextDelta():
                if self._screen is not None:
                    self._screen.put(self._cleaned(event, self._screen))
            case HostedTransition():
                self._changed(self.activities.after(event.activity))
            case Citation():
                self._cited.append(event.attribution)
            case AttemptRestarted():
                self._restart(event)
            case ResponseStarted() | Stopped() | Paused() | StreamFailed() | UsageReported() | Noticed():
                pass  # what there is to say of these is said once the result or the error is there
            case RefusalDelta() | ToolCallDelta() | PartEnded() | PartPayload():
                pass  # refusals and calls are told whole at the end
            case ReasoningDelta() | ReasoningSealed() | MediaArrived():
                pass  # neither thought nor files are shown
            case _:
                assert_never(event)

    def end(self) -> None:
        """Take the end of the answer, whole or not: what still ran has failed, and cited text gets its sources."""
        self._changed(self.activities.step_ended())
        if self._screen is not None:
            self._screen.end_line()
            self._rows.settle()
            list_under(self._screen, self._cited)
        self._cited.clear()
        self._cleaners.clear()

    def _restart(self, event: AttemptRestarted) -> None:
        if event.purpose == "resume":
            # The answer goes on; only the numbers of its parts begin anew.
            self._cleaners.clear()
            return
        self.end()
        if event.purpose == "repair":
            self._answer += 1
            say(f"answer {self._answer}, a repair:")

    def _changed(self, view: Activities) -> None:
        before = {row.key: row for row in self.activities.rows}
        self.activities = view
        for row in view.rows:
            if row is not before.get(row.key):
                self._rows.show(row)

    def _cleaned(self, delta: TextDelta, screen: Screen) -> str:
        # Each part has a cleaner of its own: what one leaves open must not swallow the next.
        cleaner = self._cleaners.setdefault(delta.index, Cleaner(colours=screen.colours))
        return cleaner.feed(delta.text)


def list_under(output: Output, cited: list[Attribution] | tuple[Attribution, ...]) -> None:
    """Write the sources of an answer under it; nothing where it cites none."""
    listed = sources_text(cited)
    if listed:
        output.put(f"\n{listed}")
