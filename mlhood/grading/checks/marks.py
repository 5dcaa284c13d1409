"""The results of a check, a task and a submission, and the grading that produces the first two."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from mlhood.errors import MlhoodError
from mlhood.grading.checks.expect import CheckFailed, CheckSkipped, CheckUndecided, format_value, single_line
from mlhood.grading.checks.submission import CheckContext, Reached, Session, Submission
from mlhood.grading.checks.task import Check, Task

HINT = "hint"  # the part of a failed check that says how to go on
Status = Literal["passed", "failed", "skipped", "undecided"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: points, and the reason if it did not pass.

    It is undecided if measurements leave it open; the instructor decides unless another measurement does.
    """

    name: str
    title: str
    points: float
    status: Status
    what: str = ""
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def earned(self) -> float:
        """Points earned."""
        return self.points if self.status == "passed" else 0.0


@dataclass(frozen=True)
class ManualMark:
    """Points that a person has given, for a written question or in place of those of a task's checks."""

    points: float
    comment: str = ""


@dataclass(frozen=True)
class TaskResult:
    """The results of a task's checks, and notes about its cells.

    Attributes:
        decision: What the instructor has decided; it counts in place of the checks.
        reached: The figure that an open task is graded by.
    """

    id: str
    title: str
    checks: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()
    decision: ManualMark | None = None
    reached: Reached | None = None

    @property
    def undecided(self) -> bool:
        """Whether checks are undecided, and the instructor has not decided yet."""
        return self.decision is None and any(check.status == "undecided" for check in self.checks)

    @property
    def why_undecided(self) -> str:
        """The reasons of the undecided checks."""
        return "; ".join(dict.fromkeys(check.what for check in self.checks if check.status == "undecided"))

    @property
    def remark(self) -> str:
        """What the instructor has decided; else empty."""
        if self.decision is None:
            return ""
        points = f"{self.decision.points:g} of {self.points:g} points given by the instructor"
        return f"{points}: {self.decision.comment}" if self.decision.comment else points

    @property
    def earned(self) -> float:
        """Points earned."""
        return self.by_checks if self.decision is None else self.decision.points

    @property
    def by_checks(self) -> float:
        """Points of the passed checks."""
        return sum(check.earned for check in self.checks)

    @property
    def points(self) -> float:
        """Points available on this machine: those of skipped checks are excluded."""
        return sum(check.points for check in self.checks if check.status != "skipped")

    @property
    def skipped(self) -> float:
        """Points of skipped checks."""
        return sum(check.points for check in self.checks if check.status == "skipped")

    @property
    def asked(self) -> bool:
        """Whether this machine could run any of the checks, or the instructor has decided."""
        return self.decision is not None or any(check.status != "skipped" for check in self.checks)

    @property
    def full(self) -> bool:
        """Whether every check passed or was skipped, or the instructor has given all of the points."""
        if self.decision is not None:
            return self.decision.points >= self.points
        return all(check.status in ("passed", "skipped") for check in self.checks)


@dataclass(frozen=True)
class Unasked:
    """Checks that this machine could not run, all for one reason: their tasks, and their points together."""

    reason: str
    tasks: tuple[str, ...]
    points: float


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
        """Points available on this machine."""
        return sum(task.points for task in self.tasks)

    @property
    def skipped(self) -> float:
        """Points of skipped checks."""
        return sum(task.skipped for task in self.tasks)

    @property
    def unasked(self) -> tuple[Unasked, ...]:
        """What this machine could not ask, by its reason."""
        found: dict[str, dict[str, float]] = {}
        for task in self.tasks:
            for check in task.checks:
                if check.status == "skipped":
                    tasks = found.setdefault(check.what, {})
                    tasks[task.id] = tasks.get(task.id, 0.0) + check.points
        return tuple(Unasked(reason, tuple(tasks), sum(tasks.values())) for reason, tasks in found.items())

    def as_dict(self) -> dict:
        """Return plain data for `--json`."""
        tasks = [asdict(task) | {"earned": task.earned, "points": task.points} for task in self.tasks]
        return asdict(self) | {"tasks": tasks, "earned": self.earned, "points": self.points, "skipped": self.skipped}


def without_hint(check: CheckResult) -> CheckResult:
    """Return the result of a check that says what is wrong, but not how to go on."""
    return replace(check, parts={label: part for label, part in check.parts.items() if label != HINT})


def without_hints(marks: Marks) -> Marks:
    """Return marks whose failed checks say what is wrong, but not how to go on."""
    tasks = (replace(task, checks=tuple(map(without_hint, task.checks))) for task in marks.tasks)
    return replace(marks, tasks=tuple(tasks))


def grade_task(
    task: Task,
    session: Session,
    seed: int,
    notes: tuple[str, ...] = (),
    on_check: Callable[[Check], None] = lambda check: None,
) -> TaskResult:
    """Run all checks of a task. Each draws inputs from its own stream of the seed, so their order does not matter.

    Args:
        task: The task.
        session: The student's process.
        seed: Of the inputs.
        notes: To be shown with the result.
        on_check: Called before each check.
    """
    results: dict[str, CheckResult] = {}
    cache: dict[str, Any] = {}
    all_notes, reached = [*notes], []
    seed = task.solution.seed(seed) if task.solution else seed

    def run(check: Check) -> CheckResult:
        if check.name not in results:
            on_check(check)
            solution = task.solution.of(f"{task.id} {check.name}", seed) if task.solution else None
            context = CheckContext(
                stream(task, check, seed),
                task.seconds,
                task.libraries,
                SimpleNamespace(**task.values),
                solution,
                passed=lambda other: run(other).status == "passed",
            )
            submission = Submission(session, context, cache)
            results[check.name] = _run_check(check, submission)
            all_notes.extend(submission.notes)
            reached.extend(submission.reached)
        return results[check.name]

    checks = tuple(map(run, task.checks))
    figure = replace(reached[-1], figure=task.leaderboard) if reached else None
    all_notes += [figure.text] if figure else []
    return TaskResult(task.id, task.title, checks, tuple(map(single_line, all_notes)), reached=figure)


def stream(task: Task, check: Check, seed: int) -> np.random.Generator:
    """Return the generator from which a check draws its inputs."""
    return np.random.default_rng([seed, zlib.crc32(f"{task.id} {check.name}".encode())])


def _run_check(check: Check, submission: Submission) -> CheckResult:
    status, what = "passed", ""
    parts: dict[str, Any] = {}
    try:
        check(submission)
    except CheckSkipped as reason:
        status, what = "skipped", str(reason)
    except CheckUndecided as reason:
        status, what = "undecided", str(reason)
    except CheckFailed as failure:
        status, what, parts = "failed", failure.what, failure.parts
    except MlhoodError as error:
        status, what, parts = "failed", error.what, {label: format_value(part) for label, part in error.parts.items()}
    except Exception as error:  # whatever a hostile answer provokes, the grading goes on
        status, what = "failed", "the check cannot make sense of what your code returned"
        parts = {"got": format_value(f"{type(error).__name__}: {error}")}
    return CheckResult(check.name, check.title, check.points, status, single_line(what), parts)


def measured_again(before: TaskResult, again: TaskResult) -> TaskResult:
    """Return a task's result in which only the undecided checks have the result of a second grading."""
    if not before.undecided:
        return before
    results = {check.name: check for check in again.checks}
    checks = (results.get(check.name, check) if check.status == "undecided" else check for check in before.checks)
    return replace(again, checks=tuple(checks))


def unsolved(task: Task, reason: str) -> TaskResult:
    """Return a result without points: every check of the task failed for the same reason."""
    checks = tuple(CheckResult(check.name, check.title, check.points, "failed", reason) for check in task.checks)
    return TaskResult(task.id, task.title, checks)
