"""The capacity of a job's backends, shared out among its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from furcate.admission import Need, Portion, ShareOut
from furcate.batch.cluster._site import SILENCE_S
from furcate.primitives._resources import Backend

GRACE_S = 2.0
"""For how long a server may be busy with the requests of a worker that died, in seconds."""
DOUBT_S = SILENCE_S + 2.0
"""For how long one may go on that cannot be reached, in seconds: until it notices that nobody asks any more."""


class Capacity:
    """Share out every backend that workers use together.

    Arguments:
        backends: all backends of the job; an embedded one belongs to each process by itself.
    """

    def __init__(self, backends: Iterable[Backend]) -> None:
        self._shares = {
            backend.name: ShareOut(
                backend.capacity,
                requests_per_minute=backend.requests_per_minute,
                tokens_per_minute=backend.tokens_per_minute,
            )
            for backend in backends
            if backend.kind == "remote"
        }

    def join(self, worker: str) -> None:
        """Let a worker take part."""
        for share in self._shares.values():
            share.join(worker)

    def leave(self, worker: str, *, dead: bool, now_s: float) -> None:
        """Let a worker take part no longer.

        Arguments:
            worker: its name.
            dead: whether it is known to be; else it may be at work still.
            now_s: the moment, on anyio's clock.
        """
        for share in self._shares.values():
            share.leave(worker, now_s=now_s, grace_s=GRACE_S if dead else DOUBT_S)

    def report(self, worker: str, needs: Mapping[str, Need], *, now_s: float) -> None:
        """Take in how a worker stands."""
        for name, need in needs.items():
            self._shares[name].report(worker, need, now_s=now_s)

    def portions(self, *, now_s: float) -> dict[str, dict[str, Portion]]:
        """Give what has to be told: for each worker, its new portions by backend."""
        found: dict[str, dict[str, Portion]] = {}
        for name, share in self._shares.items():
            for worker, portion in share.portions(now_s=now_s).items():
                found.setdefault(worker, {})[name] = portion
        return found

    def next_up(self, now_s: float) -> float:
        """Give the moment from which there may be new portions although nobody reports."""
        return min((share.next_up(now_s) for share in self._shares.values()), default=float("inf"))
