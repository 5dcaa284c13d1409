"""Marks by hand: a CSV with a row for every student and written question goes out, is filled in, and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.csv_cells import csv_text, number, original, read_csv
from mlhood.grading.gradebook.gradebook import Gradebook, HandMark
from mlhood.grading.gradebook.records import Record, records

FIELDS = ("student_id", "name", "question", "title", "answer", "most", "points", "comment")
MAX_FAULTS = 10


def hand_table(gradebook: Gradebook, answers: Callable[[Record], Mapping[str, str]] = lambda record: {}) -> str:
    """The CSV to fill in; what was given before stands in it.

    Args:
        gradebook: Where the results are.
        answers: What a student has written, by the id of the question.
    """
    rows = [row for record in records(gradebook) for row in _rows(record, answers(record))]
    return csv_text([FIELDS, *rows])


def _rows(record: Record, written: Mapping[str, str]) -> Iterable[tuple[object, ...]]:
    for question in record.plan.questions:
        mark = record.by_hand.get(question.id)
        given = (number(mark.points), mark.comment) if mark else ("", "")
        answer = written.get(question.id, "")
        yield (record.student, record.handed.name, question.id, question.title, answer, number(question.bonus), *given)


def read_hand_table(gradebook: Gradebook, path: Path) -> int:
    """Take the marks of a filled table over, all or none; how many there were. An empty cell is no mark yet.

    Raises:
        GradingError: The table is not ours, or names an unknown student or question, or points out of range.
    """
    rows = read_csv(path)
    if not rows or not {"student_id", "question", "points"} <= set(rows[0]):
        raise GradingError(
            "this is no table of marks by hand",
            where=path,
            expected=f"the columns {', '.join(FIELDS)}",
            got=", ".join(rows[0][:10]) if rows else "an empty file",
            todo="get one with `mlhood marks GRADEBOOK --write FILE`, and fill in its column `points`",
        )
    most = {(one.student, question.id): question.bonus for one in records(gradebook) for question in one.plan.questions}
    marks: dict[tuple[str, str], HandMark] = {}
    faults: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            mark = _mark(dict(zip(rows[0], map(original, row), strict=False)), most)
            if mark and marks.setdefault((mark.student, mark.question), mark) is not mark:
                raise ValueError(f"{mark.student} has two rows for {mark.question}")
        except ValueError as error:
            faults.append(f"row {line}: {error}")
    if faults:
        raise GradingError(
            "the table has faults, so nothing of it was taken over",
            where=path,
            got="; ".join(faults[:MAX_FAULTS])
            + (f"; and {len(faults) - MAX_FAULTS} more" if faults[MAX_FAULTS:] else ""),
            todo="mend these rows and read the table again",
        )
    gradebook.put_hand_marks(marks.values())
    return len(marks)


def _mark(row: dict[str, str], most: dict[tuple[str, str], float]) -> HandMark | None:
    text = row.get("points", "").strip()
    if not text:
        return None
    student, question = row.get("student_id", ""), row.get("question", "")
    if student not in {who for who, _ in most}:
        raise ValueError(f"there is no student {student!r}")
    if (student, question) not in most:
        raise ValueError(f"{student} has no question {question!r}")
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        raise ValueError(f"{text!r} is no number of points") from None
    if not 0 <= points <= most[student, question]:
        raise ValueError(f"{text} points for {question} are not within 0 and {most[student, question]:g}")
    return HandMark(student, question, points, row.get("comment", ""))
