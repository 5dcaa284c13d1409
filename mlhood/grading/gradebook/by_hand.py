"""What a person marks: the answers to written questions, and the held tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mlhood.grading.checks.marks import Decision, TaskResult
from mlhood.grading.gradebook.gradebook import Gradebook, HeldTask, ManualMark
from mlhood.grading.gradebook.records import MISSING, Record

NOT_HELD_NOW = "was held by an earlier grading; the points given then count"


@dataclass(frozen=True)
class Item:
    """One student's answer to a written question, or one held task.

    Args:
        id: Of the question or task.
        most: Points that can be given.
        points: Given so far; None if there are none.
        held: For a task, why it is held; empty for a written question.
        provisional: For a task, the points of its checks.
        outdated: For a task, a decision on an earlier file, which does not count.
    """

    record: Record
    id: str
    title: str
    most: float
    points: float | None = None
    comment: str = ""
    held: str = ""
    provisional: float = 0.0
    outdated: Decision | None = None

    @property
    def student(self) -> str:
        """The student's id."""
        return self.record.student

    @property
    def sha256(self) -> str:
        """The hash of the submitted file."""
        return self.record.submission.sha256


def items_of(results: Iterable[Record]) -> Iterator[Item]:
    """Yield what a person marks in these results: for each of them its held tasks, then its written questions."""
    for record in results:
        if record.status != MISSING:
            yield from (_task(record, task) for task in record.tasks if task.held or task.decision)
            yield from _questions(record)


def _task(record: Record, task: TaskResult) -> Item:
    points, comment = (task.decision.points, task.decision.comment) if task.decision else (None, "")
    held, outdated = task.held or NOT_HELD_NOW, record.outdated.get(task.id)
    return Item(record, task.id, task.title, task.points, points, comment, held, task.provisional, outdated)


def _questions(record: Record) -> Iterator[Item]:
    for question in record.project.questions:
        mark = record.manual_marks.get(question.id)
        points, comment = (mark.points, mark.comment) if mark else (None, "")
        yield Item(record, question.id, question.title, question.bonus, points, comment)


def parse_points(text: str, item: Item) -> float | None:
    """Return the points in a text, or None if it is empty.

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
    return points


def store_points(gradebook: Gradebook, marks: Iterable[tuple[Item, float, str]]) -> None:
    """Store points and comments, all or none."""
    questions, decisions = [], {}
    for item, points, comment in marks:
        if item.held:
            decisions[HeldTask(item.student, item.id, item.sha256)] = Decision(points, comment)
        else:
            questions.append(ManualMark(item.student, item.id, points, comment))
    gradebook.put_manual_marks(questions, decisions)


def remove_points(gradebook: Gradebook, item: Item) -> None:
    """Remove the points that were given, so that nothing is decided yet."""
    if item.held:
        gradebook.remove_decision(HeldTask(item.student, item.id, item.sha256))
    else:
        gradebook.remove_manual_mark(item.student, item.id)
