"""Words for people: sentences on stderr that no content can break, and the exit status that goes with an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from furcate.primitives._errors import (
    ConfigError,
    FurcateError,
    ItemsError,
    JournalError,
    LocalModelError,
    RequestError,
)
from furcate.primitives._message import Message
from furcate.primitives._printable import printable
from furcate.primitives._result import Result
from furcate.primitives._usage import USAGE_FIELDS, Usage
from furcate.report import clean_line, tool_counts

WELL = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


def one_line(text: str) -> str:
    """Make one printable line of a text, whoever wrote it."""
    return printable(" ".join(text.split()))


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


def changes_told() -> Callable[[str], None]:
    """Give what says lines, but none that equals the one before it."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            say(text)

    return tell


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
    return USAGE if all(_is_wrong_use(leaf) for leaf in leaves(error)) else FAILED


def _is_wrong_use(error: BaseException) -> bool:
    if isinstance(error, JournalError):
        # These come before anything was done; a disk that is full, or a file that is damaged, comes in the middle.
        return error.reason not in ("full", "io", "damaged", "unknown")
    return isinstance(error, (ConfigError, RequestError, LocalModelError, ItemsError))


def usage_line(usage: Usage) -> str:
    """Describe token counts in one line; what the provider did not report is called unknown."""
    shown = []
    for name in USAGE_FIELDS:
        value = getattr(usage, name)
        count = "unknown" if value is None else f"{'at least ' if name in usage.lower_bounds else ''}{value:,}"
        shown.append(f"{name.removesuffix('_tokens').replace('_', ' ')} {count}")
    return f"tokens: {', '.join(shown)}"


def tools_line(message: Message) -> str:
    """Describe in one line which tools an answer used and how often, those that its provider ran included.

    Empty where it used none.
    """
    counts = tool_counts((message,))
    shown = ", ".join(f"{clean_line(name)} {count:,}" for name, count in counts.items())
    return f"tools: {shown}" if shown else ""


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
            said = result.message.refusal or result.stop_detail
            return f"the model refused: {clean_line(said)}" if said else "the model refused to answer"
        case "tool_use":
            names = ", ".join(clean_line(call.name) for call in result.message.tool_calls)
            return f"the model asks for a tool to be called: {names}"
        case _:
            return None
