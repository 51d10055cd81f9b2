"""One run goes first where many share a beginning, so that the others find it in the provider's cache.

What is shared, and whether it is worth waiting for, is a pure choice (`opening_of`). Who goes first is settled when the
runs are about to start, not before: whoever asks first reads, and the others wait for the beginning of that one answer.
So nobody waits for a callback that takes its time, and nobody waits in a place of a backend's capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Literal, TypeAlias

import anyio
import attrs
from attrs import frozen

from furcate.orchestrator._execute import Run
from furcate.orchestrator._plan import Plan
from furcate.primitives._content import HostedActivity, Media, Reasoning, Refusal, Text, ToolCall, ToolResult
from furcate.primitives._errors import ProviderError
from furcate.primitives._history import History, MemoKey
from furcate.primitives._message import Message
from furcate.primitives._result import Result
from furcate.primitives._settings import Tool

Prime: TypeAlias = Literal["auto"] | bool
"""Whether one run goes first: where that pays, always, or never."""

LEAST_TOKENS = 1024
"""No provider caches a shorter beginning. Some models ask for two or four times as much; one wait is then in vain."""

PATIENCE_S = 60.0
LIFETIME_S = 300.0
_MOST_KNOWN = 1024

_BYTES_A_TOKEN = 4
_MEDIUM_TOKENS = 1000
_MESSAGE_TOKENS = 4
_OPENAI = "https://api.openai.com/v1"
_TOKENS: MemoKey[int] = MemoKey("tokens, estimated")


@frozen
class Priming:
    """Say what the runs of a task have in common with others.

    Attributes:
        prime: ``auto``, or True to go one by one whatever the backend and the size are.
        beginning: the conversation that they continue; None takes, of each run, what stands up to its first cache hint.
    """

    prime: Literal["auto", True] = "auto"
    beginning: History | None = None


current_priming: ContextVar[Priming | None] = ContextVar("furcate_priming", default=None)
"""What holds for runs that are started here; tasks that are started below inherit it."""


@contextmanager
def priming(prime: Prime = "auto", beginning: History | None = None) -> Iterator[None]:
    """Let the runs that are started in this block, and in tasks below it, share the price of their beginning.

    Arguments:
        prime: ``auto`` where that pays, True always, False never.
        beginning: the conversation that they continue; None takes what stands up to each run's first cache hint.
    """
    outside = current_priming.set(None if prime is False else Priming(prime, beginning))
    try:
        yield
    finally:
        current_priming.reset(outside)


@frozen
class Opening:
    """Name a beginning as a cache sees it: another model, or other tools in front of it, make it another one.

    Attributes:
        digest: SHA-256 of its messages.
    """

    backend: str
    model: str
    digest: bytes
    tools: tuple[Tool, ...]
    server_tools: tuple[str, ...]
    schema: bytes | None


def opening_of(plan: Plan) -> Opening | None:
    """Give the beginning that a run shares with others, where it is worth letting one read it first."""
    settled = current_priming.get()
    beginning = _beginning(plan, settled) if settled is not None else None
    if settled is None or beginning is None:
        return None
    if settled.prime == "auto" and not pays(plan, beginning):
        return None
    call = plan.call
    return Opening(
        plan.backend.name,
        call.model,
        beginning.digest,
        call.tools,
        call.server_tools,
        repr(call.schema).encode("utf-8", "surrogatepass") if call.schema is not None else None,
    )


def pays(plan: Plan, beginning: History) -> bool:
    """Tell whether a backend's cache serves others too, and takes a beginning of this size."""
    return plan.backend.cache == "shared" and estimated_size(beginning) >= LEAST_TOKENS


def marked(plan: Plan) -> Plan:
    """Let a plan ask its provider to cache what its run shares with others, where that is not by hints already."""
    settled = current_priming.get()
    if settled is None or settled.beginning is None or not _takes_marks(plan) or opening_of(plan) is None:
        return plan
    return attrs.evolve(plan, call=attrs.evolve(plan.call, shared=len(settled.beginning)))


def _takes_marks(plan: Plan) -> bool:
    # Few of the servers that speak this dialect know the key, and some refuse what they do not know.
    backend = plan.backend
    return backend.dialect != "openai-chat" or (backend.kind == "remote" and backend.base_url in (None, _OPENAI))


def _beginning(plan: Plan, settled: Priming) -> History | None:
    nodes = plan.call.history.nodes()
    if settled.beginning is not None:
        return settled.beginning if any(node is settled.beginning for node in nodes) else None
    for node in nodes:
        for place, message in enumerate(node.added, 1):
            if message.cache is not None:
                return History(node.added[:place], node.parent)
    return None


def estimated_size(history: History) -> int:
    """Estimate the size of a conversation in tokens: a token for four bytes of text."""
    return sum(node.memo(_TOKENS, _size) for node in history.nodes())


def _size(node: History) -> int:
    return sum(map(_message_size, node.added))


def _message_size(message: Message) -> int:
    tokens, size = _MESSAGE_TOKENS, 0
    for part in message.parts:
        match part:
            case Text() | Refusal():
                size += len(part.text.encode("utf-8", "surrogatepass"))
            case ToolCall():
                size += len(part.arguments.encode("utf-8", "surrogatepass"))
            case ToolResult():
                size += len(part.content.encode("utf-8", "surrogatepass"))
            case Media():
                tokens += _MEDIUM_TOKENS
            case Reasoning() | HostedActivity():
                pass  # how much of it goes back is the provider's affair
    return tokens + size // _BYTES_A_TOKEN


class _Reading:
    """One beginning that is being read, or has been."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.known_s: float | None = None
        self.failed = False

    def begin(self) -> None:
        """Note that the answer to it begins, so that the provider has read it all."""
        self.known_s = anyio.current_time()
        self.over.set()


class Primer:
    """Let one run of many read what they share, and the others start when its answer begins.

    They start as well when that run fails at the backend, and after `patience_s` in any case. Where it ends before
    anything was sent, by cancellation or by a fault of its own, the next one goes first.

    Arguments:
        patience_s: how long a run waits for others at most, in seconds.
        lifetime_s: how long after its last use a beginning is taken to be in the provider's cache, in seconds.
    """

    def __init__(self, *, patience_s: float = PATIENCE_S, lifetime_s: float = LIFETIME_S) -> None:
        self._patience_s = patience_s
        self._lifetime_s = lifetime_s
        self._readings: dict[Opening, _Reading] = {}

    def forget(self) -> None:
        """Forget all; nobody may be waiting."""
        self._readings.clear()

    async def complete(self, run: Run) -> Result:
        """Run to the end, after the one that goes first where there is one; nothing is told or queued meanwhile.

        Raises:
            ProviderError: no attempt gave a completed answer.
            BudgetExceededError: a budget of the request is used up; nothing was sent.

        Cancellation while it waits leaves nothing behind: the run has not begun.
        """
        opening = opening_of(run._plan)
        if opening is None or run.recorded:
            return await run.complete()
        reading = await self._others_first(opening)
        if reading is None:
            return await self._lead(run, opening)
        run.began = reading.begin
        return await run.complete()

    async def _others_first(self, opening: Opening) -> _Reading | None:
        """Wait for who goes first; None where it is this one's turn."""
        until_s = anyio.current_time() + self._patience_s
        while (reading := self._known(opening)) is not None:
            with anyio.CancelScope(deadline=until_s) as patience:
                await reading.over.wait()
            if patience.cancelled_caught or reading.known_s is not None or reading.failed:
                return reading
        return None

    def _known(self, opening: Opening) -> _Reading | None:
        reading = self._readings.get(opening)
        if reading is None or reading.known_s is None:
            return reading
        return reading if anyio.current_time() <= reading.known_s + self._lifetime_s else None

    async def _lead(self, run: Run, opening: Opening) -> Result:
        reading = _Reading()
        self._readings.pop(opening, None)
        self._readings[opening] = reading
        self._drop_old()
        run.began = partial(_Reading.begin, reading)
        try:
            result = await run.complete()
            reading.begin()
            return result
        except ProviderError:
            reading.failed = True
            raise
        finally:
            if reading.known_s is None and self._readings.get(opening) is reading:
                del self._readings[opening]
            reading.over.set()

    def _drop_old(self) -> None:
        if len(self._readings) > _MOST_KNOWN:
            old = next((opening for opening, one in self._readings.items() if one.known_s is not None), None)
            if old is not None:
                del self._readings[old]
