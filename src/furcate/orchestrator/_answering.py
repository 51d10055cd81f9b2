"""An answer that its provider may give in several attempts, setting it aside in between."""

from __future__ import annotations

import attrs

from furcate.primitives._content import Part
from furcate.primitives._message import Message
from furcate.primitives._wire import ModelCall


class Answer:
    """Keep what was said before a provider's pauses, and put it in front of what is said after them."""

    __slots__ = ("_asked", "_said")

    def __init__(self) -> None:
        self._said: tuple[Part, ...] = ()
        self._asked: ModelCall | None = None

    def whole(self, latest: Message) -> Message:
        """Give the whole answer, which ends in the latest attempt's message."""
        return Message("assistant", (*self._said, *latest.parts)) if self._said else latest

    def so_far(self, partial: Message | None) -> Message | None:
        """Give what there is of the answer while its latest attempt has brought `partial`; None for nothing."""
        parts = (*self._said, *(partial.parts if partial is not None else ()))
        return Message("assistant", parts) if parts else None

    def paused(self, call: ModelCall, latest: Message) -> ModelCall:
        """Take an attempt's message that ends in a pause; give the call that hands the answer back as it is."""
        if self._asked is None:
            self._asked = call
        said = self.whole(latest)
        self._said = said.parts
        return attrs.evolve(call, history=self._asked.history.extend((said,)))

    def restart(self) -> None:
        """Forget what was said: another answer follows."""
        self._said, self._asked = (), None
