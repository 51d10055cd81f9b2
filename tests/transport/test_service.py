"""The boundary to a backend: what it sees, what it can say, and what is checked before anybody relies on it."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType
from typing import Any

import attrs
import msgspec
import pytest

from furcate.primitives._content import Origin, Reasoning, ReasoningState, Text, ToolCall, ToolResult
from furcate.primitives._errors import ForeignReasoningState, MisuseError, ReceiptError
from furcate.primitives._history import History
from furcate.primitives._message import Message
from furcate.primitives._receipt import Completed, Failed, TransportReceipt
from furcate.primitives._usage import Usage
from furcate.primitives._wire import Failure, ModelCall
from furcate.transport import ProviderCall, TransportService, provider_sha256

HERE = Origin("here", "openai-chat", "m")
THERE = Origin("there", "openai-chat", "m")
ASK = Message.user("Hello")
NATIVE = bytes(range(32))


def thought(origin: Origin) -> Reasoning:
    return Reasoning("hm", ReasoningState(origin, "sealed", b"\xff\x01" + origin.provider.encode()))


def service(origin: Origin = HERE, **given: Any) -> TransportService:
    return TransportService(origin, "runtime", **given)


def call_of(*messages: Message) -> ModelCall:
    return ModelCall(model="m", history=History(messages))


def begin(to: TransportService, *messages: Message, request_id: str = "run-1") -> ProviderCall:
    return to.begin(call_of(*messages), request_id=request_id, native_request_sha256=NATIVE)


ANSWER = Message("assistant", (thought(HERE), Text("Good day."), ToolCall("c1", "greet", "{}")))
PAST = (ASK, Message("assistant", (thought(THERE), Text("Hi."))), ASK)


@pytest.mark.req("S2-28")
def test_the_receipt_says_what_the_service_wrote_down() -> None:
    """A backend gives answer, stop reason, usage and response id; identity, digests, provider and count are not its."""
    to = service()
    call = begin(to, *PAST)
    usage = Usage(input_tokens=9, cache_read_tokens=4, cache_write_tokens=0, output_tokens=3, reasoning_tokens=1)
    done = to.complete(call.transported(ANSWER, "tool_use", usage, response_id="resp-1"))
    assert done.receipt == TransportReceipt(
        request_id="run-1",
        caller_runtime_id="runtime",
        native_request_sha256=NATIVE,
        provider_request_sha256=provider_sha256(call_of(*PAST)),
        model="m",
        provider="here",
        foreign_reasoning_dropped=1,
        outcome=done.receipt.outcome,
    )
    assert isinstance(done.receipt.outcome, Completed)
    assert done.receipt.outcome.provider_response_id == "resp-1"
    assert done.receipt.outcome.usage.input_tokens == 9


@pytest.mark.req("S2-26")
def test_nothing_foreign_counts_zero() -> None:
    """The count is there and zero, and the request is handed out as it is."""
    to, asked = service(), call_of(ASK, ANSWER, Message.tool(ToolResult("c1", "done")))
    call = to.begin(asked, request_id="run-1", native_request_sha256=NATIVE)
    assert call.request is asked
    assert to.complete(call.transported(ANSWER, "end_turn", Usage())).receipt.foreign_reasoning_dropped == 0


@pytest.mark.req("S2-27")
def test_a_backend_cannot_reach_what_was_left_out() -> None:
    """Nothing that the call object leads to holds the foreign state or the original request."""
    asked = call_of(*PAST)
    call = service().begin(asked, request_id="run-1", native_request_sha256=NATIVE)
    reachable = list(_reachable(call))
    assert any(isinstance(found, Message) for found in reachable)
    assert not any(found is asked or found is asked.history for found in reachable)
    assert not [found for found in reachable if isinstance(found, ReasoningState)]


def _reachable(start: object) -> list[object]:
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        found = waiting.pop()
        if id(found) not in seen and not isinstance(found, (type, ModuleType, FunctionType)):
            seen[id(found)] = found
            waiting += gc.get_referents(found)
            if isinstance(found, msgspec.Struct):
                # The garbage collector does not walk a history's nodes.
                waiting += [getattr(found, name) for name in found.__struct_fields__]
    return list(seen.values())


@pytest.mark.req("S2-22")
def test_a_foreign_tool_exchange_begins_nothing() -> None:
    """The refusal comes before any call object exists, and its id is free for another request."""
    to = service()
    flight = (ASK, Message("assistant", (thought(THERE), ToolCall("c1", "greet"))), Message.tool(ToolResult("c1", "x")))
    with pytest.raises(ForeignReasoningState):
        begin(to, *flight)
    assert begin(to, ASK).request.history.last == ASK


@pytest.mark.req("S2-20")
def test_the_tag_on_new_state_is_the_services() -> None:
    """Whatever tag a backend puts on state of its answer, the service's own is what the caller gets."""
    to = service()
    call = begin(to, ASK)
    assert call.origin == HERE
    forged = Message("assistant", (thought(THERE), Text("Good day.")))
    [item] = to.complete(call.transported(forged, "end_turn", Usage())).transcript_items
    [state] = [part.state for part in item.parts if isinstance(part, Reasoning)]
    assert state is not None
    assert (state.origin, state.data) == (HERE, b"\xff\x01there")


@pytest.mark.req("S2-30", "S2-31")
def test_an_answer_goes_back_to_its_provider_as_it_came() -> None:
    """The items of a completed call are text, calls and tagged state; replayed, none of them is foreign."""
    to = service()
    done = to.complete(begin(to, ASK).transported(ANSWER, "tool_use", Usage()))
    assert done.transcript_items == (ANSWER,)
    again = (ASK, *done.transcript_items, Message.tool(ToolResult("c1", "done")))
    call = begin(to, *again)
    assert tuple(call.request.history) == again
    assert to.complete(call.transported(ANSWER, "end_turn", Usage())).receipt.foreign_reasoning_dropped == 0


@pytest.mark.req("S2-31")
def test_an_answer_of_another_provider_is_refused_or_counted() -> None:
    """At another provider the same items are refused while their calls are open, and counted later on."""
    to, other = service(), service(Origin("elsewhere", "openai-chat", "m"))
    items = to.complete(begin(to, ASK).transported(ANSWER, "tool_use", Usage())).transcript_items
    with pytest.raises(ForeignReasoningState):
        begin(other, ASK, *items, Message.tool(ToolResult("c1", "done")))
    call = begin(other, ASK, *items, Message.tool(ToolResult("c1", "done")), ASK)
    assert other.complete(call.transported(ANSWER, "end_turn", Usage())).receipt.foreign_reasoning_dropped == 1


@pytest.mark.req("S2-29")
@pytest.mark.parametrize(
    ("forged", "place"),
    [
        ({"provider": "elsewhere"}, "$.provider"),
        ({"foreign_reasoning_dropped": 0}, "$.foreign_reasoning_dropped"),
        ({"model": "larger"}, "$.model"),
        ({"native_request_sha256": bytes(32)}, "$.native_request_sha256"),
        ({"provider_request_sha256": bytes(32)}, "$.provider_request_sha256"),
        ({"caller_runtime_id": "another"}, "$.caller_runtime_id"),
    ],
)
def test_a_receipt_that_contradicts_the_record_is_refused(forged: dict[str, Any], place: str) -> None:
    """Nothing is kept of the outcome, and the call is over."""
    to = service()
    outcome = begin(to, *PAST).transported(ANSWER, "end_turn", Usage())
    wrong = attrs.evolve(outcome, receipt=attrs.evolve(outcome.receipt, **forged))
    with pytest.raises(ReceiptError) as caught:
        to.complete(wrong)
    assert caught.value.place == place
    with pytest.raises(ReceiptError, match=r"\$.request_id is of no active call"):
        to.complete(outcome)


def test_an_attempt_is_completed_once_and_has_an_id_of_its_own() -> None:
    """An active id cannot begin again; a completed or abandoned one is over."""
    to = service()
    first = begin(to, ASK)
    with pytest.raises(MisuseError, match="request run-1 is active"):
        begin(to, ASK)
    to.complete(first.transported(ANSWER, "end_turn", Usage()))
    with pytest.raises(ReceiptError):
        to.complete(first.transported(ANSWER, "end_turn", Usage()))
    second = begin(to, ASK)
    to.abandon(second)
    with pytest.raises(ReceiptError):
        to.complete(second.transported(ANSWER, "end_turn", Usage()))


def test_unknown_counts_are_zero_in_the_receipt_and_named_beside_it() -> None:
    """A receipt has no word for unknown, so the outcome says which counts the provider reported."""
    to = service()
    done = to.complete(begin(to, ASK).transported(ANSWER, "end_turn", Usage(input_tokens=5, cache_read_tokens=0)))
    assert isinstance(done.receipt.outcome, Completed)
    counted = done.receipt.outcome.usage
    assert (counted.input_tokens, counted.cache_read_tokens, counted.output_tokens) == (5, 0, 0)
    assert counted.reasoning_tokens is None
    assert done.reported == {"input_tokens", "cache_read_tokens"}


@pytest.mark.req("S2-08")
def test_a_failure_is_told_in_words_of_ours() -> None:
    """What a server said may repeat the prompt, so a receipt holds our reason and the HTTP status alone."""
    to = service()
    failure = Failure(kind="unavailable", reason="overloaded", message="SECRET is too long", status=503)
    done = to.complete(begin(to, ASK).failed(failure))
    assert done.receipt.outcome == Failed(kind="unavailable", message="overloaded (HTTP 503)")
    assert (done.message, done.transcript_items, done.reported) == (None, (), frozenset())


@pytest.mark.req("S2-11")
def test_too_large_is_said_by_the_service_alone() -> None:
    """A backend that claims it is refused; a result beyond the bound becomes it, and one at the bound does not."""
    to = service()
    with pytest.raises(ReceiptError, match="result_size is said by the service alone"):
        begin(to, ASK).failed(Failure(kind="result_size", reason="big", message="big"))
    small = service(max_result_bytes=50)
    done = small.complete(begin(small, ASK).transported(Message.assistant("x" * 60), "end_turn", Usage(input_tokens=1)))
    assert isinstance(done.receipt.outcome, Failed)
    assert done.receipt.outcome.kind == "result_size"
    assert (done.message, done.reported) == (None, frozenset())
    size = int(done.receipt.outcome.message.split()[3])
    for limit, kind in ((size, Completed), (size - 1, Failed)):
        to = service(max_result_bytes=limit)
        done = to.complete(begin(to, ASK).transported(Message.assistant("x" * 60), "end_turn", Usage()))
        assert isinstance(done.receipt.outcome, kind)


def test_a_continuation_by_the_user_drops_and_never_refuses() -> None:
    """Once the user has spoken, earlier tool exchanges are past: a switch of providers loses state and goes on."""
    past = (ASK, Message("assistant", (thought(THERE), ToolCall("c1", "greet"))), Message.tool(ToolResult("c1", "x")))
    to = service()
    call = begin(to, *past, Message.assistant("Done."), ASK)
    assert to.complete(call.transported(ANSWER, "end_turn", Usage())).receipt.foreign_reasoning_dropped == 1
