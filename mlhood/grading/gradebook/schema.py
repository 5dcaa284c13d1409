"""The tables of the gradebook, and how those of 0.1.0 become these."""

from __future__ import annotations

import sqlite3

APPLICATION = 0x6D6C6862  # "mlhb": distinguishes a gradebook from other SQLite files
VERSION = 6
EARLIER = 1  # that of 0.1.0

TASK_RESULTS = """CREATE TABLE task_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, title TEXT NOT NULL, notes TEXT NOT NULL,
    reached TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (key, task)
);
"""
CHECK_RESULTS = """CREATE TABLE check_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
    title TEXT NOT NULL, points REAL NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('passed', 'failed', 'skipped', 'undecided')),
    what TEXT NOT NULL, parts TEXT NOT NULL,
    PRIMARY KEY (key, task, name)
);
"""
MANUAL_MARKS = """CREATE TABLE manual_marks (
    student TEXT NOT NULL, item TEXT NOT NULL, sha256 TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (student, item, sha256)
);
"""
SCHEMA = f"""
CREATE TABLE metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE projects (id TEXT PRIMARY KEY, spec TEXT NOT NULL);
CREATE TABLE submissions (
    student TEXT NOT NULL, slot TEXT NOT NULL, name TEXT NOT NULL, assignment TEXT NOT NULL, source TEXT NOT NULL,
    sha256 TEXT NOT NULL, submitted TEXT, late INTEGER NOT NULL, problem TEXT NOT NULL, collected TEXT NOT NULL,
    project TEXT NOT NULL DEFAULT '', key TEXT,
    PRIMARY KEY (student, slot)
);
CREATE TABLE notebooks (
    sha256 TEXT NOT NULL, course TEXT NOT NULL, project TEXT NOT NULL, problem TEXT NOT NULL,
    variant TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (sha256, course)
);
CREATE TABLE gradings (
    key TEXT PRIMARY KEY, sha256 TEXT NOT NULL, project TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused', 'failed')),
    reason TEXT NOT NULL DEFAULT '', seconds REAL NOT NULL DEFAULT 0
);
{TASK_RESULTS}
{CHECK_RESULTS}
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, began TEXT NOT NULL, ended TEXT,
    outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'done', 'died', 'stopped')),
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX attempts_of_job ON attempts (job);
{MANUAL_MARKS}
"""
MIGRATION = (
    "ALTER TABLE facts RENAME TO metadata",
    "ALTER TABLE plans RENAME TO projects",
    "ALTER TABLE projects RENAME COLUMN plan TO spec",
    "ALTER TABLE handed RENAME TO submissions",
    "ALTER TABLE notebooks ADD COLUMN variant TEXT NOT NULL DEFAULT ''",
    # tasks had positions, which say nothing, and no open task reached a figure
    "ALTER TABLE task_results RENAME TO earlier_tasks",
    TASK_RESULTS,
    "INSERT INTO task_results SELECT key, task, title, notes, '' FROM earlier_tasks",
    "DROP TABLE earlier_tasks",
    # no check could be undecided
    "ALTER TABLE check_results RENAME TO earlier_checks",
    CHECK_RESULTS,
    "INSERT INTO check_results SELECT key, task, name, position, title, points, status, what, parts"
    " FROM earlier_checks",
    "DROP TABLE earlier_checks",
    # only questions could be marked
    MANUAL_MARKS,
    "INSERT INTO manual_marks SELECT student, question, '', points, comment FROM hand_marks",
    "DROP TABLE hand_marks",
)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of 0.1.0 to this version, all or nothing; those of this version stay as they are.

    A call that is killed leaves the earlier version; of two calls at once, the second finds the work done.
    """
    if _version(connection) != EARLIER:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) == EARLIER:
            for statement in MIGRATION:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
