"""``furcate trace``: what a recording comes to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from furcate.cli._told import FAILED, WELL, complain, one_line, say
from furcate.primitives._errors import RequestError
from furcate.report import Recording, TraceTotals, read_recording, trace_data, trace_text


@click.group()
def trace() -> None:
    """Look at what --record has written."""


@trace.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of columns.")
def summarize(file: str, *, as_json: bool) -> int:
    """Sum up the recording in FILE; - reads stdin.

    Lines that are broken are told on stderr with their numbers and passed over; exit status 1 where there are some.
    """
    totals = TraceTotals()
    recording = opened(file, receipts=False)
    try:
        for recorded in recording:
            totals.add(recorded)
    except OSError as error:
        raise unreadable(file, error) from error
    totals.conclude()
    status = told_faults(file, recording)
    data = trace_data(totals, recording)
    click.echo(json.dumps(data, allow_nan=False) if as_json else trace_text(totals, recording))
    return status


def opened(file: str, *, receipts: bool) -> Recording:
    """Open a recording by its name on the command line.

    Raises:
        RequestError: there is no such file, or it cannot be read.
    """
    if file == "-":
        return Recording(sys.stdin.buffer, receipts=receipts)
    try:
        return read_recording(Path(file), receipts=receipts)
    except OSError as error:
        raise unreadable(file, error) from error


def unreadable(file: str, error: OSError) -> RequestError:
    """Make the error that a recording cannot be read."""
    return RequestError(f"{file} cannot be read: {error.strerror or error}; name a file that --record has written")


def told_faults(file: str, recording: Recording) -> int:
    """Tell what could not be read, once all lines have gone by, and give the exit status that this means.

    Raises:
        RequestError: the file holds lines, and none of them is of a recording.
    """
    name = "stdin" if file == "-" else file
    if recording.lines and not recording.told and not recording.skipped:
        first = f" (line {recording.faults[0].line} {recording.faults[0].problem})" if recording.faults else ""
        raise RequestError(f"{name} is no recording{first}; name a file that --record has written")
    for fault in recording.faults:
        say(one_line(f"{name}:{fault.line}: {fault.problem}"))
    if recording.broken > len(recording.faults):
        complain(f"{name} has {recording.broken - len(recording.faults):,} more broken lines")
    return FAILED if recording.broken else WELL
