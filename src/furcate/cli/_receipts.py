"""``furcate receipts``: what a file of receipts is worth."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import click

from furcate.cli._told import FAILED, WELL, one_line, say
from furcate.primitives._errors import ReceiptError, RequestError
from furcate.primitives._json import Plain
from furcate.primitives._receipt import TransportReceipt


@click.group()
def receipts() -> None:
    """Look at what --receipts has written."""


@receipts.command()
@click.argument("file")
def verify(file: str) -> int:
    """Check that each line of FILE is a receipt; - reads stdin.

    What is wrong with a line is told on stderr with its number. Exit status 1 where some line is no receipt.
    """
    name = "stdin" if file == "-" else file
    try:
        with _opened(file) as source:
            lines, faults = _checked(source, name)
    except OSError as error:
        raise RequestError(
            f"{name} cannot be read: {error.strerror or error}; name a file of JSON lines that is there"
        ) from error
    if faults:
        say(one_line(f"{name}: {faults} of {lines} lines {'is no receipt' if faults == 1 else 'are no receipts'}"))
        return FAILED
    click.echo(f"{lines} {'receipt' if lines == 1 else 'receipts'}, all valid")
    return WELL


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    return contextlib.nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")


def _checked(source: Iterable[bytes], name: str) -> tuple[int, int]:
    """Tell what is wrong with each line, and count the lines and the wrong ones."""
    lines = faults = 0
    for lines, line in enumerate(source, start=1):
        try:
            TransportReceipt.from_dict(_parsed(line))
        except ReceiptError as error:
            faults += 1
            say(one_line(f"{name}:{lines}: {error}"))
    return lines, faults


def _parsed(line: bytes) -> Plain:
    """Parse one line.

    Raises:
        ReceiptError: it is no JSON, or names a member twice, which readers would take in different ways.
    """
    try:
        parsed: Plain = json.loads(line.decode(), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise ReceiptError("$", f"is no UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ReceiptError("$", f"is no JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise ReceiptError("$", f"cannot be read as JSON: {error}") from error
    return parsed


def _once(pairs: list[tuple[str, Plain]]) -> dict[str, Plain]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ReceiptError(f"$..{twice}", "is there twice")
    return members
