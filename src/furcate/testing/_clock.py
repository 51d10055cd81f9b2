"""Virtual time for both event loops: waiting costs nothing, and deadlines keep their order."""

from __future__ import annotations

# A clock belongs to its event loop, so this file has to name both loops.
import asyncio  # noqa: TID251
import math
import selectors
from typing import TYPE_CHECKING, Any, Literal

# The same holds here.
import trio.testing  # noqa: TID251

if TYPE_CHECKING:
    from collections.abc import Callable


_LEAST_RESOLUTION_S = 1e-9


class DeadlockError(RuntimeError):
    """Raised when every task on the virtual asyncio loop waits and no timer is left to wake one."""


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """Run asyncio on a clock that jumps to the next timer instead of waiting for it.

    ``time()`` starts at 0.0 and counts seconds, as trio's ``MockClock`` does. Sockets that are ready are
    served before the clock jumps, but nobody waits for one that is not: a test which opens sockets or
    starts threads needs real time.
    """

    def __init__(self) -> None:
        self._virtual_now_s = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual_now_s

    def _jump(self) -> None:
        # The base class keeps its timers in a heap and offers no public look at the next one. Adding up the
        # wait it hands to the selector would not do: it caps that at a day, so sleeping for ever spins.
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        next_s = timers[0].when() if timers else math.inf
        if next_s == math.inf:
            raise DeadlockError(
                f"at {self._virtual_now_s:g} s of virtual time every task waits and no timer is set, so none "
                "can ever go on; let one of them finish or set a deadline, and use real time for a test "
                "with sockets or threads"
            )
        if next_s + _LEAST_RESOLUTION_S == next_s:
            # The base class runs what is due before now plus the resolution. After some months the sum rounds
            # to now itself, and a timer due exactly now would never run.
            next_s = math.nextafter(next_s, math.inf)
        self._virtual_now_s = max(self._virtual_now_s, next_s)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._jump()
        return ready


# The option dictionaries are anyio's, whose own type for them is dict[str, Any].
def virtual_backend(name: Literal["asyncio", "trio"]) -> tuple[str, dict[str, Any]]:
    """Give the backend name and options with which anyio runs on virtual time.

    Return it from an ``anyio_backend`` fixture, or take it apart for ``anyio.run``::

        @pytest.fixture(params=["asyncio", "trio"])
        def anyio_backend(request):
            return virtual_backend(request.param)

        backend, options = virtual_backend("trio")
        anyio.run(main, backend=backend, backend_options=options)

    Every call makes a new clock that starts at 0.0 seconds, so give each test its own. Tests with sockets
    or threads need real time. Where all tasks wait for ever, asyncio raises ``DeadlockError``; trio has no
    such check, so keep a time limit on the test.

    Arguments:
        name: ``asyncio`` or ``trio``.

    Raises:
        ValueError: the name is neither of the two.
    """
    if name == "asyncio":
        return name, {"loop_factory": VirtualEventLoop}
    if name == "trio":
        return name, {"clock": trio.testing.MockClock(autojump_threshold=0)}
    raise ValueError(f"virtual_backend: there is no event loop {name!r}; give 'asyncio' or 'trio'")
