"""Points given by hand: a CSV with a row for every written answer and undecided task, filled in and read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.csv_cells import csv_text, join_errors, read_csv, round_points, unescape_formula
from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook, MarkedItem
from mlhood.grading.gradebook.records import Record, records, stored_notebook
from mlhood.grading.marking.items import Item, items_of, parse_mark
from mlhood.grading.notebooks.questions import own_code, written_answers

# `undecided` (why), `by_checks` (points) and `file` are for tasks only
FIELDS = [
    *("student_id", "name", "question", "title", "answer", "undecided", "by_checks"),
    *("most", "points", "comment", "file"),
]
MAX_ANSWER = 30_000  # a cell of a spreadsheet holds 32,767 characters
CUT = "… cut: `mlhood marks --open` shows all"
DIGITS = 16  # of the hash by which a row names its file


def write_manual_marks(gradebook: Path, path: Path) -> str:
    """Write the table to fill in, with the points given so far; return a message about what was written."""
    store = gradebook.parent / SUBMISSIONS_FOLDER
    with Gradebook(gradebook, must_exist=True) as book:
        variant_names = book.versions()
        rows = [row for record in records(book) for row in _rows(record, store, variant_names)]
    write_atomic(path, csv_text([FIELDS, *rows]).encode("utf-8", "replace"))
    undecided = sum(bool(row[FIELDS.index("undecided")]) for row in rows)
    note = f", {undecided} of them undecided tasks" if undecided else ""
    return f"{len(rows)} rows in {path}{note}; fill in the column `points`"


def _rows(record: Record, store: Path, variant_names: Collection[str]) -> Iterator[tuple[object, ...]]:
    items = list(items_of([record]))
    notebook = stored_notebook(store, record.submission) if items else None
    answers = written_answers(notebook)
    tasks = any(item.task for item in items)
    code = own_code(notebook, record.project.id, variant_names) if tasks else []
    all_code = "\n\n".join(f"# cell {position}\n{source}" for position, source in code)
    for item in items:
        text = all_code if item.task else answers.get(item.id, "")
        yield (
            item.student,
            record.submission.name,
            item.id,
            item.title,
            text if len(text) <= MAX_ANSWER else text[: MAX_ANSWER - len(CUT)] + CUT,
            item.reason,
            round_points(item.task.by_checks) if item.task else "",
            round_points(item.most),
            "" if item.points is None else round_points(item.points),
            item.comment,
            _file_name(item) if item.task else "",
        )


def _file_name(item: Item) -> str:
    """Return a name of the submitted file that no spreadsheet takes for a number."""
    return f"sha256:{item.marked.sha256[:DIGITS]}"


def read_manual_marks(gradebook: Gradebook, path: Path) -> int:
    """Store the points of a filled table, all or none; return how many there were. An empty cell is no mark yet.

    Raises:
        GradingError: It is another table, or has an unknown student or question, points out of range, or a task
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
    marks: dict[MarkedItem, ManualMark] = {}
    errors: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            mark = _parse_mark(dict(zip(rows[0], map(unescape_formula, row), strict=False)), items)
            if mark and marks.setdefault(*mark) is not mark[1]:
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
    gradebook.put_manual_marks(marks)
    return len(marks)


def _parse_mark(row: dict[str, str], items: dict[tuple[str, str], Item]) -> tuple[MarkedItem, ManualMark] | None:
    text = row.get("points", "").strip()
    if not text:
        return None
    student, question = row.get("student_id", ""), row.get("question", "")
    if student not in {known for known, _ in items}:
        raise ValueError(f"there is no student {student!r}")
    item = items.get((student, question))
    if item is None:
        raise ValueError(f"{student} has no question {question!r}, nor an undecided task of that name")
    if item.task and row.get("file", "").strip() != _file_name(item):
        raise ValueError(f"{student} has another file than the one of this row for {question}; write the table again")
    mark = parse_mark(text, row.get("comment", ""), item)
    return (item.marked, mark) if mark else None
