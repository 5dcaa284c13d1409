"""What a worker grades with: the course's own grader, or one that a test supplies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.intake.collect import SubmittedFile


@dataclass(frozen=True)
class GraderSettings:
    """What a grader is made with.

    Args:
        seed: Of the course; the inputs of a submission are drawn from a seed that follows from it.
        exclusive: Context manager for timed tasks: waits until no other worker on this machine is in one.
    """

    seed: int
    exclusive: Callable[[], AbstractContextManager[object]]


class Identified(NamedTuple):
    """The project of a notebook, and the name of the variant that its version is signed with, if there is one."""

    project: str
    version: str = ""


class Grader(Protocol):
    """Grades notebooks. Its methods raise `NotebookError` if the notebook is at fault; any other error is ours."""

    def projects(self) -> list[ProjectSpec]:
        """Return the projects of the course."""
        ...

    def identify(self, path: Path) -> Identified:
        """Return the project of a notebook, and the version that it comes from.

        Raises:
            NotebookError: It cannot be read, or belongs to no project.
        """
        ...

    def grade(self, submission: SubmittedFile, on_result: Callable[[TaskResult], None]) -> Marks:
        """Grade a notebook as the variant `submission.version`; report the result of each task when there is one."""
        ...
