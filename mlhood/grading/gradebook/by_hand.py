"""What a person marks: the answers to written questions, and the tasks with undecided checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mlhood.grading.checks.marks import ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import MarkedItem
from mlhood.grading.gradebook.records import MISSING, Record

DECIDED_EARLIER = "an earlier grading left checks undecided; the points given then count"


@dataclass(frozen=True)
class Item:
    """One student's answer to a written question, or one task with undecided checks.

    Args:
        id: Of the question or task.
        most: Points that can be given.
        points: Given so far; None if there are none.
        task: The result of the task; None for a written question.
    """

    record: Record
    id: str
    title: str
    most: float
    points: float | None = None
    comment: str = ""
    task: TaskResult | None = None

    @property
    def student(self) -> str:
        """The student's id."""
        return self.record.student

    @property
    def marked(self) -> MarkedItem:
        """What the points are stored for."""
        return MarkedItem(self.student, self.id, self.record.submission.sha256 if self.task else "")

    @property
    def reason(self) -> str:
        """Why a person decides on a task; empty for a written question."""
        return (self.task.why_undecided or DECIDED_EARLIER) if self.task else ""


def items_of(results: Iterable[Record]) -> Iterator[Item]:
    """Yield what a person marks in these results: for each of them the undecided tasks, then the written questions."""
    for record in results:
        if record.status != MISSING:
            yield from (_task(record, task) for task in record.tasks if task.undecided or task.decision)
            yield from _questions(record)


def _task(record: Record, task: TaskResult) -> Item:
    points, comment = (task.decision.points, task.decision.comment) if task.decision else (None, "")
    return Item(record, task.id, task.title, task.points, points, comment, task)


def _questions(record: Record) -> Iterator[Item]:
    for question in record.project.questions:
        mark = record.manual_marks.get(question.id)
        points, comment = (mark.points, mark.comment) if mark else (None, "")
        yield Item(record, question.id, question.title, question.bonus, points, comment)


def parse_mark(text: str, comment: str, item: Item) -> ManualMark | None:
    """Return the points in a text, with a comment, or None if the text is empty.

    Raises:
        ValueError: It is not a number, or one that this question or task cannot have.
    """
    text = text.strip()
    if not text:
        return None
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        raise ValueError(f"{text!r} is not a number of points") from None
    if not 0 <= points <= item.most:
        raise ValueError(f"{text} points for {item.id} are not within 0 and {item.most:g}")
    return ManualMark(points, comment)
