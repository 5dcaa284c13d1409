"""The result of a notebook as GitHub Classroom's reporter reads it, and the step of its workflow that prints one.

    python -m mlhood.grading.reports.github_classroom P1.ipynb

The reporter (`classroom-resources/autograding-grading-reporter`) reads the result of every runner from an environment
variable: JSON in base64, `{version, status, max_score, tests: [{name, status, score, message}]}`, and sums the scores.

This is feedback for the student: the owner of the repository can change the workflow, so an instructor counts the
marks that `mlhood grade` gives the clones. The notebook runs with the rights of the workflow.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlhood.errors import MlhoodError
from mlhood.files.csv_cells import round_points
from mlhood.grading.checks.marks import CheckResult, TaskResult, unsolved
from mlhood.grading.execution.grade_notebook import grade_file
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import UNTOUCHED, is_unmodified
from mlhood.grading.projects import PROJECTS

MAX_ENCODED = 100_000  # Linux limits an environment variable to 128 KiB
MAX_MESSAGE = 8_000
MAX_OUTPUT = 20_000


def main() -> None:
    """Mark the notebook named by the first argument, and append `result=...` to the file `GITHUB_OUTPUT`."""
    path = Path(sys.argv[1])
    data = result(path)
    print(f"{path.name}: {sum(test['score'] for test in data['tests']):g} of {data['max_score']:g} points")
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"result={encode(data)}\n")


def result(path: Path) -> dict[str, Any]:
    """Return the result of a notebook; one that cannot be marked gets no points for the project in its name."""
    try:
        notebook = read(path)
        project = project_of(notebook, path)
        if not is_unmodified(notebook, project):
            return task_results(grade_file(path).tasks)
        reason = UNTOUCHED
    except MlhoodError as error:
        project, reason = PROJECTS.get(path.stem), error.one_line()
    if project is not None:
        return task_results([unsolved(task, reason) for task in project.tasks])
    test = {"name": path.name, "status": "fail", "score": 0, "message": reason}
    return {"version": 1, "status": "fail", "max_score": 0, "tests": [test]}


def task_results(tasks: Sequence[TaskResult], *, error: bool = False) -> dict[str, Any]:
    """Return a notebook's result with a test for every task.

    Args:
        tasks: The results of its tasks.
        error: Whether it could not be graded, through no fault of its own.
    """
    tests = [
        {
            "name": f"{task.id} {task.title}",
            "status": "pass" if task.full else "fail",
            "score": round_points(task.earned),
            "message": _message(task),
        }
        for task in tasks
    ]
    status = "error" if error else "pass" if all(task.full for task in tasks) else "fail"
    return {
        "version": 1,
        "status": status,
        "max_score": round_points(sum(task.points for task in tasks)),
        "tests": tests,
    }


def _message(task: TaskResult) -> str:
    reasons = [explanation(check) for check in task.checks if check.status != "passed"]
    return "\n".join([task.remark, *reasons] if task.remark else reasons)[:MAX_OUTPUT]


def explanation(check: CheckResult) -> str:
    """Return the lines that say how a check ended, and why."""
    lines = [f"{check.title}: {check.status}", check.what, *(f"{key}: {part}" for key, part in check.parts.items())]
    return "\n".join(line for line in lines if line)[:MAX_OUTPUT]


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
