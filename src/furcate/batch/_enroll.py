"""Bring the items of an input into a journal: first aside, then all at once or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Literal, TypeAlias

from furcate.batch._database import Database, transaction
from furcate.batch._items import BadItem, Item
from furcate.batch._reading import about_in
from furcate.batch._rows import MALFORMED, About, Enrollment, ItemFailure
from furcate.primitives._errors import ItemsError, JournalError

OnChanged: TypeAlias = Literal["refuse", "redo", "keep"]
"""What to do where finished items, or what they were finished under, have changed since."""

_CHUNK = 500
_NAMED = 5

_ASIDE = """
CREATE TEMP TABLE incoming (
    position INTEGER PRIMARY KEY, id TEXT, line INTEGER NOT NULL, digest BLOB NOT NULL, error BLOB
)
"""
_INCOMING = "INSERT INTO temp.incoming VALUES (?, ?, ?, ?, ?)"
_TWICE = """
SELECT id = lower(hex(min(digest))), id, min(line), max(line), count(*) FROM temp.incoming WHERE id IS NOT NULL
GROUP BY id HAVING count(*) > 1 ORDER BY min(position) LIMIT ?
"""
_COUNT_TWICE = """
SELECT count(*) FROM (SELECT 1 FROM temp.incoming WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1)
"""
_OTHERWISE = """
CREATE TEMP TABLE otherwise AS
SELECT items.number, incoming.position, items.id, incoming.line, items.state, items.digest <> incoming.digest AS content
FROM temp.incoming JOIN items ON items.id = incoming.id
WHERE (items.digest <> incoming.digest OR (items.state = 'finished' AND items.setup IS NOT :setup))
AND NOT EXISTS (
    SELECT 1 FROM kept WHERE :settled AND items.state = 'finished'
    AND kept.number = items.number AND kept.digest = incoming.digest AND kept.setup = :setup
)
"""
_KEEP = """
INSERT OR REPLACE INTO kept SELECT otherwise.number, incoming.digest, :setup
FROM temp.otherwise JOIN temp.incoming USING (position) WHERE otherwise.state = 'finished'
"""
_FORGET = (
    "DELETE FROM outcomes WHERE number IN {numbers}",
    "DELETE FROM observations WHERE number IN {numbers}",
    "DELETE FROM calls WHERE number IN {numbers}",
    "DELETE FROM kept WHERE number IN {numbers}",
)
RESET = """
UPDATE items SET state = 'pending', tries = 0, ended = NULL, failure = NULL, setup = NULL, started_at = NULL,
    ended_at = NULL, input_tokens = NULL, cache_read_tokens = NULL, cache_write_tokens = NULL, output_tokens = NULL,
    reasoning_tokens = NULL, lower_bounds = ''
"""
_UNNAMED = "(SELECT number FROM items WHERE id IS NULL)"
_CHANGED = "(SELECT number FROM temp.otherwise)"
_ADD = (
    """
    INSERT INTO items (id, position, line, digest)
    SELECT id, position, line, digest FROM temp.incoming
    WHERE id IS NULL OR NOT EXISTS (SELECT 1 FROM items WHERE items.id = incoming.id) ORDER BY position
    """,
    """
    INSERT OR REPLACE INTO outcomes (number, error) SELECT items.number, incoming.error
    FROM temp.incoming JOIN items ON items.position = incoming.position WHERE incoming.error IS NOT NULL
    AND items.state <> 'finished'
    """,
)
_MERGE = (
    # Lines that cannot be named are those of this input and of no other.
    *(statement.format(numbers=_UNNAMED) for statement in _FORGET),
    "DELETE FROM items WHERE id IS NULL",
    *(statement.format(numbers=_CHANGED) for statement in _FORGET),
    f"{RESET} WHERE number IN {_CHANGED}",
    """
    UPDATE items SET digest = (SELECT digest FROM temp.incoming WHERE incoming.id = items.id)
    WHERE number IN (SELECT number FROM temp.otherwise WHERE content)
    """,
    """
    UPDATE items SET position = NULL WHERE position IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM temp.incoming WHERE incoming.id = items.id)
    """,
    """
    UPDATE items SET position = incoming.position, line = incoming.line FROM temp.incoming
    WHERE incoming.id = items.id AND (items.position IS NOT incoming.position OR items.line <> incoming.line)
    """,
    *_ADD,
)
_FAIL = """
UPDATE items SET state = 'failed', failure = :kind, ended = wrong.ended, ended_at = :now
FROM (
    SELECT items.number,
        (SELECT coalesce(max(ended), 0) FROM items) + row_number() OVER (ORDER BY items.position) AS ended
    FROM items JOIN temp.incoming ON items.position = incoming.position
    WHERE incoming.error IS NOT NULL AND items.state = 'pending'
) AS wrong WHERE items.number = wrong.number
"""


async def enroll(
    database: Database, items: AsyncIterable[Item | BadItem], *, about: About, on_changed: OnChanged, now: float
) -> Enrollment:
    """Read an input to its end and bring the journal in line with it, as `Journal.enroll` tells."""
    await database.run(_begin)
    position = 0
    chunk: list[Item | BadItem] = []
    async for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK:
            position = await database.run(partial(_set_aside, items=tuple(chunk), position=position))
            chunk.clear()
    await database.run(partial(_set_aside, items=tuple(chunk), position=position))
    where = str(getattr(items, "where", "the items"))
    await database.run(partial(_check_ids, where=where))
    merge = partial(_merge, path=database.path, about=about, where=where, on_changed=on_changed, now=now)
    return await database.run(lambda connection: transaction(connection, partial(merge, connection)))


async def enroll_more(
    database: Database, items: Sequence[Item | BadItem], *, about: About, position: int, where: str, now: float
) -> None:
    """Bring further items of an input into a journal that has those before them and no others."""
    add = partial(_add, items=items, about=about, position=position, where=where, now=now)
    await database.run(lambda connection: transaction(connection, partial(add, connection)))


def _add(
    connection: sqlite3.Connection,
    items: Sequence[Item | BadItem],
    *,
    about: About,
    position: int,
    where: str,
    now: float,
) -> None:
    _begin(connection)
    connection.executemany(_INCOMING, [_row(item, number) for number, item in enumerate(items, start=position)])
    _check_ids(connection, where)
    again = "temp.incoming JOIN items USING (id)"
    found = connection.execute(
        f"SELECT 0, id, items.line, incoming.line, 2 FROM {again} ORDER BY incoming.position LIMIT ?", (_NAMED,)
    ).fetchall()
    if found:
        raise _twice(found, _number(connection, f"SELECT count(*) FROM {again}"), where)
    for statement in _ADD:
        connection.execute(statement)
    connection.execute(_FAIL, {"kind": MALFORMED, "now": now})
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('about', ?)", (about.to_json(),))
    _drop(connection)


def _begin(connection: sqlite3.Connection) -> None:
    # An earlier input may have been refused half-way.
    _drop(connection)
    connection.execute(_ASIDE)


def _drop(connection: sqlite3.Connection) -> None:
    for table in ("incoming", "otherwise"):
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")


def _set_aside(connection: sqlite3.Connection, items: Sequence[Item | BadItem], position: int) -> int:
    """Keep some items in a table of the connection's own, and give the position of the next one."""
    rows = [_row(item, number) for number, item in enumerate(items, start=position)]
    connection.execute("BEGIN")
    connection.executemany(_INCOMING, rows)
    connection.execute("COMMIT")
    return position + len(rows)


def _row(item: Item | BadItem, position: int) -> tuple[int, str | None, int, bytes, bytes | None]:
    if isinstance(item, Item):
        return position, item.id, item.line, item.digest, None
    # No item's digest: whatever stands there once it is mended differs.
    digest = sha256(b"malformed " + item.problem.encode()).digest()
    return position, item.id, item.line, digest, ItemFailure(MALFORMED, item.problem).to_json()


def _check_ids(connection: sqlite3.Connection, where: str) -> None:
    """Refuse an input that has an id twice."""
    connection.execute("CREATE INDEX temp.incoming_by_id ON incoming (id)")
    found = connection.execute(_TWICE, (_NAMED,)).fetchall()
    if found:
        raise _twice(found, _number(connection, _COUNT_TWICE), where)


def _twice(found: Sequence[tuple[bool, str, int, int, int]], many: int, where: str) -> ItemsError:
    """Say which ids stand more than once, some of `many`."""
    said = []
    for unnamed, name, first, last, count in found:
        items = "two items" if count == 2 else f"{count:,} items"
        lines = f"lines {first} and {last}" if count == 2 else f"from line {first} to line {last}"
        said.append(
            f"{items} without an id say the same ({lines})" if unnamed else f"{items} have the id {name!r} ({lines})"
        )
    more = f"; the same holds for {many - len(found):,} more" if many > len(found) else ""
    named = tuple(line for *_, first, last, _ in found for line in (first, last))
    return ItemsError(f"{'; '.join(said)}{more}; give each item an id of its own", where=where, lines=named)


def _merge(
    connection: sqlite3.Connection, path: str, about: About, *, where: str, on_changed: OnChanged, now: float
) -> Enrollment:
    """Bring the journal in line with what was set aside; runs in one transaction."""
    if not _number(connection, "SELECT count(*) FROM temp.incoming") and (
        known := _number(connection, "SELECT count(*) FROM items WHERE position IS NOT NULL")
    ):
        # A pipe that broke looks like this; all results would be those of items that are gone.
        raise ItemsError(f"there are no items, and the journal has {known:,}; see what became of them", where=where)
    if on_changed == "refuse" and (problem := _strange(connection, about, where)):
        raise JournalError(problem, "changed", path=path)
    # What was kept once is asked about no more; to do it again after all is asked for in so many words.
    connection.execute(_OTHERWISE, {"setup": about.setup, "settled": on_changed != "redo"})
    changed = _number(connection, "SELECT count(*) FROM temp.otherwise WHERE state = 'finished' AND content")
    outdated = _number(connection, "SELECT count(*) FROM temp.otherwise WHERE state = 'finished' AND NOT content")
    if on_changed == "refuse" and changed + outdated:
        raise JournalError(_refusal(connection, changed, outdated), "changed", path=path)
    if on_changed == "keep":
        connection.execute(_KEEP, {"setup": about.setup})
        connection.execute("DELETE FROM temp.otherwise WHERE state = 'finished'")
    before = _number(connection, "SELECT count(*) FROM items WHERE id IS NOT NULL")
    for statement in _MERGE:
        connection.execute(statement)
    connection.execute(_FAIL, {"kind": MALFORMED, "now": now})
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('about', ?)", (about.to_json(),))
    count = dict(connection.execute("SELECT state, count(*) FROM items WHERE position IS NOT NULL GROUP BY state"))
    malformed = "SELECT count(*) FROM items WHERE position IS NOT NULL AND failure = 'malformed'"
    enrollment = Enrollment(
        items=sum(count.values()),
        new=_number(connection, "SELECT count(*) FROM items WHERE id IS NOT NULL") - before,
        malformed=_number(connection, malformed),
        changed=changed,
        outdated=outdated,
        redone=changed + outdated if on_changed == "redo" else 0,
        gone=_number(connection, "SELECT count(*) FROM items WHERE position IS NULL"),
        pending=count.get("pending", 0),
        finished=count.get("finished", 0),
        failed=count.get("failed", 0),
    )
    _drop(connection)
    return enrollment


def _strange(connection: sqlite3.Connection, about: About, where: str) -> str | None:
    """Say why all of an input would be done as new, although much is finished; None where that is not so."""
    finished = _number(connection, "SELECT count(*) FROM items WHERE state = 'finished'")
    if not finished:
        return None
    stored = about_in(connection) or About()
    if stored.id_field and about.id_field and stored.id_field != about.id_field:
        return (
            f"its items are known by their {stored.id_field!r}, and would now be known by their {about.id_field!r}; "
            "give the id field that it had, or another journal, or have them done as new"
        )
    known = _number(connection, "SELECT EXISTS (SELECT 1 FROM temp.incoming JOIN items USING (id))")
    named = _number(connection, "SELECT count(id) FROM temp.incoming")
    if known or not named:
        return None
    done, source = _items(finished, "that came", "that came"), stored.source or "elsewhere"
    return (
        f"it knows no item of {where}, and has {done} from {source}; give the items that it had, or another journal, "
        "or have these done as well"
    )


def _refusal(connection: sqlite3.Connection, changed: int, outdated: int) -> str:
    """Say which finished items are not what they were."""
    said = []
    if changed:
        named = connection.execute(
            "SELECT id, line FROM temp.otherwise WHERE state = 'finished' AND content ORDER BY position LIMIT ?",
            (_NAMED,),
        ).fetchall()
        listed = ", ".join([f"{name!r} (line {line})" for name, line in named])
        more = f" and {changed - len(named):,} more" if changed > len(named) else ""
        said.append(f"{_items(changed, 'has', 'have')} changed since: {listed}{more}")
    if outdated:
        what = "the target, the configuration or the code version"
        said.append(f"{_items(outdated, 'was', 'were')} finished under another setup ({what} was another)")
    return f"{'; '.join(said)}; have them done again, or keep their results"


def _items(count: int, one: str, more: str) -> str:
    return f"1 finished item {one}" if count == 1 else f"{count:,} finished items {more}"


def _number(connection: sqlite3.Connection, query: str) -> int:
    [[number]] = connection.execute(query)
    return int(number)
