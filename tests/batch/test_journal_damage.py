"""Journals that are not as they were written: whoever opens or reads one is told so, and by nothing else."""

from __future__ import annotations

import io
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

import furcate
from furcate.batch import (
    About,
    ItemFailure,
    ItemJob,
    JobOptions,
    KeptCall,
    encode,
    line_of,
    open_job,
    open_journal,
    open_source,
    read_journal,
)
from furcate.primitives._errors import JournalError

pytestmark = pytest.mark.anyio

ITEMS = 12


async def _made(path: Path) -> Path:
    """Make a journal that has some of everything."""
    lines = b"".join(b'{"id":"i%d"}\n' % number for number in range(ITEMS))
    async with open_journal(path) as journal:
        async with open_source(io.BytesIO(lines + b"{oh\n"), "jsonl") as source:
            await journal.enroll(source, about=About(target="a:b", source="x", digests={"code": "1"}))
        for number in range(6):
            await journal.finish(f"i{number}", encode({"text": "word " * 200}), observations=[b'{"a":1}'])
        await journal.fail("i6", ItemFailure("busy", "not now"))
        await journal.keep_call("i7", KeptCall(run_id="r", number=1, key=bytes(32), data=b"\x95no call"))
    return path


async def _look(path: Path) -> None:
    async with read_journal(path) as reader:
        await reader.status()
        await reader.holder()
        async with reader.rows(states=("pending", "finished", "failed"), gone=True) as rows:
            assert [line_of(row) async for row in rows]


async def _go_on(path: Path) -> None:
    async def target(item: object, job: ItemJob) -> int:
        return 1

    engine = furcate.Engine(backends=[furcate.Backend("none")])
    items = [{"id": f"i{number}"} for number in range(ITEMS)]
    options = JobOptions(on_changed="redo")
    async with engine, open_job(target, items, engine=engine, journal=path, options=options) as job:
        await job.run()


LOOK, GO_ON = (_look,), (_go_on,)


@pytest.mark.parametrize(
    ("statement", "uses"),
    [
        ("PRAGMA user_version = 0", LOOK + GO_ON),
        ("DROP TABLE meta", LOOK + GO_ON),
        ("DROP TABLE items", LOOK + GO_ON),
        ("DROP TABLE outcomes", LOOK + GO_ON),
        ("DROP TABLE calls", GO_ON),
        ("ALTER TABLE items DROP COLUMN lower_bounds", LOOK + GO_ON),
        ("DELETE FROM meta", LOOK),
        ("UPDATE meta SET value = 'no JSON'", LOOK + GO_ON),
        ("UPDATE meta SET value = '[]' WHERE name = 'about'", LOOK + GO_ON),
        ("UPDATE outcomes SET result = x'ff' WHERE result IS NOT NULL", LOOK),
        ("UPDATE outcomes SET result = x'7b' WHERE result IS NOT NULL", LOOK),
        ("UPDATE outcomes SET error = x'7b' WHERE error IS NOT NULL", LOOK),
        ("UPDATE outcomes SET error = x'5b5d' WHERE error IS NOT NULL", LOOK),
        ("UPDATE items SET input_tokens = 'many' WHERE state = 'finished'", LOOK),
        ("UPDATE items SET id = CAST(x'ff' AS TEXT) WHERE id = 'i3'", LOOK),
        ("SELECT 1", GO_ON),
        ("UPDATE calls SET data = 'text'", GO_ON),
    ],
)
async def test_what_is_damaged_is_told(
    tmp_path: Path, statement: str, uses: tuple[Callable[[Path], Awaitable[None]], ...]
) -> None:
    """Tables that are missing, and values that are no JSON, no MessagePack or no text."""
    path = await _made(tmp_path / "j")
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    for use in uses:
        with pytest.raises(JournalError) as told:
            await use(path)
        assert told.value.reason == "damaged"
        assert str(told.value).startswith(f"{path}: ")


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_damaged_raises_nothing_else(tmp_path: Path, seed: int) -> None:
    """Bytes that are changed, wiped out or cut off at random places are found, or do no harm."""
    path = await _made(tmp_path / "j")
    chosen = random.Random(seed)
    content = bytearray(path.read_bytes())
    at = chosen.randrange(len(content))
    if seed % 3 == 0:
        for _ in range(50):
            content[chosen.randrange(len(content))] = chosen.randrange(256)
    elif seed % 3 == 1:
        content[at : at + 5000] = bytes(len(content[at : at + 5000]))
    else:
        del content[at:]
    for use in (_look, _go_on):
        path.write_bytes(content)
        with suppress(JournalError):
            await use(path)
