"""Words for people: sentences on stderr that no content can break, and the exit status that goes with an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from furcate.primitives._errors import (
    ConfigError,
    FurcateError,
    LocalModelError,
    RequestError,
)
from furcate.primitives._result import Result
from furcate.primitives._usage import USAGE_FIELDS, Usage

WELL = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130

# Everything that can move a cursor, ring, or begin an escape sequence; line feed and tab stay.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def one_line(text: str) -> str:
    """Make one printable line of a text, whoever wrote it."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def for_terminal(text: str) -> str:
    """Give an answer's text without control characters, so that it can do nothing to a terminal but be read."""
    return _CONTROLS.sub("", text)


def say(text: str) -> None:
    """Write a line to stderr; nobody reading it changes nothing.

    Arguments:
        text: the line, without its end; may hold line breaks of our own.
    """
    file = sys.stderr
    if file is None:
        return
    encoding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        file.flush()
    except (OSError, ValueError, LookupError):
        return


def complain(text: str) -> None:
    """Write one sentence about what went wrong to stderr."""
    say(f"furcate: {one_line(text)}")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give the errors that an exception group holds, at whatever depth; an error by itself gives itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def sentence(error: BaseException) -> str:
    """Say in one sentence what an error is; several in a group are joined."""
    return "; ".join(dict.fromkeys(_sentence(leaf) for leaf in leaves(error)))


def _sentence(error: BaseException) -> str:
    if isinstance(error, FurcateError):
        return one_line(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return one_line(f"{error.filename}: {error.strerror or error}")
    return one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def exit_status(error: BaseException) -> int:
    """Give the exit status of an error that ended a command."""
    wrong_use = (ConfigError, RequestError, LocalModelError)
    return USAGE if all(isinstance(leaf, wrong_use) for leaf in leaves(error)) else FAILED


def usage_line(usage: Usage) -> str:
    """Describe token counts in one line; what the provider did not report is called unknown."""
    shown = []
    for name in USAGE_FIELDS:
        value = getattr(usage, name)
        count = "unknown" if value is None else f"{'at least ' if name in usage.lower_bounds else ''}{value:,}"
        shown.append(f"{name.removesuffix('_tokens').replace('_', ' ')} {count}")
    return f"tokens: {', '.join(shown)}"


def unmet(result: Result) -> bool:
    """Tell whether an answer was to meet a contract and does not: it failed, or was cut off or refused."""
    status = result.validation.status
    return status == "failed" or (status == "skipped" and result.stop_reason != "tool_use")


def ending(result: Result) -> str | None:
    """Say what is notable in how an answer ended; None where it ended as answers should."""
    match result.stop_reason:
        case "max_output_tokens":
            return "the answer was cut off at the limit of output tokens; raise it with --max-output-tokens"
        case "context_window":
            return "the answer was cut off where the model's context ended; shorten the conversation"
        case "refusal":
            said = result.message.refusal
            return f"the model refused: {said}" if said else "the model refused to answer"
        case "tool_use":
            names = ", ".join(call.name for call in result.message.tool_calls)
            return f"the model asks for a tool to be called: {names}"
        case _:
            return None
