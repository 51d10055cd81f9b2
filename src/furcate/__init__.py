"""Run, capture, fork and direct conversations with language models under structured concurrency."""

from typing import TYPE_CHECKING

from furcate._observing import observe_config
from furcate.admission import Budget
from furcate.groups import Group, GroupSummary
from furcate.observers import ConsoleObserver, Recorder
from furcate.orchestrator._branches import Branch, Branches, open_branches
from furcate.orchestrator._coordinator import Action, Continue, Coordinator, NextAction, Outcome, Stop, Turn
from furcate.orchestrator._engine import Engine
from furcate.orchestrator._prepared import Prepared
from furcate.orchestrator._streaming import Stream
from furcate.primitives._budget import BudgetSpent
from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    Part,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._contract import Contract
from furcate.primitives._errors import (
    ActionError,
    BranchCancelled,
    BudgetExceededError,
    ConfigError,
    ForeignReasoningState,
    FurcateError,
    LocalModelError,
    MissingProfileError,
    MisuseError,
    NotCaptured,
    NotValid,
    ProviderError,
    ReceiptError,
    RenderError,
    RequestError,
    SchemaError,
    StorageError,
    ToolTurnError,
    UnansweredToolCallError,
    UnknownNameError,
    UnsupportedError,
)
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._observations import (
    ActivityChanged,
    AttemptFinished,
    AttemptsPaused,
    AttemptStarted,
    BackendLimited,
    BackendPaused,
    ContentObservation,
    ContentReceived,
    ContentSent,
    CoordinatorFinished,
    CoordinatorStarted,
    NurseryFinished,
    NurseryStarted,
    Observation,
    Observer,
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._receipt import TransportReceipt
from furcate.primitives._request import Request
from furcate.primitives._resources import (
    Backend,
    MessageTemplate,
    Profile,
    Prompt,
    RetryPolicy,
    TimeLimits,
)
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._stream import (
    AttemptRestarted,
    Citation,
    HostedTransition,
    MediaArrived,
    Noticed,
    PartEnded,
    PartPayload,
    Paused,
    ReasoningDelta,
    ReasoningSealed,
    RefusalDelta,
    ResponseStarted,
    Stopped,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from furcate.primitives._usage import FieldTotal, Usage
from furcate.primitives._wire import ChatSwitches, Failure
from furcate.storage import base_of, from_bytes, to_bytes

if TYPE_CHECKING:
    from furcate.observers import observe_otel

__all__ = (
    "Action",
    "ActionError",
    "ActivityChanged",
    "Attempt",
    "AttemptFinished",
    "AttemptRestarted",
    "AttemptStarted",
    "AttemptsPaused",
    "Attribution",
    "Backend",
    "BackendLimited",
    "BackendPaused",
    "Branch",
    "BranchCancelled",
    "Branches",
    "Budget",
    "BudgetExceededError",
    "BudgetSpent",
    "CacheHint",
    "ChatSwitches",
    "Citation",
    "ConfigError",
    "ConsoleObserver",
    "ContentObservation",
    "ContentReceived",
    "ContentSent",
    "Continue",
    "Contract",
    "Coordinator",
    "CoordinatorFinished",
    "CoordinatorStarted",
    "Engine",
    "Exchange",
    "Failure",
    "Fault",
    "FieldTotal",
    "ForeignReasoningState",
    "FurcateError",
    "Group",
    "GroupSummary",
    "History",
    "HostedActivity",
    "HostedTransition",
    "LocalModelError",
    "Media",
    "MediaArrived",
    "Message",
    "MessageTemplate",
    "MissingProfileError",
    "MisuseError",
    "NextAction",
    "NotCaptured",
    "NotValid",
    "Noticed",
    "NurseryFinished",
    "NurseryStarted",
    "Observation",
    "Observer",
    "Origin",
    "Outcome",
    "Part",
    "PartEnded",
    "PartPayload",
    "Paused",
    "Prepared",
    "Profile",
    "Prompt",
    "ProviderError",
    "ProviderPayload",
    "Reasoning",
    "ReasoningDelta",
    "ReasoningSealed",
    "ReasoningState",
    "ReceiptError",
    "Recorder",
    "Refusal",
    "RefusalDelta",
    "RenderError",
    "Request",
    "RequestError",
    "ResponseStarted",
    "Result",
    "RetryPolicy",
    "RunFinished",
    "RunStarted",
    "SchemaError",
    "Settings",
    "Source",
    "Stop",
    "Stopped",
    "StorageError",
    "Stream",
    "StreamEvent",
    "StreamFailed",
    "Text",
    "TextDelta",
    "TimeLimits",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "ToolTurnError",
    "TransportReceipt",
    "Turn",
    "TurnDelivered",
    "UnansweredToolCallError",
    "UnknownNameError",
    "UnsupportedError",
    "Usage",
    "UsageReported",
    "Validation",
    "base_of",
    "from_bytes",
    "observe_config",
    "observe_otel",
    "open_branches",
    "to_bytes",
)


def __getattr__(name: str) -> object:
    # Who sends no traces need not load the telemetry library.
    if name == "observe_otel":
        from furcate.observers import observe_otel

        return observe_otel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
