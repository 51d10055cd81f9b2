"""A captured conversation: what one continues and forks."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from furcate.primitives._describe import portable
from furcate.primitives._history import History
from furcate.primitives._json import FrozenMap, Json, Plain
from furcate.primitives._message import Message


def _check_ending(_instance: object, _attribute: object, value: History) -> None:
    if value.last is None or value.last.role != "assistant":
        raise ValueError("an exchange ends in an assistant message")


def _as_carrier(value: Mapping[str, Json]) -> FrozenMap:
    # What cannot change is shared: few conversations carry anything, and very many may be held.
    return value if type(value) is FrozenMap else FrozenMap(value)


_NOTHING = FrozenMap()


@frozen
class Exchange:
    """Hold a logical conversation that ends in the assistant's message, as it was executed.

    It holds no lease, credential or callback, needs no closing, and nothing can change it; a copy is the same object.

    Attributes:
        history: the messages.
        run_id: the run that it was captured from.
        parent_run_id: the run whose exchange that run continued.
        carrier: what observers gave to carry a trace along (W3C trace context).
    """

    history: History = field(validator=_check_ending)
    run_id: str
    parent_run_id: str | None = None
    carrier: FrozenMap = field(default=_NOTHING, converter=_as_carrier, repr=False)

    def __copy__(self) -> Exchange:
        return self

    def __deepcopy__(self, memo: object) -> Exchange:
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, the assistant's final one last."""
        return tuple(self.history)

    @property
    def digest(self) -> str:
        """SHA-256 of the conversation in hex, chained along the history: equal content, equal digest."""
        return self.history.digest.hex()

    def details(self) -> dict[str, Plain]:
        """Give messages, run id and parent as fresh plain data that any encoder takes.

        Opaque provider state is left out. Nothing is rendered, read or called.
        """
        messages: list[Plain] = [portable(message) for message in self.history]
        return {
            "run_id": self.run_id,
            "parent_run_id": self.parent_run_id,
            "digest": self.digest,
            "messages": messages,
        }
