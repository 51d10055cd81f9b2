"""What a worker says of a backend that it shares with others, and what it may do there."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Need:
    """Tell how one worker stands at one backend.

    Whatever grows is counted from the moment at which the worker joined, so that only the latest of these matters: one
    that was lost or told twice does no harm. They have to arrive in the order in which they were made.

    Attributes:
        obeyed: number of the latest portion that it keeps to; 0 where it has been given none.
        in_use: how many places are held now.
        waiting: how many requests wait.
        requests: how many requests it has begun.
        tokens: how many tokens they were estimated to use, or did use where that was more.
        tokens_returned: by how many tokens those estimates were too high, as far as that is known.
        tokens_next: how many tokens the first of the waiting requests will probably use.
        tokens_waiting: how many tokens all of them will use, about.
        paused_s: for how long its own server has told it to wait, in seconds; never what it heard from others.
        pauses: how often its server has told it so, where that was later than what held.
    """

    obeyed: int = 0
    in_use: int = 0
    waiting: int = 0
    requests: int = 0
    tokens: float = 0.0
    tokens_returned: float = 0.0
    tokens_next: float = 0.0
    tokens_waiting: float = 0.0
    paused_s: float = 0.0
    pauses: int = 0


@frozen(kw_only=True)
class Portion:
    """Say what one worker may do at one backend, until it is given another portion.

    Attributes:
        number: rises from one portion to the next; 0 is what a worker begins with, before it was given any.
        places: how many requests it may have in flight; whoever holds a place above that keeps it.
        requests: how many requests it may have begun since it joined; None sets no limit.
        tokens: how many tokens it may have used since it joined; None sets no limit.
        paused_s: for how long nobody may be let in, in seconds.
    """

    number: int
    places: int
    requests: int | None = None
    tokens: float | None = None
    paused_s: float = 0.0

    @classmethod
    def nothing(cls) -> Portion:
        """Give what a worker keeps to from the moment of joining until its first portion arrives: no place at all."""
        return cls(number=0, places=0)


@frozen(kw_only=True)
class Standing:
    """Hold what a gate's owner wants to know the moment that it changes; the numbers of a `Need` can wait.

    Attributes:
        pauses: as in `Need`.
        queued: whether anybody waits.
        short: whether the first of the queue has a place, but no allowance that would come without others.
        above: how many places are held above the portion.
        idle: whether no place is held, and none awaited.
    """

    pauses: int = 0
    queued: bool = False
    short: bool = False
    above: int = 0
    idle: bool = True

    def is_news_after(self, before: Standing) -> bool:
        """Tell whether others should hear of it now: something is wanted that was not before, or can be spared."""
        return (
            self.pauses > before.pauses
            or self.queued > before.queued
            or self.short > before.short
            or self.above < before.above
            or self.idle > before.idle
        )
