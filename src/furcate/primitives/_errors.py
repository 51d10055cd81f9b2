"""Every error that furcate raises, in one tree.

FurcateError
    ConfigError             the configuration is wrong; nothing was opened
    RequestError            the request is wrong; nobody was called
        UnknownNameError        no prompt, profile or backend of that name
        MissingProfileError     neither the request nor its prompt names a profile
        RenderError             a template or an input file failed
        UnansweredToolCallError a continuation leaves the model's tool call without its result
        ToolTurnError           tool results do not fit the tool calls
        UnsupportedError        the dialect or the profile cannot carry what was asked
        PayloadError            a payload of the call's own provider cannot be decoded
        ForeignReasoningState   an open tool exchange holds reasoning state of another provider
        SchemaError             a contract's schema is no JSON Schema
    ProviderError           an execution ended without a completed answer
    BudgetExceededError     a run was refused before sending, since its budget is used up
    LocalModelError         the embedded model could not be fetched or started
    ReceiptError            a document is no transport receipt
    StorageError            bytes are no stored value that is read here, or a value cannot be stored
    ItemsError              the items of a job cannot be read as a whole, or two have the same id
    JournalError            a job's journal cannot be opened, read or written
    ExecutorError           a cluster cannot work on a job
        WorkerLostError         who worked on an item is gone
        TooLargeError           an item, or what came of it, is larger than may be sent
    NotCaptured             an exchange was asked of a result that did not capture
    NotValid                a value was asked of an answer that did not pass its contract
    BranchCancelled         the outcome of a cancelled branch was asked for
    MisuseError             an object was used against its life cycle
    ActionError             a coordinator's callback returned something that is no action

Cancellation is not here: it is the event loop's own and passes through untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from furcate.primitives._budget import BudgetSpent
    from furcate.primitives._message import Message
    from furcate.primitives._receipt import TransportReceipt
    from furcate.primitives._result import Attempt, Fault
    from furcate.primitives._usage import Usage
    from furcate.primitives._wire import Failure


def _restore(kind: type[FurcateError], args: tuple[object, ...], state: dict[str, object]) -> FurcateError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class FurcateError(Exception):
    """The base of all errors of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        # What an error was made from is not what it holds, so that it cannot be made again by calling its class.
        return _restore, (type(self), self.args, self.__dict__)


class ConfigError(FurcateError):
    """Raised when a configuration is wrong, before anything was opened.

    Attributes:
        where: the file, or "Engine(...)" for a configuration given from Python.
        table: dotted path of the TOML table, such as ``backends.local``; empty for the whole file.
        key: the key inside the table; empty where the table itself is wrong.
        problem: what is wrong.
        remedy: what would be right.
        others: what else is wrong with the same configuration, in its order.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str,
        table: str = "",
        key: str = "",
        remedy: str = "",
        others: tuple[ConfigError, ...] = (),
    ) -> None:
        self.where = where
        self.table = table
        self.key = key
        self.problem = problem
        self.remedy = remedy
        self.others = others
        place = where + (f": [{table}]" if table else "") + (f" {key}" if table and key else f": {key}" if key else "")
        text = f"{place}: {problem}" + (f"; {remedy}" if remedy else "")
        if others:
            how = "see the error's others" if where.startswith("Engine(") else f"run `furcate check {where}`"
            text += f" (and {len(others)} more: {how})"
        super().__init__(text)


class RequestError(FurcateError):
    """Raised when a request is wrong in itself; no lease was taken and nobody was called."""


class UnknownNameError(RequestError):
    """Raised when a request names a prompt, profile or backend that the engine does not have.

    Attributes:
        what: ``prompt``, ``profile``, ``backend`` or ``dialect``.
        name: the name that was asked for.
        known: the names there are, sorted.
    """

    def __init__(self, what: str, name: str, known: tuple[str, ...]) -> None:
        self.what = what
        self.name = name
        self.known = tuple(sorted(known))
        listing = ", ".join(self.known) or "none"
        super().__init__(f"no {what} named {name!r}; there are: {listing}")


class MissingProfileError(RequestError):
    """Raised when neither the request nor its prompt names a profile."""


class RenderError(RequestError):
    """Raised when a prompt's template or one of its input files fails.

    Attributes:
        prompt: the prompt's name, or ``(inline)``.
        place: which template or input failed.
        problem: what is wrong.
    """

    def __init__(self, problem: str, *, prompt: str, place: str) -> None:
        self.prompt = prompt
        self.place = place
        self.problem = problem
        super().__init__(f"prompt {prompt!r}, {place}: {problem}")


class UnansweredToolCallError(RequestError):
    """Raised when a request would leave tool calls of the history without results.

    Attributes:
        call_ids: the ids of the calls without an answer, in their order.
    """

    def __init__(self, call_ids: tuple[str, ...]) -> None:
        self.call_ids = call_ids
        super().__init__(
            f"tool call{'s' if len(call_ids) > 1 else ''} {', '.join(call_ids)} of the conversation "
            "left unanswered; add a ToolResult for each to the request's messages"
        )


class ToolTurnError(RequestError):
    """Raised when tool results of a conversation do not fit its tool calls.

    Attributes:
        call_id: the id in question.
    """

    def __init__(self, call_id: str, problem: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"tool call {call_id} {problem}; answer each call once, in the message right after the one that makes it"
        )


class UnsupportedError(RequestError):
    """Raised when the dialect or the profile cannot carry what a request asks for."""


class PayloadError(RequestError):
    """Raised when a payload of the call's own provider cannot be decoded, so that it cannot go back to it."""


class ForeignReasoningState(RequestError):
    """Raised when an open tool exchange holds reasoning state of another provider.

    Within a tool exchange a provider wants its reasoning back; another's it cannot read, and leaving it out would
    change what the model knows. Answer the tool calls on the backend that made them.

    Attributes:
        provider: the provider that was asked.
        foreign: the providers whose state was found, sorted.
    """

    def __init__(self, provider: str, foreign: tuple[str, ...]) -> None:
        self.provider = provider
        self.foreign = tuple(sorted(set(foreign)))
        super().__init__(
            f"the open tool exchange holds reasoning state of {', '.join(self.foreign)}, which {provider!r} cannot "
            "read; answer its tool calls on a backend of that provider"
        )


class SchemaError(RequestError):
    """Raised when a contract's schema is no JSON Schema, or a class has none."""


class ProviderError(FurcateError):
    """Raised when an execution ended without a completed answer.

    Attributes:
        failure: kind, reason, whether repeating could help, and the server's wait hint.
        run_id: the run that failed.
        attempts: what was tried, in order.
        usage: what the provider reported before it failed; unknown fields are None.
        partial: what had arrived of the answer, or None.
    """

    def __init__(
        self,
        failure: Failure,
        *,
        run_id: str,
        attempts: tuple[Attempt, ...] = (),
        usage: Usage | None = None,
        partial: Message | None = None,
    ) -> None:
        self.failure = failure
        self.run_id = run_id
        self.attempts = attempts
        self.usage = usage
        self.partial = partial
        super().__init__(f"{failure.kind}: {failure.message}")

    @property
    def receipts(self) -> tuple[TransportReceipt, ...]:
        """The receipts of all attempts, in order."""
        return tuple(attempt.receipt for attempt in self.attempts if attempt.receipt is not None)


class BudgetExceededError(FurcateError):
    """Raised when a run may not begin since a budget that it is attached to is used up; nothing was sent.

    Attributes:
        limit: what was reached: ``runs``, ``tokens``, or ``unknown`` where an answer did not report its usage and the
            budget refuses after such a one.
        allowed: how many runs or tokens the budget allows.
        spent: what had been taken from it.
    """

    def __init__(self, limit: Literal["runs", "tokens", "unknown"], allowed: int, spent: BudgetSpent) -> None:
        self.limit = limit
        self.allowed = allowed
        self.spent = spent
        if limit == "runs":
            said = f"the budget of {allowed:,} runs is used up"
        elif limit == "tokens":
            reserved = f" and {spent.reserved_tokens:,} are set aside for running ones" if spent.running else ""
            said = f"the budget of {allowed:,} tokens is used up: {spent.tokens:,} were used{reserved}"
        else:
            said = f"an answer did not report its usage, after which the budget of {allowed:,} tokens refuses"
        super().__init__(f"{said}; nothing was sent")


class LocalModelError(FurcateError):
    """Raised when the embedded model's weights or its server process are not to be had."""


class ReceiptError(FurcateError):
    """Raised when a document is no transport receipt, or a receipt contradicts what was sent.

    Attributes:
        place: the member, as ``$.outcome.Failed.kind``.
        problem: what is wrong with it.
    """

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"receipt: {place} {problem}")


class NotCaptured(FurcateError):
    """Raised when ``result.exchange`` is read although the request did not ask for capture."""


class NotValid(FurcateError):
    """Raised when ``result.value`` is read although the answer did not pass a contract.

    Attributes:
        faults: what the contract found; empty where nothing was checked.
    """

    def __init__(self, message: str, faults: tuple[Fault, ...] = ()) -> None:
        self.faults = faults
        super().__init__(message)


class MisuseError(FurcateError):
    """Raised when an object is used against its life cycle.

    A prepared handle run twice, an engine outside its ``async with``, a nursery that was closed, one
    coordinator driven by two tasks.
    """


class BranchCancelled(FurcateError):
    """Raised when the outcome of a branch is asked for that was cancelled; its cause is what cancelled it.

    Attributes:
        name: the branch's name, if it had one.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        super().__init__(f"branch {name or '(unnamed)'} was cancelled")


class ActionError(FurcateError):
    """Raised when a coordinator's callback returns something other than ``Continue`` or ``Stop``.

    Attributes:
        returned: what the callback returned.
    """

    def __init__(self, returned: object) -> None:
        self.returned = returned
        super().__init__(
            f"the callback returned {type(returned).__name__}; return furcate.Continue(request) or furcate.Stop()"
        )


StorageProblem: TypeAlias = Literal["foreign", "newer", "damaged", "misshapen", "kind", "base", "value"]


class StorageError(FurcateError):
    """Raised when bytes are no stored value that can be read here, or a value cannot be stored.

    Attributes:
        reason: why, in one word: ``foreign`` (never written by furcate), ``newer`` (written by a later release in a
            form that this one does not know), ``damaged`` (not the bytes that were written), ``misshapen`` (they hold
            what their form does not have), ``kind`` (another kind of value than was asked for), ``base`` (the
            conversation that they continue is needed, or another one than was given), ``value`` (the value has no
            form).
        version: the version of the form that the bytes say they have, where that is known.
        base: digest of the conversation that the bytes continue, in hex, where that is what is missing.
    """

    def __init__(
        self, problem: str, reason: StorageProblem, *, version: int | None = None, base: str | None = None
    ) -> None:
        self.reason: StorageProblem = reason
        self.version = version
        self.base = base
        super().__init__(problem)


class ItemsError(FurcateError):
    """Raised when the items of a job cannot be read as a whole; a single bad item is a `BadItem` instead.

    Attributes:
        where: the file, or ``standard input``.
        problem: what is wrong, and what would be right.
        lines: the lines that it is about, from 1 on; empty where it is about the whole.
    """

    def __init__(self, problem: str, *, where: str, lines: tuple[int, ...] = ()) -> None:
        self.where = where
        self.problem = problem
        self.lines = lines
        super().__init__(f"{where}: {problem}")


JournalProblem: TypeAlias = Literal[
    "missing", "folder", "foreign", "newer", "damaged", "busy", "read-only", "full", "changed", "unknown", "io"
]


class JournalError(FurcateError):
    """Raised when a job's journal cannot be opened, read or written; what was kept before is still there.

    Attributes:
        path: the journal.
        reason: why, in one word: ``missing`` (there is none), ``folder`` (a folder is there), ``foreign`` (the file was
            not written by furcate), ``newer`` (written by a later release in a form that this one does not know),
            ``damaged``, ``busy`` (another process runs its job), ``read-only`` (this user may not write there),
            ``full`` (the disk has no room), ``changed`` (finished items are not what they were), ``unknown`` (an item
            is not in the journal), ``io`` (the system could not read or write it).
        problem: what is wrong, and what would be right.
        pid: the process that holds the journal, where it is busy and that is known.
    """

    def __init__(self, problem: str, reason: JournalProblem, *, path: str, pid: int | None = None) -> None:
        self.path = path
        self.reason: JournalProblem = reason
        self.problem = problem
        self.pid = pid
        super().__init__(f"{path}: {problem}")


class ExecutorError(FurcateError):
    """Raised when a cluster cannot work on a job: it is not there, or a worker differs from who sends it items."""


class WorkerLostError(ExecutorError):
    """Raised when whoever worked on an item is gone, or no longer answers; another one may try."""


class TooLargeError(ExecutorError):
    """Raised when an item, or what came of it, is larger than may be sent; it is not tried again.

    Attributes:
        size: how large it is, in bytes.
        limit: what may be sent, in bytes.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} is {size:,} bytes large, and {limit:,} may be sent; keep long content in a file or a store that "
            "workers can read, or raise the limit"
        )
        self.size = size
        self.limit = limit
