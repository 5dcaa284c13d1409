"""The tables of the gradebook, and how those of an earlier version become these."""

from __future__ import annotations

import sqlite3

APPLICATION = 0x6D6C6862  # "mlhb": distinguishes a gradebook from other SQLite files
VERSION = 6

SCHEMA = """
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
CREATE TABLE task_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, title TEXT NOT NULL, notes TEXT NOT NULL,
    reached TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (key, task)
);
CREATE TABLE check_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL,
    title TEXT NOT NULL, points REAL NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('passed', 'failed', 'skipped', 'undecided')),
    what TEXT NOT NULL, parts TEXT NOT NULL,
    PRIMARY KEY (key, task, name)
);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL, began TEXT NOT NULL, ended TEXT,
    outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'done', 'died', 'stopped')),
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX attempts_of_job ON attempts (job);
CREATE TABLE manual_marks (
    student TEXT NOT NULL, item TEXT NOT NULL, sha256 TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (student, item, sha256)
);
"""
# statements by the version that they turn into the next one
MIGRATIONS = {
    1: (
        "ALTER TABLE task_results ADD COLUMN held TEXT NOT NULL DEFAULT ''",
        "CREATE TABLE decisions (student TEXT NOT NULL, task TEXT NOT NULL, sha256 TEXT NOT NULL, points REAL NOT NULL,"
        " comment TEXT NOT NULL, PRIMARY KEY (student, task, sha256))",
    ),
    2: ("ALTER TABLE task_results ADD COLUMN reached TEXT NOT NULL DEFAULT ''",),
    3: ("ALTER TABLE notebooks ADD COLUMN edition TEXT NOT NULL DEFAULT ''",),
    # a check that measurements left open had failed, and held its task for this reason; nothing else holds points back
    4: (
        "CREATE TABLE checks_5 (key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, name TEXT NOT NULL,"
        " position INTEGER NOT NULL, title TEXT NOT NULL, points REAL NOT NULL, status TEXT NOT NULL"
        " CHECK (status IN ('passed', 'failed', 'skipped', 'undecided')), what TEXT NOT NULL, parts TEXT NOT NULL,"
        " PRIMARY KEY (key, task, name))",
        "INSERT INTO checks_5 SELECT key, task, name, c.position, c.title, points, CASE WHEN status = 'failed'"
        " AND what <> '' AND instr(held, what) THEN 'undecided' ELSE status END, what, parts"
        " FROM check_results AS c JOIN task_results USING (key, task)",
        "DROP TABLE check_results",
        "ALTER TABLE checks_5 RENAME TO check_results",
        "CREATE TABLE tasks_5 (key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, title TEXT NOT NULL,"
        " notes TEXT NOT NULL, reached TEXT NOT NULL DEFAULT '', PRIMARY KEY (key, task))",
        "INSERT INTO tasks_5 SELECT key, task, title, notes, reached FROM task_results",
        "DROP TABLE task_results",
        "ALTER TABLE tasks_5 RENAME TO task_results",
        "CREATE TABLE manual_marks (student TEXT NOT NULL, item TEXT NOT NULL, sha256 TEXT NOT NULL,"
        " points REAL NOT NULL, comment TEXT NOT NULL, PRIMARY KEY (student, item, sha256))",
        "INSERT INTO manual_marks SELECT student, question, '', points, comment FROM hand_marks",
        "INSERT INTO manual_marks SELECT student, task, sha256, points, comment FROM decisions ORDER BY rowid",
        "DROP TABLE hand_marks",
        "DROP TABLE decisions",
    ),
    5: (
        "ALTER TABLE facts RENAME TO metadata",
        "ALTER TABLE plans RENAME TO projects",
        "ALTER TABLE projects RENAME COLUMN plan TO spec",
        "ALTER TABLE handed RENAME TO submissions",
        "ALTER TABLE notebooks RENAME COLUMN edition TO variant",
    ),
}


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of an earlier version to this one, all or nothing; those of this version stay as they are.

    A call that is killed leaves the earlier version; of two calls at once, the second finds the work done.
    """
    if _version(connection) not in MIGRATIONS:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        while (version := _version(connection)) in MIGRATIONS:
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
