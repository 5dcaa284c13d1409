"""Projects, their tasks, the checks of a task, and their points.

The same definition serves the student's check cell, the command line, pytest and the instructor's grading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.variants.parameter import Parameter, defaults
from mlhood.grading.variants.templates import render

if TYPE_CHECKING:
    from mlhood.grading.checks.submission import Submission

CheckFunction = Callable[..., object]


@dataclass(frozen=True)
class Check:
    """A part of a task that gives points: a function of a submission that returns if the submission is right.

    The function raises `CheckFailed` (see `expect`) if it is wrong, and `CheckSkipped` if this machine cannot run the
    check.

    Args:
        name: Unique within its task; part of the seed of its inputs.
        text: The title that students read, or a template of it (see `variants.templates`).
        points: What the check gives.
        function: The function, or a `compared.SolutionComparison`.
        arguments: What it takes besides the submission.
        parameters: The values that its title is rendered with, if it is a template.
        solved: Whether it calls `Submission.solution`, of which the student version needs results.
    """

    name: str
    text: str
    points: float
    function: CheckFunction
    arguments: tuple[Any, ...] = ()
    parameters: Mapping[str, Any] | None = field(default=None, hash=False)
    solved: bool = False

    def __call__(self, submission: Submission) -> None:
        """Run the check."""
        self.function(submission, *self.arguments)

    @property
    def title(self) -> str:
        """The title.

        Raises:
            GradingError: It is a template, and cannot be rendered.
        """
        return self.text if self.parameters is None else render(self.text, self.parameters)


@dataclass(frozen=True)
class Task:
    """A part of a project that gives points.

    Args:
        id: Syllabus id such as `P1.3`.
        title: What the student does; a template, if it depends on parameters.
        checks: The checks that give the points; without any, those in its module between it and the task before it.
        fallback: Code that replaces an unsolved task for the tasks after it, so that a mistake costs only its own
            points. Empty if no later task depends on this one.
        solution_is_fallback: Whether the fallback solution begins with the source notebook's solution. `mlhood sync`
            copies it into the package, so use it only where students may see the solution: the student version leaves
            it out and the sandbox hides it, but grading without a sandbox does not.
        seconds: Time limit for each call into the student's code and each of the student's cells.
        timed: Whether its cells measure time, so that no other timed task may run on the same cores meanwhile.
        libraries: What exists where its functions are graded; None for all that the notebook has.
        minutes: How long a good student is expected to take.
        builds_on: Ids of the tasks, also of other projects, whose ideas or functions it needs.
        leaderboard: Of an open task, which is graded by what is reached: the name of the figure, with its unit.
        varies: What a variant of the course may vary in it.
        parameters: The values that hold, of all tasks of the project; by default the defaults of this one.
        solution: The functions that the solutions of its project define (see `projects.solution`).
    """

    id: str
    title: str
    checks: tuple[Check, ...] = ()
    fallback: str = ""
    seconds: float = 120.0
    timed: bool = False
    libraries: Libraries | None = None
    solution_is_fallback: bool = False
    minutes: int = 0
    builds_on: tuple[str, ...] = ()
    leaderboard: str = ""
    varies: tuple[Parameter, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    solution: Any = field(default=None, compare=False)

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the value of each parameter that its checks may read."""
        return self.parameters or defaults(self.varies)

    @property
    def points(self) -> float:
        """Return the points of all checks together."""
        return sum(check.points for check in self.checks)

    @property
    def slug(self) -> str:
        """Return the id in the characters that nbgrader and nbformat allow in a cell's id: `P1.3` -> `P1-3`."""
        return self.id.replace(".", "-")


@dataclass(frozen=True)
class Question:
    """A written question, marked by a person along its rubric, for bonus points beyond the hundred."""

    id: str
    title: str
    bonus: float = 5.0


@dataclass(frozen=True)
class Project:
    """The tasks and questions of one notebook.

    Args:
        id: Such as `P1`.
        title: Of the notebook.
        tasks: With the values of their parameters.
        questions: The written ones.
        parameters: The value of each parameter of its tasks.
        varied: Whether these are not the defaults.
        declared: The tasks as they are declared, so that other values can be given to their parameters.
        reads: Files of earlier projects that the notebook reads if it finds them in its folder.
    """

    id: str
    title: str
    tasks: tuple[Task, ...]
    questions: tuple[Question, ...] = field(default=())
    parameters: Mapping[str, Any] = field(default_factory=dict)
    varied: bool = False
    declared: tuple[Task, ...] = field(default=(), repr=False)
    reads: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Return the points of all tasks together."""
        return sum(task.points for task in self.tasks)

    def task(self, task_id: str) -> Task | None:
        """Return the task of that id, or None."""
        return next((task for task in self.tasks if task.id == task_id), None)


def with_parameters(task: Task, values: Mapping[str, Any]) -> Task:
    """Return a task with the values of its project's parameters; its texts that are templates are rendered.

    Titles of checks are rendered when they are read: compiling all of them takes a second.

    Raises:
        GradingError: A template cannot be rendered.
    """
    parameters = dict(values)
    checks = tuple(replace(check, parameters=parameters) for check in task.checks)
    title, fallback = render(task.title, values), render(task.fallback, values)
    return replace(task, title=title, fallback=fallback, checks=checks, parameters=parameters)


def points(number: float, *, solved: bool = False) -> Callable[[CheckFunction], Check]:
    """Return a decorator that turns a function into a `Check`: its title is the first line of the docstring.

    Args:
        number: Points.
        solved: As of `Check`.
    """

    def wrap(function: CheckFunction) -> Check:
        first = (function.__doc__ or function.__name__).strip().splitlines()[0]
        title = " ".join(first.split()).rstrip(".")  # a template may be continued by a backslash
        return Check(function.__name__, title, number, function, solved=solved)

    return wrap
