"""The formats in which marks leave the gradebook as one table or as one file a student.

Field lists: nbgrader's `CsvExportPlugin`; Gradescope's "Autograder Specifications", results.json; the `result` that
the graders of GitHub Classroom hand to its reporter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from mlhood.files.csv_cells import csv_text, number
from mlhood.grading.checks.marks import CheckResult
from mlhood.grading.gradebook.records import Record

NBGRADER_FIELDS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip
FIELDS = (
    "student_id", "name", "project", "status", "reason", "source", "submitted", "late_days", "late_penalty", "earned",
    "possible", "bonus", "score",
)  # fmt: skip
MAX_OUTPUT = 20_000
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def plain_csv(found: Sequence[Record]) -> str:
    """A row for every student and project, with a column for every task."""
    titles = {task.id: f"{task.id} {task.title} ({number(task.points)})" for one in found for task in one.plan.tasks}
    rows: list[Sequence[object]] = [[*FIELDS, *titles.values()]]
    for one in found:
        earned = {task.id: number(task.earned) for task in one.tasks}
        row = (
            one.student, one.handed.name, one.plan.id, one.status, one.reason, one.handed.source,
            one.late.submitted.isoformat() if one.late.submitted else "", one.late.days, number(one.penalty),
            number(one.earned), number(one.possible), number(one.bonus), number(one.score),
        )  # fmt: skip
        rows.append([*row, *(earned.get(task, "") for task in titles)])
    return csv_text(rows)


def nbgrader_csv(found: Sequence[Record]) -> str:
    """What `nbgrader export` writes: every student in every assignment, those without a submission with 0.

    Times are in UTC and say no zone, as in nbgrader's own file.
    """
    by_place = {(one.plan.id, one.student): one for one in found}
    plans = {one.plan.id: (one.plan, one.due) for one in found}
    names = {one.student: one.handed.name for one in found}
    rows = [
        (plan.id, _naive(due), *_nbgrader_rest(student, name, by_place.get((plan.id, student)), plan.points))
        for plan, due in plans.values()
        for student, name in sorted(names.items())
    ]
    return csv_text([NBGRADER_FIELDS, *rows])


def _nbgrader_rest(student: str, name: str, one: Record | None, points: float) -> tuple[object, ...]:
    first, _, last = name.rpartition(" ")
    if one is None:
        return "", student, last, first, "", 0.0, 0.0, 0.0, float(points)
    numbers = (round(one.earned + one.bonus, 2), round(one.penalty, 2), round(one.score, 2), float(one.possible))
    return _naive(one.late.submitted), student, last, first, "", *numbers


def _naive(time: datetime | None) -> str:
    return str(time.astimezone(UTC).replace(tzinfo=None)) if time else ""


def gradescope(one: Record) -> dict[str, Any]:
    """A student's results.json for Gradescope."""
    tests = [
        _gradescope_test(f"{task.title}: {check.title}", f"{task.id[1:]}.{place}", check)
        for task in one.tasks
        for place, check in enumerate(task.checks, start=1)
    ]
    for question, mark in one.by_hand.items():
        planned = one.plan.question(question)
        tests.append(
            {
                "name": planned.title if planned else question,
                "number": question[1:],
                "score": number(mark.points),
                "max_score": 0,
                "output": mark.comment,
                "output_format": "text",
                "visibility": "visible",
            }
        )
    return {
        "score": number(one.score),
        "execution_time": round(one.seconds),
        "output": _summary(one),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def _gradescope_test(name: str, place: str, check: CheckResult) -> dict[str, Any]:
    skipped = check.status == "skipped"
    test = {
        "name": name,
        "number": place,
        "score": number(check.earned),
        "max_score": 0 if skipped else number(check.points),
        "output": _explained(check),
        "output_format": "text",
        "visibility": "visible",
    }
    return test if skipped else test | {"status": check.status}


def github_classroom(one: Record) -> dict[str, Any]:
    """A student's result as the graders of GitHub Classroom tell it to its reporter: a test for every task."""
    tests = [
        {
            "name": f"{task.id} {task.title}",
            "status": "pass" if task.full else "fail",
            "score": number(task.earned),
            "message": "\n".join(_explained(check) for check in task.checks if check.status != "passed")[:MAX_OUTPUT],
        }
        for task in one.tasks
    ]
    full = all(task.full for task in one.tasks)
    status = "error" if one.status in {"failed", "open"} else "pass" if full else "fail"
    return {"version": 1, "status": status, "max_score": number(one.possible), "tests": tests}


def _explained(check: CheckResult) -> str:
    lines = [f"{check.title}: {check.status}", check.what, *(f"{key}: {part}" for key, part in check.parts.items())]
    return "\n".join(line for line in lines if line)[:MAX_OUTPUT]


def _summary(one: Record) -> str:
    lines = [f"{one.plan.id} {one.plan.title}: {number(one.earned)} of {number(one.possible)} points"]
    if one.reason:
        lines.append(one.reason)
    if one.by_hand:
        lines.append(f"for written questions: {number(one.bonus)} points")
    if one.late.days:
        lines.append(f"{one.late.days} days late: {number(one.penalty)} points less")
    return "\n".join(lines)


def json_text(plain: dict[str, Any]) -> str:
    """Plain data as JSON in ASCII, in which no half character of a student's can break the file."""
    return json.dumps(plain, indent=1) + "\n"


def file_name(student: str) -> str:
    """A name for a student's files that every system takes, and that no other student's id makes, too."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", student)[:60].strip(".")
    if plain == student and plain and not RESERVED.fullmatch(plain) and plain == plain.lower():
        return plain
    digest = hashlib.sha256(student.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain or 'student'}-{digest}"


def per_student(found: Iterable[Record], make: Any, name: str) -> dict[str, str]:
    """A file for every student and project, by its path: `P1/ada/results.json`."""
    return {f"{one.plan.id}/{file_name(one.student)}/{name}": json_text(make(one)) for one in found}
