"""What the course asks for, as plain data: a batch knows it without loading the course, which costs 340 MiB.

A worker, which has it loaded anyway, describes it; the gradebook keeps it for exports.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PlannedTask:
    """A task: id, title, points, and the names, titles and points of its checks."""

    id: str
    title: str
    points: float
    checks: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class PlannedQuestion:
    """A written question: id, title, and the bonus that a person may give."""

    id: str
    title: str
    bonus: float


@dataclass(frozen=True)
class Plan:
    """A project: its tasks and questions, the hash of all that decides about marks, and whether it measures time."""

    id: str
    title: str
    tasks: tuple[PlannedTask, ...]
    questions: tuple[PlannedQuestion, ...]
    digest: str
    timed: bool = False

    @property
    def points(self) -> float:
        """Points of all tasks together."""
        return sum(task.points for task in self.tasks)

    def question(self, question_id: str) -> PlannedQuestion | None:
        """The question of that id, or None."""
        return next((question for question in self.questions if question.id == question_id), None)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for `read_plan`."""
        return asdict(self)


def read_plan(plain: dict[str, Any]) -> Plan:
    """The plan that `Plan.as_dict` wrote."""
    tasks = tuple(
        PlannedTask(**{**task, "checks": tuple((name, title, points) for name, title, points in task["checks"])})
        for task in plain["tasks"]
    )
    questions = tuple(PlannedQuestion(**question) for question in plain["questions"])
    return Plan(plain["id"], plain["title"], tasks, questions, plain["digest"], plain.get("timed", False))
