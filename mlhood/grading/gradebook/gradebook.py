"""The gradebook of a class: one SQLite file that survives a crash at any moment.

A write-ahead log, one transaction a task, and `synchronous = FULL`: a commit then waits for the disk, some
milliseconds beside the seconds that a task takes, and marks given by hand survive a power failure, too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.course_plan import Plan, read_plan
from mlhood.grading.gradebook.schema import APPLICATION, SCHEMA, VERSION
from mlhood.grading.intake.submitted_file import Handed

BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class Entry:
    """A submission in the gradebook: its project where that is known, and the key of the grading that counts."""

    handed: Handed
    project: str = ""
    key: str | None = None


@dataclass(frozen=True)
class Grading:
    """How far the grading of one notebook has come: `open`, `done`, `refused` (it is at fault) or `failed` (we are)."""

    state: str
    reason: str
    tasks: tuple[TaskResult, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class HandMark:
    """Points that a person gave for a written question."""

    student: str
    question: str
    points: float
    comment: str = ""


class Gradebook:
    """Opens or makes a gradebook. Use it in a `with` statement.

    Raises:
        GradingError: The file is no gradebook, damaged, or made by a newer mlhood.
        OutputError: It cannot be written.
    """

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        if must_exist and not path.is_file():
            raise GradingError(
                "there is no gradebook",
                where=path,
                expected="the gradebook.sqlite that `mlhood grade` has made",
                todo="grade first: mlhood grade SUBMISSIONS --out DIR",
            )
        try:
            # every transaction is begun by hand, so that none holds more or less than it says
            self._base = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            self.close()
            raise self._unusable(error) from None
        except GradingError:
            self.close()
            raise

    def __enter__(self) -> Gradebook:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was committed is there anyway."""
        if hasattr(self, "_base"):
            self._base.close()

    def _prepare(self) -> None:
        application = self._number("PRAGMA application_id")
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if tables and application != APPLICATION:
            raise GradingError(
                "this file is a database, but no gradebook of the course",
                where=self.path,
                expected="a file that `mlhood grade` has made",
                todo="choose another folder with --out",
            )
        self._base.execute("PRAGMA foreign_keys = ON")
        self._base.execute("PRAGMA synchronous = FULL")
        if not tables:
            self._base.execute("PRAGMA journal_mode = WAL")
            self._create()
        version = self._number("PRAGMA user_version")
        if version != VERSION:
            raise GradingError(
                "the gradebook was made by another version of mlhood",
                where=self.path,
                expected=f"schema {VERSION}",
                got=f"schema {version}",
                todo="use the mlhood that made it, or grade into another folder with --out",
            )
        broken = self._base.execute("PRAGMA quick_check(1)").fetchone()[0]
        if broken != "ok":
            raise sqlite3.DatabaseError(broken)

    def _create(self) -> None:
        script = (
            f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
        if self._number("SELECT count(*) FROM sqlite_master") == 0:
            self._base.executescript(script)

    def _number(self, query: str) -> int:
        return self._base.execute(query).fetchone()[0]

    def _unusable(self, error: sqlite3.Error) -> GradingError | OutputError:
        if isinstance(error, sqlite3.OperationalError):
            return OutputError(
                "the gradebook cannot be opened or written",
                where=self.path,
                expected="a folder on a disk of this machine, with room, in which you may write",
                got=str(error),
                todo="choose another folder with --out, or end the other program that uses it",
            )
        return GradingError(
            "the gradebook is damaged, or is no gradebook",
            where=self.path,
            got=str(error),
            todo="restore it from a backup, or grade again into another folder with --out",
        )

    def _write(self, statements: Iterable[tuple[str, tuple[object, ...]]]) -> None:
        """Run statements as one transaction."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                self._base.execute(statement, tuple(_clean(value) for value in values))
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise self._unusable(error) from None
        except BaseException:  # Ctrl-C between two statements must not leave half of them to the next commit
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise

    def _rows(self, query: str, *values: object) -> list[tuple]:
        try:
            with closing(self._base.execute(query, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    # -- what the course and the batch say of themselves

    def set_fact(self, name: str, value: str) -> None:
        """Keep a text under a name."""
        self._write([("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))])

    def fact(self, name: str) -> str | None:
        """The text kept under a name, or None."""
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return rows[0][0] if rows else None

    def set_plans(self, plans: Iterable[Plan]) -> None:
        """Keep what the projects ask for."""
        insert = "INSERT OR REPLACE INTO plans VALUES (?, ?)"
        self._write([(insert, (plan.id, json.dumps(plan.as_dict()))) for plan in plans])

    def plans(self) -> dict[str, Plan]:
        """What the projects ask for, by their ids."""
        return {name: read_plan(json.loads(text)) for name, text in self._rows("SELECT * FROM plans ORDER BY id")}

    # -- submissions

    def hand_in(self, handed: Iterable[Handed]) -> None:
        """Note what was handed in; a later submission replaces the earlier one of the same student and slot."""
        now = datetime.now(UTC).isoformat()
        insert = (
            "INSERT INTO handed (student, slot, name, assignment, source, sha256, submitted, late, problem, collected)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (student, slot) DO UPDATE SET name = excluded.name,"
            " assignment = excluded.assignment, source = excluded.source, sha256 = excluded.sha256,"
            " submitted = excluded.submitted, late = excluded.late, problem = excluded.problem,"
            " collected = excluded.collected, project = CASE WHEN sha256 = excluded.sha256 THEN project ELSE '' END,"
            " key = CASE WHEN sha256 = excluded.sha256 THEN key END"
        )
        self._write((insert, (*_handed_row(one), now)) for one in handed)

    def handed(self) -> list[Entry]:
        """All that was handed in, by students."""
        rows = self._rows(
            "SELECT student, name, assignment, source, sha256, submitted, late, problem, project, key"
            " FROM handed ORDER BY student, slot"
        )
        return [Entry(_as_handed(row[:8]), row[8], row[9]) for row in rows]

    def assign(self, entries: Iterable[Entry]) -> None:
        """Note which grading counts for a submission, or why there is none."""
        update = "UPDATE handed SET project = ?, key = ?, problem = ? WHERE student = ? AND slot = ? AND sha256 = ?"
        self._write(
            (update, (entry.project, entry.key, one.problem, one.student, one.slot, one.sha256))
            for entry in entries
            for one in [entry.handed]
        )

    def set_project(self, sha256: str, course: str, project: str, problem: str) -> None:
        """Note which project a notebook belongs to, or why to none, in this state of the course."""
        self._write([("INSERT OR REPLACE INTO notebooks VALUES (?, ?, ?, ?)", (sha256, course, project, problem))])

    def project(self, sha256: str, course: str) -> tuple[str, str] | None:
        """Project and problem of a notebook, or None if nobody has looked into it yet."""
        rows = self._rows("SELECT project, problem FROM notebooks WHERE sha256 = ? AND course = ?", sha256, course)
        return rows[0] if rows else None

    # -- gradings

    def open_grading(self, key: str, sha256: str, project: str) -> None:
        """Note that a grading is to be done; one that is there stays as it is."""
        insert = "INSERT INTO gradings (key, sha256, project) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING"
        self._write([(insert, (key, sha256, project))])

    def reopen(self) -> None:
        """Let what has failed through no fault of the submission be graded again."""
        forget = "DELETE FROM attempts WHERE job IN (SELECT key FROM gradings WHERE state = 'failed')"
        looks = "DELETE FROM attempts WHERE job LIKE 'look:%'"
        again = "UPDATE gradings SET state = 'open', reason = '' WHERE state = 'failed'"
        mended = "DELETE FROM notebooks WHERE project = '' AND 'look:' || sha256 IN (SELECT job FROM attempts)"
        self._write([(mended, ()), (forget, ()), (looks, ()), (again, ())])

    def state(self, key: str) -> str | None:
        """The state of a grading, or None if there is none of that key."""
        rows = self._rows("SELECT state FROM gradings WHERE key = ?", key)
        return rows[0][0] if rows else None

    def put_task(self, key: str, position: int, result: TaskResult) -> None:
        """Store a task's result; an earlier one of the same task is replaced, so none counts twice."""
        task = "INSERT OR REPLACE INTO task_results VALUES (?, ?, ?, ?, ?)"
        check = "INSERT INTO check_results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._write(
            [
                ("DELETE FROM check_results WHERE key = ? AND task = ?", (key, result.id)),
                (task, (key, result.id, position, result.title, json.dumps(result.notes))),
                *((check, (key, result.id, *_check_row(at, one))) for at, one in enumerate(result.checks)),
            ]
        )

    def close_grading(self, key: str, state: str, reason: str = "", seconds: float = 0.0) -> None:
        """Note how a grading has ended."""
        update = "UPDATE gradings SET state = ?, reason = ?, seconds = ? WHERE key = ?"
        self._write([(update, (state, reason, seconds, key))])

    def grading(self, key: str) -> Grading | None:
        """A grading with the results that it has so far, or None if there is none of that key."""
        rows = self._rows("SELECT state, reason, seconds FROM gradings WHERE key = ?", key)
        if not rows:
            return None
        state, reason, seconds = rows[0]
        return Grading(state, reason, self._tasks(key), seconds)

    def _tasks(self, key: str) -> tuple[TaskResult, ...]:
        checks: dict[str, list[CheckResult]] = {}
        query = (
            "SELECT task, name, title, points, status, what, parts FROM check_results WHERE key = ?"
            " ORDER BY task, position"
        )
        for task, *values, parts in self._rows(query, key):
            checks.setdefault(task, []).append(CheckResult(*values, parts=json.loads(parts)))
        rows = self._rows("SELECT task, title, notes FROM task_results WHERE key = ? ORDER BY position", key)
        return tuple(
            TaskResult(task, title, tuple(checks.get(task, [])), tuple(json.loads(notes)))
            for task, title, notes in rows
        )

    # -- attempts

    def begin_attempt(self, job: str) -> int:
        """Note that a worker begins with a job; the number of the attempt."""
        self._write([("INSERT INTO attempts (job, began) VALUES (?, ?)", (job, datetime.now(UTC).isoformat()))])
        return self._number("SELECT max(id) FROM attempts")

    def end_attempt(self, attempt: int, outcome: str, reason: str = "") -> None:
        """Note how an attempt ended: `done`, `died` (which counts against the job) or `stopped` (which does not)."""
        update = "UPDATE attempts SET ended = ?, outcome = ?, reason = ? WHERE id = ?"
        self._write([(update, (datetime.now(UTC).isoformat(), outcome, reason, attempt))])

    def abandon_attempts(self) -> int:
        """End the attempts that an earlier call has left open, when it was killed; how many there were."""
        open_ones = self._number("SELECT count(*) FROM attempts WHERE outcome = 'running'")
        self._write([("UPDATE attempts SET outcome = 'stopped' WHERE outcome = 'running'", ())])
        return open_ones

    def deaths(self, job: str) -> list[str]:
        """The reasons of the attempts at a job that have failed."""
        rows = self._rows("SELECT reason FROM attempts WHERE job = ? AND outcome = 'died' ORDER BY id", job)
        return [reason for (reason,) in rows]

    # -- marks by hand

    def put_hand_marks(self, marks: Iterable[HandMark]) -> None:
        """Store points for written questions, all or none."""
        insert = "INSERT OR REPLACE INTO hand_marks VALUES (?, ?, ?, ?)"
        self._write([(insert, (mark.student, mark.question, mark.points, mark.comment)) for mark in marks])

    def hand_marks(self) -> dict[tuple[str, str], HandMark]:
        """Points for written questions, by student and question."""
        rows = self._rows("SELECT student, question, points, comment FROM hand_marks ORDER BY student, question")
        return {(row[0], row[1]): HandMark(*row) for row in rows}


def _handed_row(one: Handed) -> tuple[object, ...]:
    submitted = one.submitted.isoformat() if one.submitted else None
    return (
        one.student, one.slot, one.name, one.assignment, one.source, one.sha256, submitted, int(one.late), one.problem,
    )  # fmt: skip


def _as_handed(row: tuple) -> Handed:
    student, name, assignment, source, sha256, submitted, late, problem = row
    time = datetime.fromisoformat(submitted) if submitted else None
    return Handed(student, name, assignment, source, None, sha256, time, bool(late), problem)


def _check_row(position: int, check: CheckResult) -> tuple[object, ...]:
    parts = json.dumps(check.parts)
    return check.name, position, check.title, check.points, check.status, check.what, parts


def _clean(value: object) -> object:
    """Text that SQLite can store: a student's text may hold halves of characters."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
