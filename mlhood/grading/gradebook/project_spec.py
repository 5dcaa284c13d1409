"""The projects of the course as plain data: a batch knows them without loading the course, which costs 340 MiB.

A worker, which has the course loaded anyway, sends them; the gradebook stores them for exports.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class CheckSpec(NamedTuple):
    """A check: name, title and points. Stored as a list."""

    name: str
    title: str
    points: float


@dataclass(frozen=True)
class TaskSpec:
    """A task: id, title, points and checks."""

    id: str
    title: str
    points: float
    checks: tuple[CheckSpec, ...]


@dataclass(frozen=True)
class QuestionSpec:
    """A written question: id, title, and the bonus that a person may give."""

    id: str
    title: str
    bonus: float


@dataclass(frozen=True)
class ProjectSpec:
    """A project: its tasks and questions, the hash of all that determines marks, and whether it measures time."""

    id: str
    title: str
    tasks: tuple[TaskSpec, ...]
    questions: tuple[QuestionSpec, ...]
    digest: str

    @property
    def points(self) -> float:
        """Points of all tasks together."""
        return sum(task.points for task in self.tasks)

    def question(self, question_id: str) -> QuestionSpec | None:
        """Return the question of that id, or None."""
        return next((question for question in self.questions if question.id == question_id), None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ProjectSpec:
        """Return the project that `as_dict` was called on."""
        tasks = tuple(
            TaskSpec(**{**task, "checks": tuple(CheckSpec(*check) for check in task["checks"])})
            for task in data["tasks"]
        )
        questions = tuple(QuestionSpec(**question) for question in data["questions"])
        return cls(data["id"], data["title"], tasks, questions, data["digest"])
