"""Bringing an input into a journal: new, known, moved, changed, gone and unreadable items."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attrs import evolve

from furcate.batch import (
    About,
    BadItem,
    Enrollment,
    Item,
    ItemFailure,
    Journal,
    JournalRow,
    KeptCall,
    OnChanged,
    open_journal,
    open_source,
)
from furcate.primitives._errors import ItemsError, JournalError

ABOUT = About(target="m:f", digests={"code": "1"})


async def _enroll(journal: Journal, text: str, *, about: About = ABOUT, on_changed: OnChanged = "refuse") -> Enrollment:
    async with open_source(io.BytesIO(text.encode()), "jsonl") as source:
        return await journal.enroll(source, about=about, on_changed=on_changed)


async def _rows(journal: Journal) -> list[JournalRow]:
    async with journal.rows(states=("pending", "finished", "failed"), gone=True) as rows:
        return [row async for row in rows]


def _items(*pairs: str) -> str:
    """Write items of the form ``id`` or ``id=content``."""
    split = (pair.partition("=") for pair in pairs)
    return "".join(f'{{"id":"{name}","x":"{content}"}}\n' for name, _, content in split)


async def test_items_are_known_by_their_ids(tmp_path: Path) -> None:
    """Lines may be deleted, added and swapped: what is finished stays finished, and is paired with its own result."""
    async with open_journal(tmp_path / "j") as journal:
        first = await _enroll(journal, _items("a", "b", "c", "d"))
        assert (first.items, first.new, first.pending) == (4, 4, 4)
        for name in "abc":
            await journal.finish(name, f'"{name}"'.encode())
        again = await _enroll(journal, _items("d", "c", "a", "e"))
        assert (again.items, again.new, again.gone, again.finished, again.pending) == (4, 1, 1, 2, 2)
        rows = [(row.id, row.position, row.line, row.value) for row in await _rows(journal)]
    assert rows == [("d", 0, 1, None), ("c", 1, 2, "c"), ("a", 2, 3, "a"), ("e", 3, 4, None), ("b", None, 2, "b")]


async def test_what_is_gone_may_come_back(tmp_path: Path) -> None:
    """The result of an item that the input lost for a while is still its own."""
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a", "b"))
        await journal.finish("a", b"1")
        assert (await _enroll(journal, _items("b"))).gone == 1
        back = await _enroll(journal, _items("b", "a"))
        assert (back.gone, back.new, back.finished) == (0, 0, 1)


async def test_resuming_with_the_same_input_changes_nothing(tmp_path: Path) -> None:
    """Nothing is taken for a duplicate of what the journal has."""
    text = _items("a", "b") + '{"no":"id"}\n{oh\n{oh\n'
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, text)
        before = await _rows(journal)
        again = await _enroll(journal, text)
        assert (again.items, again.new, again.malformed, again.pending, again.failed) == (5, 0, 2, 3, 2)
        after = await _rows(journal)
    assert [(row.id, row.line, row.state, row.error) for row in after] == [
        (row.id, row.line, row.state, row.error) for row in before
    ]


async def test_duplicates_are_refused_naming_both_lines(tmp_path: Path) -> None:
    """Nothing of such an input is taken in, and at most five are named."""
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a"))
        with pytest.raises(ItemsError) as told:
            await _enroll(journal, _items("a", "b", "c", "b"))
        assert "two items have the id 'b' (lines 2 and 4); give each item an id of its own" in str(told.value)
        assert told.value.lines == (2, 4)
        with pytest.raises(ItemsError, match=r"two items without an id say the same \(lines 1 and 3\)"):
            await _enroll(journal, '{"x":1}\n\n{"x": 1}\n')
        with pytest.raises(ItemsError, match=r"3 items have the id '7' \(from line 1 to line 3\)"):
            await _enroll(journal, '{"id":7}\n{"id":"7"}\n{"id":7,"x":1}\n')
        with pytest.raises(ItemsError, match="the same holds for 2 more"):
            await _enroll(journal, _items(*"abcdefg", *"abcdefg"))
        assert [row.id for row in await _rows(journal)] == ["a"]
        assert (await _enroll(journal, _items("a", "b"))).new == 1


async def test_a_changed_finished_item_is_refused_unless_it_is_said_what_to_do(tmp_path: Path) -> None:
    """A result that belongs to another content is never passed off as the item's."""
    changed = _items("b=2", "a=2", "c=2", "d")
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a=1", "b=1", "c=1", "d"))
        await journal.finish("a", b"1")
        await journal.finish("d", b"4")
        await journal.fail("b", ItemFailure("x", "y"))
        await journal.keep_call("c", KeptCall(run_id="r", number=1, key=bytes(32), data=b""))
        with pytest.raises(JournalError, match=r"1 finished item has changed since: 'a' \(line 2\); have them") as told:
            await _enroll(journal, changed)
        assert told.value.reason == "changed"
        assert [row.id for row in await _rows(journal)] == ["a", "b", "c", "d"]

        redone = await _enroll(journal, changed, on_changed="redo")
        assert (redone.changed, redone.redone, redone.finished, redone.pending, redone.failed) == (1, 1, 1, 3, 0)
        assert await journal.calls("c") == ()
        assert (await _enroll(journal, changed)).changed == 0
        assert [(row.id, row.value) for row in await _rows(journal)] == [
            ("b", None),
            ("a", None),
            ("c", None),
            ("d", 4),
        ]


async def test_keeping_results_settles_what_has_changed(tmp_path: Path) -> None:
    """The same input is taken without a word from then on; whatever changes after that is asked about."""
    other = About(target="m:f", digests={"code": "2"})
    changed = _items("b", "a=2", "c")
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a=1", "b", "c"))
        await journal.finish("a", b"1")
        await journal.finish("b", b"2")
        kept = await _enroll(journal, changed, about=other, on_changed="keep")
        assert (kept.changed, kept.outdated, kept.redone, kept.finished, kept.pending) == (1, 1, 0, 2, 1)
        again = await _enroll(journal, changed, about=other)
        assert (again.changed, again.outdated, again.finished, again.pending) == (0, 0, 2, 1)
        assert [(row.id, row.value) for row in await _rows(journal)] == [("b", 2), ("a", 1), ("c", None)]
        with pytest.raises(JournalError, match="changed since: 'a'"):
            await _enroll(journal, _items("a=3", "b", "c"), about=other)
        with pytest.raises(JournalError, match=r"'a' \(line 2\); 1 finished item was finished under another setup"):
            await _enroll(journal, changed, about=evolve(other, target="m:g"))
        assert (await _enroll(journal, _items("a=1", "b", "c"))).finished == 2
        redone = await _enroll(journal, changed, about=other, on_changed="redo")
        assert (redone.changed, redone.outdated, redone.pending) == (1, 1, 3)
        await journal.finish("b", b"3")
        # Whoever goes back to what was kept once is asked, since there is another result.
        with pytest.raises(JournalError, match="1 finished item was finished under another setup"):
            await _enroll(journal, changed, about=ABOUT)


async def test_an_input_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    """Another file, or another field of ids, would have everything done and paid for again without a word."""
    first = evolve(ABOUT, source="old.jsonl", id_field="id")
    by_key = evolve(first, id_field="key")
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a", "b"), about=first)
        # As long as nothing is finished, nothing is lost.
        assert (await _enroll(journal, _items("c"), about=by_key)).gone == 2
        await _enroll(journal, _items("a", "b"), about=first)
        await journal.finish("a", b"1")
        with pytest.raises(
            JournalError, match=r"knows no item of .+, and has 1 finished item that came from old\.jsonl; give"
        ) as told:
            await _enroll(journal, _items("x", "y"), about=first)
        assert told.value.reason == "changed"
        with pytest.raises(JournalError, match="are known by their 'id', and would now be known by their 'key'"):
            await _enroll(journal, _items("a", "b"), about=by_key)
        with pytest.raises(JournalError, match="knows no item of"):
            await _enroll(journal, _items("x", "y"))
        assert [row.id for row in await _rows(journal) if row.position is not None] == ["a", "b"]
        answers: tuple[tuple[About, OnChanged], ...] = ((by_key, "keep"), (first, "redo"))
        for about, answer in answers:
            assert (await _enroll(journal, _items(answer), about=about, on_changed=answer)).pending == 1
            assert (await _enroll(journal, _items(answer), about=about)).pending == 1
            await _enroll(journal, _items("a", "b"), about=first, on_changed="keep")


async def test_what_an_earlier_release_has_kept_is_asked_of_no_id_field(tmp_path: Path) -> None:
    """Where the journal does not say by what its items are known, their ids alone are looked at."""
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, _items("a"))
        await journal.finish("a", b"1")
        assert (await _enroll(journal, _items("a"), about=evolve(ABOUT, id_field="key"))).finished == 1
    async with open_journal(tmp_path / "j") as journal:
        assert journal.about.id_field == "key"


async def test_ids_that_come_again_later_are_named(tmp_path: Path) -> None:
    """An input that is enrolled piece by piece is refused in the same words as one that is read as a whole."""
    async with open_journal(tmp_path / "j") as journal:
        async with open_source(io.BytesIO(_items(*"abcdefg").encode())) as source:
            items = [item async for item in source]
        await journal.enroll_more(items, position=0, about=ABOUT)
        with pytest.raises(ItemsError) as told:
            await journal.enroll_more([evolve(one, line=7 + one.line) for one in items], position=7, about=ABOUT)
        assert len(await _rows(journal)) == 7
    assert "two items have the id 'a' (lines 1 and 8); two items have the id 'b' (lines 2 and 9)" in str(told.value)
    assert "the same holds for 2 more; give each item an id of its own" in str(told.value)
    assert told.value.lines == (1, 8, 2, 9, 3, 10, 4, 11, 5, 12)


async def test_items_that_were_finished_under_another_setup_are_refused(tmp_path: Path) -> None:
    """Another target, configuration or code version makes results old; failed and pending items do not care."""
    other = About(target="m:f", digests={"code": "2"})
    text = _items("a", "b", "c")
    async with open_journal(tmp_path / "j") as journal:
        await _enroll(journal, text)
        await journal.finish("a", b"1")
        await journal.fail("b", ItemFailure("x", "y"))
    async with open_journal(tmp_path / "j") as journal:
        with pytest.raises(JournalError, match="1 finished item was finished under another setup"):
            await _enroll(journal, text, about=other)
        assert journal.stored == ABOUT
        redone = await _enroll(journal, text, about=other, on_changed="redo")
        assert (redone.outdated, redone.redone, redone.pending, redone.failed) == (1, 1, 2, 1)
        await journal.finish("a", b"2")
        assert (await _enroll(journal, text, about=other)).outdated == 0
        assert (await _enroll(journal, text, on_changed="keep")).outdated == 1
    assert ABOUT.setup != other.setup
    assert About(target="m:f", source="elsewhere", digests={"code": "1"}).setup == ABOUT.setup


async def test_malformed_items_have_failed_until_they_are_mended(tmp_path: Path) -> None:
    """They keep their lines, are never retried as they are, and are to be done once they can be read."""
    async with open_journal(tmp_path / "j") as journal:
        told = await _enroll(journal, '{"id":"a"}\n{oh\n{"id":"c","x":1,"x":2}\n')
        assert (told.items, told.malformed, told.failed, told.pending) == (3, 2, 2, 1)
        failed = [row for row in await _rows(journal) if row.state == "failed"]
        assert [(row.id, row.line, row.error.kind) for row in failed if row.error] == [
            (None, 2, "malformed"),
            ("c", 3, "malformed"),
        ]
        assert [row.order for row in failed] == [1, 2]
        assert await journal.retry() == 0
        mended = await _enroll(journal, '{"id":"a"}\n{"id":"b"}\n{"id":"c","x":1}\n')
        assert (mended.items, mended.malformed, mended.failed, mended.pending, mended.gone) == (3, 0, 0, 3, 0)
        await journal.finish("c", b"1")
        spoilt = '{"id":"a"}\n{"id":"b"}\n{"id":"c","x":1,"x":3}\n'
        with pytest.raises(JournalError, match="changed since: 'c'"):
            await _enroll(journal, spoilt)
        assert (await _enroll(journal, spoilt, on_changed="keep")).finished == 1
        assert [(row.state, row.error) for row in await _rows(journal)][2] == ("finished", None)
        assert (await _enroll(journal, spoilt)).finished == 1
        assert (await _enroll(journal, spoilt, on_changed="redo")).failed == 1


async def test_items_to_be_done_are_chosen(tmp_path: Path) -> None:
    """Some items at a time, in their order; what was not enrolled as it is now is told."""
    async with open_journal(tmp_path / "j") as journal:
        text = _items("a", "b", "c") + "{oh\n"
        await _enroll(journal, text)
        await journal.finish("b", b"1")
        async with open_source(io.BytesIO(text.encode())) as source:
            items = [item async for item in source]
        assert [item.id for item in await journal.pending(items)] == ["a", "c"]
        with pytest.raises(JournalError, match=r"item 'a' \(line 9\) changed while the job was running"):
            await journal.pending([Item("a", None, 9, bytes(32))])
        with pytest.raises(JournalError, match="has no item 'z'"):
            await journal.pending([BadItem(1, None, "x"), Item("z", None, 9, bytes(32))])


class _Many:
    """Give many items that nobody holds."""

    where = "many"

    async def __aiter__(self) -> AsyncIterator[Item | BadItem]:
        for number in range(100_000):
            yield Item(f"item-{number}", "x" * 1000, number + 1, number.to_bytes(32, "big"))


# Tracing memory is slow, and neither loop has a part in what is held.
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_hundred_thousand_items_enroll_in_bounded_memory(tmp_path: Path) -> None:
    """Neither the items nor their ids are held, and the status of all of them is told."""
    async with open_journal(tmp_path / "j") as journal:
        gc.collect()
        tracemalloc.start()
        enrollment = await journal.enroll(_Many(), about=ABOUT)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert enrollment.new == 100_000
        assert (await journal.status()).pending == 100_000
    assert peak < 5 * 2**20
