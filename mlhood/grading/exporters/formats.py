"""The formats of exported marks: one table, or one file for each student.

Field lists: nbgrader's `CsvExportPlugin`; Gradescope's "Autograder Specifications", results.json. That of GitHub
Classroom is in `reports.github_classroom`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mlhood.files.csv_cells import csv_text, round_points
from mlhood.files.paths import portable_name
from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.gradebook.records import Record
from mlhood.grading.reports.github_classroom import explanation, task_results


def plain_csv(records: Sequence[Record]) -> str:
    """Return a row for every student and project, with a column for every task."""
    titles = {
        task.id: f"{task.id} {task.title} ({round_points(task.points)})"
        for record in records
        for task in record.project.tasks
    }
    return _csv([_plain_row(record, titles) for record in records])


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    header = list(rows[0]) if rows else []
    return csv_text([header, *(list(row.values()) for row in rows)])


def _plain_row(record: Record, titles: Mapping[str, str]) -> Mapping[str, object]:
    earned = {task.id: round_points(task.earned) for task in record.tasks}
    submitted = record.late.submitted
    return {
        "student_id": record.student,
        "name": record.submission.name,
        "email": record.email,
        "project": record.project.id,
        "status": record.status,
        "reason": record.reason,
        "source": record.submission.source,
        "submitted": submitted.isoformat() if submitted else "",
        "late_days": record.late.days,
        "late_penalty": round_points(record.penalty),
        "late_note": record.late.note,
        "earned": round_points(record.earned),
        "possible": round_points(record.possible),
        "bonus": round_points(record.bonus),
        "score": round_points(record.score),
        "undecided": " ".join(task.id for task in record.undecided),
    } | {title: earned.get(task, "") for task, title in titles.items()}


def nbgrader_csv(records: Sequence[Record]) -> str:
    """Return what `nbgrader export` writes: every student in every assignment, with 0 where nothing was submitted.

    Times are in UTC without a zone, as in nbgrader's own file.
    """
    by_key = {(record.project.id, record.student): record for record in records}
    assignments = {record.project.id: (record.project, record.due) for record in records}
    people = {record.student: (record.submission.name, record.email) for record in records}
    rows = [
        _nbgrader_row(project, due, student, by_key.get((project.id, student))) | _person(*person)
        for project, due in assignments.values()
        for student, person in sorted(people.items())
    ]
    return _csv(rows)


def _person(name: str, email: str) -> dict[str, object]:
    first, _, last = name.rpartition(" ")
    return {"last_name": last, "first_name": first, "email": email}


def _nbgrader_row(project: ProjectSpec, due: datetime | None, student: str, record: Record | None) -> dict[str, object]:
    return {
        "assignment": project.id,
        "duedate": _naive(due),
        "timestamp": _naive(record.late.submitted) if record else "",
        "student_id": student,
        "last_name": "",  # the order of nbgrader's columns
        "first_name": "",
        "email": "",
        "raw_score": round(record.earned + record.bonus, 2) if record else 0.0,
        "late_submission_penalty": round(record.penalty, 2) if record else 0.0,
        "score": round(record.score, 2) if record else 0.0,
        "max_score": float(record.possible if record else project.points),
    }


def _naive(time: datetime | None) -> str:
    return str(time.astimezone(UTC).replace(tzinfo=None)) if time else ""


def gradescope(record: Record) -> dict[str, Any]:
    """Return a student's results.json for Gradescope."""
    tests = [test for task in record.tasks for test in _gradescope_tests(task)]
    for question_id, mark in record.manual_marks.items():
        question = record.project.question(question_id)
        title = question.title if question else question_id
        tests.append(_gradescope_test(title, question_id[1:], mark.points, 0, mark.comment))
    return {
        "score": round_points(record.score),
        "execution_time": round(record.seconds),
        "output": _summary(record),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "leaderboard": [
            {
                "name": reached.figure,
                "value": reached.value,
                "order": "asc" if reached.smaller_is_better else "desc",
            }
            for task in record.tasks
            if (reached := task.reached)
        ],
        "tests": tests,
    }


def _gradescope_tests(task: TaskResult) -> Iterator[dict[str, Any]]:
    """Yield a test for every check; if the instructor has decided, a test for the task has all of the points."""
    number = task.id[1:]
    if task.decision:
        yield _gradescope_test(task.title, number, task.earned, task.points, task.remark)
    for position, check in enumerate(task.checks, start=1):
        uncounted = task.decision or check.status == "skipped"
        earned, points = (0, 0) if uncounted else (check.earned, check.points)
        title = f"{task.title}: {check.title}"
        test = _gradescope_test(title, f"{number}.{position}", earned, points, explanation(check))
        yield test | {"status": check.status} if check.status in ("passed", "failed") else test


def _gradescope_test(name: str, number: str, score: float, most: float, output: str) -> dict[str, Any]:
    return {
        "name": name,
        "number": number,
        "score": round_points(score),
        "max_score": round_points(most),
        "output": output,
        "output_format": "text",
        "visibility": "visible",
    }


def github_classroom(record: Record) -> dict[str, Any]:
    """Return a student's result as GitHub Classroom's graders pass it to its reporter."""
    return task_results(record.tasks, error=record.status in {"failed", "open"})


def _summary(record: Record) -> str:
    points = f"{round_points(record.earned)} of {round_points(record.possible)} points"
    lines = [f"{record.project.id} {record.project.title}: {points}"]
    if record.reason:
        lines.append(record.reason)
    if record.undecided:
        lines.append(f"not final, the instructor decides on: {', '.join(task.id for task in record.undecided)}")
    if record.manual_marks:
        lines.append(f"for written questions: {round_points(record.bonus)} points")
    if record.late.days:
        lines.append(f"{record.late.days} days late: {round_points(record.penalty)} points less")
    if record.late.note:
        lines.append(record.late.note)
    return "\n".join(lines)


def json_text(data: dict[str, Any]) -> str:
    """Return plain data as JSON in ASCII, so that a lone surrogate in a student's text cannot break the file."""
    return json.dumps(data, indent=1) + "\n"


def student_files(records: Iterable[Record], convert: Callable[[Record], Any], name: str) -> dict[str, str]:
    """Return a file for every student and project, by path: `P1/ada/results.json`."""
    return {
        f"{record.project.id}/{portable_name(record.student)}/{name}": json_text(convert(record)) for record in records
    }
