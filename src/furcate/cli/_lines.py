"""Results as JSON lines: one branch, one line, written whole as soon as the branch has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO, Required, TypedDict, Unpack

import anyio
import anyio.to_thread

from furcate.primitives._json import Plain
from furcate.primitives._result import Result, Validation
from furcate.primitives._usage import USAGE_FIELDS, Usage

# JSON lets these stand as they are, but they end lines for many readers, drive terminals, turn the reading direction,
# or have no UTF-8 form.
_RISKY = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def json_line(value: Plain) -> bytes:
    """Encode a value as one line of UTF-8, with its end, that no reader takes for two."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _RISKY.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


def usage_fields(usage: Usage) -> dict[str, Plain]:
    """Give counts by field; null is unknown."""
    return {name: getattr(usage, name) for name in USAGE_FIELDS}


def validation_fields(validation: Validation) -> dict[str, Plain]:
    """Give a validation's status and what the final answer fails in."""
    faults: list[Plain] = [{"path": fault.path, "message": fault.message} for fault in validation.faults]
    return {"status": validation.status, "faults": faults}


class Facts(TypedDict, total=False):
    """What is known of how a branch ended.

    Keys:
        status: ``succeeded``, ``failed`` or ``cancelled``.
        outcome: ``stopped`` or ``exhausted`` where it ended normally.
        error: type and message of what ended it otherwise.
        turns: how many turns it completed.
        result: the newest result of its conversation, the opening's where it has none of its own.
    """

    status: Required[str]
    outcome: str | None
    error: tuple[str, str] | None
    turns: int
    result: Result | None


def branch_line(
    source: str | None, branch: str, *, usage: Usage | None = None, **facts: Unpack[Facts]
) -> dict[str, Plain]:
    """Describe how a branch ended.

    Arguments:
        source: the input's name; None where there is none.
        branch: the branch's name.
        usage: the sum over its own runs; None where it started none.
        facts: see `Facts`.
    """
    error, result = facts.get("error"), facts.get("result")
    counted = usage if usage is not None else Usage()
    told = result.exchange.details() if result is not None else {}
    bounds: list[Plain] = [*sorted(counted.lower_bounds)]
    return {
        "input": source,
        "branch": branch,
        "outcome": facts.get("outcome"),
        "error": {"type": error[0], "message": error[1]} if error is not None else None,
        "status": facts["status"],
        "turns": facts.get("turns", 0),
        "run_id": told.get("run_id"),
        "parent_run_id": told.get("parent_run_id"),
        "digest": told.get("digest"),
        "text": result.text if result is not None else None,
        "validation": validation_fields(result.validation) if result is not None else None,
        "stop_reason": result.stop_reason if result is not None else None,
        "usage": usage_fields(counted),
        "usage_at_least": bounds,
        "messages": told.get("messages", []),
    }


class LineWriter:
    """Write lines to a file or to stdout, each whole and flushed, one after the other.

    Arguments:
        file: where to.
        aside: gives the block in which to write, for where a display shares the terminal.
    """

    def __init__(self, file: BinaryIO, aside: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._file = file
        self._aside = aside
        self._lock = anyio.Lock()

    async def write(self, value: Plain) -> None:
        """Write a value's line; cancellation waits until it is written.

        Raises:
            OSError: it cannot be written.
        """
        line = json_line(value)
        with anyio.CancelScope(shield=True):
            async with self._lock:
                # A reader that pauses must not stop the event loop, and with it everybody's time limits.
                with self._aside():
                    await anyio.to_thread.run_sync(self._put, line)

    def _put(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
