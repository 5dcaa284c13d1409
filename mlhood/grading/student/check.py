"""The functions for a student's notebook: `mlhood.check("P1.3")`, `mlhood.hint("P1.3")` and `mlhood.progress()`.

They only inform the student; marks are given by another process. Hints come in two stages: a check that fails says what
is wrong, and for which input; how to go on is said on request, or when it fails again.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlhood.errors import GradingError, nearest
from mlhood.grading.checks.marks import HINT, TaskResult, grade_task, without_hint
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task
from mlhood.grading.projects import PROJECTS
from mlhood.grading.reports import marks_text
from mlhood.grading.rpc.transport import LocalTransport

PUBLIC_SEED = 0
_results: dict[str, TaskResult] = {}  # the latest, by task, with all hints


class Score(float):
    """Points as a number that a notebook displays as the list of checks.

    The plain text is the number alone: nbgrader reads partial credit from it.
    """

    result: TaskResult

    def __new__(cls, result: TaskResult) -> Score:
        """Return the points of a result."""
        score = super().__new__(cls, result.earned)
        score.result = result
        return score

    def __repr__(self) -> str:
        return marks_text.format_points(self)

    def _repr_html_(self) -> str:
        from mlhood.grading.reports.render import task_html  # templates are not needed before a display

        return task_html(self.result)


class Hints:
    """How to go on with the checks of a task that failed."""

    def __init__(self, result: TaskResult) -> None:
        self.result = result

    def _rows(self) -> list[tuple[str, str]]:
        failed = [check for check in self.result.checks if check.status == "failed"]
        without = "no more than the check has said: read again what came, and for which input"
        return [(check.title, check.parts.get(HINT, without)) for check in failed]

    def __repr__(self) -> str:
        lines = [f"  {title}\n      {hint}" for title, hint in self._rows()]
        return "\n".join([f"Hints for {self.result.id}" if lines else f"{self.result.id}: all checks pass", *lines])

    def _repr_html_(self) -> str:
        from mlhood.grading.reports.render import hints_html

        return hints_html(self.result.id, self._rows())


class Progress:
    """The results of the checks that ran in this notebook."""

    def __init__(self, results: dict[str, TaskResult], project_id: str) -> None:
        self.results = results
        self.project = PROJECTS[project_id]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = [self._row(task) for task in self.project.tasks]
        earned = sum(result.earned for result in self.results.values())
        points = self.project.points - sum(result.skipped for result in self.results.values())
        total = f"{marks_text.format_points(earned)} of {marks_text.format_points(points)}"
        return [*rows, ("", "all tasks", marks_text.points_bar(earned, points), total)]

    def _row(self, task: Task) -> tuple[str, str, str, str]:
        result = self.results.get(task.id)
        if result is None:
            return task.id, task.title, marks_text.points_bar(0, task.points), "not checked yet"
        if not result.asked:  # an empty bar would look like lost points
            return task.id, task.title, "", "cannot be asked on this machine"
        points = f"{marks_text.format_points(result.earned)} of {marks_text.format_points(result.points)}"
        return task.id, task.title, marks_text.points_bar(result.earned, result.points), points

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(title) for _, title, _, _ in rows)
        return "\n".join(f"{task:5} {title:{width}} {bar:10} {state}" for task, title, bar, state in rows)

    def _repr_html_(self) -> str:
        from mlhood.grading.reports.render import progress_html

        return progress_html(self._rows())


def check(task_id: str, namespace: dict[str, Any] | None = None, *, first: int | None = None) -> Score:
    """Run the checks of a task on the names of this notebook.

    Args:
        task_id: Such as `"P1.3"`.
        namespace: Where to look for names; the notebook's own by default.
        first: How many of the checks to run, between the halves of a task; all by default.

    Returns:
        The points, which a notebook displays as a table with the reason beside every failed check, and the hint if it
        failed before. They do not count: marks are given on other inputs.

    Raises:
        GradingError: There is no such task, or this is not a notebook.
    """
    task = find_task(task_id)
    task = replace(task, checks=task.checks[:first])
    names = namespace if namespace is not None else _notebook_names()
    with (
        tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as scratch,
        warnings.catch_warnings(),
    ):
        # no remeasuring: students have no reason to forge a table for themselves
        session = Session(LocalTransport(names), Path.cwd(), Path(scratch), remeasure=False)
        cells = names.get("In")  # the sources that IPython has run
        for number, source in enumerate(cells if isinstance(cells, list) else []):
            session.lines.add(str(source), f"cell [{number}]")
        result = grade_task(task, session, PUBLIC_SEED)
    before = _results.get(task.id)
    _results[task.id] = result
    result = _first_stage(result, before)
    if not hasattr(_shell(), "kernel"):  # no rich display
        print(marks_text.task_text(result))
    return Score(result)


def _first_stage(result: TaskResult, before: TaskResult | None) -> TaskResult:
    """Return a result without the hints of checks that did not fail in the run before."""
    failed_before = {check.name for check in before.checks if check.status == "failed"} if before else set()
    checks = tuple(check if check.name in failed_before else without_hint(check) for check in result.checks)
    if checks == result.checks:
        return result
    note = f'how to go on: mlhood.hint("{result.id}"), or run the check again'
    return replace(result, checks=checks, notes=(*result.notes, note))


def hint(task_id: str) -> Hints:
    """Return how to go on with the checks of a task that failed when they last ran in this notebook.

    Args:
        task_id: Such as `"P1.3"`.

    Raises:
        GradingError: There is no such task, or its checks have not run yet.
    """
    task = find_task(task_id)
    if task.id not in _results:
        raise GradingError(
            "there is no hint before the first check",
            where=task.id,
            expected="a failed check",
            todo=f'run mlhood.check("{task.id}")',
        )
    return Hints(_results[task.id])


def progress(project_id: str | None = None) -> Progress:
    """Return the progress in this notebook: every task with the points of its latest check.

    Raises:
        GradingError: There is no such project.
    """
    latest = next(reversed(_results), "P1.1")
    project_id = project_id or latest.partition(".")[0]
    if project_id not in PROJECTS:
        raise GradingError(
            "there is no such project",
            where=project_id,
            expected=f"one of {', '.join(PROJECTS)}",
            todo=nearest(project_id, PROJECTS),
        )
    return Progress({task: _results[task] for task in _results if task.startswith(f"{project_id}.")}, project_id)


def find_task(task_id: str) -> Task:
    """Return the task of that id, such as `P1.3`.

    Raises:
        GradingError: There is none; the error names the nearest.
    """
    project = PROJECTS.get(str(task_id).partition(".")[0])
    task = project.task(task_id) if project else None
    if task is not None:
        return task
    ids = [task.id for project in PROJECTS.values() for task in project.tasks]
    raise GradingError(
        "there is no such task", where=repr(task_id), expected=f"one of {', '.join(ids)}", todo=nearest(task_id, ids)
    )


def _notebook_names() -> dict[str, Any]:
    shell = _shell()
    if shell is None:
        raise GradingError(
            "there is no notebook to check",
            expected="a call in a notebook's cell",
            todo="in a terminal, run: mlhood check P1.ipynb",
        )
    return shell.user_ns


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()
