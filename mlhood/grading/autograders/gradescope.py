"""Grade one submission in Gradescope's container: what `run_autograder` of `mlhood release --gradescope` calls.

Layout, metadata and results: Gradescope's "Autograder Specifications" and "Submission Metadata". Whatever goes
wrong, there is a results.json that says it.

A student's code is kept apart as well as the container allows (see `apart`). How, the instructor finds in the
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
from mlhood.files.atomic import write_whole
from mlhood.grading.autograders.isolation import apart
from mlhood.grading.autograders.single import grade_one
from mlhood.grading.exporters.formats import gradescope, json_text
from mlhood.grading.intake.files import findings
from mlhood.grading.intake.submitted_file import Handed
from mlhood.grading.notebooks.notebook import project_of, read

ROOT = "/autograder"
MAX_METADATA = 64 << 20  # it holds the results of all earlier submissions


def main() -> None:
    """Grade the submission below `MLHOOD_AUTOGRADER`, by default `/autograder`, and write results.json."""
    root = Path(os.environ.get("MLHOOD_AUTOGRADER", ROOT))
    (root / "results").mkdir(exist_ok=True)
    write_whole(root / "results" / "results.json", json_text(results(root)).encode())


def results(root: Path) -> dict[str, Any]:
    """The results of the submission in `root/submission`, as results.json has them."""
    words = ""
    try:
        with apart(root) as found:
            words = found.words
            print(words, file=sys.stderr)  # into Gradescope's stdout, which instructors see
            metadata = _metadata(root / "submission_metadata.json")
            path = chosen(root / "submission", _wanted(metadata))
            made = gradescope(grade_one(_handed(metadata), path, found.kernels))
    except MlhoodError as error:
        made = failure(error.one_line())
    except Exception:  # a submission without any result would be the worst answer
        traceback.print_exc()
        made = failure("the autograder itself has failed; your instructor can see why, and can run it again")
    return made | {"extra_data": {"isolation": words}}


def failure(output: str) -> dict[str, Any]:
    """Results without a test: no points, and why."""
    return {
        "score": 0,
        "output": output,
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [],
    }


def chosen(folder: Path, wanted: str = "") -> Path:
    """The notebook to grade, of all files that a student has handed in.

    Args:
        folder: The submission.
        wanted: The project that the assignment's title names, such as `P1`; empty if it names none.

    Raises:
        NotebookError: There is no notebook of the course, or of the wanted project, or more than one.
    """
    notebooks: dict[Path, str] = {}
    problems = []
    with findings(folder) as found:
        for one in found:
            if one.path.suffix.lower() != ".ipynb":
                continue
            path = folder / one.path
            try:
                notebooks[path] = _project(path, one.problem)
            except NotebookError as error:
                problems.append(f"{one.path}: {error.one_line()}")
    fitting = [path for path, project in notebooks.items() if not wanted or project == wanted]
    if len(fitting) == 1:
        return fitting[0]
    names = [f"{path.relative_to(folder)} ({project})" for path, project in notebooks.items()]
    raise NotebookError(
        "there is not exactly one notebook to grade",
        expected=f"the notebook {wanted or 'of one project'}",
        got="; ".join([*names, *problems]) or "no notebook",
        todo="hand in the one notebook of this assignment",
    )


def _project(path: Path, problem: str) -> str:
    if problem:
        raise NotebookError(problem)
    return project_of(read(path), path).id


def _metadata(path: Path) -> dict[str, Any]:
    """What Gradescope says of the submission; nothing if it cannot be read, as no mark depends on it."""
    try:
        with path.open("rb") as file:
            plain = json.loads(file.read(MAX_METADATA))
    except (OSError, ValueError) as error:
        print(f"note: {path.name} cannot be read: {error}", file=sys.stderr)
        return {}
    return plain if isinstance(plain, dict) else {}


def _wanted(metadata: dict[str, Any]) -> str:
    assignment = metadata.get("assignment")
    title = str(assignment.get("title", "")) if isinstance(assignment, dict) else ""
    named = set(re.findall(r"\b[A-Z]\d\b", title))
    return named.pop() if len(named) == 1 else ""


def _handed(metadata: dict[str, Any]) -> Handed:
    users = metadata.get("users")
    user = users[0] if isinstance(users, list) and users and isinstance(users[0], dict) else {}
    try:
        submitted = datetime.fromisoformat(str(metadata.get("created_at")))
    except ValueError:
        submitted = None
    return Handed(str(user.get("email", "")), str(user.get("name", "")), source="submission", submitted=submitted)


if __name__ == "__main__":
    main()
