"""The items of a gradebook in the order in which they are marked, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256

from mlhood.grading.gradebook.by_hand import Item, items_of, parse_mark
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.records import records
from mlhood.grading.intake.collect import SubmittedFile

MAX_COMMENT = 2_000  # characters
MAX_CACHED = 1_000  # notebooks whose answers are kept
KEY_DIGITS = 24


@dataclass(frozen=True)
class Written:
    """What a student has written: parts with their titles; of a task, all code that is not the course's."""

    parts: tuple[tuple[str, str], ...]
    readable: bool = True


class Items:
    """The items of a gradebook: question by question, and within a question student by student.

    Use it in one thread only, as SQLite's connection belongs to one.
    """

    def __init__(self, gradebook: Gradebook) -> None:
        self.gradebook = gradebook
        self._items: dict[str, Item] = {}
        self._version = -1
        self._answers = lru_cache(maxsize=MAX_CACHED)(self._read_answers)

    def refresh(self) -> None:
        """Read the items again if another process has changed the gradebook."""
        version = self.gradebook.data_version()
        if version != self._version:
            ordered = sorted(items_of(records(self.gradebook)), key=_position)
            self._items = {item_key(item): item for item in ordered}
            self._version = version

    @property
    def all(self) -> dict[str, Item]:
        """The items in their order, by key."""
        return self._items

    def find(self, key: str) -> Item | None:
        """Return the item of that key, or None."""
        return self._items.get(key)

    def save(self, key: str, points: str, comment: str) -> Item:
        """Store the points and the comment of an item, and return it with them. Empty points remove its points.

        Raises:
            ValueError: There is no such item any more, or it cannot have these points or this comment.
            MlhoodError: The gradebook cannot be written.
        """
        item = self._items.get(key)
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
        self._items[key] = replace(item, points=mark.points if mark else None, comment=comment)
        return self._items[key]

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
        from mlhood.grading.gradebook.store import stored_notebook
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


def neighbours(keys: Sequence[str], key: str) -> tuple[str, str]:
    """Return the keys before and after a key; empty at the ends."""
    at = keys.index(key)
    return keys[at - 1] if at else "", keys[at + 1] if at + 1 < len(keys) else ""
