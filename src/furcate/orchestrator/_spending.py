"""What a run uses, in tokens: estimated before anything is sent, counted by what was reported afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from furcate.orchestrator._policy import turned_away
from furcate.primitives._budget import Reservation, Spending
from furcate.primitives._result import Attempt
from furcate.primitives._usage import Usage
from furcate.primitives._wire import ModelCall, WireRequest

_BYTES_A_TOKEN = 4
_OUTPUT_TOKENS = 1000
"""How many tokens of output are expected where the request sets no limit."""


def estimated_tokens(wire: WireRequest, call: ModelCall) -> int:
    """Estimate what a request will use: a token for four bytes, and all the output that it allows."""
    size = sum(map(len, wire.body))
    return size // _BYTES_A_TOKEN + (call.settings.max_output_tokens or _OUTPUT_TOKENS)


@frozen
class Counted:
    """Hold what is known of the tokens that an attempt used.

    Attributes:
        tokens: the sum of what was reported, of input and output, cached or not.
        sure: whether that is all of it.
    """

    tokens: int
    sure: bool


def count(record: Attempt, *, brought: bool) -> Counted:
    """Count an attempt's tokens. One that never reached the server, or that it turned away, used none.

    Arguments:
        record: the attempt.
        brought: whether it brought output.
    """
    if turned_away(record):
        return Counted(0, True)
    usage = record.usage
    tokens = (
        (usage.input_tokens or 0)
        + (usage.cache_read_tokens or 0)
        + (usage.cache_write_tokens or 0)
        + (usage.output_tokens or 0)
    )
    known = usage.input_tokens is not None and usage.output_tokens is not None and not usage.lower_bounds
    return Counted(tokens, known and not zero_with_output(usage, brought=brought))


def zero_with_output(usage: Usage, *, brought: bool) -> bool:
    """Tell whether a server counts nothing: it reports no token although there was output."""
    return brought and usage.output_tokens == 0 and not usage.input_tokens


class Expense:
    """Hold what one run takes from its budgets, each of which counts it once."""

    def __init__(self) -> None:
        self._reservations: list[Reservation] = []
        self._counted: list[Counted] = []
        self._sent = False

    def reserve(self, budgets: Iterable[Spending], tokens: int) -> None:
        """Set aside what the run will probably use.

        Arguments:
            budgets: what the run is attached to; one that occurs twice is asked once.
            tokens: the estimate.

        Raises:
            BudgetExceededError: one of them is used up. What others had set aside goes back with `settle`.
        """
        for budget in {id(one): one for one in budgets}.values():
            self._reservations.append(budget.reserve(tokens))

    def add(self, counted: Counted) -> None:
        """Note what an attempt used."""
        self._sent = True
        self._counted.append(counted)

    def settle(self) -> None:
        """Tell the budgets what the run used."""
        if not self._reservations:
            return
        tokens = sum(one.tokens for one in self._counted if one.sure)
        unsure = tuple(one.tokens for one in self._counted if not one.sure)
        for reservation in self._reservations:
            reservation.settle(sent=self._sent, tokens=tokens, unsure=unsure)
