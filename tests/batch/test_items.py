"""The source of items: three formats, ids, and what is wrong with single items or with a whole file."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import tempfile
import tracemalloc
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from furcate.batch import BadItem, Format, Item, open_source
from furcate.batch import _pieces as pieces
from furcate.primitives._errors import ItemsError, MisuseError


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def _read(
    path: Path, content: str | bytes, form: Format | None = None, *, id_field: str | None = None
) -> list[Item | BadItem]:
    _write(path, content)
    async with open_source(path, form, id_field=id_field) as source:
        return [item async for item in source]


def _good(items: list[Item | BadItem]) -> list[Item]:
    assert not [item for item in items if isinstance(item, BadItem)]
    return [item for item in items if isinstance(item, Item)]


async def test_each_line_is_an_item(tmp_path: Path) -> None:
    """An item has the id that it gives, its line and the digest of what it says; empty lines are passed over."""
    items = _good(await _read(tmp_path / "a.jsonl", '{"id": "a", "x": [1]}\n\n  \n{"x":[1],"id":"b"}'))
    assert [(item.id, item.line, item.value) for item in items] == [
        ("a", 1, {"id": "a", "x": [1]}),
        ("b", 4, {"x": [1], "id": "b"}),
    ]
    assert items[0].digest == sha256(b'{"id":"a","x":[1]}').digest()


async def test_numbers_are_ids_by_their_text(tmp_path: Path) -> None:
    """A number names an item as it is written in JSON."""
    items = _good(await _read(tmp_path / "a.jsonl", '{"id": 7}\n{"id": -1.5}\n{"id": 12345678901234567890123}'))
    assert [item.id for item in items] == ["7", "-1.5", "12345678901234567890123"]


async def test_without_an_id_the_content_names_an_item(tmp_path: Path) -> None:
    """What says the same has the same id, however it is written; any JSON value is an item."""
    items = _good(await _read(tmp_path / "a.jsonl", '{"a":1,"b":2}\n{"b": 2, "a": 1}\n"text"\n[1]\nnull\n7'))
    assert items[0].id == items[1].id == items[0].digest.hex()
    assert [item.value for item in items[2:]] == ["text", [1], None, 7]
    assert len({item.id for item in items}) == 5


async def test_another_member_may_hold_the_id(tmp_path: Path) -> None:
    """A member that is named must be there in every item, and ``id`` is then a member like others."""
    items = await _read(tmp_path / "a.jsonl", '{"key": "a", "id": "z"}\n{"id": "b"}\n["key"]', id_field="key")
    assert [item.id for item in items] == ["a", None, None]
    assert all("no member 'key'" in item.problem for item in items if isinstance(item, BadItem))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("null", "is null"),
        ("true", "is a boolean"),
        ("[1]", "is an array"),
        ("{}", "is an object"),
        ('" "', "is empty"),
        ('"a\\nb"', "cannot be shown"),
        ('"\\ud800"', "cannot be shown"),
        (f'"{"x" * 1001}"', "1,001 characters"),
    ],
)
async def test_what_is_no_id_is_told(tmp_path: Path, value: str, said: str) -> None:
    """An id that nobody could use later fails its item alone."""
    bad, good = await _read(tmp_path / "a.jsonl", f'{{"id": {value}}}\n{{"id": "ok"}}')
    assert isinstance(bad, BadItem)
    assert said in bad.problem
    assert bad.id is None
    assert isinstance(good, Item)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": "x"', "no JSON: expecting ',' delimiter at column 11"),
        (b'{"id": "x", "v": NaN}', "NaN is no JSON number"),
        (b'{"id": "x", "v": -Infinity}', "-Infinity is no JSON number"),
        (b'{"id": "x", "v": 1e999}', "the number 1e999 is too large"),
        (b"1" * 5000, "too many digits"),
        (b'{"id": "x", "v": "\xff"}', "byte 19 of the item is no UTF-8"),
        (b"[" * 201 + b"]" * 201, "nests deeper than 200"),
        (b"[" * 100_000, "nests deeper than 200"),
        (b'{"id": "x"} {"id": "y"}', "no JSON: extra data at column 13"),
        (b'  {"id": "x"} {"id": "y"}', "no JSON: extra data at column 15"),
    ],
)
async def test_a_malformed_line_is_told_and_passed_over(tmp_path: Path, line: bytes, said: str) -> None:
    """The items around it are read, and the problem says where it is."""
    before, bad, after = await _read(tmp_path / "a.jsonl", b'{"id": 1}\n' + line + b'\r\n{"id": 3}')
    assert isinstance(bad, BadItem)
    assert bad.line == 2
    assert said in bad.problem
    assert (before.id, after.id, after.line) == ("1", "3", 3)


async def test_a_key_that_is_given_twice_is_told(tmp_path: Path) -> None:
    """Taking either value would be a guess; the item keeps its name unless that is what is given twice."""
    [bad, worse] = await _read(tmp_path / "a.jsonl", '{"id":"a","p":{"q":1,"q":2}}\n{"id":"a","id":"b"}')
    assert bad == BadItem(1, "a", "gives the key 'q' twice; keep one of them")
    assert worse == BadItem(2, None, "gives the key 'id' twice; keep one of them")


async def test_editors_marks_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    """A byte order mark and carriage returns are no part of an item."""
    items = _good(await _read(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id":"a"}\r\n{"id":"b"}\r\n'))
    assert [item.value for item in items] == [{"id": "a"}, {"id": "b"}]
    items = _good(await _read(tmp_path / "a.csv", b"\xef\xbb\xbfid,x\r\na,1\r\n"))
    assert [item.value for item in items] == [{"id": "a", "x": "1"}]
    items = _good(await _read(tmp_path / "a.json", b'\xef\xbb\xbf\r\n[\r\n{"id":"a"}]\r\n'))
    assert [(item.value, item.line) for item in items] == [({"id": "a"}, 3)]


async def test_long_lines_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No item is longer than may be, in any format, and what follows is read."""
    monkeypatch.setattr(pieces, "MAX_ITEM_BYTES", 2**20)
    long = "x" * (2**20 + 1)
    for name, text in (
        ("a.jsonl", f'{{"id":1}}\n{{"x":"{long}"}}\n{{"id":3}}'),
        ("a.csv", f'id,x\n1,\n2,"{long}"\n3,'),
        ("a.json", f'[{{"id":1}},\n\n{{"x":"{long}"}},\n{{"id":3}}]'),
    ):
        first, bad, last = await _read(tmp_path / name, text)
        assert (first.id, last.id) == ("1", "3")
        assert isinstance(bad, BadItem)
        assert bad.line == (2 if name == "a.jsonl" else 3)
        assert "longer than 1 MiB" in bad.problem
        assert last.line == bad.line + 1


async def test_rows_of_a_table_are_items(tmp_path: Path) -> None:
    """Cells are texts under the names of their columns; a quoted cell may hold lines."""
    items = _good(await _read(tmp_path / "a.csv", 'id, text\na,"one\ntwo, ""three"""\n\n7,\n'))
    assert [(item.id, item.line, item.value) for item in items] == [
        ("a", 2, {"id": "a", "text": 'one\ntwo, "three"'}),
        ("7", 5, {"id": "7", "text": ""}),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"a", "has 1 cell, the header row 2"),
        (b"a,b,c", "has 3 cells, the header row 2"),
        (b",b", "is empty"),
        (b'a,"b"c', "no CSV: ',' expected after '\"'"),
        (b"a,\xff", "cell 2 is no UTF-8"),
        (b'a,"one\n\xfftwo"', "cell 2 is no UTF-8"),
    ],
)
async def test_a_malformed_row_is_told_and_passed_over(tmp_path: Path, row: bytes, said: str) -> None:
    """The rows around it are read, and the problem says what is wrong."""
    before, bad, after = await _read(tmp_path / "a.csv", b"id,x\n1,\n" + row + b"\n3,\n")
    assert isinstance(bad, BadItem)
    assert bad.line == 3
    assert said in bad.problem
    assert (before.id, after.id) == ("1", "3")


async def test_long_cells_are_read(tmp_path: Path) -> None:
    """The reader's own limit of 128 KiB for a cell is no limit for documents."""
    [item] = _good(await _read(tmp_path / "a.csv", f"id,x\na,{'x' * 300_000}\n"))
    assert isinstance(item.value, dict)
    assert item.value["x"] == "x" * 300_000


async def test_a_quote_that_is_left_open_is_told(tmp_path: Path) -> None:
    """The rows that it swallows are named by their lines."""
    [good, bad] = await _read(tmp_path / "a.csv", 'id,x\n1,\n2,"two\n3,three\n')
    assert good.id == "1"
    assert isinstance(bad, BadItem)
    assert "a quote is left open in the rows from line 3 to the end, line 4" in bad.problem


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no header row"),
        (b"\n\n", "no header row"),
        (b"id,,x\n", "column 2 has no name"),
        (b"id,x,id\n", "names the column 'id' twice"),
        (b"id,\xff\n", "name of column 2 is no UTF-8"),
        (b'id,"x\n1,2\n', "header row cannot be read"),
    ],
)
async def test_a_table_needs_its_header(tmp_path: Path, content: bytes, said: str) -> None:
    """Without the names of the columns no row can be read."""
    with pytest.raises(ItemsError, match=said):
        await _read(tmp_path / "a.csv", content)


async def test_elements_of_an_array_are_items(tmp_path: Path) -> None:
    """Brackets and quotes inside texts cut nothing, and each element knows its line."""
    text = ' [ {"id": "a", "x": "],[\\"{\\\\"} ,\n\n {"id":\n"b", "x": [[], {}]}, 7\n]\n\n'
    items = _good(await _read(tmp_path / "a.json", text))
    assert [(item.line, item.value) for item in items] == [
        (1, {"id": "a", "x": '],["{\\'}),
        (3, {"id": "b", "x": [[], {}]}),
        (4, 7),
    ]
    assert await _read(tmp_path / "a.json", "[]") == []
    assert await _read(tmp_path / "a.json", " [\n ] ") == []


async def test_a_malformed_element_is_told_and_passed_over(tmp_path: Path) -> None:
    """As long as brackets and quotes match, the others are read; the line is that of the fault."""
    items = await _read(tmp_path / "a.json", '[{"id":1},\n{"id":2,\n oh},,{"id":3},]')
    problems = [(item.line, item.problem) for item in items if isinstance(item, BadItem)]
    assert problems == [
        (2, "no JSON: expecting property name enclosed in double quotes at line 3"),
        (3, "no JSON: there is no item at column 6, but a comma beside it; take that away"),
        (3, "no JSON: there is no item at column 16, but a comma beside it; take that away"),
    ]
    assert [item.id for item in items if isinstance(item, Item)] == ["1", "3"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        (
            '\n{"id": 1}\n{"id": 2}',
            "line 2 begins no JSON array; for one item a line give the format jsonl .--format jsonl.",
        ),
        ('[{"id": 1},\n{"id": 2}', "begins on line 1 is never closed"),
        ('[{"id": 1}]\n\n[2]', "goes on after its array, on line 3"),
    ],
)
async def test_what_is_no_array_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """An array that is cut off, or is none, is told as a whole."""
    with pytest.raises(ItemsError, match=said):
        await _read(tmp_path / "a.json", content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": 1}'.encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"PK\x03\x04", "packed file"),
    ],
)
async def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """A file of another kind is told once, not line by line."""
    with pytest.raises(ItemsError, match=said):
        await _read(tmp_path / "a.jsonl", content)


async def test_a_place_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A missing file, a folder and an unknown suffix are told before anything is read."""
    unreadable: list[tuple[Path | str, Format | None, str]] = [
        (tmp_path / "none.jsonl", None, "cannot be read: no such file"),
        (tmp_path, "jsonl", "is a folder"),
        (
            tmp_path / "a.txt",
            None,
            r"its suffix tells no format .+; give the format \(--format\), one of jsonl, csv, json",
        ),
        ("a\0.jsonl", None, "no file has a name like this"),
    ]
    _write(tmp_path / "a.txt", "{}")
    for place, form, said in unreadable:
        with pytest.raises(ItemsError, match=said):
            async with open_source(place, form):
                pass  # pragma: no cover
    with pytest.raises(MisuseError, match="no format 'xml'"):
        async with open_source(tmp_path / "a.txt", "xml"):  # type: ignore[arg-type]
            pass  # pragma: no cover


async def test_items_are_read_as_often_as_is_wanted(tmp_path: Path) -> None:
    """Each pass begins at the beginning, also of what came from a stream and while another is under way."""
    content = b"".join(b'{"id":%d,"x":"%s"}\n' % (number, b"x" * 3000) for number in range(700))
    (tmp_path / "a.jsonl").write_bytes(content)
    for place in (tmp_path / "a.jsonl", io.BytesIO(content)):
        async with open_source(place) as source:
            first = [item.id async for item in source]
            assert first == [str(number) for number in range(700)]
            half = aiter(source)
            begun = [(await anext(half)).id for _ in range(300)]
            assert [item.id async for item in source] == first
            assert begun + [item.id async for item in half] == first
        with pytest.raises(MisuseError, match="outside the block"):
            aiter(source)


async def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path) -> None:
    """A second pass over another content would work on what nobody checked."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n')
    async with open_source(path) as source:
        assert len([item async for item in source]) == 1
        path.write_text('{"id": 1}\n{"id": 2}\n')
        with pytest.raises(ItemsError, match="has changed since the job began to read it"):
            [item async for item in source]


async def test_a_stream_without_a_format_is_looked_at() -> None:
    """An array is told by its bracket; the rest are JSON lines, unless it is said otherwise."""
    streams: list[tuple[bytes, Format | None, list[str]]] = [
        (b'\n [{"id":1},{"id":2}]', None, ["1", "2"]),
        (b'{"id":1}\n{"id":2}', None, ["1", "2"]),
        (b"id\n1\n2\n", "csv", ["1", "2"]),
        (b"", None, []),
    ]
    for content, form, ids in streams:
        async with open_source(io.BytesIO(content), form) as source:
            assert [item.id async for item in source] == ids
            assert source.where == "the stream of items"
    with pytest.raises(MisuseError, match="gives text"):
        async with open_source(io.StringIO("{}")):
            pass  # pragma: no cover


async def test_a_named_pipe_is_read_once(tmp_path: Path) -> None:
    """What a shell puts in place of a file can be read twice all the same."""
    pipe = tmp_path / "items.jsonl"
    os.mkfifo(pipe)

    async def write() -> None:
        await anyio.to_thread.run_sync(pipe.write_bytes, b'{"id":1}\n')

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        async with open_source(pipe, "jsonl") as source:
            for _ in range(2):
                assert [item.id async for item in source] == ["1"]


STANDARD_INPUT = """
import sys
import anyio
from furcate.batch import open_source
async def main():
    async with open_source("-") as source:
        for _ in range(2):
            print([item.id async for item in source], source.where)
async def leave():
    with anyio.move_on_after(0.1):
        await main()
    print("left")
anyio.run(main if sys.argv[1] == "read" else leave, backend=sys.argv[2])
"""


async def test_standard_input_is_read(tmp_path: Path, anyio_backend_name: str) -> None:
    """A dash stands for it, be it a pipe or a file, and errors call it by its name."""
    content = b'{"id":1}\n{"id":2}'
    _write(tmp_path / "a", content)
    command = [sys.executable, "-c", STANDARD_INPUT, "read", anyio_backend_name]
    with (tmp_path / "a").open("rb") as file:
        for given in ({"input": content}, {"stdin": file}):
            done = await anyio.run_process(command, **given)
            assert done.stdout.decode().splitlines() == ["['1', '2'] standard input"] * 2


async def test_a_full_disk_for_temporary_files_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be read only once needs room, and the error does not say that the items are at fault."""

    class Full(io.BytesIO):
        def write(self, _data: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(ItemsError, match="the stream of items: there is no room to copy it"):
        async with open_source(io.BytesIO(b"{}")):
            pass  # pragma: no cover


async def test_nobody_waits_for_standard_input_after_cancellation(anyio_backend_name: str) -> None:
    """A terminal where nobody types does not keep a process from ending."""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", STANDARD_INPUT, "leave", anyio_backend_name]
    try:
        with anyio.fail_after(60):
            done = await anyio.run_process(command, stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert done.stdout == b"left\n"


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json"])
async def test_items_are_read_in_constant_memory(tmp_path: Path, name: str) -> None:
    """Nine megabytes of items pass through half of that."""
    path = tmp_path / name
    rows = (b'{"id":%d,"x":"%s"}' % (number, b"x" * 6000) for number in range(1500))
    with path.open("wb") as file:
        if name == "a.csv":
            file.write(b"id,x\n")
            file.writelines(b"%d,%s\n" % (number, b"x" * 6000) for number in range(1500))
        else:
            file.write(b"[" if name == "a.json" else b"")
            for number, row in enumerate(rows):
                file.write((b",\n" if name == "a.json" else b"\n") * bool(number) + row)
            file.write(b"]" if name == "a.json" else b"")
    gc.collect()
    async with open_source(path) as source:
        tracemalloc.start()
        count = 0
        async for _ in source:
            count += 1
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 1500
    assert peak < 5 * 2**20
