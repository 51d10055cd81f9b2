"""Values that hold one of everything, the same for ever: committed bytes are compared with them."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from furcate.primitives._content import (
    Attribution,
    HostedActivity,
    Media,
    Origin,
    ProviderPayload,
    Reasoning,
    ReasoningState,
    Refusal,
    Source,
    Text,
    ToolCall,
    ToolResult,
)
from furcate.primitives._exchange import Exchange
from furcate.primitives._history import History
from furcate.primitives._json import freeze
from furcate.primitives._message import CacheHint, Message
from furcate.primitives._receipt import Completed, Failed, ReceiptUsage, TransportReceipt
from furcate.primitives._result import Attempt, Fault, Result, Validation
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure

Kept: TypeAlias = Exchange | History | Message | Result

_OPAQUE = bytes(range(256))


def _payload(form: str, version: str = "1") -> ProviderPayload:
    return ProviderPayload("lab", form, version, _OPAQUE)


def every_exchange() -> Exchange:
    """Make an exchange that holds every kind of part with every member set, and with none."""
    begun = History(
        (
            Message.system("Be brief.\n", cache=CacheHint(300)),
            Message("developer", (Text("Answer in prose. \U0001f6b2 \x00"),), CacheHint()),
            Message.user("Look at this.", Media("image/png", data=_OPAQUE, name="a.png")),
        )
    )
    asked = Message.assistant(
        Reasoning("First I look.", ReasoningState(Origin("lab", "anthropic-messages", "big-1"), "thinking", _OPAQUE)),
        Reasoning(),
        HostedActivity("srv_1", "web_search", "started", payload=_payload("anthropic-messages.call")),
        HostedActivity(
            "srv_1",
            "web_search",
            "completed",
            input={
                "type": "search",
                "queries": ["a", "b"],
                "n": 2**70,
                "m": -(2**63) - 1,
                "deep": [{"x": [1.5, None]}],
            },
            summary="a; b",
            payload=_payload("nobody.knows", "99"),
            position=3,
            scope="resp_1",
        ),
        HostedActivity("srv_2", "image_search", "failed"),
        ToolCall("call_1", "look", '{"b": 1,  "a": 2}', payload=_payload("openai-responses.item")),
        ToolCall("call_2", "shell", "ls -l", "custom"),
        ToolCall("call_3", "nothing"),
    )
    results = Message.tool(
        ToolResult("call_1", '{"seen": true}'), ToolResult("call_2", "no", True), ToolResult("call_3", "")
    )
    answer = Message.assistant(
        Text(
            "It is a bicycle.",
            (
                Attribution(Source("https://a.example", "A"), "a bicycle", (3, 15), _payload("anthropic.citation")),
                Attribution(Source("https://b.example")),
            ),
            False,
            payload=_payload("openai-responses.text", "2"),
        ),
        Text(""),
        Refusal("I will not say more."),
        Media("image/webp", url="https://c.example/c.webp"),
    )
    history = begun.extend((asked, results)).extend((answer,))
    return Exchange(
        history, "run-2", "run-1", {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    )


def every_result() -> Result:
    """Make a result that holds every kind of attempt and receipt."""
    exchange = every_exchange()
    last = exchange.history.last
    assert last is not None
    counts = Usage(
        input_tokens=10, cache_read_tokens=0, output_tokens=2**40, lower_bounds={"output_tokens", "input_tokens"}
    )
    completed = Completed(
        stop_reason="end_turn",
        usage=ReceiptUsage(
            input_tokens=10, cache_read_tokens=0, cache_write_tokens=0, output_tokens=7, reasoning_tokens=3
        ),
        provider_response_id="msg_1",
    )
    attempts = (
        Attempt(
            number=1,
            purpose="generate",
            request_id="run-2-1",
            status="failed",
            waited_s=0.0,
            duration_s=1.25,
            first_event_s=None,
            body_sha256="ab" * 32,
            failure=Failure(
                kind="rate_limited",
                reason="rate_limited",
                message="slow down",
                retryable=True,
                sent=False,
                wait_s=2.5,
                status=429,
            ),
            receipt=_receipt("run-2-1", Failed(kind="rate_limited", message="slow down")),
            payloads_dropped=2,
        ),
        Attempt(
            number=2,
            purpose="resume",
            request_id="run-2-2",
            status="succeeded",
            waited_s=0.5,
            duration_s=3.5,
            first_event_s=0.75,
            body_sha256="cd" * 32,
            usage=counts,
            stop_reason="end_turn",
            response_id="msg_1",
            model="big-1",
            receipt=_receipt("run-2-2", completed),
        ),
        Attempt(
            number=3,
            purpose="repair",
            request_id="run-2-3",
            status="cancelled",
            waited_s=0.0,
            duration_s=0.0,
            first_event_s=None,
            body_sha256="",
            replayed=True,
        ),
    )
    fault = Fault("$.title", "is 45 characters long; give at most 20")
    return Result(
        run_id="run-2",
        message=last,
        stop_reason="end_turn",
        validation=Validation(
            status="passed", rounds=((fault, fault), ()), value=freeze({"title": "Bicycle", "big": 2**80, "of": []})
        ),
        usage=counts,
        attempts=attempts,
        exchange=exchange,
        stop_detail="</answer>",
    )


def bare_result() -> Result:
    """Make a result that was not captured and failed its contract."""
    fault = Fault("$", "no JSON: the answer is empty")
    return Result(
        run_id="run-3",
        message=Message("assistant", ()),
        stop_reason="context_window",
        validation=Validation(status="failed", faults=(fault,), rounds=((fault,),)),
        usage=Usage(),
        attempts=(),
    )


def _receipt(request_id: str, outcome: Completed | Failed) -> TransportReceipt:
    return TransportReceipt(
        request_id=request_id,
        caller_runtime_id="runtime",
        native_request_sha256=bytes(32),
        provider_request_sha256=bytes(range(32)),
        model="big-1",
        provider="lab",
        foreign_reasoning_dropped=1,
        outcome=outcome,
    )


@pytest.fixture
def exchange() -> Exchange:
    """An exchange that holds every kind of part."""
    return every_exchange()


@pytest.fixture
def result() -> Result:
    """A result that holds every kind of attempt."""
    return every_result()


def every_kept() -> dict[str, tuple[Kept, History | None]]:
    """Give a value of each kind with its base, by the name of its committed bytes."""
    whole = every_exchange()
    last = whole.history.last
    assert last is not None
    return {
        "exchange": (whole, None),
        "history": (whole.history, None),
        "message": (last, None),
        "continued": (whole, whole.history.nodes()[1]),
        "result": (every_result(), None),
        "bare-result": (bare_result(), None),
    }


@pytest.fixture(params=["exchange", "history", "message", "continued", "result", "bare-result"])
def kept(request: pytest.FixtureRequest) -> tuple[str, Kept, History | None]:
    """A value of each kind: the name of its committed bytes, the value, and its base."""
    return request.param, *every_kept()[request.param]
