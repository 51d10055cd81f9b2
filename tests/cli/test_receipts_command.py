"""Receipts on the command line: written as attempts end, checked afterwards."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from furcate.primitives._receipt import Completed, Failed, ReceiptUsage, TransportReceipt
from furcate.testing import StubProvider, answer, error

Command = Callable[..., Any]

PLAN = """
[opening]
messages = [{ role = "user", template = "Hello" }]
[[branches]]
name = "a"
follow_ups = ["more"]
[[branches]]
name = "b"
follow_ups = ["less"]
"""
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
LINE = json.dumps(RECEIPT.to_dict())


def receipts(path: Path) -> list[TransportReceipt]:
    return [TransportReceipt.from_dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def test_run_appends_a_receipt_for_each_attempt(furcate_command: Command, configured: Command, loop: str) -> None:
    """A failed attempt and the one that succeeds each have a line, and a second run's lines come after them."""
    with StubProvider.in_thread([error(503), answer("PRIVATE"), answer("again")]) as stub:
        path = configured(stub.base_url)
        retrying = path.read_text().replace("attempts = 1", "attempts = 2\nfirst_backoff_s = 0.001")
        path.write_text(retrying)
        arguments = ("run", "-m", "SECRET", "--json", "--receipts", "r.jsonl", "--loop", loop)
        told = furcate_command(*arguments)
        assert len(receipts(Path("r.jsonl"))) == 2
        assert furcate_command(*arguments).status == 0
    failed, completed, again = receipts(Path("r.jsonl"))
    assert isinstance(failed.outcome, Failed)
    assert failed.outcome.kind == "unavailable"
    assert isinstance(completed.outcome, Completed)
    assert (failed.request_id, completed.request_id) == tuple(f"{told.lines[0]['run_id']}-{n}" for n in (1, 2))
    # The same request is asked each time: digests bind what was asked, not which attempt it was.
    assert len({one.native_request_sha256 for one in (failed, completed, again)}) == 1
    assert "SECRET" not in Path("r.jsonl").read_text()
    assert "PRIVATE" not in Path("r.jsonl").read_text()


def test_explore_appends_a_receipt_for_each_attempt(furcate_command: Command, configured: Command, loop: str) -> None:
    """The opening and every turn of every branch have a receipt, which the check accepts."""
    Path("plan.toml").write_text(PLAN)
    with StubProvider.in_thread(lambda _: answer("ok")) as stub:
        configured(stub.base_url)
        said = furcate_command("explore", "plan.toml", "--receipts", "r.jsonl", "--loop", loop)
    assert (said.status, len(said.lines)) == (0, 2)
    assert len({receipt.request_id for receipt in receipts(Path("r.jsonl"))}) == 3
    checked = furcate_command("receipts", "verify", "r.jsonl")
    assert (checked.status, checked.out, checked.err) == (0, "3 receipts, all valid\n", "")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("no/r.jsonl", "--receipts no/r.jsonl: there is no folder no; make it first"),
        (".", "--receipts . is a folder; name a file"),
        ("plan.txt", "--receipts plan.txt is an input of this exploration; name another file"),
        ("o.jsonl", "--receipts o.jsonl is the file of --out too; name another file"),
    ],
)
def test_explore_refuses_a_place_for_receipts(
    furcate_command: Command, configured: Command, target: str, wanted: str
) -> None:
    """A place that cannot hold them, or holds something else, is refused before anybody is asked."""
    configured("http://127.0.0.1:9/v1")
    Path("plan.toml").write_text(PLAN.replace("Hello", "{{ inputs.input }}"))
    Path("plan.txt").write_text("text")
    said = furcate_command("explore", "plan.toml", "plan.txt", "--out", "o.jsonl", "--receipts", target)
    assert (said.status, said.err) == (2, f"furcate: {wanted}\n")


def test_run_refuses_a_place_for_receipts(furcate_command: Command, configured: Command) -> None:
    """A file that cannot be opened is told before anybody is asked."""
    configured("http://127.0.0.1:9/v1")
    said = furcate_command("run", "-m", "x", "--receipts", "no/r.jsonl")
    assert said.status == 2
    assert said.err == "furcate: --receipts no/r.jsonl: there is no folder no; make it first\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_receipts_that_cannot_be_written_are_told(furcate_command: Command, configured: Command) -> None:
    """The answer is printed all the same, and the status says that something failed."""
    with StubProvider.in_thread(answer("Hi")) as stub:
        configured(stub.base_url)
        said = furcate_command("run", "-m", "x", "--receipts", "/dev/full")
    assert (said.status, said.out) == (1, "Hi\n")
    assert "receipts cannot be written to /dev/full any more (No space left on device)" in said.err


def test_each_fault_is_told_with_its_line(furcate_command: Command) -> None:
    """Lines that are no JSON, no UTF-8, no receipt or ambiguous are told; the good ones between them are not."""
    extra = json.dumps({**RECEIPT.to_dict(), "note": 1})
    twice = LINE.replace('"model": "m"', '"model": "m", "model": "n"')
    lines = [LINE, "{", extra, LINE, twice, "", "[" * 100_000]
    Path("r.jsonl").write_bytes(b"\n".join(line.encode() for line in lines) + b"\n\xff\n")
    said = furcate_command("receipts", "verify", "r.jsonl")
    assert (said.status, said.out) == (1, "")
    told = said.err.splitlines()
    assert told[0].startswith("r.jsonl:2: receipt: $ is no JSON: ")
    assert told[1] == "r.jsonl:3: receipt: $.note is unknown"
    assert told[2] == "r.jsonl:5: receipt: $..model is there twice"
    assert told[3].startswith("r.jsonl:6: receipt: $ is no JSON: ")
    assert told[4].startswith("r.jsonl:7: receipt: $ ")
    assert told[5] == "r.jsonl:8: receipt: $ is no UTF-8 text (byte 0)"
    assert told[6:] == ["r.jsonl: 6 of 8 lines are no receipts"]


def test_stdin_is_read_where_a_dash_stands(furcate_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts may come through a pipe; none at all are all valid."""
    for content, wanted in ((f"{LINE}\n", "1 receipt, all valid\n"), ("", "0 receipts, all valid\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        said = furcate_command("receipts", "verify", "-")
        assert (said.status, said.out) == (0, wanted)


def test_a_file_that_is_not_there_is_wrong_use(furcate_command: Command) -> None:
    """A missing file has the status of wrong use, so that nobody takes it for a bad receipt."""
    said = furcate_command("receipts", "verify", "gone.jsonl")
    assert said.status == 2
    assert said.err == (
        "furcate: gone.jsonl cannot be read: No such file or directory; name a file of JSON lines that is there\n"
    )
