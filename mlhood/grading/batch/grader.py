"""What marks a submission in a worker: the course's own way, and what a test may put in its place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.gradebook.course_plan import Plan
from mlhood.grading.intake.submitted_file import Handed

Grader = Callable[[Handed, Callable[[TaskResult], None]], Marks]


@dataclass(frozen=True)
class Settings:
    """What a worker is told at its start.

    Args:
        seed: Inputs of the checks are drawn from it.
        alone: Entered while a timed task is in work: waits until no other worker has one.
    """

    seed: int
    alone: Callable[[], AbstractContextManager[object]]


class Marker(Protocol):
    """Marks notebooks. `grade` raises `NotebookError` if the notebook is at fault; any other error is ours."""

    def plans(self) -> list[Plan]:
        """What the projects of the course ask for."""
        ...

    def project(self, path: Path) -> str:
        """The project that a notebook belongs to.

        Raises:
            NotebookError: It cannot be read, or belongs to none.
        """
        ...

    def grade(self, handed: Handed, on_result: Callable[[TaskResult], None]) -> Marks:
        """Mark a notebook (a `Grader`)."""
        ...


def course_marker(settings: Settings) -> Marker:
    """The marker of the course: every notebook in a sandbox of its own, the next of which warms up meanwhile.

    Raises:
        GradingError: There can be no sandbox on this machine.
    """
    from mlhood.grading.batch.course_grader import CourseMarker
    from mlhood.grading.sandbox.pool import Sandboxes

    return CourseMarker(settings, Sandboxes())


def trusting_marker(settings: Settings) -> Marker:
    """The same without a sandbox, for work that is trusted: it runs with the rights of the grader."""
    from mlhood.grading.batch.course_grader import CourseMarker

    return CourseMarker(settings, None)
