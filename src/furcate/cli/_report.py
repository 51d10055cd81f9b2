"""``furcate report``: a page that shows a recording."""

from __future__ import annotations

import os
import stat
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

    The page needs no network. It shows what was said where the recording holds it, and is for its owner alone then;
    nobody may read it who may not read the recording.
    """
    if out != "-":
        check_target("-o", Path(out), {} if file == "-" else {Path(file): "the recording"})
    elif stdout_is_closed():
        raise RequestError("stdout is closed, so that the page would be lost; give -o FILE")
    recording = opened(file, receipts=True)
    mode = _mode(file)
    try:
        made = page(recording, "stdin" if file == "-" else Path(file).name)
    except OSError as error:
        raise unreadable(file, error) from error
    status = told_faults(file, recording)
    if out == "-":
        sys.stdout.buffer.write(made.encode())
        return status
    try:
        _replace(Path(out), made.encode(), mode & _OWNER if recording.contents else mode)
    except OSError as error:
        raise RequestError(f"-o {out} cannot be written: {error.strerror or error}; name another file") from error
    told = f"{recording.told:,} {'observation' if recording.told == 1 else 'observations'}"
    say(f"{out}: {told}; open it in a browser")
    return status


_OWNER = stat.S_IRUSR | stat.S_IWUSR
_ALL = _OWNER | stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def _mode(file: str) -> int:
    """Give who may read and write a page of a recording: nobody but its owner who may not do so with the recording."""
    try:
        found = os.fstat(sys.stdin.fileno()) if file == "-" else os.stat(file)
    except (OSError, ValueError):
        return _ALL
    return (found.st_mode & _ALL) | _OWNER if stat.S_ISREG(found.st_mode) else _ALL


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole: whoever opens it meanwhile finds the one before it.

    Arguments:
        path: the file.
        content: what it is to hold.
        mode: who may read and write it, as far as the process's mask allows.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # One of that name is of a process that died, and may have another mode.
        beside.unlink(missing_ok=True)
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
