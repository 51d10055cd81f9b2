"""``furcate report``: a page that shows a recording."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from furcate.cli._files import check_target
from furcate.cli._output import stdout_is_closed
from furcate.cli._told import say
from furcate.cli._trace import opened, told_faults, unreadable
from furcate.primitives._errors import RequestError
from furcate.report import page


@click.command()
@click.argument("file")
@click.option("-o", "--out", default="report.html", show_default=True, metavar="FILE", help="Where the page goes.")
def report(file: str, out: str) -> int:
    """Make one HTML page of the recording in FILE; - reads stdin, and -o - writes to stdout.

    The page needs no network. It shows what was said where the recording holds it.
    """
    if out != "-":
        check_target("-o", Path(out), {} if file == "-" else {Path(file): "the recording"})
    elif stdout_is_closed():
        raise RequestError("stdout is closed, so that the page would be lost; give -o FILE")
    recording = opened(file, receipts=True)
    try:
        made = page(recording, "stdin" if file == "-" else Path(file).name)
    except OSError as error:
        raise unreadable(file, error) from error
    status = told_faults(file, recording)
    if out == "-":
        sys.stdout.buffer.write(made.encode())
        return status
    try:
        _replace(Path(out), made.encode())
    except OSError as error:
        raise RequestError(f"-o {out} cannot be written: {error.strerror or error}; name another file") from error
    told = f"{recording.told:,} {'observation' if recording.told == 1 else 'observations'}"
    say(f"{out}: {told}; open it in a browser")
    return status


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole: whoever opens it meanwhile finds the one before it."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
