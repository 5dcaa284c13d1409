"""Grade one submission in Gradescope's container: what `run_autograder` of `mlhood release --gradescope` calls.

Layout, metadata and results: Gradescope's "Autograder Specifications" and "Submission Metadata". Whatever goes
wrong, results.json is written and gives the reason.

A student's code is isolated as well as the container allows (see `isolation`). The instructor finds out how in the
autograder's output, which students do not see, and in `extra_data`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import MlhoodError, NotebookError
from mlhood.files.atomic import write_atomic
from mlhood.grading.batch.course_grader import project_spec
from mlhood.grading.checks.marks import unsolved
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import RunSettings, grade_file
from mlhood.grading.execution.kernel import NewKernel
from mlhood.grading.exporters.formats import gradescope, json_text
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.intake.files import input_files
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import UNTOUCHED, is_unmodified
from mlhood.grading.notebooks.version import stored_signature
from mlhood.grading.projects.collect import this_version
from mlhood.grading.sandbox import bubblewrap, other_user
from mlhood.grading.sandbox.visible import close_to_others

ROOT = "/autograder"
MAX_METADATA = 64 << 20  # it contains the results of all earlier submissions
SANDBOX = "the submission runs in a sandbox (bubblewrap)"
OTHER_USER = (
    "the submission runs as another user of this container, which cannot read or change the autograder's files, "
    "but has access to the system and the network; no sandbox is available"
)
NOT_ISOLATED = (
    "the submission runs with the rights of the autograder: the container, made for this one submission, is the only "
    "sandbox"
)


def main() -> None:
    """Grade the submission below `MLHOOD_AUTOGRADER`, by default `/autograder`, and write results.json."""
    root = Path(os.environ.get("MLHOOD_AUTOGRADER", ROOT))
    (root / "results").mkdir(exist_ok=True)
    write_atomic(root / "results" / "results.json", json_text(results(root)).encode())


def results(root: Path) -> dict[str, Any]:
    """Return the content of results.json for the submission in `root/submission`."""
    description = ""
    try:
        with isolation(root) as (description, kernels):
            print(description, file=sys.stderr)  # shown to instructors by Gradescope
            metadata = _metadata(root / "submission_metadata.json")
            path = choose_notebook(root / "submission", _titled_project(metadata))
            data = gradescope(grade_one(_submission(metadata), path, kernels))
    except MlhoodError as error:
        data = failure(error.one_line())
    except Exception:  # a submission must never be left without a result
        traceback.print_exc()
        data = failure("the autograder itself has failed; your instructor can see why, and can run it again")
    return data | {"extra_data": {"isolation": description}}


def failure(output: str) -> dict[str, Any]:
    """Return results without tests: no points, and the reason."""
    return {
        "score": 0,
        "output": output,
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [],
    }


def choose_notebook(folder: Path, project: str = "") -> Path:
    """Return the notebook to grade among the files that a student has submitted: that of `project`, unless it is empty.

    Raises:
        NotebookError: There is no notebook of the course, or of that project, or more than one.
    """
    notebooks: dict[Path, str] = {}
    problems = []
    with input_files(folder) as files:
        for file in files:
            if file.path.suffix.lower() != ".ipynb":
                continue
            path = folder / file.path
            try:
                if file.problem:
                    raise NotebookError(file.problem)
                notebooks[path] = project_of(read(path), path).id
            except NotebookError as error:
                problems.append(f"{file.path}: {error.one_line()}")
    matches = [path for path, name in notebooks.items() if not project or name == project]
    if len(matches) == 1:
        return matches[0]
    names = [f"{path.relative_to(folder)} ({name})" for path, name in notebooks.items()]
    raise NotebookError(
        "there is not exactly one notebook to grade",
        expected=f"the notebook {project or 'of one project'}",
        got="; ".join([*names, *problems]) or "no notebook",
        todo="submit only the notebook of this assignment",
    )


def _metadata(path: Path) -> dict[str, Any]:
    """Return Gradescope's metadata of the submission; none if they cannot be read, as no mark depends on them."""
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(MAX_METADATA))
    except (OSError, ValueError) as error:
        print(f"note: {path.name} cannot be read: {error}", file=sys.stderr)
        return {}
    return data if isinstance(data, dict) else {}


def _titled_project(metadata: dict[str, Any]) -> str:
    """Return the project in the assignment's title, unless it has none or several."""
    assignment = metadata.get("assignment")
    title = str(assignment.get("title", "")) if isinstance(assignment, dict) else ""
    projects = set(re.findall(r"\b[A-Z]\d\b", title))
    return projects.pop() if len(projects) == 1 else ""


def _submission(metadata: dict[str, Any]) -> SubmittedFile:
    users = metadata.get("users")
    user = users[0] if isinstance(users, list) and users and isinstance(users[0], dict) else {}
    try:
        submitted = datetime.fromisoformat(str(metadata.get("created_at")))
    except ValueError:
        submitted = None
    student, name = str(user.get("email", "")), str(user.get("name", ""))
    return SubmittedFile(student, name, source="submission", submitted=submitted)


@contextlib.contextmanager
def isolation(hidden: Path) -> Iterator[tuple[str, NewKernel | None]]:
    """Yield the strongest isolation here, described for the instructor, and where an isolated kernel comes from.

    It is a sandbox; else, if we are root, another user; else none. For another user, the checks in this package are
    closed, too, for as long as it is installed.

    Args:
        hidden: A folder that is closed to all other users: what a submission must not see.
    """
    if not (reason := bubblewrap.problem()):
        from mlhood.grading.sandbox.kernel import SandboxPool

        # for one submission there is nothing to do during which another sandbox could warm up
        with SandboxPool(imports=(), prewarm=False) as sandboxes:
            yield SANDBOX, sandboxes.kernel
        return
    with contextlib.suppress(OSError):  # the next line reports what stays open
        hidden.chmod(0o700)
    problem = other_user.problem(hidden=[hidden])
    if problem:
        yield f"{NOT_ISOLATED} ({reason}; {problem})", None
        return
    readable = close_to_others()
    yield f"{OTHER_USER} ({reason}{'; ' * bool(readable)}{readable})", other_user.OtherUserKernel


def grade_one(submission: SubmittedFile, path: Path, kernels: NewKernel | None = None) -> Record:
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
    note = version_note(notebook)
    return Record(submission, project_spec(project), "done", note, marks.tasks, Lateness(), seconds=marks.seconds)


def version_note(notebook: NotebookNode) -> str:
    """Return what is said of a notebook that was not made for the version which grades it; nothing if it was."""
    ours, found = this_version(), stored_signature(notebook)
    if found == ours or not (found or ours):
        return ""
    made = "was made for another version" if found else "has no version"
    return f"it {made} of the course, and was marked as this one"


def no_points(submission: SubmittedFile, project: Project, reason: str) -> Record:
    """Return a result without points: the notebook is at fault, for this reason."""
    tasks = tuple(unsolved(task, reason) for task in project.tasks)
    return Record(submission, project_spec(project), "refused", reason, tasks, Lateness())


if __name__ == "__main__":
    main()
