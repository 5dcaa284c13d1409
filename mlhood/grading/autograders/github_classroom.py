"""Grade a notebook as a step of a GitHub Classroom workflow, whose output the reporter reads.

The reporter (`classroom-resources/autograding-grading-reporter`) reads the result of every runner from an environment
variable: JSON in base64, `{version, status, max_score, tests: [{name, status, score, message}]}`, and sums the scores.

This is feedback for the student: the owner of the repository can change the workflow, so an instructor counts the
marks that `mlhood grade` gives the clones. A sandbox is used if there is one; none is installed.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from mlhood.errors import NotebookError
from mlhood.grading.autograders.single import grade_one, isolation, no_points
from mlhood.grading.exporters.formats import github_classroom
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.projects import PROJECTS

MAX_ENCODED = 100_000  # Linux limits an environment variable to 128 KiB
MAX_MESSAGE = 8_000


def main() -> None:
    """Grade the notebook named by the first argument, and append `result=...` to the file `GITHUB_OUTPUT`."""
    path = Path(sys.argv[1])
    data = result(path)
    print(f"{path.name}: {sum(test['score'] for test in data['tests']):g} of {data['max_score']:g} points")
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"result={encode(data)}\n")


def result(path: Path) -> dict[str, Any]:
    """Return the result of a notebook; one that cannot be read gets no points for the project in its name."""
    submission = SubmittedFile(os.environ.get("GITHUB_ACTOR", ""), source=path.name)
    try:
        with isolation() as isolated:
            return github_classroom(grade_one(submission, path, isolated.kernels))
    except NotebookError as error:
        reason = error.one_line()
    project = PROJECTS.get(path.stem)
    if project is not None:
        return github_classroom(no_points(submission, project, reason))
    test = {"name": path.name, "status": "fail", "score": 0, "message": reason}
    return {"version": 1, "status": "fail", "max_score": 0, "tests": [test]}


def encode(data: dict[str, Any]) -> str:
    """Return a result as the reporter reads it, with messages cut until it fits into an environment variable."""
    limit = MAX_MESSAGE
    while True:
        tests = [test | {"message": test["message"][:limit]} for test in data["tests"]]
        text = base64.b64encode(json.dumps(data | {"tests": tests}).encode()).decode()
        if len(text) <= MAX_ENCODED or not limit:
            return text
        limit //= 2


if __name__ == "__main__":
    main()
