"""Whatever the bytes are, the source reads what is right and tells what is wrong."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from furcate.batch import BadItem, Format, Item, open_source
from furcate.batch import _array as arrays
from furcate.primitives._errors import ItemsError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
# Whatever stands for an id is given by the test.
ITEMS = st.lists(VALUES.filter(lambda value: not isinstance(value, dict) or "id" not in value), max_size=6)
PIECES = st.sampled_from(
    [b'{"id":1}', b"[", b"]", b"{", b"}", b'"', b"\\", b",", b"\n", b"\r\n", b"\xff", b"\xef\xbb\xbf"]
)
NOISE = st.lists(PIECES | st.binary(max_size=4), max_size=20).map(b"".join)


async def _read(content: bytes, form: Format) -> list[Item | BadItem]:
    async with open_source(io.BytesIO(content), form) as source:
        return [item async for item in source]


@settings(max_examples=60)
@given(values=ITEMS, ascii_only=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n \n"]))
async def test_lines_give_back_what_was_written(values: list[Any], ascii_only: bool, end: str) -> None:
    """JSON lines hold any values, and equal ones have equal digests."""
    text = "".join(json.dumps(value, ensure_ascii=ascii_only) + end for value in values)
    items = await _read(text.encode(), "jsonl")
    assert [item.value for item in items if isinstance(item, Item)] == values
    assert [item.line for item in items] == [1 + number * end.count("\n") for number in range(len(values))]


@settings(max_examples=60)
@given(values=ITEMS, indent=st.none() | st.integers(0, 2), block=st.integers(1, 9))
async def test_arrays_give_back_what_was_written(values: list[Any], indent: int | None, block: int) -> None:
    """Elements are cut in the right places, wherever a block of the file ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK", block)
        items = await _read(json.dumps(values, indent=indent, ensure_ascii=False).encode(), "json")
    assert [item.value for item in items if isinstance(item, Item)] == values
    assert len(items) == len(values)


@settings(max_examples=60)
@given(values=ITEMS, space=st.sampled_from(["", " ", "\n  ", "\t"]), block=st.integers(1, 9))
async def test_a_fault_in_an_array_is_told_by_its_place_in_the_file(values: list[Any], space: str, block: int) -> None:
    """The column is that of the line, as whoever reads the whole array at once would tell it."""
    before = "".join(json.dumps(value, ensure_ascii=False) + f"{space},{space}" for value in values)
    text = f'{space}[{space}{before}{{"x" 1}}, 2{space}]'
    with pytest.raises(json.JSONDecodeError) as told:
        json.loads(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK", block)
        items = await _read(text.encode(), "json")
    [bad] = [item for item in items if isinstance(item, BadItem)]
    assert bad.line == told.value.lineno
    assert bad.problem == f"no JSON: expecting ':' delimiter at column {told.value.colno}"


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(st.integers(), TEXT, TEXT), max_size=5))
async def test_tables_give_back_what_was_written(rows: list[tuple[int, str, str]]) -> None:
    """Cells may hold quotes, commas and ends of lines."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerows([("id", "a", "b"), *rows])
    items = await _read(file.getvalue().encode(), "csv")
    expected = [{"id": str(number), "a": a, "b": b} for number, a, b in rows]
    assert [item.value for item in items if isinstance(item, Item)] == expected


@settings(max_examples=150)
@given(content=NOISE, form=st.sampled_from(["jsonl", "csv", "json"]))
async def test_noise_is_told_and_never_breaks_the_source(content: bytes, form: Format) -> None:
    """Whatever is read has a line that the file has, and what is no item has a problem."""
    try:
        items = await _read(content, form)
    except ItemsError:
        return
    lines = [item.line for item in items]
    assert lines == sorted(lines)
    assert all(1 <= line <= content.count(b"\n") + 1 for line in lines)
    assert all(item.problem for item in items if isinstance(item, BadItem))
