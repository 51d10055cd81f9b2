"""Results as lines that no reader takes for two."""

from __future__ import annotations

import io
import json

import anyio
import pytest

from furcate.cli._lines import LineWriter, branch_line, json_line


@pytest.mark.parametrize("text", ["a\nb", "a\u2028b\u2029c\x85d", "\x1b[31m\x9b", "é🚲", "\ud800 alone", '"\\'])
def test_line_is_one_line_and_comes_back(text: str) -> None:
    """Whatever a text holds, its line is one line of UTF-8 without control characters, and the text comes back."""
    line = json_line({"text": text})
    (only,) = line.decode("utf-8").splitlines()
    assert only.isprintable()
    assert json.loads(only) == {"text": text}


def test_letters_stay_readable() -> None:
    """Letters of any language are not escaped."""
    assert "Zürich 東京".encode() in json_line("Zürich 東京")


def test_branch_without_anything_has_all_fields() -> None:
    """A branch that never began has the same fields as any other, with null for what is unknown."""
    line = branch_line(None, "b", status="cancelled")
    assert line["status"] == "cancelled"
    assert line["turns"] == 0
    assert line["messages"] == []
    assert line["usage"] == dict.fromkeys(
        ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    )
    assert {name for name, value in line.items() if value is None} >= {"input", "outcome", "error", "run_id", "text"}


async def test_lines_are_whole_even_under_cancellation() -> None:
    """Lines written side by side, and by somebody who is cancelled, are each whole."""
    file = io.BytesIO()
    writer = LineWriter(file)
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(writer.write, {"n": number})
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert sorted(json.loads(line)["n"] for line in file.getvalue().splitlines()) == [0, 1, 2, 3, 4]
