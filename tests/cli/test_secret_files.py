"""What the command writes and prints while a key is in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from furcate.testing import StubProvider, answer, error

Command = Callable[..., Any]

KEY = "hidden-0123456789-do-not-show"
PLAN = """
[opening]
messages = [{ role = "user", template = "Read: {{ inputs.document }}" }]
input = "document"

[[branches]]
name = "one"
follow_ups = ["first"]

[[branches]]
name = "two"
follow_ups = ["second"]
"""


def test_no_key_in_what_is_printed_and_written(furcate_command: Command, folder: Path) -> None:
    """Lines, receipts and messages hold no key, be it one that the server repeats when it refuses it."""
    (folder / "a.txt").write_text("A")
    (folder / "plan.toml").write_text(PLAN)
    script = [answer("Hello."), answer("One."), error(401, f"the key {KEY} is not valid")]
    with StubProvider.in_thread(script, key=KEY) as stub:
        (folder / "furcate.toml").write_text(
            f'[backends.stub]\nbase_url = "{stub.base_url}"\napi_key = "{KEY}"\nattempts = 1\ncapacity = 1\n'
            '[profiles.only]\nbackend = "stub"\nmodel = "m"\n'
        )
        said = furcate_command("explore", "plan.toml", "a.txt", "--out", "out.jsonl", "--receipts", "receipts.jsonl")
        checked = furcate_command("check", "furcate.toml")
        assert len(stub.requests) == 3
    written = [path.read_text() for path in folder.glob("*.jsonl")]
    assert len(written) == 2
    for text in (*written, said.out, said.err, checked.out, checked.err):
        assert KEY not in text
    assert "STUB_API_KEY" in checked.out + checked.err, "a key in a file is warned of, with the variable to use"
