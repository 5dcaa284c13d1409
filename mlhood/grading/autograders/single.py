"""Grade one notebook without a gradebook. Importing this module loads the course."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from mlhood.errors import MlhoodError, NotebookError
from mlhood.grading.batch.course_grader import project_spec
from mlhood.grading.checks.marks import unsolved
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_file import grade_file
from mlhood.grading.execution.grade_notebook import RunSettings
from mlhood.grading.execution.kernel import KernelFactory
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.submitted_file import SubmittedFile
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import is_unmodified

UNTOUCHED = "nothing has been written yet"


def grade_one(submission: SubmittedFile, path: Path, kernels: KernelFactory | None = None) -> Record:
    """Grade a notebook on fresh inputs. One that is still as it was released is not run.

    Args:
        submission: Whose it is. Lateness is up to the platform.
        path: The notebook.
        kernels: What isolates it (see `isolation`); without it, it runs with our rights.

    Returns:
        The result; a notebook that cannot be run has a result without points.

    Raises:
        NotebookError: It is not a notebook of the course, so its tasks are not known.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    submission = replace(submission, path=path, assignment=project.id)
    if is_unmodified(notebook, project):
        return no_points(submission, project, UNTOUCHED)
    began = time.monotonic()
    try:
        marks = grade_file(path, RunSettings(kernels=kernels))
    except MlhoodError as error:
        status = "refused" if isinstance(error, NotebookError) else "failed"
        record = no_points(submission, project, error.one_line())
        return replace(record, status=status, seconds=time.monotonic() - began)
    return Record(submission, project_spec(project), "done", "", marks.tasks, Lateness(), seconds=marks.seconds)


def no_points(submission: SubmittedFile, project: Project, reason: str) -> Record:
    """Return a result without points: the notebook is at fault, for this reason."""
    tasks = tuple(unsolved(task, reason) for task in project.tasks)
    return Record(submission, project_spec(project), "refused", reason, tasks, Lateness())
