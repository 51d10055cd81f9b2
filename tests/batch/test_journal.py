"""The journal's writes: durable when they return, whole, shared, and refused where they are wrong."""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from furcate.batch import (
    About,
    Enrollment,
    ItemFailure,
    ItemState,
    Journal,
    JournalRow,
    KeptCall,
    encode,
    open_journal,
    open_source,
    read_journal,
)
from furcate.primitives._errors import JournalError, MisuseError
from furcate.primitives._usage import Usage
from furcate.testing import Cut, sweep

EVERY: tuple[ItemState, ...] = ("pending", "finished", "failed")


def _lines(count: int) -> bytes:
    return b"".join(b'{"id":"%d"}\n' % number for number in range(count))


async def _enroll(journal: Journal, content: bytes) -> Enrollment:
    async with open_source(io.BytesIO(content), "jsonl") as source:
        return await journal.enroll(source)


@asynccontextmanager
async def _job(folder: Path, items: int = 3) -> AsyncIterator[Journal]:
    async with open_journal(folder / "job.journal") as journal:
        await _enroll(journal, _lines(items))
        yield journal


async def _rows(journal: Journal) -> dict[str | None, JournalRow]:
    async with journal.rows(states=EVERY, gone=True) as rows:
        return {row.id: row async for row in rows}


async def test_what_came_of_items_is_there_after_reopening(tmp_path: Path) -> None:
    """Results, errors, usage and times outlive the block, and so does what the job is."""
    usage = Usage(input_tokens=10, output_tokens=3, lower_bounds={"output_tokens"})
    about = About(target="jobs:work", source="items.jsonl", digests={"code": "1"})
    async with open_journal(tmp_path / "job.journal") as journal:
        assert journal.stored is None
        async with open_source(io.BytesIO(_lines(3))) as source:
            await journal.enroll(source, about=about)
        await journal.begin("0")
        await journal.finish("0", encode({"b": 1, "a": ["é", None]}), usage=usage)
        await journal.begin("2")
        await journal.fail("2", ItemFailure("refusal", "the model refused"))
    async with open_journal(tmp_path / "job.journal") as journal:
        assert journal.stored == journal.about == about
        rows = await _rows(journal)
    first, pending, failed = rows["0"], rows["1"], rows["2"]
    assert (first.state, first.result, first.usage) == ("finished", '{"b":1,"a":["é",null]}'.encode(), usage)
    assert first.value == {"b": 1, "a": ["é", None]}
    assert (first.tries, first.order, first.setup, first.position, first.line) == (1, 1, about.setup, 0, 1)
    assert first.started_at is not None
    assert first.ended_at is not None
    assert first.started_at <= first.ended_at
    assert pending == JournalRow(id="1", line=2, position=1, state="pending")
    assert (failed.state, failed.error, failed.value) == ("failed", ItemFailure("refusal", "the model refused"), None)


async def test_a_write_is_on_the_disk_once_it_returns(tmp_path: Path) -> None:
    """Another connection sees it at once, and each commit waits for the disk."""
    async with _job(tmp_path) as journal:
        await journal.finish("1", b"7")
        beside = sqlite3.connect(tmp_path / "job.journal")
        assert beside.execute("SELECT state FROM items WHERE id = '1'").fetchall() == [("finished",)]
        beside.close()
        assert await journal._database.run(lambda on: on.execute("PRAGMA synchronous").fetchall()) == [(2,)]
        assert await journal._database.run(lambda on: on.execute("PRAGMA journal_mode").fetchall()) == [("wal",)]


async def test_writes_that_come_together_share_a_commit(tmp_path: Path) -> None:
    """Fifty items that end at once do not wait for the disk fifty times."""
    statements: list[str] = []
    async with _job(tmp_path, 50) as journal:
        await journal._database.run(lambda on: on.set_trace_callback(statements.append))
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(journal.finish, str(number), b"1")
        assert (await journal.status()).finished == 50
    assert 1 <= statements.count("COMMIT") <= 10


async def test_a_wrong_write_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    """Of writes that share a commit, each is told its own fault."""
    told: list[BaseException] = []

    async def finish(journal: Journal, name: str) -> None:
        try:
            await journal.finish(name, b"1")
        except (JournalError, MisuseError) as error:
            told.append(error)

    async with _job(tmp_path, 4) as journal:
        async with anyio.create_task_group() as tasks:
            for name in ("0", "none", "1", "1", "3"):
                tasks.start_soon(finish, journal, name)
        rows = await _rows(journal)
    assert [row.state for row in rows.values()] == ["finished", "finished", "pending", "finished"]
    assert sorted(type(error).__name__ for error in told) == ["JournalError", "MisuseError"]
    assert any("has no item 'none'" in str(error) for error in told)
    assert any("item '1' has finished already" in str(error) for error in told)


async def test_only_pending_items_begin_and_end(tmp_path: Path) -> None:
    """Ending an item twice, or beginning one that has ended, is a fault of the program."""
    async with _job(tmp_path) as journal:
        await journal.fail("0", ItemFailure("x", "y"))
        for write in (journal.begin("0"), journal.finish("0", b"1"), journal.fail("0", ItemFailure("x", "y"))):
            with pytest.raises(MisuseError, match="item '0' has failed already"):
                await write
        with pytest.raises(MisuseError, match="not on one line"):
            await journal.finish("1", b"[1,\n2]")


async def test_failed_items_are_retried(tmp_path: Path) -> None:
    """All of them or some kinds; those that cannot be read stay as they are, and tries go on being counted."""
    async with open_journal(tmp_path / "job.journal") as journal:
        await _enroll(journal, _lines(3) + b"{oh\n")
        for name, kind in (("0", "refusal"), ("1", "provider")):
            await journal.begin(name)
            await journal.fail(name, ItemFailure(kind, "no"), usage=Usage(input_tokens=1))
        assert await journal.retry(["refusal", "other"]) == 1
        assert (await _rows(journal))["0"] == JournalRow(id="0", line=1, position=0, state="pending", tries=1)
        assert await journal.retry() == 1
        assert await journal.retry() == 0
        status = await journal.status()
        assert (status.pending, status.failed, status.failures) == (3, 1, (("malformed", 1),))


async def test_calls_are_kept_until_their_item_finishes(tmp_path: Path) -> None:
    """They come back in the order in which they were answered; equal requests of two items stay apart."""
    calls = [
        KeptCall(run_id=run, number=number, key=bytes(32), data=b"%d" % number) for run in "ab" for number in (1, 2)
    ]
    again = KeptCall(run_id="a", number=2, key=bytes(32), data=b"again")
    async with _job(tmp_path) as journal:
        for call in (*calls, again):
            await journal.keep_call("0", call)
        await journal.keep_call("1", calls[0])
    async with open_journal(tmp_path / "job.journal") as journal:
        assert await journal.calls("0") == (calls[0], *calls[2:], again)
        assert await journal.calls("1") == (calls[0],)
        await journal.finish("0", b"1")
        await journal.finish("1", b"1", keep_calls=True)
        assert await journal.calls("0") == ()
        assert len(await journal.calls("1")) == 1
        await journal.keep_call("2", calls[0])
        await journal.keep_call("2", again)
        await journal.fail("2", ItemFailure("x", "y"), forget_calls=[("a", 1), ("other", 2)])
        assert await journal.calls("2") == (again,)
        await journal.drop_calls("2")
        assert await journal.calls("2") == ()


async def test_observations_are_kept_in_order(tmp_path: Path) -> None:
    """They belong to their item and stay when it has ended."""
    async with _job(tmp_path) as journal:
        for data in (b"1", b"2"):
            await journal.observe("0", data)
        await journal.observe("1", b"3")
        await journal.finish("0", b"1", observations=[b"4", b"5"])
        await journal.fail("1", ItemFailure("x", "y"), observations=[b"6"])
        assert await journal.observations("0") == (b"1", b"2", b"4", b"5")
        assert await journal.observations("1") == (b"3", b"6")
        with pytest.raises(JournalError, match="no item 'x'"):
            await journal.observe("x", b"1")


async def test_a_journal_is_used_inside_its_block(tmp_path: Path) -> None:
    """Afterwards it says so, and nothing of it is left open."""
    async with _job(tmp_path) as journal:
        pass
    with pytest.raises(MisuseError, match="outside the block"):
        await journal.finish("0", b"1")
    with pytest.raises(MisuseError, match="outside the block"):
        await journal.status()
    assert sorted(os.listdir(tmp_path)) == ["job.journal", "job.journal.lock"]


@pytest.mark.parametrize("native", [False, True])
async def test_a_cancelled_journal_is_whole(tmp_path: Path, anyio_backend_name: str, native: bool) -> None:
    """Cancelled anywhere, each write is there as a whole or not at all, and the lock is free again."""
    if native and anyio_backend_name != "asyncio":
        native = False
    runs = 0

    async def story() -> None:
        nonlocal runs
        runs += 1
        folder = tmp_path / str(runs)
        folder.mkdir()
        async with _job(folder) as journal:
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(work, journal, str(number))

    async def work(journal: Journal, name: str) -> None:
        await journal.begin(name)
        await journal.keep_call(name, KeptCall(run_id="r", number=1, key=bytes(32), data=b"x"))
        await journal.finish(name, b'"done"')

    async def check(_cut: Cut[None]) -> None:
        path = tmp_path / str(runs) / "job.journal"
        async with open_journal(path) as journal:
            rows = await _rows(journal)
            assert len(rows) in (0, 3)
            for name, row in rows.items():
                assert name is not None
                assert (row.result == b'"done"') == (row.state == "finished") == (row.order is not None)
                if row.state == "finished":
                    assert await journal.calls(name) == ()

    swept = await sweep(story, check, native=native, every=3)
    assert swept.cancelled > 3


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_write_that_is_cancelled_while_it_is_committed_is_kept(tmp_path: Path) -> None:
    """The event loop's own cancellation leaves the worker thread at work, and others wait for it."""
    async with _job(tmp_path) as journal:
        with journal._database._guard:
            first = asyncio.create_task(journal.finish("0", b"1"))
            await asyncio.sleep(0.05)
            second = asyncio.create_task(journal.finish("1", b"1"))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        await second
        assert {name: row.state for name, row in (await _rows(journal)).items()} == {
            # Whoever is cancelled before the thread has taken its write has withdrawn it.
            "0": "pending",
            "1": "finished",
            "2": "pending",
        }


async def test_rows_are_as_they_were_when_the_stream_was_opened(tmp_path: Path) -> None:
    """What is written meanwhile is not half in it, and the job is not held up."""
    async with _job(tmp_path, 600) as journal, read_journal(tmp_path / "job.journal") as reader:
        await journal.finish("0", b"1")
        async with reader.rows(states=EVERY) as rows:
            first = await anext(rows)
            await journal.finish("599", b"1")
            rest = [row async for row in rows]
        assert (first.state, len(rest), rest[-1].state) == ("finished", 599, "pending")
        async with reader.rows() as rows:
            assert [row.id async for row in rows] == ["0", "599"]


async def test_rows_come_in_either_order(tmp_path: Path) -> None:
    """In the order of the input or of the ends, with what the input no longer has or without it."""
    async with open_journal(tmp_path / "job.journal") as journal:
        await _enroll(journal, _lines(4))
        for name in ("3", "1", "0"):
            await journal.finish(name, name.encode())
        await journal.fail("2", ItemFailure("x", "y"))
        await _enroll(journal, b'{"id":"0"}\n{"id":"3"}\n{"id":"2"}\n')
        for order, gone, expected in (
            ("items", False, ["0", "3", "2"]),
            ("items", True, ["0", "3", "2", "1"]),
            ("ends", False, ["3", "0", "2"]),
            ("ends", True, ["3", "1", "0", "2"]),
        ):
            async with journal.rows(order, gone=gone) as rows:  # type: ignore[arg-type]
                assert [row.id async for row in rows] == expected
        async with journal.rows(states=["failed"]) as rows:
            assert [row.id async for row in rows] == ["2"]


async def test_status_counts_and_totals(tmp_path: Path) -> None:
    """Counts by state and kind, and usage that knows what it does not know."""
    async with open_journal(tmp_path / "job.journal") as journal:
        await _enroll(journal, _lines(5) + b"{oh\n")
        await journal.begin("0")
        await journal.finish("0", b"1", usage=Usage(input_tokens=5, output_tokens=2))
        await journal.finish("1", b"1", usage=Usage(input_tokens=7).as_lower_bound())
        await journal.fail("2", ItemFailure("refusal", "no"))
        await _enroll(journal, _lines(4) + b"{oh\n")
        status = await journal.status()
        assert (await journal.holder()) is not None
    assert (status.items, status.pending, status.finished, status.failed, status.gone) == (5, 1, 2, 2, 1)
    assert status.failures == (("malformed", 1), ("refusal", 1))
    counted = status.usage["input_tokens"]
    assert (counted.known, counted.exact, counted.at_least, counted.unknown) == (12, 1, 1, 1)
    assert status.usage["reasoning_tokens"].known is None
    assert status.started_at is not None
    assert status.ended_at is not None
    assert status.created_at <= status.started_at
    async with read_journal(tmp_path / "job.journal") as reader:
        assert await reader.holder() is None


def test_results_are_encoded_on_one_line() -> None:
    """Whatever other readers take for the end of a line is written otherwise, and what is no JSON is refused."""
    assert encode({"b": "ü\n\u2028\x85", "a": (1, 2.5, None)}) == '{"b":"ü\\n\\u2028\\u0085","a":[1,2.5,null]}'.encode()
    assert encode("\ud800") == b'"\\ud800"'
    with pytest.raises(TypeError, match=r"\$\.a is of type set"):
        encode({"a": {1}})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="finite"):
        encode([float("nan")])
