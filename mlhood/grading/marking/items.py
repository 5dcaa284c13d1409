"""What a person marks, in order: the answers to written questions, and the tasks with undecided checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256

from mlhood.grading.checks.marks import ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook, MarkedItem
from mlhood.grading.gradebook.records import MISSING, Record, records, stored_notebook
from mlhood.grading.intake.collect import SubmittedFile

DECIDED_EARLIER = "an earlier grading left checks undecided; the points given then count"
MAX_COMMENT = 2_000  # characters
MAX_CACHED = 1_000  # notebooks whose answers are kept
KEY_DIGITS = 24


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


@dataclass(frozen=True)
class Written:
    """What a student has written: parts with their titles; of a task, all code that is not the course's."""

    parts: tuple[tuple[str, str], ...]
    readable: bool = True


class Items:
    """The items of a gradebook: question by question, and within a question student by student.

    `all` has them by key, as of the last `refresh`.

    Use it in one thread only, as SQLite's connection belongs to one.
    """

    def __init__(self, gradebook: Gradebook) -> None:
        self.gradebook = gradebook
        self.all: dict[str, Item] = {}
        self._version = -1
        self._answers = lru_cache(maxsize=MAX_CACHED)(self._read_answers)

    def refresh(self) -> None:
        """Read the items again if another process has changed the gradebook."""
        version = self.gradebook.data_version()
        if version != self._version:
            ordered = sorted(items_of(records(self.gradebook)), key=_position)
            self.all = {item_key(item): item for item in ordered}
            self._version = version

    def save(self, key: str, points: str, comment: str) -> Item:
        """Store the points and the comment of an item, and return it with them. Empty points remove its points.

        Raises:
            ValueError: There is no such item any more, or it cannot have these points or this comment.
            MlhoodError: The gradebook cannot be written.
        """
        item = self.all.get(key)
        if item is None:
            raise ValueError("this answer is no longer to be marked, as the student's file or result has changed")
        if len(comment) > MAX_COMMENT:
            raise ValueError(f"the comment is longer than {MAX_COMMENT:,} characters")
        mark = parse_mark(points, comment, item)
        if mark:
            self.gradebook.put_manual_marks({item.marked: mark})
        elif comment.strip():
            raise ValueError("a comment needs points: give some, or delete the comment")
        else:
            self.gradebook.remove_manual_mark(item.marked)
        self.all[key] = replace(item, points=mark.points if mark else None, comment=comment)
        return self.all[key]

    def written(self, item: Item) -> Written:
        """Return what the student has written for an item."""
        answers = self._answers(item.record.submission, item.record.project.id)
        if answers is None:
            return Written((), readable=False)
        questions, code = answers
        if item.task:
            return Written(tuple((f"Cell {position}", source) for position, source in code))
        text = questions.get(item.id, "")
        return Written((("", text),) if text else ())

    def _read_answers(
        self, submission: SubmittedFile, project: str
    ) -> tuple[dict[str, str], list[tuple[int, str]]] | None:
        # loads the course, which takes seconds: not before the page is there
        from mlhood.grading.notebooks.questions import own_code, written_answers

        notebook = stored_notebook(self.gradebook.path.parent / SUBMISSIONS_FOLDER, submission)
        if notebook is None:
            return None
        return written_answers(notebook), own_code(notebook, project, self.gradebook.versions())


def item_key(item: Item) -> str:
    """Return the name of an item in addresses: a hash of the student, the question or task, and for a task the file."""
    return sha256("\0".join(item.marked).encode("utf-8", "replace")).hexdigest()[:KEY_DIGITS]


def _position(item: Item) -> tuple[str, int, str]:
    project = item.record.project
    ids = [task.id for task in project.tasks] + [question.id for question in project.questions]
    return project.id, ids.index(item.id), item.student


def first_unmarked(items: Iterable[tuple[str, Item]]) -> str:
    """Return the key of the first item without points, or empty if all have some."""
    return next((key for key, item in items if item.points is None), "")
