"""Grade one notebook without a gradebook, isolated as well as a machine that is not ours allows. Loads the course."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import MlhoodError, NotebookError
from mlhood.grading.batch.course_grader import project_spec
from mlhood.grading.checks.marks import unsolved
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.execution.kernel import KernelFactory
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.notebooks.edition import sealed_edition
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import is_unmodified
from mlhood.grading.projects.collect import this_edition
from mlhood.grading.sandbox import bubblewrap, other_user
from mlhood.grading.sandbox.visible import close_to_others

SANDBOX = "the submission runs in a sandbox (bubblewrap)"
OTHER_USER = (
    "the submission runs as another user of this container, which cannot read or change the autograder's files, "
    "but has access to the system and the network; no sandbox is available"
)
NOT_ISOLATED = (
    "the submission runs with the rights of the autograder: the container, made for this one submission, is the only "
    "sandbox"
)
UNTOUCHED = "nothing has been written yet"


@dataclass(frozen=True)
class Isolation:
    """How a submission is isolated, described for the instructor, and where its kernel comes from."""

    description: str
    kernels: KernelFactory | None = None


@contextlib.contextmanager
def isolation(hidden: Path | None = None) -> Iterator[Isolation]:
    """Yield the strongest isolation here: a sandbox; else, if we are root, another user; else none.

    For another user, the checks in this package are closed, too, for as long as it is installed.

    Args:
        hidden: A folder that is closed to all other users: what a submission must not see. Without one there is
            nothing that another user would be kept from.
    """
    if not (reason := bubblewrap.problem()):
        from mlhood.grading.sandbox.pool import SandboxPool

        # for one submission there is nothing to do during which another sandbox could warm up
        with SandboxPool(imports=(), prewarm=False) as sandboxes:
            yield Isolation(SANDBOX, sandboxes)
        return
    if hidden is None:
        yield Isolation(f"{NOT_ISOLATED} ({reason})")
        return
    problem = _close(hidden) or other_user.problem(hidden=[hidden])
    if problem:
        yield Isolation(f"{NOT_ISOLATED} ({reason}; {problem})")
        return
    from mlhood.grading.sandbox.other_user_kernel import OtherUsers  # the module needs Linux

    readable = close_to_others()
    yield Isolation(f"{OTHER_USER} ({reason}{'; ' * bool(readable)}{readable})", OtherUsers())


def _close(folder: Path) -> str:
    """Close a folder to all other users; return why that is not possible, if so."""
    if not sys.platform.startswith("linux"):
        return f"another user needs Linux, and this is {sys.platform}"
    try:
        folder.chmod(0o700)
    except OSError as error:
        return f"{folder} cannot be closed to others ({error.strerror})"
    return ""


def grade_one(submission: SubmittedFile, path: Path, kernels: KernelFactory | None = None) -> Record:
    """Grade a notebook on fresh inputs. One still as it was released is not run. Lateness is up to the platform.

    A notebook that cannot be run has a result without points. Without `kernels` (see `isolation`) it has our rights.

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
    note = edition_note(notebook)
    return Record(submission, project_spec(project), "done", note, marks.tasks, Lateness(), seconds=marks.seconds)


def edition_note(notebook: NotebookNode) -> str:
    """Return what is said of a notebook that was not made for the edition which grades it; nothing if it was."""
    ours, found = this_edition(), sealed_edition(notebook)
    if found == ours or not (found or ours):
        return ""
    made = "was made for another edition" if found else "is of no edition"
    return f"it {made} of the course, and was marked as this one"


def no_points(submission: SubmittedFile, project: Project, reason: str) -> Record:
    """Return a result without points: the notebook is at fault, for this reason."""
    tasks = tuple(unsolved(task, reason) for task in project.tasks)
    return Record(submission, project_spec(project), "refused", reason, tasks, Lateness())
