"""What may stand in a journal's way: other files, other processes, other releases, full disks, missing rights."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from furcate.batch import ItemFailure, Journal, KeptCall, encode, open_journal, open_source, read_journal
from furcate.batch._schema import APPLICATION_ID, STEPS, bring_up_to_date, version_of
from furcate.primitives._errors import JournalError
from furcate.primitives._usage import Usage

VERSION_1 = Path(__file__).parents[1] / "data" / "journal" / "version-1.journal"

HOLDER = """
import sys, anyio
from furcate.batch import open_journal
async def main():
    async with open_journal(sys.argv[1]):
        print("open", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
anyio.run(main)
"""


async def _open(path: Path) -> None:
    async with open_journal(path):
        pass


async def _look(path: Path) -> None:
    async with read_journal(path) as reader:
        await reader.status()


async def _enroll(journal: Journal, count: int) -> None:
    content = b"".join(b'{"id":%d}\n' % number for number in range(count))
    async with open_source(io.BytesIO(content)) as source:
        await journal.enroll(source)


async def _run(program: str, *arguments: str) -> tuple[list[str], str]:
    """Run a program, and give the lines that it says and what it says of errors."""
    with anyio.fail_after(60):
        done = await anyio.run_process([sys.executable, "-c", program, *arguments], check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines(), done.stderr.decode()


def _database(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    """A folder, another file, another application's database and a later release's journal are left as they are."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("some notes, long enough for a page of a database\n" * 100)
    _database(tmp_path / "other", "CREATE TABLE things (x)")
    _database(tmp_path / "marked", "PRAGMA application_id = 7", "CREATE TABLE things (x)")
    _database(tmp_path / "newer", f"PRAGMA application_id = {APPLICATION_ID}", "PRAGMA user_version = 99")
    (tmp_path / "cut").write_bytes(VERSION_1.read_bytes()[:9000])
    for name, reason, said in (
        ("folder", "folder", "this is a folder"),
        ("text", "foreign", "this is no journal"),
        ("other", "foreign", "the database of another application"),
        ("marked", "foreign", "the database of another application"),
        ("newer", "newer", "a later release of furcate wrote this journal .in version 99"),
        ("nowhere/job", "missing", "there is no folder"),
        ("cut", "damaged", "the journal is damaged"),
    ):
        for use in (_open, _look):
            before = (tmp_path / name).read_bytes() if (tmp_path / name).is_file() else b""
            with pytest.raises(JournalError, match=said) as told:
                await use(tmp_path / name)
            assert told.value.reason == reason
            assert str(told.value).startswith(f"{tmp_path / name}: ")
            assert not before or (tmp_path / name).read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".lock") and name != "cut.lock"]


async def test_a_missing_journal_is_made_only_to_run_a_job(tmp_path: Path) -> None:
    """Looking at one makes none; an empty file is as good as none."""
    with pytest.raises(JournalError, match="there is no journal here") as told:
        await _look(tmp_path / "j")
    assert told.value.reason == "missing"
    with pytest.raises(JournalError, match="there is no journal here"):
        async with open_journal(tmp_path / "j", create=False):
            pass  # pragma: no cover
    assert not os.listdir(tmp_path)
    (tmp_path / "j").touch()
    with pytest.raises(JournalError, match="only an empty database"):
        await _look(tmp_path / "j")
    with pytest.raises(JournalError, match="only an empty database"):
        async with open_journal(tmp_path / "j", create=False):
            pass  # pragma: no cover
    await _open(tmp_path / "j")
    await _look(tmp_path / "j")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process run a job."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "j")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process
        process.kill()


async def test_a_second_process_is_refused(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    """It is told which process runs the job, may read meanwhile, and has the job once the other was killed."""
    (tmp_path / "link").symlink_to(tmp_path / "j")
    for name in ("j", "link"):
        with pytest.raises(JournalError, match=rf"another process \(pid {holder.pid} on .+\) is running") as told:
            await _open(tmp_path / name)
        assert (told.value.reason, told.value.pid) == ("busy", holder.pid)
    async with read_journal(tmp_path / "j") as reader:
        running = await reader.holder()
        assert running is not None
        assert running.pid == holder.pid
        assert (await reader.status()).items == 0
    holder.kill()
    holder.wait()
    async with read_journal(tmp_path / "j") as reader:
        assert await reader.holder() is None
    await _open(tmp_path / "j")


async def test_the_same_process_is_refused_as_well(tmp_path: Path) -> None:
    """Two blocks of one program would do each other's items."""
    async with open_journal(tmp_path / "j"):
        with pytest.raises(JournalError, match="this process has the journal open already"):
            await _open(tmp_path / "j")
    await _open(tmp_path / "j")


async def test_no_second_writer_comes_in_by_a_lock_that_is_gone(tmp_path: Path) -> None:
    """Whoever deletes the lock lets another process in; the first one stops before it writes anything more."""
    async with open_journal(tmp_path / "j") as first:
        await _enroll(first, 3)
        (tmp_path / "j.lock").unlink()
        async with open_journal(tmp_path / "j") as second:
            await second.begin("0")
            with pytest.raises(
                JournalError, match=r"its lock .+j\.lock was deleted or replaced while the job ran"
            ) as told:
                await first.begin("1")
            assert told.value.reason == "missing"
            await second.finish("0", b"1")
            await second.begin("1")
    async with read_journal(tmp_path / "j") as reader, reader.rows(states=("pending", "finished")) as rows:
        assert [(row.id, row.tries) async for row in rows] == [("0", 1), ("1", 1), ("2", 0)]


async def test_who_runs_the_job_is_not_forgotten_by_one_that_ran_it_before(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    """A process that leaves a journal which another one runs by now says nothing about that one."""
    (tmp_path / "j.lock").unlink()
    async with open_journal(tmp_path / "j"):
        assert holder.stdin is not None
        holder.stdin.close()
        await anyio.to_thread.run_sync(holder.wait)
        async with read_journal(tmp_path / "j") as reader:
            assert (running := await reader.holder()) is not None
            assert running.pid == os.getpid()


async def test_a_journal_of_two_names_is_refused(tmp_path: Path) -> None:
    """Each name would have a lock and a write-ahead file of its own."""
    await _open(tmp_path / "j")
    os.link(tmp_path / "j", tmp_path / "other")
    for name in ("j", "other"):
        with pytest.raises(JournalError, match=r"the file has 2 names \(hard links\).+; keep one"):
            await _open(tmp_path / name)
    await _look(tmp_path / "j")
    (tmp_path / "other").unlink()
    await _open(tmp_path / "j")


async def test_a_start_that_is_refused_leaves_no_file(tmp_path: Path) -> None:
    """Nothing is there before anything was enrolled; what was there already, or was enrolled, stays."""
    (tmp_path / "link").symlink_to(tmp_path / "far")
    for name in ("j", "link"):
        with pytest.raises(ZeroDivisionError):
            async with open_journal(tmp_path / name):
                raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["link"]
    await _open(tmp_path / "j")
    with pytest.raises(ZeroDivisionError):
        async with open_journal(tmp_path / "j"):
            raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with open_journal(tmp_path / "k") as journal:
            await _enroll(journal, 1)
            raise ZeroDivisionError
    for name in ("j", "k"):
        await _look(tmp_path / name)


@pytest.mark.parametrize("path", ["", ":memory:", b"j", None, 5])
async def test_a_path_that_names_no_file_is_refused(path: object) -> None:
    """SQLite would keep such a journal nowhere."""
    wrong = ValueError if isinstance(path, str) else TypeError
    for use in (open_journal, read_journal):
        with pytest.raises(wrong, match="the path of the journal is"):
            async with use(path):  # type: ignore[arg-type]
                pass  # pragma: no cover


async def test_a_device_is_no_journal() -> None:
    """No lock is put beside it either."""
    for use in (_open, _look):
        with pytest.raises(JournalError, match="this is no file on a disk"):
            await use(Path(os.devnull))
    assert f"{os.path.basename(os.devnull)}.lock" not in os.listdir(os.path.dirname(os.devnull))


async def test_a_database_that_is_full_loses_nothing(tmp_path: Path) -> None:
    """What was finished is there, what was not is not, and the job goes on where there is room again."""
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, 50)
        [[pages]] = await journal._database.run(lambda on: on.execute("PRAGMA page_count").fetchall())
        await journal._database.run(lambda on: on.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall())
        finished = []
        with pytest.raises(JournalError, match="the disk is full; what was kept before is safe") as told:
            for number in range(50):
                await journal.finish(str(number), encode("x" * 10_000))
                finished.append(str(number))
        assert told.value.reason == "full"
        assert 0 < len(finished) < 50
        async with journal.rows() as rows:
            assert [row.id async for row in rows] == finished
        await journal._database.run(lambda on: on.execute("PRAGMA max_page_count = 1000000").fetchall())
        await journal.finish(str(len(finished)), encode("x" * 10_000))
    async with read_journal(tmp_path / "j") as reader:
        assert (await reader.status()).finished == len(finished) + 1


FULL = """
import io, resource, sys, anyio
from furcate.batch import encode, open_journal, open_source
from furcate.primitives._errors import JournalError

async def main():
    content = b"".join(b'{"id":%d}\\n' % number for number in range(100))
    async with open_journal(sys.argv[1]) as journal:
        async with open_source(io.BytesIO(content)) as source:
            await journal.enroll(source)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        try:
            for number in range(100):
                await journal.finish(str(number), encode("x" * 10_000))
                print(number, flush=True)
        except JournalError as error:
            print(error.reason, error, file=sys.stderr)

anyio.run(main, backend=sys.argv[2])
"""


async def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path, anyio_backend_name: str) -> None:
    """The system's own limit, reached while a commit is written, is told, and the journal is sound afterwards."""
    finished, told = await _run(FULL, str(tmp_path / "j"), anyio_backend_name)
    assert told.split()[0] in ("io", "full")
    assert "what was kept before is safe" in told
    assert 0 < len(finished) < 100
    async with open_journal(tmp_path / "j") as journal:
        async with journal.rows() as rows:
            assert [row.id async for row in rows] == finished
        assert await journal._database.run(lambda on: on.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
        await journal.finish("99", b"1")


RIGHTS = """
import os, sys, anyio
from furcate.batch import open_journal, read_journal
from furcate.primitives._errors import JournalError

async def main():
    async with open_journal(sys.argv[1]):
        pass  # What is imported late has to be there before the rights to read it are given away.
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    for path in sys.argv[2:]:
        try:
            async with open_journal(path):
                print("opened")
        except JournalError as error:
            print(error.reason)
        try:
            async with read_journal(path) as reader:
                print((await reader.status()).items, await reader.holder())
        except JournalError as error:
            print(error.reason)

anyio.run(main)
"""


async def test_a_folder_that_may_not_be_written_is_told() -> None:
    """A job cannot run there, and a journal can be looked at all the same."""
    # The folders of pytest are closed to other users, as whom the program goes on where this runs as root.
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        (folder / "kept").mkdir()
        async with open_journal(folder / "kept" / "j") as journal:
            await _enroll(journal, 3)
        (folder / "kept" / "j.lock").unlink()
        for name, mode in (("kept/j", 0o444), ("kept", 0o555), (".", 0o755)):
            os.chmod(folder / name, mode)
        places = [str(folder / name) for name in ("warm", "kept/j", "kept/new")]
        said, told = await _run(RIGHTS, *places)
        os.chmod(folder / "kept", 0o755)
    assert said == ["read-only", "3 None", "read-only", "missing"], told


async def test_version_1_is_read(tmp_path: Path) -> None:
    """A journal that the first release wrote has all that it had."""
    path = tmp_path / "j"
    path.write_bytes(VERSION_1.read_bytes())
    async with read_journal(path) as reader:
        status = await reader.status()
        async with reader.rows(gone=True, states=("pending", "finished", "failed")) as rows:
            found = {row.id or row.line: row async for row in rows}
    assert (status.about.target, status.about.digests["code"]) == ("jobs:work", "1")
    assert (status.items, status.finished, status.failed, status.pending, status.gone) == (5, 1, 2, 2, 1)
    assert found["a"].value == {"said": "wörd"}
    assert found["a"].usage == Usage(input_tokens=7, output_tokens=2).as_lower_bound()
    assert found["b"].error == ItemFailure("provider", "it was busy")
    assert found["gone"].position is None
    assert found[4].error is not None
    async with open_journal(path) as journal:
        assert await journal.observations("b") == (b'{"event":"run_started"}',)
        call = KeptCall(run_id="run-1", number=1, key=bytes(range(32)), data=b"\x00answer")
        assert await journal.calls("b") == await journal.calls("c") == (call,)
        await journal.finish("c", b"1")


def test_steps_are_taken_all_or_none(tmp_path: Path) -> None:
    """A journal of an earlier version takes the steps that it lacks; where one fails it stays as it was."""
    path = tmp_path / "j"
    path.write_bytes(VERSION_1.read_bytes())
    connection = sqlite3.connect(path, isolation_level=None)
    second = "ALTER TABLE items ADD COLUMN note TEXT;\nUPDATE items SET note = 'x; y';\n"
    with pytest.raises(sqlite3.OperationalError):
        bring_up_to_date(connection, str(path), (*STEPS[:1], second, "DROP TABLE nothing;"))
    assert version_of(connection, str(path)) == 1
    bring_up_to_date(connection, str(path), (*STEPS[:1], second))
    assert connection.execute("PRAGMA user_version").fetchall() == [(2,)]
    assert connection.execute("SELECT DISTINCT note FROM items").fetchall() == [("x; y",)]
    connection.close()


def test_version_1_of_the_form_never_changes() -> None:
    """What the file of version 1 has is what its step makes, so that a change of it is a new step."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    bring_up_to_date(made, "memory", STEPS[:1])
    kept = sqlite3.connect(f"{VERSION_1.as_uri()}?immutable=1", uri=True)
    query = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert made.execute(query).fetchall() == kept.execute(query).fetchall()
    made.close()
    kept.close()


async def test_a_journal_is_opened_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name alone means the folder that one is in, and odd characters in it mean nothing."""
    monkeypatch.chdir(tmp_path)
    for name in ("job.journal", "a?b#c%20 d.journal", "ünï.journal"):
        await _open(Path(name))
        await _look(Path(name))
    assert {"job.journal", "a?b#c%20 d.journal", "ünï.journal"} < set(os.listdir(tmp_path))
