"""``furcate batch --dry-run``: what a start would find and do, told without doing it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from furcate.batch import open_journal
from furcate.testing import Answer, StubProvider, StubRequest, answer

Command = Callable[..., Any]

PROMPT = '[prompts.say]\nmessages = [{ role = "user", template = "Say {{ word }}." }]\n'


def echo(request: StubRequest) -> Answer:
    """Answer with what was said."""
    return answer(request.body["messages"][-1]["content"])


def write(*rows: object) -> None:
    """Write items."""
    Path("items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def numbered(count: int) -> list[dict[str, str]]:
    """Make items."""
    return [{"id": f"i{number}", "word": f"w{number}"} for number in range(count)]


@pytest.fixture
def furcate(furcate_by_descriptor: Command) -> Command:
    """Run the command line in this process."""
    return furcate_by_descriptor


@pytest.fixture
def server(configured: Command) -> Iterator[StubProvider]:
    """Serve a stub that echoes, with a prompt configured for it."""
    with StubProvider.in_thread(echo) as stub:
        configured(stub.base_url, more=PROMPT)
        yield stub


def test_what_is_finished_would_not_be_sent_again(furcate: Command, server: StubProvider, loop: str) -> None:
    """What a start would find in the journal is told in the same words, and the journal stays as it is."""
    write(*numbered(6), {"id": "bare"})
    furcate("batch", "say", "items.jsonl", "--limit", "3", "--concurrency", "1")
    before = Path("items.journal").read_bytes()
    said = furcate("batch", "say", "items.jsonl", "--dry-run", "--loop", loop)
    assert said.status == 1
    assert said.err.splitlines()[0] == "furcate: items.journal has 3 finished items; 4 to do"
    assert "dry run: 3 items would be sent; nothing was" in said.err
    assert "1 item would fail: 1 RenderError" in said.err
    assert [line["id"] for line in said.lines] == ["bare"]
    assert len(server.requests) == 3
    assert Path("items.journal").read_bytes() == before


def test_what_has_failed_stays_failed(furcate: Command, server: StubProvider) -> None:
    """It would not be tried again, and what to do about that is told."""
    write(*numbered(2), {"id": "bare"})
    furcate("batch", "say", "items.jsonl")
    said = furcate("batch", "say", "items.jsonl", "--dry-run")
    assert (said.status, said.out) == (0, "")
    assert "has 2 finished items, 1 failed before ('furcate batch retry items.journal' has them" in said.err
    assert "dry run: 0 items would be sent; nothing was" in said.err


@pytest.mark.parametrize("more", [("--code", "2"), ()])
def test_a_start_that_would_be_refused_is(furcate: Command, server: StubProvider, more: tuple[str, ...]) -> None:
    """With the sentence and the status that the start has; with --changed redo it tells what would be done again."""
    rows = numbered(3)
    write(*rows)
    furcate("batch", "say", "items.jsonl")
    if not more:
        rows[1]["word"] = "new"
        write(*rows)
    given = ("batch", "say", "items.jsonl", *more)
    said = furcate(*given, "--dry-run")
    assert (said.status, said.out) == (2, "")
    assert "(--changed redo, or --changed keep)" in said.err
    assert said == furcate(*given)
    redone = furcate(*given, "--dry-run", "--changed", "redo")
    told = "3 items finished before" if more else "1 item finished before"
    assert f"{told} will be done again, since something has changed" in redone.err
    assert f"dry run: {'3 items' if more else '1 item'} would be sent; nothing was" in redone.err
    assert len(server.requests) == 3


def test_a_file_that_is_no_journal_is_refused(furcate: Command, server: StubProvider) -> None:
    """As by the start; where there is none yet, none is made."""
    write(*numbered(1))
    Path("other").write_text("no journal at all, but long enough to be looked at " * 3)
    for name in ("other", "nowhere/job.journal"):
        said = furcate("batch", "say", "items.jsonl", "--journal", name, "--dry-run")
        assert said.status == 2
        assert said == furcate("batch", "say", "items.jsonl", "--journal", name)
    assert furcate("batch", "say", "items.jsonl", "--dry-run").status == 0
    assert not list(Path().glob("*.journal*"))


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder in which nobody can make a file")
def test_results_that_could_not_be_written_are_told(furcate: Command, server: StubProvider) -> None:
    """Before anything was paid for; a file that could be written is neither made nor touched."""
    write(*numbered(1))
    given = ("batch", "say", "items.jsonl", "--dry-run", "--results")
    said = furcate(*given, "/proc/results")
    assert said.status == 2
    assert "--results /proc/results cannot be written: " in said.err
    assert furcate(*given, "items.jsonl").status == 2
    assert furcate(*given, "new.jsonl").status == 0
    assert not Path("new.jsonl").exists()
    Path("old.jsonl").write_text("of an earlier start\n")
    assert furcate(*given, "old.jsonl").status == 0
    assert Path("old.jsonl").read_text() == "of an earlier start\n"


def test_half_a_character_fails_as_it_would(furcate: Command, server: StubProvider) -> None:
    """The line is the one that the start writes."""
    write({"id": "half", "word": "\ud800"}, *numbered(1))
    dry = furcate("batch", "say", "items.jsonl", "--dry-run")
    assert dry.status == 1
    assert "dry run: 1 item would be sent; nothing was" in dry.err
    done = furcate("batch", "say", "items.jsonl")
    assert dry.lines == [line for line in done.lines if line["status"] == "failed"]


def test_a_limit_counts_what_is_begun(furcate: Command, server: StubProvider) -> None:
    """Items that ask nothing or fail count as well, as in a start, and lines that cannot be read do not."""
    Path("work.py").write_text(
        "import sys\nasync def go(item, job):\n    return sys.exit(3) if item['id'] == 'i1' else 'nothing asked'\n"
    )
    write(*numbered(6))
    with Path("items.jsonl").open("a") as items:
        items.write("{\n")
    said = furcate("batch", "work:go", "items.jsonl", "--dry-run", "--limit", "3")
    assert "dry run: 0 items would be sent (--limit is 3); nothing was" in said.err
    assert "2 items would ask nothing" in said.err
    assert "2 items would fail: 1 SystemExit · 1 malformed" in said.err
    assert [line["line"] for line in said.lines] == [2, 7]


async def test_that_the_job_is_running_is_told(server: StubProvider, spawn: Command) -> None:
    """A start would be refused; what it would find is told all the same."""
    write(*numbered(1))
    async with open_journal("items.journal"):
        process = spawn("batch", "say", "items.jsonl", "--dry-run")
        _, err = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0
    assert re.match(r"furcate: items.journal: pid \d+ on .+ runs this job, so that a start would be refused now\n", err)
    assert "dry run: 1 item would be sent; nothing was" in err
