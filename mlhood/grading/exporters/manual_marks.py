"""Points given by hand: a CSV with a row for every student and written question is written, filled in, and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.csv_cells import csv_text, join_errors, read_csv, round_points, unescape_formula
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook, ManualMark
from mlhood.grading.gradebook.records import MISSING, Record, records
from mlhood.grading.gradebook.store import stored_notebook
from mlhood.grading.notebooks.notebook import label

FIELDS = ("student_id", "name", "question", "title", "answer", "most", "points", "comment")
MAX_ANSWER = 10_000  # a cell of a spreadsheet holds 32,767 characters


def write_manual_marks(gradebook: Path, path: Path) -> str:
    """Write the table to fill in, with the points given so far; return a message about what was written."""
    store = gradebook.parent / SUBMISSIONS_FOLDER
    with Gradebook(gradebook, must_exist=True) as book:
        rows = [
            row
            for record in records(book)
            if record.status != MISSING
            for row in _rows(record, written_answers(stored_notebook(store, record.submission)))
        ]
    write_atomic(path, csv_text([FIELDS, *rows]).encode("utf-8", "replace"))
    return f"{len(rows)} rows in {path}; fill in the column `points`"


def _rows(record: Record, answers: dict[str, str]) -> Iterator[tuple[object, ...]]:
    for question in record.project.questions:
        mark = record.manual_marks.get(question.id)
        points, comment = (round_points(mark.points), mark.comment) if mark else ("", "")
        answer, bonus = answers.get(question.id, ""), round_points(question.bonus)
        yield record.student, record.submission.name, question.id, question.title, answer, bonus, points, comment


def written_answers(notebook: NotebookNode | None) -> dict[str, str]:
    """Return what a student has written below each written question, by the id of the question."""
    answers: dict[str, list[str]] = {}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == "markdown" and (cell_label := label(cell)) and cell_label.role == "question":
            answers.setdefault(cell_label.task, []).append(cell.source)
    return {task: "\n\n".join(texts)[:MAX_ANSWER] for task, texts in answers.items()}


def read_manual_marks(gradebook: Gradebook, path: Path) -> int:
    """Store the points of a filled table, all or none; return how many there were. An empty cell is no mark yet.

    Raises:
        GradingError: It is another table, or has an unknown student or question, or points out of range.
    """
    rows = read_csv(path)
    if not rows or not {"student_id", "question", "points"} <= set(rows[0]):
        raise GradingError(
            "this is not a table of points for written questions",
            where=path,
            expected=f"the columns {', '.join(FIELDS)}",
            got=", ".join(rows[0][:10]) if rows else "an empty file",
            todo="get one with `mlhood marks GRADEBOOK --write FILE`, and fill in its column `points`",
        )
    limits = {
        (record.student, question.id): question.bonus
        for record in records(gradebook)
        for question in record.project.questions
    }
    marks: dict[tuple[str, str], ManualMark] = {}
    errors: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            mark = _parse_mark(dict(zip(rows[0], map(unescape_formula, row), strict=False)), limits)
            if mark and marks.setdefault((mark.student, mark.question), mark) is not mark:
                raise ValueError(f"{mark.student} has two rows for {mark.question}")
        except ValueError as error:
            errors.append(f"row {line}: {error}")
    if errors:
        raise GradingError(
            "the table has errors, so none of its points were stored",
            where=path,
            got=join_errors(errors),
            todo="correct these rows and read the table again",
        )
    gradebook.put_manual_marks(marks.values())
    return len(marks)


def _parse_mark(row: dict[str, str], limits: dict[tuple[str, str], float]) -> ManualMark | None:
    text = row.get("points", "").strip()
    if not text:
        return None
    student, question = row.get("student_id", ""), row.get("question", "")
    if student not in {known for known, _ in limits}:
        raise ValueError(f"there is no student {student!r}")
    if (student, question) not in limits:
        raise ValueError(f"{student} has no question {question!r}")
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        raise ValueError(f"{text!r} is not a number of points") from None
    if not 0 <= points <= limits[student, question]:
        raise ValueError(f"{text} points for {question} are not within 0 and {limits[student, question]:g}")
    return ManualMark(student, question, points, row.get("comment", ""))
