"""What a completed run gives back."""

from __future__ import annotations

from typing import TypeVar

from attrs import field, frozen

from furcate.primitives._errors import NotCaptured, NotValid
from furcate.primitives._exchange import Exchange
from furcate.primitives._json import FrozenMap, thaw
from furcate.primitives._message import Message
from furcate.primitives._observations import Purpose, RunStatus, ValidationStatus
from furcate.primitives._receipt import TransportReceipt
from furcate.primitives._usage import UNKNOWN, Usage
from furcate.primitives._wire import Failure, StopReason

_Wanted = TypeVar("_Wanted")


@frozen
class Fault:
    """Name one thing in which an answer fails its contract.

    Attributes:
        path: where in the answer, as ``$.items[2].title``; ``$`` is the whole.
        message: what is wrong and what would be right.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@frozen(kw_only=True)
class Validation:
    """Say how an answer fared against its contract.

    Attributes:
        status: ``passed``, ``failed``, ``not_requested`` (no contract), or ``skipped`` (the answer was cut off or
            refused, or asks for tools: there is nothing to check).
        faults: what the final answer fails in.
        rounds: the faults of each answer that was checked, in order, the final one's last.
        value: the checked value, frozen, or an instance of the contract's class; None unless passed.
    """

    status: ValidationStatus = "not_requested"
    faults: tuple[Fault, ...] = ()
    rounds: tuple[tuple[Fault, ...], ...] = ()
    value: object = field(default=None, repr=False)


@frozen(kw_only=True)
class Attempt:
    """Record one call to the provider inside a run.

    Attributes:
        number: 1 for the run's first.
        request_id: identity of the attempt: run id and number.
        waited_s: how long it waited for admission, in seconds.
        duration_s: from sending to its end, in seconds.
        first_event_s: from sending to the first content event, in seconds.
        body_sha256: digest of the exact HTTP body, in hex.
        response_id: the provider's id of its response.
        model: the model that the provider says answered.
        failure: why it gave no completed answer, where it did not.
        receipt: what can be said of it afterwards.
        payloads_dropped: how many foreign payloads of earlier turns were left out, beside the foreign reasoning that
            the receipt counts.
        replayed: whether it was answered from what was kept of an earlier call, and nobody was asked.
    """

    number: int
    purpose: Purpose
    request_id: str
    status: RunStatus
    waited_s: float
    duration_s: float
    first_event_s: float | None
    body_sha256: str
    usage: Usage = UNKNOWN
    stop_reason: StopReason | None = None
    response_id: str | None = None
    model: str | None = None
    failure: Failure | None = None
    receipt: TransportReceipt | None = field(default=None, repr=False)
    payloads_dropped: int = 0
    replayed: bool = False


@frozen(kw_only=True)
class Result:
    """Hold a completed answer.

    Attributes:
        run_id: the run.
        message: the assistant's final message.
        stop_reason: why the model stopped.
        validation: how the answer fared against the contract.
        usage: the sum over all attempts.
        attempts: every call that was made, in order.
        stop_detail: what the provider says of that stop, in its own words: the text it stopped at, why it declined.
    """

    run_id: str
    message: Message = field(repr=False)
    stop_reason: StopReason
    validation: Validation
    usage: Usage
    attempts: tuple[Attempt, ...]
    _exchange: Exchange | None = field(default=None, alias="exchange")
    stop_detail: str | None = None

    @property
    def text(self) -> str:
        """The answer's text."""
        return self.message.text

    @property
    def receipts(self) -> tuple[TransportReceipt, ...]:
        """The receipts of all attempts, in order."""
        return tuple(attempt.receipt for attempt in self.attempts if attempt.receipt is not None)

    @property
    def captured(self) -> bool:
        """Whether there is an exchange."""
        return self._exchange is not None

    @property
    def exchange(self) -> Exchange:
        """The captured conversation.

        Raises:
            NotCaptured: the request did not ask for capture.
        """
        if self._exchange is None:
            raise NotCaptured("this result was not captured; ask for it with Request(..., capture=True)")
        return self._exchange

    @property
    def value(self) -> object:
        """The answer's value under its contract: fresh plain data, or an instance of the contract's class.

        Raises:
            NotValid: the answer did not pass a contract; look at ``validation.status`` first.
        """
        validation = self.validation
        if validation.status != "passed":
            listed = "; ".join(map(str, validation.faults[:3]))
            raise NotValid(
                f"there is no checked value: validation is {validation.status}, stop reason {self.stop_reason}"
                + (f"; {listed}" if listed else ""),
                validation.faults,
            )
        value = validation.value
        return thaw(value) if isinstance(value, (FrozenMap, tuple)) else value

    def value_as(self, wanted: type[_Wanted]) -> _Wanted:
        """Give the value, known to be an instance of `wanted`: the class that the contract was made of.

        Raises:
            NotValid: the answer did not pass a contract.
            TypeError: the contract made something else of it.
        """
        value = self.value
        if not isinstance(value, wanted):
            raise TypeError(f"the value is of type {type(value).__name__}, not a {wanted.__name__}; see Contract.of")
        return value
