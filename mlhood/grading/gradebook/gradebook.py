"""The gradebook of a class: one SQLite file that survives a crash at any moment, with one transaction for each task.

It has a write-ahead log and `synchronous = FULL`: a commit waits for the disk, which costs milliseconds beside the
seconds that a task takes, so points given by hand survive a power failure, too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from mlhood.errors import GradingError, OutputError
from mlhood.files.paths import did_you_mean
from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.checks.submission import Reached
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.variants.seed import UNSIGNED

GRADEBOOK_FILE = "gradebook.sqlite"
SUBMISSIONS_FOLDER = "submissions"  # beside the gradebook; see `records.stored_path`
BUSY_SECONDS = 30.0
APPLICATION = 0x6D6C6862  # "mlhb": distinguishes a gradebook from other SQLite files
VERSION = 7
# the columns `file`, `result` and `spec` have JSON
SCHEMA = """
CREATE TABLE metadata (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE projects (id TEXT PRIMARY KEY, spec TEXT NOT NULL);
CREATE TABLE submissions (
    student TEXT NOT NULL, slot TEXT NOT NULL, sha256 TEXT NOT NULL, file TEXT NOT NULL,
    project TEXT NOT NULL DEFAULT '', key TEXT,
    PRIMARY KEY (student, slot)
);
CREATE TABLE notebooks (
    sha256 TEXT NOT NULL, course TEXT NOT NULL, project TEXT NOT NULL, problem TEXT NOT NULL, variant TEXT NOT NULL,
    PRIMARY KEY (sha256, course)
);
CREATE TABLE gradings (
    key TEXT PRIMARY KEY, sha256 TEXT NOT NULL, project TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'refused', 'failed')),
    reason TEXT NOT NULL DEFAULT '', seconds REAL NOT NULL DEFAULT 0
);
CREATE TABLE task_results (
    key TEXT NOT NULL REFERENCES gradings (key), task TEXT NOT NULL, result TEXT NOT NULL,
    PRIMARY KEY (key, task)
);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, job TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'done', 'died', 'stopped')),
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX attempts_of_job ON attempts (job);
CREATE TABLE manual_marks (
    student TEXT NOT NULL, item TEXT NOT NULL, sha256 TEXT NOT NULL, points REAL NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (student, item, sha256)
);
"""

Statement = tuple[str, tuple[object, ...]]


@dataclass(frozen=True)
class SubmissionEntry:
    """A submission in the gradebook: its project where that is known, and the key of the grading that counts."""

    submission: SubmittedFile
    project: str = ""
    key: str | None = None


class Identification(NamedTuple):
    """The project of a notebook, or the reason why it has none; and the version that is signed in it, if any."""

    project: str
    problem: str
    version: str = ""


@dataclass(frozen=True)
class Grading:
    """The results of one notebook: `open`, `done`, `refused` (the notebook is at fault) or `failed` (we are)."""

    state: str
    reason: str
    tasks: tuple[TaskResult, ...]
    seconds: float = 0.0


class MarkedItem(NamedTuple):
    """What a person marks: a written question of a student, or a task of one of the student's files.

    A file that replaces the submission has tasks that are not marked yet; `sha256` of a question is empty.
    """

    student: str
    id: str
    sha256: str = ""


class Gradebook:
    """Open or create a gradebook. Use it in a `with` statement.

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
        found = self._scalar("PRAGMA application_id"), self._scalar("PRAGMA user_version")
        tables = self._scalar("SELECT count(*) FROM sqlite_master")
        if tables and found != (APPLICATION, VERSION):
            raise GradingError(
                "this is not a gradebook, or one of another version of mlhood",
                where=self.path,
                expected=f"schema {VERSION} of a file that `mlhood grade` has made",
                got=f"schema {found[1]}" if found[0] == APPLICATION else "another database",
                todo="use the mlhood that made it, or grade into another folder with --out",
            )
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._create()
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
                self._connection.execute(statement, tuple(map(_encodable, values)))
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

    # -- the course and the batch

    def set_metadata(self, name: str, value: str) -> None:
        """Store a text under a name."""
        self._write([("INSERT OR REPLACE INTO metadata VALUES (?, ?)", (name, value))])

    def metadata(self, name: str) -> str | None:
        """Return the text stored under a name, or None."""
        rows = self._rows("SELECT value FROM metadata WHERE name = ?", name)
        return rows[0][0] if rows else None

    def set_projects(self, projects: Iterable[ProjectSpec]) -> None:
        """Store the projects of the course."""
        insert = "INSERT OR REPLACE INTO projects VALUES (?, ?)"
        self._write([(insert, (project.id, json.dumps(project.as_dict()))) for project in projects])

    def projects(self) -> dict[str, ProjectSpec]:
        """Return the projects of the course by id."""
        rows = self._rows("SELECT * FROM projects ORDER BY id")
        return {name: ProjectSpec.from_dict(json.loads(text)) for name, text in rows}

    # -- submissions

    def add_submissions(self, submissions: Iterable[SubmittedFile]) -> None:
        """Store submissions; each replaces the earlier one of the same student and slot."""
        insert = (
            "INSERT INTO submissions (student, slot, sha256, file) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (student, slot) DO UPDATE SET sha256 = excluded.sha256, file = excluded.file,"
            " project = CASE WHEN sha256 = excluded.sha256 THEN project ELSE '' END,"
            " key = CASE WHEN sha256 = excluded.sha256 THEN key END"
        )
        self._write((insert, (file.student, file.slot, file.sha256, _submission_text(file))) for file in submissions)

    def entries(self) -> list[SubmissionEntry]:
        """Return all submissions, by student."""
        rows = self._rows("SELECT file, project, key FROM submissions ORDER BY student, slot")
        return [SubmissionEntry(_read_submission(text), project, key) for text, project, key in rows]

    def update_entries(self, entries: Iterable[SubmissionEntry]) -> None:
        """Store which grading counts for each submission, or why there is none."""
        update = "UPDATE submissions SET project = ?, key = ?, file = ? WHERE student = ? AND slot = ? AND sha256 = ?"
        self._write(
            (update, (entry.project, entry.key, _submission_text(file), file.student, file.slot, file.sha256))
            for entry in entries
            for file in [entry.submission]
        )

    def set_identification(self, sha256: str, course: str, found: Identification) -> None:
        """Store the project of a notebook, or why it has none, in this version of the course."""
        self._write([("INSERT OR REPLACE INTO notebooks VALUES (?, ?, ?, ?, ?)", (sha256, course, *found))])

    def versions(self) -> set[str]:
        """Return the variants that submissions come from."""
        return {word for (word,) in self._rows("SELECT DISTINCT variant FROM notebooks") if word not in ("", UNSIGNED)}

    def identification(self, sha256: str, course: str) -> Identification | None:
        """Return the project of a notebook in this version of the course, or None if it is not identified yet."""
        rows = self._rows(
            "SELECT project, problem, variant FROM notebooks WHERE sha256 = ? AND course = ?", sha256, course
        )
        return Identification(*rows[0]) if rows else None

    # -- gradings

    def open_grading(self, key: str, sha256: str, project: str) -> None:
        """Add a grading that is to be done; an existing one of the same key stays as it is."""
        insert = "INSERT INTO gradings (key, sha256, project) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
        self._write([(insert, (key, sha256, project))])

    def reopen_failed(self) -> None:
        """Let what has failed through no fault of the submission be graded again."""
        statements = [
            "DELETE FROM notebooks WHERE project = '' AND 'look:' || sha256 IN (SELECT job FROM attempts)",
            "DELETE FROM attempts WHERE job IN (SELECT key FROM gradings WHERE state = 'failed')",
            "DELETE FROM attempts WHERE job LIKE 'look:%'",
            "UPDATE gradings SET state = 'open', reason = '' WHERE state = 'failed'",
        ]
        self._write((statement, ()) for statement in statements)

    def state(self, key: str) -> str | None:
        """Return the state of a grading, or None if there is none of that key."""
        rows = self._rows("SELECT state FROM gradings WHERE key = ?", key)
        return rows[0][0] if rows else None

    def latest_done(self, sha256: str, project: str) -> str | None:
        """Return the key of the latest grading of a notebook that was completed, or None."""
        query = "SELECT key FROM gradings WHERE sha256 = ? AND project = ? AND state = 'done' ORDER BY rowid DESC"
        rows = self._rows(query, sha256, project)
        return rows[0][0] if rows else None

    def put_task(self, key: str, result: TaskResult) -> None:
        """Store a task's result; it replaces an earlier one of the same task, so none counts twice."""
        insert = "INSERT OR REPLACE INTO task_results VALUES (?, ?, ?)"
        self._write([(insert, (key, result.id, _json(asdict(result))))])

    def close_grading(self, key: str, state: str, reason: str = "", seconds: float = 0.0) -> None:
        """Store how a grading has ended."""
        update = "UPDATE gradings SET state = ?, reason = ?, seconds = ? WHERE key = ?"
        self._write([(update, (state, reason, seconds, key))])

    def grading(self, key: str) -> Grading | None:
        """Return a grading with the results stored so far, or None if there is none of that key."""
        rows = self._rows("SELECT state, reason, seconds FROM gradings WHERE key = ?", key)
        if not rows:
            return None
        state, reason, seconds = rows[0]
        results = self._rows("SELECT result FROM task_results WHERE key = ? ORDER BY task", key)
        return Grading(state, reason, tuple(task_result(json.loads(text)) for (text,) in results), seconds)

    # -- attempts

    def begin_attempt(self, job: str) -> int:
        """Store that a worker begins a job; return the id of the attempt."""
        self._write([("INSERT INTO attempts (job) VALUES (?)", (job,))])
        return self._scalar("SELECT max(id) FROM attempts")

    def end_attempt(self, attempt: int, outcome: str, reason: str = "") -> None:
        """Store how an attempt ended: `done`, `died` (which counts against the job) or `stopped` (which does not)."""
        self._write([("UPDATE attempts SET outcome = ?, reason = ? WHERE id = ?", (outcome, reason, attempt))])

    def abandon_attempts(self) -> int:
        """Mark the attempts left open by a call that was killed as stopped; return how many there were."""
        running = self._scalar("SELECT count(*) FROM attempts WHERE outcome = 'running'")
        self._write([("UPDATE attempts SET outcome = 'stopped' WHERE outcome = 'running'", ())])
        return running

    def outcomes(self, job: str) -> list[str]:
        """Return how the attempts at a job have ended (see `end_attempt`)."""
        return [outcome for (outcome,) in self._rows("SELECT outcome FROM attempts WHERE job = ? ORDER BY id", job)]

    # -- points given by hand

    def put_manual_marks(self, marks: Mapping[MarkedItem, ManualMark]) -> None:
        """Store points given by hand, all or none."""
        insert = "INSERT OR REPLACE INTO manual_marks VALUES (?, ?, ?, ?, ?)"
        self._write((insert, (*item, mark.points, mark.comment)) for item, mark in marks.items())

    def manual_marks(self) -> dict[MarkedItem, ManualMark]:
        """Return the points given by hand, the latest last."""
        rows = self._rows("SELECT student, item, sha256, points, comment FROM manual_marks ORDER BY rowid")
        return {MarkedItem(*row[:3]): ManualMark(*row[3:]) for row in rows}


def identification_job(sha256: str) -> str:
    """Return the name under which `attempts` counts the identification of a notebook; part of the file format."""
    return f"look:{sha256}"


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False)


def _submission_text(file: SubmittedFile) -> str:
    return _json(asdict(file) | {"path": None, "submitted": file.submitted.isoformat() if file.submitted else None})


def _read_submission(text: str) -> SubmittedFile:
    row = json.loads(text)
    time = row.pop("submitted")
    return SubmittedFile(**row, submitted=datetime.fromisoformat(time) if time else None)


def task_result(row: dict[str, Any]) -> TaskResult:
    """Return the result of a task from plain data."""
    checks = tuple(CheckResult(**check) for check in row["checks"])
    reached = Reached(**row["reached"]) if row["reached"] else None
    return TaskResult(row["id"], row["title"], checks, tuple(row["notes"]), reached=reached)


def _encodable(value: object) -> object:
    """Replace lone surrogates, which a student's text may contain and SQLite cannot store."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
