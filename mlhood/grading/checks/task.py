"""What a project asks for: tasks, the checks of a task, and the points they carry.

One definition serves everybody: the student's cell, the shell, pytest and the instructor's marks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlhood.grading.checks.submission import Submission

CheckFunction = Callable[["Submission"], None]


@dataclass(frozen=True)
class Check:
    """One question to a submission: a plain function that returns if the answer is right.

    The function raises `CheckFailed` (see `expect`) if the answer is wrong, and `CheckSkipped` if this machine
    cannot ask the question. Its docstring is the title that students read.
    """

    function: CheckFunction
    points: float

    @property
    def name(self) -> str:
        """Name of the function, unique within its task."""
        return self.function.__name__

    @property
    def title(self) -> str:
        """First line of the function's docstring, without the full stop."""
        return (self.function.__doc__ or self.name).strip().splitlines()[0].rstrip(".")


@dataclass(frozen=True)
class Task:
    """A part of a project that carries points.

    Args:
        id: Syllabus id such as `P1.3`.
        title: What the student does.
        checks: Questions that earn the points.
        stand_in: Code that gives later tasks something right to stand on if this task is not solved, so that one
            mistake costs only its own points. Empty if nothing later depends on this task.
        seconds: Time limit for each call into the student's code and each of the student's cells.
        timed: Whether its cells measure time, so that no other timed task may run on the same cores meanwhile.
        forbidden: Dotted names, of functions, classes or whole modules, that the solution may not lean on; the task's
            text says so. A check whose functions do, directly or through a helper, gives no points.
    """

    id: str
    title: str
    checks: tuple[Check, ...]
    stand_in: str = ""
    seconds: float = 120.0
    timed: bool = False
    forbidden: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points of all checks together."""
        return sum(check.points for check in self.checks)

    @property
    def slug(self) -> str:
        """The id in the letters that nbgrader and nbformat allow in a cell's id: `P1.3` -> `P1-3`."""
        return self.id.replace(".", "-")


@dataclass(frozen=True)
class Question:
    """A written question: marked by a person along its rubric, for bonus points beyond the hundred."""

    id: str
    title: str
    bonus: float = 5.0


@dataclass(frozen=True)
class Project:
    """A notebook's worth of tasks."""

    id: str
    title: str
    tasks: tuple[Task, ...]
    questions: tuple[Question, ...] = field(default=())

    @property
    def points(self) -> float:
        """Points of all tasks together."""
        return sum(task.points for task in self.tasks)

    def task(self, task_id: str) -> Task | None:
        """The task of that id, or None."""
        return next((task for task in self.tasks if task.id == task_id), None)


def points(number: float) -> Callable[[CheckFunction], Check]:
    """Turn a check function into a `Check` that is worth `number` points."""

    def wrap(function: CheckFunction) -> Check:
        return Check(function, number)

    return wrap
