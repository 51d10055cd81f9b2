"""The form of a journal: its tables, and the steps from each version to the next.

A journal is an SQLite database whose ``application_id`` says that it is one and whose ``user_version`` says in which
version of this form it is. A step that was released never changes; a change is a new step. Whoever opens a journal for
writing brings it up to date, in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from furcate.primitives._errors import JournalError

APPLICATION_ID = 0x66757263  # "furc"

_FIRST = """
-- What the job is: names and JSON values.
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row an item, small, so that looking at all of them is quick. Of an item that cannot be named the id is NULL; of
-- one that the input no longer has, the position is NULL. `ended` counts ends, in their order.
CREATE TABLE items (
    number INTEGER PRIMARY KEY,
    id TEXT UNIQUE,
    position INTEGER,
    line INTEGER NOT NULL,
    digest BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'finished', 'failed')),
    tries INTEGER NOT NULL DEFAULT 0,
    ended INTEGER UNIQUE,
    failure TEXT,
    setup BLOB,
    started_at REAL,
    ended_at REAL,
    input_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    output_tokens INTEGER,
    reasoning_tokens INTEGER,
    lower_bounds TEXT NOT NULL DEFAULT ''
);
CREATE INDEX items_in_order ON items (position);

-- What an ended item came to, as JSON: a result or an error.
CREATE TABLE outcomes (number INTEGER PRIMARY KEY REFERENCES items, result BLOB, error BLOB);

CREATE TABLE observations (
    number INTEGER NOT NULL REFERENCES items,
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (number, sequence)
) WITHOUT ROWID;

-- Answered calls of items, in the order in which they were answered.
CREATE TABLE calls (
    number INTEGER NOT NULL REFERENCES items,
    sequence INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    key BLOB NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (number, sequence)
);
CREATE UNIQUE INDEX calls_by_attempt ON calls (number, run_id, attempt);
"""

_SECOND = """
-- Finished items whose results were kept although something had changed: what the item said then, and the setup.
CREATE TABLE kept (number INTEGER PRIMARY KEY REFERENCES items, digest BLOB NOT NULL, setup BLOB NOT NULL);
"""

STEPS: tuple[str, ...] = (_FIRST, _SECOND)
"""What leads from version 0, an empty database, to 1, and from each version to the next."""


def version_of(connection: sqlite3.Connection, path: str, steps: Sequence[str] = STEPS) -> int:
    """Give the version of an open journal's form; 0 is an empty database.

    Raises:
        JournalError: it is another application's database, or of a later release, or has no version.
    """
    [[application]] = connection.execute("PRAGMA application_id")
    [[version]] = connection.execute("PRAGMA user_version")
    if application == APPLICATION_ID:
        if version < 1:
            problem = "the journal is damaged: it does not say in which version of its form it is"
            raise JournalError(f"{problem}; restore a copy, or begin a new one", "damaged", path=path)
        if version > len(steps):
            raise JournalError(
                f"a later release of furcate wrote this journal (in version {version} of its form, of which this "
                f"release knows {len(steps)}); update furcate",
                "newer",
                path=path,
            )
        return int(version)
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_schema")
    if application or version or tables:
        problem = "this is the database of another application, no journal; give another path"
        raise JournalError(problem, "foreign", path=path)
    return 0


def bring_up_to_date(connection: sqlite3.Connection, path: str, steps: Sequence[str] = STEPS) -> None:
    """Make the tables of a new journal, or take the steps that an older one lacks, all of them or none.

    Raises:
        JournalError: it is another application's database, or of a later release.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection, path, steps)
        for step in steps[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        if version < len(steps):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(step: str) -> list[str]:
    # executescript would commit the transaction that it is called in.
    statements: list[str] = []
    gathered = ""
    for line in step.strip().splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            statements.append(gathered)
            gathered = ""
    return statements
