"""Grade a notebook in a workflow of GitHub Classroom: a step whose output its reporter reads.

The reporter (`classroom-resources/autograding-grading-reporter`) takes the result of every runner from an environment
variable: JSON in base64, `{version, status, max_score, tests: [{name, status, score, message}]}`, and adds up scores.

It serves the student: who owns the repository can change the workflow, so an instructor counts what `mlhood grade`
says of the clones. A sandbox is used where there is one, and nothing is installed for it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from mlhood.errors import NotebookError
from mlhood.grading.autograders.isolation import apart
from mlhood.grading.autograders.single import grade_one, lost
from mlhood.grading.exporters.formats import github_classroom
from mlhood.grading.intake.submitted_file import Handed
from mlhood.grading.projects import PROJECTS

MAX_ENCODED = 100_000  # Linux takes no environment variable beyond 128 KiB
LONGEST_MESSAGE = 8_000


def main() -> None:
    """Grade the notebook that the first argument names, and add `result=...` to the file `GITHUB_OUTPUT`."""
    path = Path(sys.argv[1])
    plain = result(path)
    print(f"{path.name}: {sum(test['score'] for test in plain['tests']):g} of {plain['max_score']:g} points")
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"result={encoded(plain)}\n")


def result(path: Path) -> dict[str, Any]:
    """The result of a notebook; one that cannot be read has lost the points of the project that its name tells."""
    handed = Handed(os.environ.get("GITHUB_ACTOR", ""), source=path.name)
    try:
        with apart() as found:
            return github_classroom(grade_one(handed, path, found.kernels))
    except NotebookError as error:
        reason = error.one_line()
    project = PROJECTS.get(path.stem)
    if project is not None:
        return github_classroom(lost(handed, project, reason))
    test = {"name": path.name, "status": "fail", "score": 0, "message": reason}
    return {"version": 1, "status": "fail", "max_score": 0, "tests": [test]}


def encoded(plain: dict[str, Any]) -> str:
    """A result as the reporter reads it, with messages cut until it fits into an environment variable."""
    limit = LONGEST_MESSAGE
    while True:
        tests = [test | {"message": test["message"][:limit]} for test in plain["tests"]]
        text = base64.b64encode(json.dumps(plain | {"tests": tests}).encode()).decode()
        if len(text) <= MAX_ENCODED or not limit:
            return text
        limit //= 2


if __name__ == "__main__":
    main()
