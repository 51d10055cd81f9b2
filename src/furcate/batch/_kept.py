"""What a journal keeps of an item's runs: the tokens, and what was observed."""

from __future__ import annotations

from datetime import UTC, datetime

from furcate.observers._lines import line_of
from furcate.primitives._observations import AttemptFinished, Observation, RunFinished, RunStarted
from furcate.primitives._usage import Usage

NO_TOKENS = Usage(input_tokens=0, cache_read_tokens=0, cache_write_tokens=0, output_tokens=0, reasoning_tokens=0)
"""The tokens of what asked nothing: none, rather than unknown ones."""


class Keeper:
    """Collect what the journal keeps of one item; an observer of all its runs.

    Arguments:
        observations: whether more than the tokens is kept.
    """

    def __init__(self, observations: bool) -> None:
        self._observations = observations
        self._usages: list[Usage] = []
        self.lines: list[bytes] = []

    @property
    def usage(self) -> Usage:
        """The tokens of all runs so far; none, rather than unknown ones, where there was no run."""
        return Usage.total(self._usages) if self._usages else NO_TOKENS

    def on_event(self, event: Observation, /) -> None:
        """Take one observation; starts and ends of runs and the ends of attempts, with their receipts, are kept."""
        if isinstance(event, RunFinished):
            self._usages.append(event.usage)
        if self._observations and isinstance(event, (RunStarted, AttemptFinished, RunFinished)):
            self.lines.append(line_of(event, datetime.now(UTC).timestamp()).rstrip(b"\n"))
