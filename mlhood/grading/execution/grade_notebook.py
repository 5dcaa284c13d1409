"""Run a notebook from the top in a separate process, and grade each task right after its last cell.

The cells that run are those of the notebook, with the course's locked cells restored (see `notebooks.restore`). They
run a second time in a bare kernel for each different `Task.libraries`, where the functions of these tasks are called.
An unsolved task is followed by its fallback solution, so that the tasks after it are graded independently.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError, nearest
from mlhood.grading.checks.expect import single_line
from mlhood.grading.checks.marks import Marks, TaskResult, grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Check, Project, Task
from mlhood.grading.execution.kernel import CellOutcome, NewKernel, NotebookKernels
from mlhood.grading.notebooks.notebook import project_of, read
from mlhood.grading.notebooks.restore import (
    FEEDBACK_ROLES,
    MAX_SOURCE_CHARACTERS,
    RestoredCell,
    as_submitted,
    grading_points,
    restore,
)
from mlhood.grading.notebooks.version import require_current_version
from mlhood.grading.projects.collect import variant

CELL_SECONDS = 300.0
MAX_ERRORS = 12  # cell errors that are shown with a task
FALLBACK_NOTE = "the tasks after this one are graded with a right solution in place of yours, so it costs them nothing"


@dataclass(frozen=True)
class CellStep:
    """Progress: the number of finished steps, the number of all, and the cell or task that comes next."""

    done: int
    total: int
    text: str


@dataclass(frozen=True)
class RunSettings:
    """How a notebook is run and graded.

    Args:
        seed: Inputs of the checks are drawn from it. None draws the seed, too, so that nobody knows it in advance.
        kernels: Creates the kernels of an untrusted notebook. Without it the notebook runs with our rights.
        run_check_cells: Run the notebook as it was submitted, including its check and result cells: for a copy to
            read, and for its own author.
        on_step: Called before every cell and every task.
        on_cell: Called after every cell with it and how it ended.
        on_result: Called with the result of a task as soon as it is known, so that an interruption keeps it.
        exclusive: Entered while a timed task runs, so that the caller can exclude other timed tasks.
    """

    seed: int | None = None
    kernels: NewKernel | None = None
    run_check_cells: bool = False
    on_step: Callable[[CellStep], None] = lambda step: None
    on_cell: Callable[[NotebookNode, CellOutcome], None] = lambda cell, outcome: None
    on_result: Callable[[TaskResult], None] = lambda result: None
    exclusive: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext


def grade(notebook: NotebookNode, project: Project, folder: Path, settings: RunSettings | None = None) -> Marks:
    """Run a notebook and grade it.

    Args:
        notebook: Its code cells get the outputs of this run; otherwise it is not modified. Locked cells of the course
            that were changed or removed run in the course's own version.
        folder: Working folder of the run; files that the notebook writes stay there.

    Raises:
        GradingError: No kernel can be started.
    """
    settings = settings or RunSettings()
    seed = secrets.randbits(63) if settings.seed is None else settings.seed
    began = time.monotonic()
    with NotebookKernels(project.tasks, folder, settings.kernels) as kernels:
        run = _GradingRun(notebook, project, kernels, replace(settings, seed=seed))
        with run.exclusive:
            results = run.grade()
    return Marks(project.id, project.title, results, time.monotonic() - began, seed)


class _GradingRun:
    def __init__(
        self, notebook: NotebookNode, project: Project, kernels: NotebookKernels, settings: RunSettings
    ) -> None:
        self.project = project
        self.kernels = kernels
        self.settings = settings
        self.exclusive = contextlib.ExitStack()  # holds the exclusive context while a timed task runs
        self.timed: Task | None = None
        # a copy to read is its author's own, so its tables are not remeasured
        remeasure = not settings.run_check_cells
        kernel = kernels.notebook
        self.session = Session(kernel, kernel.folder, kernel.scratch, remeasure=remeasure)
        restored = (as_submitted if settings.run_check_cells else restore)(notebook, project)
        self.cells, self.changes = restored.cells, restored.changes
        self.results: list[TaskResult] = []
        self.steps_done = self.source_characters = 0

    def grade(self) -> tuple[TaskResult, ...]:
        points = grading_points(self.cells, self.project)
        self._grade_tasks(points.get(-1, []))
        for i, cell in enumerate(self.cells):
            if cell.node.cell_type == "code":
                self._run(cell)
            self._grade_tasks(points.get(i, []))
        return tuple(self.results)

    def _run(self, cell: RestoredCell) -> None:
        node, task = cell.node, self.project.task(cell.task)
        name = f"the cell `{_first_line(node)}`"
        self._report_step(_first_line(node))
        node.outputs, node.execution_count = [], None
        if cell.intact and cell.role in FEEDBACK_ROLES and not self.settings.run_check_cells:
            return
        self.source_characters += 0 if cell.intact else len(node.source)
        if self.source_characters > MAX_SOURCE_CHARACTERS and not cell.intact:
            limit = f"{MAX_SOURCE_CHARACTERS >> 20} MiB"
            self.session.cell_errors.append(f"{name} was not run: the notebook has more than {limit} of code")
            return
        self._begin_exclusive(task)
        self.session.lines.add(node.source, _name(cell))
        seconds = task.seconds if task else CELL_SECONDS
        feedback = cell.role in FEEDBACK_ROLES
        outcome = (self.kernels.notebook if feedback else self.kernels).run(node, seconds)
        self.settings.on_cell(node, outcome)
        if outcome.error:
            text = f"{name} {'stopped with ' if outcome.alive else ''}{outcome.error}"
            self.session.cell_errors.append(f"{text} {self.session.lines.find(outcome.lines)}".strip())

    def _grade_tasks(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            task = self.project.task(task_id)
            if task is None:
                continue
            self._report_step(f"marking {task.id}")
            self._begin_exclusive(task)
            session, seed = self.kernels.session(task, self.session), self.settings.seed or 0
            result = grade_task(task, session, seed, self._notes(task), partial(self._report_check, task))
            replaced = bool(task.fallback) and any(check.status == "failed" for check in result.checks)
            if replaced:
                result = replace(result, notes=(*result.notes, FALLBACK_NOTE))
            self.results.append(result)
            self.settings.on_result(result)
            self.session.cell_errors.clear()
            if replaced:
                self.kernels.run(new_code_cell(task.fallback), task.seconds)
            if task is self.timed:
                self.exclusive.close()
                self.timed = None

    def _begin_exclusive(self, task: Task | None) -> None:
        """Enter the exclusive context at the first cell of a timed task; it is held until the task is graded."""
        if task and task.timed and not self.timed:
            self.exclusive.enter_context(self.settings.exclusive())
            self.timed = task

    def _notes(self, task: Task) -> tuple[str, ...]:
        errors = self.session.cell_errors
        more = [f"{len(errors) - MAX_ERRORS} more cells stopped with an error"] if len(errors) > MAX_ERRORS else []
        changes = [change.text for change in self.changes if change.cell.task == task.id]
        return (*errors[:MAX_ERRORS], *more, *changes)

    def _report_step(self, text: str) -> None:
        self.settings.on_step(CellStep(self.steps_done, self._steps, text))
        self.steps_done += 1

    def _report_check(self, task: Task, check: Check) -> None:
        self.settings.on_step(CellStep(self.steps_done - 1, self._steps, f"marking {task.id}: {check.title}"))

    @property
    def _steps(self) -> int:
        return sum(cell.node.cell_type == "code" for cell in self.cells) + len(self.project.tasks)


def _name(cell: RestoredCell) -> str:
    """Return how messages call a cell: by its task, where there is only one such cell, else by its first line."""
    if cell.task and cell.role == "solution":
        return f"the solution cell of {cell.task}"
    return f"the cell `{_first_line(cell.node)}`"


def _first_line(cell: NotebookNode) -> str:
    lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith(("#", "%"))]
    return single_line(lines[0][:60]) if lines else "empty cell"


def grade_file(
    path: str | Path,
    settings: RunSettings | None = None,
    *,
    variant_name: str = "",
) -> Marks:
    """Grade the notebook in a file. The file itself is not modified.

    Args:
        path: Of the notebook.
        settings: How to run it.
        variant_name: Of the variant of the course that it is graded as; by default that of this package.

    Raises:
        NotebookError: The file is not a notebook of the course, or of another version.
        GradingError: No kernel can be started.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    project = variant(project, variant_name) if variant_name else project
    require_current_version(notebook, project, path)
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        return grade(notebook, project, Path(folder), settings)


def task_filter(task_ids: Collection[str], path: str | Path) -> Callable[[Marks], Marks]:
    """Return a filter that leaves these tasks of a notebook's marks, or all if none is named; `p1.3` is P1.3.

    Raises:
        GradingError: The notebook's project has no such task.
        NotebookError: The file is not a notebook of the course.
    """
    project = project_of(read(path), path)
    known = [task.id for task in project.tasks]
    wanted = [task_id.upper() for task_id in task_ids]
    if unknown := [task_id for task_id in wanted if task_id not in known]:
        raise GradingError(
            "there is no such task",
            where=unknown[0],
            expected=f"one of {', '.join(known)}",
            todo=nearest(unknown[0], known),
        )
    return lambda marks: replace(marks, tasks=tuple(task for task in marks.tasks if not wanted or task.id in wanted))
