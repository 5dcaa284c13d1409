"""Points given by hand: a CSV with a row for every written answer and held task is written, filled in, and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.csv_cells import csv_text, join_errors, read_csv, round_points, unescape_formula
from mlhood.grading.gradebook.by_hand import Item, items_of, parse_points, store_points
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.records import Record, records
from mlhood.grading.gradebook.store import stored_notebook
from mlhood.grading.notebooks.answers import task_code, written_answers

# `held`, `by_checks` (points) and `file` are for held tasks only
FIELDS = [
    *("student_id", "name", "question", "title", "answer", "held", "by_checks"),
    *("most", "points", "comment", "file"),
]
MAX_ANSWER = 10_000  # a cell of a spreadsheet holds 32,767 characters
DIGITS = 16  # of the hash by which a row names its file


def write_manual_marks(gradebook: Path, path: Path) -> str:
    """Write the table to fill in, with the points given so far; return a message about what was written."""
    store = gradebook.parent / SUBMISSIONS_FOLDER
    with Gradebook(gradebook, must_exist=True) as book:
        rows = [row for record in records(book) for row in _rows(record, store)]
    write_atomic(path, csv_text([FIELDS, *rows]).encode("utf-8", "replace"))
    held = sum(bool(row[FIELDS.index("held")]) for row in rows)
    note = f", {held} of them held tasks" if held else ""
    return f"{len(rows)} rows in {path}{note}; fill in the column `points`"


def _rows(record: Record, store: Path) -> Iterator[tuple[object, ...]]:
    items = list(items_of([record]))
    notebook = stored_notebook(store, record.submission) if items else None
    answers, code = written_answers(notebook), task_code(notebook)
    for item in items:
        yield (
            item.student,
            record.submission.name,
            item.id,
            item.title,
            (code if item.held else answers).get(item.id, "")[:MAX_ANSWER],
            _held(item),
            round_points(item.provisional) if item.held else "",
            round_points(item.most),
            "" if item.points is None else round_points(item.points),
            item.comment,
            _file_name(item) if item.held else "",
        )


def _held(item: Item) -> str:
    if item.outdated is None:
        return item.held
    return f"{item.held}; the {item.outdated.points:g} points given for an earlier file do not count"


def _file_name(item: Item) -> str:
    """Return a name of the submitted file that no spreadsheet takes for a number."""
    return f"sha256:{item.sha256[:DIGITS]}"


def read_manual_marks(gradebook: Gradebook, path: Path) -> int:
    """Store the points of a filled table, all or none; return how many there were. An empty cell is no mark yet.

    Raises:
        GradingError: It is another table, or has an unknown student or question, points out of range, or a held task
            of a file that another one has replaced.
    """
    rows = read_csv(path)
    if not rows or not {"student_id", "question", "points"} <= set(rows[0]):
        raise GradingError(
            "this is not a table of points given by hand",
            where=path,
            expected=f"the columns {', '.join(FIELDS)}",
            got=", ".join(rows[0][:10]) if rows else "an empty file",
            todo="get one with `mlhood marks GRADEBOOK --write FILE`, and fill in its column `points`",
        )
    items = {(item.student, item.id): item for item in items_of(records(gradebook))}
    marks: dict[tuple[str, str], tuple[Item, float, str]] = {}
    errors: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            mark = _parse_mark(dict(zip(rows[0], map(unescape_formula, row), strict=False)), items)
            if mark and marks.setdefault((mark[0].student, mark[0].id), mark) is not mark:
                raise ValueError(f"{mark[0].student} has two rows for {mark[0].id}")
        except ValueError as error:
            errors.append(f"row {line}: {error}")
    if errors:
        raise GradingError(
            "the table has errors, so none of its points were stored",
            where=path,
            got=join_errors(errors),
            todo="correct these rows and read the table again",
        )
    store_points(gradebook, marks.values())
    return len(marks)


def _parse_mark(row: dict[str, str], items: dict[tuple[str, str], Item]) -> tuple[Item, float, str] | None:
    text = row.get("points", "").strip()
    if not text:
        return None
    student, question = row.get("student_id", ""), row.get("question", "")
    if student not in {known for known, _ in items}:
        raise ValueError(f"there is no student {student!r}")
    item = items.get((student, question))
    if item is None:
        raise ValueError(f"{student} has no question {question!r}, nor a held task of that name")
    if item.held and row.get("file", "").strip() != _file_name(item):
        raise ValueError(f"{student} has another file than the one of this row for {question}; write the table again")
    points = parse_points(text, item)
    return None if points is None else (item, points, row.get("comment", ""))
