"""Grade one notebook where there is no gradebook: in Gradescope's container, and in a workflow of GitHub.

Importing this loads the course.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from mlhood.errors import MlhoodError, NotebookError
from mlhood.grading.batch.course_grader import plan_of
from mlhood.grading.checks.marks import TaskResult, unsolved
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_file import grade_file
from mlhood.grading.execution.kernel import Kernels
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.submitted_file import Handed
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import untouched

UNTOUCHED = "nothing has been written yet"


def grade_one(handed: Handed, path: Path, kernels: Kernels | None = None) -> Record:
    """Grade a notebook on inputs that nobody knows before. One that is as it was given is not run.

    Args:
        handed: Whose it is. Lateness is the business of the program that has taken it.
        path: The notebook.
        kernels: What keeps it apart from us (see `apart`); without it, it runs with our rights.

    Returns:
        The result; a notebook that cannot be run is a result, too, of no points.

    Raises:
        NotebookError: It is no notebook of the course, so it is not known what it should solve.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    handed = replace(handed, path=path, assignment=project.id)
    if untouched(notebook, project):
        return lost(handed, project, UNTOUCHED)
    began = time.monotonic()
    try:
        marks = grade_file(path, sandbox=kernels)
    except MlhoodError as error:
        seconds = time.monotonic() - began
        status = "refused" if isinstance(error, NotebookError) else "failed"
        return lost(handed, project, error.one_line(), status, seconds)
    return _record(handed, project, marks.tasks, seconds=marks.seconds)


def lost(handed: Handed, project: Project, reason: str, status: str = "refused", seconds: float = 0.0) -> Record:
    """A result of no points, for one reason."""
    return _record(handed, project, tuple(unsolved(task, reason) for task in project.tasks), status, reason, seconds)


def _record(
    handed: Handed,
    project: Project,
    tasks: tuple[TaskResult, ...],
    status: str = "done",
    reason: str = "",
    seconds: float = 0.0,
) -> Record:
    return Record(handed, plan_of(project), status, reason, tasks, Lateness(), seconds=seconds)
