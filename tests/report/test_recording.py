"""Recordings come back as what they were written of, and say what could not be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest

import furcate
from furcate.observers import JsonLinesObserver
from furcate.observers._lines import VERSION, line_of
from furcate.primitives._json import FrozenMap
from furcate.primitives._message import Message
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
    RunFinished,
    RunStarted,
    TurnDelivered,
)
from furcate.primitives._receipt import Completed, Failed, ReceiptUsage, TransportReceipt
from furcate.primitives._usage import Usage
from furcate.report import ContentRecorded, Recorded, Recording, read_recording

RECEIPT = TransportReceipt(
    request_id="r-1",
    caller_runtime_id="here",
    native_request_sha256=bytes(32),
    provider_request_sha256=bytes(range(32)),
    model="m",
    provider="lab",
    foreign_reasoning_dropped=0,
    outcome=Completed(
        stop_reason="end_turn",
        usage=ReceiptUsage(input_tokens=1, cache_read_tokens=0, cache_write_tokens=0, output_tokens=2),
    ),
)
STARTED = RunStarted(
    run_id="r",
    parent_run_id="q",
    prompt="draft",
    profile="p",
    backend="b",
    model="m",
    dialect="openai-chat",
    session_id="s",
    scope_id="c",
    parent_carrier=FrozenMap({"traceparent": "00-1-2-01"}),
    settings=furcate.Settings(max_output_tokens=9, temperature=1, stop=("x", "y")),
    base_url="http://127.0.0.1/v1",
    streamed=False,
)
USAGE = Usage(input_tokens=3, output_tokens=2, lower_bounds={"output_tokens"})
EVENTS: tuple[Observation, ...] = (
    STARTED,
    AttemptStarted(run_id="r", number=1, purpose="generate", request_id="r-1", waited_s=0.25),
    AttemptFinished(
        run_id="r", number=1, purpose="generate", request_id="r-1", status="succeeded", duration_s=2,
        first_event_s=None, body_sha256="ab", usage=USAGE, stop_reason="end_turn", response_id="x", model="m-2",
        receipt=RECEIPT,
    ),
    AttemptFinished(
        run_id="r", number=2, purpose="repair", request_id="r-2", status="failed", duration_s=2.5, first_event_s=1.5,
        body_sha256="ab", failure_kind="timeout", failure_reason="idle",
    ),
    ActivityChanged(run_id="r", number=1, activity_id="a", name="web_search", state="completed", scope="x"),
    AttemptsPaused(run_id="r", wait_s=0.5, failure_kind="unavailable"),
    RunFinished(
        run_id="r", status="failed", duration_s=5, usage=USAGE, attempts=2, repairs=1, validation="failed",
        failure_kind="timeout", failure_reason="idle",
    ),
    CoordinatorStarted(scope_id="c", parent_scope_id="n", parent_run_id="q", name=None, additional_turns=3),
    TurnDelivered(scope_id="c", remaining=2),
    CoordinatorFinished(scope_id="c", status="failed", outcome=None, error_type="ValueError"),
    NurseryStarted(scope_id="n", parent_run_id="q", name="angles"),
    NurseryFinished(scope_id="n", status="succeeded", branches=1),
    BackendPaused(backend="b", wait_s=3, failure_kind="rate_limited"),
    BackendLimited(backend="b", limit=2, before=4, capacity=8),
)  # fmt: skip


def lines(events: Iterable[Observation | ContentObservation]) -> list[bytes]:
    return [line_of(event, 1000.5 + number) for number, event in enumerate(events)]


def test_every_observation_comes_back() -> None:
    """All kinds of observations, with all that they hold, are equal to what was written, in order and with times."""
    assert {type(event) for event in EVENTS} == set(get_args(Observation))
    recording = Recording(lines(EVENTS))
    assert tuple(recording) == tuple(Recorded(1000.5 + number, event) for number, event in enumerate(EVENTS))
    assert (recording.lines, recording.told, recording.skipped) == (len(EVENTS), len(EVENTS), 0)
    assert (recording.torn, recording.broken, recording.faults) == (False, 0, [])


def test_content_comes_back_as_plain_data() -> None:
    """What was sent and received is given as messages of plain data."""
    sent = ContentSent(run_id="r", number=1, inherited=2, messages=(Message.user("Hi"), Message.user("there")))
    received = ContentReceived(run_id="r", number=1, message=Message.assistant("Yes"))
    found = [recorded.event for recorded in Recording(lines([sent, received]))]
    assert [(one.direction, one.inherited) for one in found if isinstance(one, ContentRecorded)] == [
        ("sent", 2),
        ("received", 0),
    ]
    assert isinstance(found[1], ContentRecorded)
    assert found[1].messages == ({"role": "assistant", "parts": ({"type": "text", "text": "Yes"},)},)


def test_receipts_may_be_passed_over() -> None:
    """Who needs no receipts gets everything else."""
    [finished] = [one.event for one in Recording(lines(EVENTS[2:3]), receipts=False)]
    assert isinstance(finished, AttemptFinished)
    assert finished.receipt is None
    assert finished.response_id == "x"


def test_failed_receipts_come_back() -> None:
    """A receipt that tells a failure is read as such."""
    failed = Failed(kind="timeout", message="idle")
    receipt = TransportReceipt.from_dict(
        {**RECEIPT.to_dict(), "outcome": {"Failed": {"kind": "timeout", "message": "idle"}}}
    )
    told = AttemptFinished(
        run_id="r", number=2, purpose="generate", request_id="r-2", status="failed", duration_s=1, first_event_s=None,
        body_sha256="", receipt=receipt,
    )  # fmt: skip
    [found] = [one.event for one in Recording(lines([told]))]
    assert found == told
    assert isinstance(found, AttemptFinished)
    assert found.receipt is not None
    assert found.receipt.outcome == failed


def test_what_a_newer_version_writes_is_passed_over_and_counted() -> None:
    """An unknown kind and a later version are skipped; an unknown field of a known kind does not matter."""
    line = json.loads(lines(EVENTS[:1])[0])
    newer = [
        {**line, "v": VERSION + 1, "run_id": {"another": "form"}},
        {**line, "kind": "RunTeleported"},
        {**line, "colour": "blue"},
    ]
    recording = Recording([json.dumps(one).encode() + b"\n" for one in newer])
    assert [one.event for one in recording] == [STARTED]
    assert (recording.skipped, recording.broken) == (2, 0)


def test_a_last_line_that_was_cut_off_is_no_fault() -> None:
    """Whatever a killed process has left of its last line, the others are read."""
    *whole, last = lines(EVENTS)
    for end in (1, 9, 30, len(last) - 2):
        recording = Recording([*whole, last[:end]])
        assert len(list(recording)) == len(whole)
        assert (recording.torn, recording.broken) == (True, 0)


def test_a_whole_last_line_needs_no_end() -> None:
    """A file whose last line break an editor took away is whole."""
    recording = Recording([lines(EVENTS[:1])[0].rstrip(b"\n")])
    assert len(list(recording)) == 1
    assert not recording.torn


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"run_id": 3}, "is no RunStarted: run_id: 3 is not a string"),
        ({"streamed": "yes"}, 'is no RunStarted: streamed: "yes" is not true or false'),
        ({"parent_run_id": ["q"]}, "is no RunStarted: parent_run_id: this list is not a string"),
        ({"settings": {"max_output_tokens": "9"}}, 'settings.max_output_tokens: "9" is not a whole number'),
        ({"settings": {"max_output_tokens": 0}}, "is no RunStarted: settings: "),
        ({"parent_carrier": [1]}, "is no RunStarted: parent_carrier: this list is not an object"),
        ({"v": "1"}, "has no version v"),
        ({"at": None}, "has no time at"),
        ({"at": -1}, "has no time at"),
        ({"at": 1e300}, "has no time at"),
        ({"kind": None}, "no kind"),
    ],
)
def test_a_broken_line_is_named_by_its_number(change: dict[str, object], problem: str) -> None:
    """A line that does not fit is told with its number and place, and the lines around it are read."""
    before, after = lines(EVENTS[1:3])
    broken = json.dumps({**json.loads(lines(EVENTS[:1])[0]), **change}).encode() + b"\n"
    recording = Recording([before, b"\n", broken, after])
    assert len(list(recording)) == 2
    [fault] = recording.faults
    assert (fault.line, recording.broken) == (3, 1)
    assert problem in fault.problem


@pytest.mark.parametrize(
    "line",
    [b"no json\n", b"[1]\n", b"null\n", b'{"v":1}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"v":1,"at":1,"kind"\n'],
)
def test_any_line_may_be_broken(line: bytes) -> None:
    """Bytes of any kind are one broken line and never an exception."""
    recording = Recording([line, *lines(EVENTS[:1])])
    assert len(list(recording)) == 1
    assert recording.broken == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"words\n", "is no JSON: it begins with 'words'; a line is a JSON object with v, at and kind"),
        (b"[" * 100_000 + b"\n", "nests objects and lists too deeply"),
        ('{"v":1}\n'.encode("utf-16")[:-1], "is no JSON: it looks like UTF-16; save the file as UTF-8"),
        (b'{"v":1,"at":1,"kind"\n', "is no JSON: it is an object that is broken or cut off; "),
        (b'{"v":"\xff"}\n', "is no JSON: it holds bytes that are no UTF-8; save the file as UTF-8"),
        (b'{"v":1,"at":1,"kind":"TurnDelivered"}\n', "is no TurnDelivered: scope_id is missing; remaining is missing"),
        (
            b'{"v":1,"at":1,"kind":"AttemptsPaused","run_id":"r","wait_s":1,"failure_kind":5}\n',
            "is no AttemptsPaused: failure_kind: 5 is none of ",
        ),
    ],
)
def test_faults_are_told_in_our_words(line: bytes, problem: str) -> None:
    """What is wrong with a line, and what would be right, is a sentence without a parser's jargon."""
    recording = Recording([line, *lines(EVENTS[:1])])
    assert len(list(recording)) == 1
    [fault] = recording.faults
    assert problem in fault.problem
    assert not [word for word in ("recursion", "byte 0", "Optional", "malformed", "@", "$") if word in fault.problem]


def test_a_byte_order_mark_is_no_fault() -> None:
    """A file that an editor has marked as UTF-8 is read as it would be without the mark."""
    first, *rest = lines(EVENTS)
    recording = Recording([b"\xef\xbb\xbf" + first, *rest])
    assert [one.event for one in recording] == list(EVENTS)
    assert recording.broken == 0


def test_many_broken_lines_are_counted_but_not_all_described() -> None:
    """Of a file with thousands of broken lines, the first are described and all are counted."""
    recording = Recording([b"x\n"] * 5000)
    assert list(recording) == []
    assert recording.broken == 5000
    assert len(recording.faults) < 100


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    """A recording on disk gives what its observer was told; one that is not there is an error at once."""
    path = tmp_path / "r.jsonl"
    with JsonLinesObserver(path) as observer:
        for event in EVENTS:
            observer.on_event(event)
    assert [one.event for one in read_recording(path)] == list(EVENTS)
    with pytest.raises(FileNotFoundError):
        read_recording(tmp_path / "none.jsonl")
