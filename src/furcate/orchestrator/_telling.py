"""Telling listeners: in order, apart from each other, and without effect on what they hear about."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from furcate.primitives._observations import Listener, Observation, Observer

_log = logging.getLogger("furcate")


class Listeners:
    """Tell each observation to every listener once; groups first, so that they have their facts before anybody acts."""

    __slots__ = ("_failed", "_heard")

    def __init__(self, *ranks: tuple[Listener, ...], failed: Counter[str] | None = None) -> None:
        self._heard: tuple[Listener, ...] = tuple({id(one): one for rank in ranks for one in rank}.values())
        self._failed: Counter[str] = Counter() if failed is None else failed

    def with_ranks(self, first: tuple[Listener, ...], then: tuple[Listener, ...]) -> Listeners:
        """Give listeners that begin with `first` and `then`; one that occurs twice is told once."""
        if not first and not then:
            return self
        return Listeners(first, then, self._heard, failed=self._failed)

    @property
    def failures(self) -> int:
        """How often a listener raised, here and in all listeners made from the same ones."""
        return self._failed.total()

    def tell(self, event: Observation) -> None:
        """Tell an observation. What a listener raises is logged and counted; the others are told all the same."""
        for listener in self._heard:
            try:
                if isinstance(listener, Observer):
                    listener.on_event(event)
                else:
                    listener(event)
            except Exception:
                self._note(listener, f"failed on {type(event).__name__}")

    def carrier(self, run_id: str) -> dict[str, str]:
        """Ask the listeners that carry traces for what travels with the run's exchange."""
        found: dict[str, str] = {}
        for listener in self._heard:
            ask: Callable[[str], Mapping[str, str]] | None = getattr(listener, "carrier", None)
            if ask is None:
                continue
            try:
                found.update(ask(run_id))
            except Exception:
                self._note(listener, "failed to give its carrier")
        return found

    def _note(self, listener: Listener, what: str) -> None:
        name = getattr(listener, "__qualname__", type(listener).__name__)
        self._failed[name] += 1
        # Once is enough to find a broken observer; thousands of runs must not flood the log.
        level = logging.ERROR if self._failed[name] == 1 else logging.DEBUG
        _log.log(level, "observer %s %s", name, what, exc_info=True)
