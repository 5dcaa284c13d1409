"""Grade one submission in Gradescope's container: what `run_autograder` of `mlhood release --gradescope` calls.

Layout, metadata and results: Gradescope's "Autograder Specifications" and "Submission Metadata". Whatever goes
wrong, results.json is written and gives the reason.

A student's code is isolated as well as the container allows (see `isolation`). The instructor finds out how in the
autograder's output, which students do not see, and in `extra_data`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

from mlhood.errors import MlhoodError, NotebookError
from mlhood.files.atomic import write_atomic
from mlhood.grading.autograders.single import grade_one, isolation
from mlhood.grading.exporters.formats import gradescope, json_text
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.intake.files import input_files
from mlhood.grading.notebooks.notebook import project_of, read

ROOT = "/autograder"
MAX_METADATA = 64 << 20  # it contains the results of all earlier submissions


def main() -> None:
    """Grade the submission below `MLHOOD_AUTOGRADER`, by default `/autograder`, and write results.json."""
    root = Path(os.environ.get("MLHOOD_AUTOGRADER", ROOT))
    (root / "results").mkdir(exist_ok=True)
    write_atomic(root / "results" / "results.json", json_text(results(root)).encode())


def results(root: Path) -> dict[str, Any]:
    """Return the content of results.json for the submission in `root/submission`."""
    description = ""
    try:
        with isolation(root) as isolated:
            description = isolated.description
            print(description, file=sys.stderr)  # shown to instructors by Gradescope
            metadata = _metadata(root / "submission_metadata.json")
            path = choose_notebook(root / "submission", _titled_project(metadata))
            data = gradescope(grade_one(_submission(metadata), path, isolated.kernels))
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


if __name__ == "__main__":
    main()
