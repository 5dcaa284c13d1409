"""Points given by hand: a CSV with a row for every written answer and undecided task, filled in and read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.csv_cells import csv_text, join_errors, read_csv, round_points, unescape_formula
from mlhood.grading.checks.marks import ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook, MarkedItem
from mlhood.grading.gradebook.records import MISSING, Record, records, stored_notebook, stored_path
from mlhood.grading.notebooks.questions import own_code, synced_questions, written_answers

DECIDED_EARLIER = "an earlier grading left checks undecided; the points given then count"
MAX_ANSWER = 30_000  # a cell of a spreadsheet holds 32,767 characters
DIGITS = 16  # of the hash by which a row names its file


@dataclass(frozen=True)
class Item:
    """One student's answer to a written question, or one task with undecided checks (`task`).

    Args:
        position: Among the tasks and questions of its project.
        id: Of the question or task.
        most: Points that can be given.
        mark: Given so far; None if there is none.
    """

    record: Record
    position: int
    id: str
    title: str
    most: float
    mark: ManualMark | None
    task: TaskResult | None = None

    @property
    def marked(self) -> MarkedItem:
        """What the points are stored for."""
        return MarkedItem(self.record.student, self.id, self.record.submission.sha256 if self.task else "")

    @property
    def file(self) -> str:
        """A name of a task's file that no spreadsheet takes for a number; empty for a written question."""
        return f"sha256:{self.marked.sha256[:DIGITS]}" if self.task else ""


def items_of(gradebook: Gradebook) -> list[Item]:
    """Return what a person marks, student by student."""
    items = []
    for record in records(gradebook):
        if record.status == MISSING:
            continue
        for position, task in enumerate(record.tasks):
            if task.undecided or task.decision:
                items.append(Item(record, position, task.id, task.title, task.points, task.decision, task))
        for position, question in enumerate(record.project.questions, start=len(record.tasks)):
            mark = record.manual_marks.get(question.id)
            items.append(Item(record, position, question.id, question.title, question.bonus, mark))
    return items


def write_manual_marks(gradebook: Path, path: Path) -> str:
    """Write the table to fill in, with the points given so far; return a message about what was written."""
    with Gradebook(gradebook, must_exist=True) as book:
        items, variant_names = items_of(book), book.versions()
    store = gradebook.parent / SUBMISSIONS_FOLDER
    notebook_of = lru_cache(maxsize=1)(partial(stored_notebook, store))  # the items of a student follow each other
    found = [(item, _row(item, notebook_of(item.record.submission), store, variant_names)) for item in items]
    found.sort(key=lambda pair: (pair[0].record.project.id, pair[0].position))
    rows = [row for _, row in found]
    header = list(rows[0]) if rows else []
    write_atomic(path, csv_text([header, *(list(row.values()) for row in rows)]).encode("utf-8", "replace"))
    undecided = sum(item.task is not None for item in items)
    note = f", {undecided} of them undecided tasks" if undecided else ""
    return f"{len(rows)} rows in {path}{note}; fill in the column `points`"


def _row(item: Item, notebook: NotebookNode | None, store: Path, variant_names: Collection[str]) -> dict[str, object]:
    """Return a row of the table; `undecided` (why), `by_checks` (points) and `file` are for tasks only."""
    submission, project, task = item.record.submission, item.record.project.id, item.task
    question = None if task else synced_questions(project).get(item.id)
    if task:  # a label can be forged, so all code that is not the course's
        own = own_code(notebook, project, variant_names)
        answer = "\n\n".join(f"# cell {position}\n{source}" for position, source in own)
    else:
        answer = written_answers(notebook).get(item.id, "")
    cut = f"… cut; all of it is in {stored_path(store, submission)}"
    return {
        "question": item.id,
        "title": item.title,
        "text": question.text if question else "",
        "rubric": "\n".join(f"{row.points:g}: {row.text}" for row in question.rubric) if question else "",
        "student_id": item.record.student,
        "name": submission.name,
        "answer": answer if len(answer) <= MAX_ANSWER else answer[: MAX_ANSWER - len(cut)] + cut,
        "undecided": (task.why_undecided or DECIDED_EARLIER) if task else "",
        "by_checks": round_points(task.by_checks) if task else "",
        "most": round_points(item.most),
        "points": round_points(item.mark.points) if item.mark else "",
        "comment": item.mark.comment if item.mark else "",
        "file": item.file,
    }


def read_manual_marks(gradebook: Gradebook, path: Path) -> int:
    """Store the points of a filled table, all or none; return how many there were. An empty cell is no mark yet.

    Raises:
        GradingError: It is another table, or has an unknown student or question, points out of range, or a task
            of a file that another one has replaced.
    """
    header, *rows = read_csv(path) or [[]]
    if not {"student_id", "question", "points"} <= set(header):
        raise GradingError(
            "this is not a table of points given by hand",
            where=path,
            expected="the columns student_id, question and points",
            got=", ".join(header[:10]) or "an empty file",
            todo="get one with `mlhood marks GRADEBOOK --write FILE`, and fill in its column `points`",
        )
    items = {(item.record.student, item.id): item for item in items_of(gradebook)}
    marks: dict[MarkedItem, ManualMark] = {}
    errors: list[str] = []
    for line, row in enumerate(rows, start=2):
        try:
            for item, mark in _marks_of(dict(zip(header, map(unescape_formula, row), strict=False)), items):
                if marks.setdefault(item, mark) is not mark:
                    raise ValueError(f"{item.student} has two rows for {item.id}")
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


def _marks_of(row: dict[str, str], items: dict[tuple[str, str], Item]) -> Iterator[tuple[MarkedItem, ManualMark]]:
    """Yield the mark in a row, if it has one."""
    text, student, question = row.get("points", "").strip(), row.get("student_id", ""), row.get("question", "")
    if not text:
        return
    if student not in {known for known, _ in items}:
        raise ValueError(f"there is no student {student!r}")
    item = items.get((student, question))
    if item is None:
        raise ValueError(f"{student} has no question {question!r}, nor an undecided task of that name")
    if row.get("file", "").strip() != item.file:
        raise ValueError(f"{student} has another file than the one of this row for {question}; write the table again")
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        raise ValueError(f"{text!r} is not a number of points") from None
    if not 0 <= points <= item.most:
        raise ValueError(f"{text} points for {item.id} are not within 0 and {item.most:g}")
    yield item.marked, ManualMark(points, row.get("comment", ""))
