"""The database file of a gradebook: opened, checked, and changed in transactions.

A write-ahead log and `synchronous = FULL`: a commit waits for the disk, which costs milliseconds beside the seconds
that a task takes, so points given by hand survive a power failure, too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Self

from mlhood.errors import GradingError, OutputError
from mlhood.files.paths import did_you_mean
from mlhood.grading.gradebook.schema import APPLICATION, SCHEMA, VERSION, migrate

BUSY_SECONDS = 30.0

Statement = tuple[str, tuple[object, ...]]


class Database:
    """Open or create a gradebook's file. Use it in a `with` statement.

    Raises:
        GradingError: The file is not a gradebook, is damaged, or was made by a newer mlhood.
        OutputError: It cannot be written.
    """

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        if must_exist and not path.is_file():
            raise GradingError(
                "there is no gradebook",
                where=path,
                expected="the gradebook.sqlite that `mlhood grade` has made",
                todo=did_you_mean(path) or "grade first: mlhood grade SUBMISSIONS --out DIR",
            )
        try:
            # no implicit transactions: `_write` begins and commits them
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            self.close()
            raise self._unusable(error) from None
        except GradingError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was committed stays."""
        if hasattr(self, "_connection"):
            self._connection.close()

    def _prepare(self) -> None:
        application = self._scalar("PRAGMA application_id")
        tables = self._scalar("SELECT count(*) FROM sqlite_master")
        if tables and application != APPLICATION:
            raise GradingError(
                "this file is a database, but not a gradebook of the course",
                where=self.path,
                expected="a file that `mlhood grade` has made",
                todo="choose another folder with --out",
            )
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._create()
        migrate(self._connection)
        version = self._scalar("PRAGMA user_version")
        if version != VERSION:
            raise GradingError(
                "the gradebook was made by another version of mlhood",
                where=self.path,
                expected=f"schema {VERSION}",
                got=f"schema {version}",
                todo="use the mlhood that made it, or grade into another folder with --out",
            )
        integrity = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if integrity != "ok":
            raise sqlite3.DatabaseError(integrity)

    def _create(self) -> None:
        script = (
            f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
        if self._scalar("SELECT count(*) FROM sqlite_master") == 0:
            self._connection.executescript(script)

    def _scalar(self, query: str) -> int:
        return self._connection.execute(query).fetchone()[0]

    def _unusable(self, error: sqlite3.Error) -> GradingError | OutputError:
        if isinstance(error, sqlite3.OperationalError):
            return OutputError(
                "the gradebook cannot be opened or written",
                where=self.path,
                expected="a writable folder on a local disk with free space",
                got=str(error),
                todo="choose another folder with --out, or end the other program that uses it",
            )
        return GradingError(
            "the gradebook is damaged, or is not a gradebook",
            where=self.path,
            got=str(error),
            todo="restore it from a backup, or grade again into another folder with --out",
        )

    def _write(self, statements: Iterable[Statement]) -> None:
        """Execute statements as one transaction."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                self._connection.execute(statement, tuple(_encodable(value) for value in values))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._unusable(error) from None
        except BaseException:  # Ctrl-C between two statements must not leave half of them to the next commit
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _rows(self, query: str, *values: object) -> list[tuple]:
        try:
            with closing(self._connection.execute(query, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None


def _encodable(value: object) -> object:
    """Replace lone surrogates, which a student's text may contain and SQLite cannot store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
