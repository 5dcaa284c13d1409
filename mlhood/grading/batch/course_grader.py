"""The grader of the course. Importing this module loads the course, so only workers do, never a batch itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.batch.result_keys import checks_digest, submission_seed
from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.execution.kernel import NewKernel
from mlhood.grading.gradebook.project_spec import CheckSpec, ProjectSpec, QuestionSpec, TaskSpec
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.version import stored_signature
from mlhood.grading.projects import PROJECTS
from mlhood.grading.variants.seed import UNSIGNED, verify


class CourseGrader:
    """Grades notebooks of the course's projects. Its methods raise `NotebookError` if the notebook is at fault.

    Args:
        seed: Of the course; the inputs of a submission are drawn from a seed that follows from it.
        exclusive: Context manager for timed tasks: waits until no other worker on this machine is in one.
        kernels: As of `RunSettings`; without it notebooks run with the rights of the grader.
    """

    def __init__(
        self, seed: int, exclusive: Callable[[], AbstractContextManager[object]], kernels: NewKernel | None = None
    ) -> None:
        self.seed, self.exclusive, self.kernels = seed, exclusive, kernels

    def projects(self) -> list[ProjectSpec]:
        """Return the projects of the course."""
        return [project_spec(project) for project in PROJECTS.values()]

    def identify(self, path: Path) -> tuple[str, str]:
        """Return the project of a notebook, and the name of the variant that its version is signed with, if any."""
        notebook = read(path)
        signed = stored_signature(notebook)
        variant_name = (verify(self.seed, signed) or UNSIGNED) if signed else ""
        return project_of(notebook, path).id, variant_name

    def grade(self, submission: SubmittedFile, on_result: Callable[[TaskResult], None]) -> Marks:
        """Grade a notebook as the variant `submission.version`; report the result of each task when there is one."""
        if submission.path is None:
            raise GradingError("there is no notebook to grade", where=submission.source)
        seed = submission_seed(self.seed, submission.student, submission.sha256)
        settings = RunSettings(seed, kernels=self.kernels, on_result=on_result, exclusive=self.exclusive)
        return grade_file(submission.path, settings, variant_name=submission.version)


def project_spec(project: Project) -> ProjectSpec:
    """Return a project as plain data."""
    tasks = [
        TaskSpec(task.id, task.title, task.points, tuple(CheckSpec(c.name, c.title, c.points) for c in task.checks))
        for task in project.tasks
    ]
    questions = tuple(QuestionSpec(question.id, question.title, question.bonus) for question in project.questions)
    return ProjectSpec(project.id, project.title, tuple(tasks), questions, checks_digest(project))
