"""A scripted provider, virtual time and a cancellation sweep: for tests of one's own prompts, callbacks, observers."""

from __future__ import annotations

from furcate.testing._answer import (
    Answer,
    How,
    HowWithStatus,
    Said,
    answer,
    error,
    error_in_stream,
    events,
    html_error,
    no_head,
    raw,
    steps,
)
from furcate.testing._clock import DeadlockError, VirtualEventLoop, virtual_backend
from furcate.testing._completion import StubCitation, StubSearch, StubSource, StubToolCall
from furcate.testing._faults import FAULTS, Fault, FaultRecord, Faults, refusing, wait_hints
from furcate.testing._prompt_cache import PromptCache
from furcate.testing._request import StubDialect, StubRequest
from furcate.testing._steps import Disconnect, Head, Hold, Reset, Send, Silence, Step, Wait, Wire
from furcate.testing._stub import Script, ScriptExhaustedError, StubProvider
from furcate.testing._sweep import Cut, Sweep, SweepError, sweep

__all__ = (
    "FAULTS",
    "Answer",
    "Cut",
    "DeadlockError",
    "Disconnect",
    "Fault",
    "FaultRecord",
    "Faults",
    "Head",
    "Hold",
    "How",
    "HowWithStatus",
    "PromptCache",
    "Reset",
    "Said",
    "Script",
    "ScriptExhaustedError",
    "Send",
    "Silence",
    "Step",
    "StubCitation",
    "StubDialect",
    "StubProvider",
    "StubRequest",
    "StubSearch",
    "StubSource",
    "StubToolCall",
    "Sweep",
    "SweepError",
    "VirtualEventLoop",
    "Wait",
    "Wire",
    "answer",
    "error",
    "error_in_stream",
    "events",
    "html_error",
    "no_head",
    "raw",
    "refusing",
    "steps",
    "sweep",
    "virtual_backend",
    "wait_hints",
)
