"""Compare a gradebook with what it should contain: nothing lost, nothing duplicated, every mark as expected."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import Record, records
from tests.tools.grading.variants import Variant

MAX_LISTED = 5
# (task, check) -> passed, failed or skipped
Statuses = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Audit:
    """The findings.

    Args:
        submitted: Number of submissions.
        complete: Those whose grading is done, with exactly one result for every task and check.
        lost: The others: students, and what is missing.
        doubled: Those graded to the end more than once, or stored twice.
        wrong: Marks that are not as expected.
        skipped: Checks that this machine could not run.
        resumed: Gradings that were interrupted and started again.
    """

    submitted: int
    complete: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    wrong: tuple[str, ...]
    skipped: int
    resumed: int

    @property
    def sound(self) -> bool:
        """Whether nothing is lost, duplicated or wrong."""
        return not self.lost and not self.doubled and not self.wrong

    def text(self) -> str:
        """Return the findings as text."""
        lines = [
            f"{self.complete} of {self.submitted} have every task once; {self.resumed} gradings were started again"
        ]
        for name, findings in (("lost", self.lost), ("doubled", self.doubled), ("wrong", self.wrong)):
            lines.append(f"{name}: {len(findings) or 'none'}")
            lines += [f"  {finding}" for finding in findings[:MAX_LISTED]]
            lines += [f"  … and {len(findings) - MAX_LISTED} more"] * (len(findings) > MAX_LISTED)
        if self.skipped:
            lines.append(f"checks that this machine could not run: {self.skipped}")
        return "\n".join(lines)


def audit(gradebook: Path, submissions: Sequence[Variant]) -> Audit:
    """Compare a gradebook with all that was submitted, after grading has ended or was interrupted.

    Raises:
        GradingError: It is not a gradebook.
    """
    with Gradebook(gradebook, must_exist=True) as book:
        by_student = {record.student: record for record in records(book)}
        entries = book.entries()
    keys = {entry.key: entry.submission.student for entry in entries if entry.key}
    stored = _stored_checks(gradebook)
    lost, wrong = [], []
    for variant in submissions:
        record = by_student.get(variant.student)
        gap = _gap(record, stored.get(variant.student, Counter()))
        if gap or record is None:
            lost.append(f"{variant.student} ({variant.name}): {gap}")
        else:
            wrong += _wrong(variant, statuses(record))
    done, interrupted = _attempts(gradebook)
    doubled = [f"{keys[key]}: graded {count} times" for key, count in done.items() if key in keys and count > 1]
    counts = Counter(entry.submission.student for entry in entries)
    doubled += [f"{student}: submitted {count} times" for student, count in counts.items() if count > 1]
    return Audit(
        len(submissions),
        len(submissions) - len(lost),
        tuple(lost),
        tuple(doubled),
        tuple(wrong),
        skipped=sum(status == "skipped" for record in by_student.values() for status in statuses(record).values()),
        resumed=sum(count for key, count in interrupted.items() if key in keys),
    )


def statuses(record: Record) -> Statuses:
    """Return the results of all checks of a submission."""
    return {(task.id, check.name): check.status for task in record.tasks for check in task.checks}


def _gap(record: Record | None, stored: Counter[tuple[str, str]]) -> str:
    """Return what is missing from a submission's result, if anything."""
    if record is None:
        return "it is not in the gradebook"
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    expected = Counter((task.id, check.name) for task in record.project.tasks for check in task.checks)
    gaps = [f"{task} {name}" for task, name in (expected - stored) + (stored - expected)]
    return f"not one result each for {', '.join(gaps)}" if gaps else ""


def _wrong(variant: Variant, found: Statuses) -> list[str]:
    return [
        f"{variant.student} ({variant.name}): {task} {check} has {status}"
        for (task, check), status in found.items()
        if status != "skipped" and (status == "failed") != ((task, check) in variant.loses)
    ]


def _stored_checks(gradebook: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return how often each check of a student is stored in the file itself: `records` fills gaps."""
    query = (
        "SELECT handed.student, task_results.task, check_results.name FROM handed JOIN task_results USING (key)"
        " JOIN check_results ON check_results.key = handed.key AND check_results.task = task_results.task"
    )
    stored: dict[str, Counter[tuple[str, str]]] = {}
    for student, task, name in _rows(gradebook, query):
        stored.setdefault(student, Counter())[task, name] += 1
    return stored


def _attempts(gradebook: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many attempts at each job have finished, and how many were interrupted."""
    query = "SELECT job, sum(outcome = 'done'), sum(outcome IN ('stopped', 'died')) FROM attempts GROUP BY job"
    rows = _rows(gradebook, query)
    return {job: done for job, done, _ in rows}, {job: interrupted for job, _, interrupted in rows}


def _rows(gradebook: Path, query: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(gradebook)) as connection:
        return connection.execute(query).fetchall()


def differences(first: Path, second: Path) -> list[str]:
    """Return the checks whose results differ in two gradebooks."""
    left, right = _all_statuses(first), _all_statuses(second)
    return [
        f"{' '.join(key)}: {left.get(key)} and {right.get(key)}"
        for key in sorted(left | right)
        if left.get(key) != right.get(key)
    ]


def _all_statuses(gradebook: Path) -> dict[tuple[str, str, str], str]:
    with Gradebook(gradebook, must_exist=True) as book:
        return {
            (record.student, task, check): status
            for record in records(book)
            for (task, check), status in statuses(record).items()
        }
