"""What a gradebook holds against what it should: nothing lost, nothing counted twice, every mark as expected."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.grading.bench.variants import Variant
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import Record, records

TOLD = 5
# (task, check) -> passed, failed or skipped
Statuses = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Audit:
    """What was found.

    Args:
        handed: Submissions that there are.
        whole: Those whose grading is done, with a result for every task and check, each once.
        lost: The others: students, and what there is.
        doubled: Those graded to their end more than once, or that stand in the gradebook twice.
        wrong: Marks that are not as expected, in words.
        skipped: Checks that this machine could not ask.
        resumed: Gradings that were broken off and begun again.
    """

    handed: int
    whole: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    wrong: tuple[str, ...]
    skipped: int
    resumed: int

    @property
    def sound(self) -> bool:
        """Whether nothing is lost, doubled or wrong."""
        return not self.lost and not self.doubled and not self.wrong

    def text(self) -> str:
        """In words."""
        lines = [f"{self.whole} of {self.handed} have every task once; {self.resumed} gradings were begun again"]
        for name in ("lost", "doubled", "wrong"):
            found = getattr(self, name)
            lines.append(f"{name}: {len(found) or 'none'}")
            lines += [f"  {one}" for one in found[:TOLD]]
            lines += [f"  … and {len(found) - TOLD} more"] * (len(found) > TOLD)
        if self.skipped:
            lines.append(f"checks that this machine could not ask: {self.skipped}")
        return "\n".join(lines)


def audit(gradebook: Path, handed: Sequence[Variant]) -> Audit:
    """Compare a gradebook with what was handed in, when the grading has come to its end or was stopped.

    Args:
        gradebook: The file.
        handed: All submissions.

    Raises:
        GradingError: It is no gradebook.
    """
    with Gradebook(gradebook, must_exist=True) as book:
        found = records(book)
        rows = Counter(entry.handed.student for entry in book.handed())
        keys = {entry.key: entry.handed.student for entry in book.handed() if entry.key}
    by_student = {one.student: one for one in found}
    stored = _stored(gradebook)
    lost, wrong = [], []
    for one in handed:
        record = by_student.get(one.student)
        gap = _gap(record, stored.get(one.student, Counter()))
        if gap or record is None:
            lost.append(f"{one.student} ({one.name}): {gap}")
        else:
            wrong += _wrong(one, statuses(record))
    done, broken_off = _attempts(gradebook)
    doubled = [f"{keys[key]}: graded {count} times" for key, count in done.items() if key in keys and count > 1]
    doubled += [f"{student}: handed in {count} times" for student, count in rows.items() if count > 1]
    skipped = sum(status == "skipped" for one in found for status in statuses(one).values())
    resumed = sum(count for key, count in broken_off.items() if key in keys)
    return Audit(len(handed), len(handed) - len(lost), tuple(lost), tuple(doubled), tuple(wrong), skipped, resumed)


def statuses(record: Record) -> Statuses:
    """The answers to all checks of a submission."""
    return {(task.id, check.name): check.status for task in record.tasks for check in task.checks}


def _gap(record: Record | None, stored: Counter[tuple[str, str]]) -> str:
    """What is missing of a submission's result, or nothing."""
    if record is None:
        return "it is not in the gradebook"
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    asked = Counter((task.id, name) for task in record.plan.tasks for name, _, _ in task.checks)
    gaps = [f"{task} {name}" for task, name in (asked - stored) + (stored - asked)]
    return f"not one result each for {', '.join(gaps)}" if gaps else ""


def _wrong(one: Variant, found: Statuses) -> list[str]:
    return [
        f"{one.student} ({one.name}): {task} {check} has {status}"
        for (task, check), status in found.items()
        if status != "skipped" and (status == "failed") != ((task, check) in one.loses)
    ]


def _stored(gradebook: Path) -> dict[str, Counter[tuple[str, str]]]:
    """How often each check of a student stands in the file, as it is: what reads it for exports fills gaps."""
    query = (
        "SELECT handed.student, task_results.task, check_results.name FROM handed JOIN task_results USING (key)"
        " JOIN check_results ON check_results.key = handed.key AND check_results.task = task_results.task"
    )
    found: dict[str, Counter[tuple[str, str]]] = {}
    for student, task, name in _rows(gradebook, query):
        found.setdefault(student, Counter())[task, name] += 1
    return found


def _attempts(gradebook: Path) -> tuple[dict[str, int], dict[str, int]]:
    """How many attempts at each job have come to their end, and how many were broken off."""
    query = "SELECT job, sum(outcome = 'done'), sum(outcome IN ('stopped', 'died')) FROM attempts GROUP BY job"
    rows = _rows(gradebook, query)
    return {job: done for job, done, _ in rows}, {job: broken for job, _, broken in rows}


def _rows(gradebook: Path, query: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(gradebook)) as base:
        return base.execute(query).fetchall()


def differences(one: Path, other: Path) -> list[str]:
    """Where the marks of two gradebooks differ, check by check, in words."""
    left, right = _all_statuses(one), _all_statuses(other)
    return [
        f"{student} {task} {check}: {left.get(place)} and {right.get(place)}"
        for place in sorted(left | right)
        for student, task, check in [place]
        if left.get(place) != right.get(place)
    ]


def _all_statuses(gradebook: Path) -> dict[tuple[str, str, str], str]:
    with Gradebook(gradebook, must_exist=True) as book:
        return {(one.student, *place): status for one in records(book) for place, status in statuses(one).items()}
