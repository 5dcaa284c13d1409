"""Results: of a check, of a task, of a whole submission; and the judging that makes the first two."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from mlhood.errors import MlhoodError
from mlhood.grading.checks.expect import CheckFailed, CheckSkipped, sentence, show
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Project, Task

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class CheckResult:
    """The answer to one check: points, and if it failed, why."""

    name: str
    title: str
    points: float
    status: Status
    what: str = ""
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def earned(self) -> float:
        """Points that count."""
        return self.points if self.status == "passed" else 0.0


@dataclass(frozen=True)
class TaskResult:
    """The answers to a task's checks, and what happened in its cells."""

    id: str
    title: str
    checks: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def earned(self) -> float:
        """Points earned."""
        return sum(check.earned for check in self.checks)

    @property
    def points(self) -> float:
        """Points that could be earned on this machine: those of skipped checks are left out."""
        return sum(check.points for check in self.checks if check.status != "skipped")

    @property
    def full(self) -> bool:
        """Whether nothing failed."""
        return all(check.status != "failed" for check in self.checks)


@dataclass(frozen=True)
class Marks:
    """The marks of one submission."""

    project: str
    title: str
    tasks: tuple[TaskResult, ...]
    seconds: float = 0.0
    seed: int = 0

    @property
    def earned(self) -> float:
        """Points earned."""
        return sum(task.earned for task in self.tasks)

    @property
    def points(self) -> float:
        """Points that could be earned on this machine."""
        return sum(task.points for task in self.tasks)

    @property
    def skipped(self) -> float:
        """Points of checks that this machine could not ask."""
        return sum(check.points for task in self.tasks for check in task.checks if check.status == "skipped")

    def as_dict(self) -> dict:
        """Plain data for `--json`."""
        tasks = [asdict(task) | {"earned": task.earned, "points": task.points} for task in self.tasks]
        return asdict(self) | {
            "tasks": tasks,
            "earned": self.earned,
            "points": self.points,
            "skipped": self.skipped,
        }


def judge(task: Task, submission: Submission, seed: int, notes: tuple[str, ...] = ()) -> TaskResult:
    """Ask all checks of a task. Each check draws from its own stream of the seed, so their order does not matter."""
    submission.begin(task.seconds, task.forbidden)
    results = []
    for check in task.checks:
        submission.rng = np.random.default_rng([seed, zlib.crc32(f"{task.id} {check.name}".encode())])
        results.append(_ask(check, submission))
    return TaskResult(task.id, task.title, tuple(results), tuple(map(sentence, (*notes, *submission.notes))))


def unsolved(task: Task, reason: str) -> TaskResult:
    """No points for a whole task, for one reason."""
    checks = tuple(CheckResult(check.name, check.title, check.points, "failed", reason) for check in task.checks)
    return TaskResult(task.id, task.title, checks)


def _ask(check: Check, submission: Submission) -> CheckResult:
    status, what, parts = "passed", "", {}
    try:
        submission.begin_check()
        check.function(submission)
        submission.stand_alone()
    except CheckSkipped as reason:
        status, what = "skipped", str(reason)
    except CheckFailed as failure:
        status, what, parts = "failed", failure.what, failure.parts
    except MlhoodError as error:
        status, what, parts = "failed", error.what, {label: show(part) for label, part in error.parts.items()}
    except Exception as error:  # whatever a hostile answer provokes must not stop the marking
        status, what = "failed", "the check cannot make sense of what your code returned"
        parts = {"got": show(f"{type(error).__name__}: {error}")}
    return CheckResult(check.name, check.title, check.points, status, sentence(what), parts)


def total(project: Project, tasks: tuple[TaskResult, ...], seconds: float, seed: int = 0) -> Marks:
    """Put a project's task results together."""
    return Marks(project.id, project.title, tasks, seconds, seed)
