"""The course as a worker knows it. Importing this loads the course, so a batch itself never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.errors import GradingError
from mlhood.grading.batch.grader import Settings
from mlhood.grading.batch.result_keys import checks_digest
from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_file import grade_file
from mlhood.grading.gradebook.course_plan import Plan, PlannedQuestion, PlannedTask
from mlhood.grading.intake.submitted_file import Handed
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.projects import PROJECTS

if TYPE_CHECKING:
    from mlhood.grading.sandbox.pool import Sandboxes


class CourseMarker:
    """Marks notebooks of the course's projects (see `marker.Marker`)."""

    def __init__(self, settings: Settings, sandboxes: Sandboxes | None) -> None:
        self.settings = settings
        self.sandboxes = sandboxes

    def plans(self) -> list[Plan]:
        """What the projects ask for."""
        return [plan_of(project) for project in PROJECTS.values()]

    def project(self, path: Path) -> str:
        """The project that a notebook belongs to."""
        return project_of(read(path), path).id

    def grade(self, handed: Handed, on_result: Callable[[TaskResult], None]) -> Marks:
        """Mark a notebook."""
        if handed.path is None:
            raise GradingError("there is no notebook to mark", where=handed.source)
        return grade_file(
            handed.path,
            seed=self.settings.seed,
            sandbox=self.sandboxes,
            on_result=on_result,
            alone=self.settings.alone,
        )


def plan_of(project: Project) -> Plan:
    """What a project asks for, as plain data."""
    tasks = [
        PlannedTask(task.id, task.title, task.points, tuple((one.name, one.title, one.points) for one in task.checks))
        for task in project.tasks
    ]
    questions = tuple(PlannedQuestion(one.id, one.title, one.bonus) for one in project.questions)
    timed = any(task.timed for task in project.tasks)
    return Plan(project.id, project.title, tuple(tasks), questions, checks_digest(project), timed)
