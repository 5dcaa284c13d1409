"""Mark a notebook: run it from the top in a process of its own, and judge each task right after its last cell.

What is run is the notebook with the course's own cells as they were given (see `rebuild`). A task that is not solved
is followed by its stand-in, so that the tasks after it are judged on their own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.expect import sentence
from mlhood.grading.checks.marks import Marks, TaskResult, judge, total
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Project, Task
from mlhood.grading.execution.kernel import Kernel, Kernels
from mlhood.grading.notebooks.restore import FOR_THE_STUDENT, MAX_SOURCE, Part, as_it_stands, judging_points, rebuild

CELL_SECONDS = 300.0
MAX_ERRORS = 12  # of cells that are told with a task
TOLD = {"given": ("missing", "turned", "changed", "moved"), "solution": ("missing", "turned"), "check": ("missing",)}
STAND_IN = "the tasks after this one are judged with a right solution in place of yours, so they lose nothing by it"


@dataclass(frozen=True)
class Step:
    """Progress: the cell or task that comes next, and how many steps of how many are done."""

    done: int
    total: int
    text: str


def grade(
    notebook: NotebookNode,
    project: Project,
    folder: Path,
    *,
    seed: int = 0,
    sandbox: Kernels | None = None,
    run_check_cells: bool = False,
    on_step: Callable[[Step], None] = lambda step: None,
    on_result: Callable[[TaskResult], None] = lambda result: None,
    alone: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Marks:
    """Run a notebook and mark it.

    Args:
        notebook: Its code cells get the outputs of this run. It stays as it is otherwise; cells of the course that
            were changed or are gone are run from the course's own copy.
        project: What it should solve.
        folder: Working folder of the run; files that the notebook writes are left there.
        seed: Inputs of the checks are drawn from it.
        sandbox: Where the kernel for a foreign notebook comes from. Without one it runs with our rights.
        run_check_cells: Whether to run the notebook as it stands, its checks and looks at results, too (for a copy to
            read, and its author's own eyes).
        on_step: Told before every cell and every task.
        on_result: Told the result of a task as soon as there is one, so an interruption keeps those before it.
        alone: Entered while a timed task is in work, so that the caller can keep other timed tasks away.

    Raises:
        GradingError: No kernel can be started.
    """
    began = time.monotonic()
    with sandbox.kernel(folder) if sandbox else Kernel(folder) as kernel:
        grading = _Grading(notebook, project, kernel, seed, run_check_cells, on_step, on_result, alone)
        with grading.turn:
            results = grading.run()
    return total(project, results, time.monotonic() - began, seed)


class _Grading:
    def __init__(self, notebook, project, kernel, seed, run_check_cells, on_step, on_result, alone) -> None:
        self.project: Project = project
        self.kernel: Kernel = kernel
        self.seed: int = seed
        self.run_check_cells: bool = run_check_cells
        self.on_step: Callable[[Step], None] = on_step
        self.on_result: Callable[[TaskResult], None] = on_result
        self.alone: Callable[[], AbstractContextManager[object]] = alone
        self.turn = contextlib.ExitStack()  # holds what `alone` gave while a timed task is in work
        self.timed: Task | None = None
        self.submission = Submission(kernel, kernel.folder, kernel.scratch)
        self.submission.clocked = not run_check_cells  # a copy to read is one's own
        found = (as_it_stands if run_check_cells else rebuild)(notebook, project)
        self.parts, self.changes = found.parts, found.changes
        self.results: list[TaskResult] = []
        self.done = self.source = 0

    def run(self) -> tuple[TaskResult, ...]:
        points = judging_points(self.parts, self.project)
        self._judge(points.get(-1, []))
        for index, part in enumerate(self.parts):
            if part.cell.cell_type == "code":
                self._run(part)
            self._judge(points.get(index, []))
        return tuple(self.results)

    def _run(self, part: Part) -> None:
        cell, task = part.cell, self.project.task(part.task)
        self._tell(_first_words(cell))
        cell.outputs, cell.execution_count = [], None
        if part.own and part.role in FOR_THE_STUDENT and not self.run_check_cells:
            return
        self.source += 0 if part.own else len(cell.source)
        if self.source > MAX_SOURCE and not part.own:
            words = f"was not run: the notebook holds more than {MAX_SOURCE >> 20} MiB of code"
            self.submission.cell_errors.append(f"the cell `{_first_words(cell)}` {words}")
            return
        self.submission.leaning.read(cell.source, trusted=part.own and part.role == "given")
        self._keep_others_away(task)
        outcome = self.kernel.run(cell, task.seconds if task else CELL_SECONDS)
        if outcome.error:
            ended = f"stopped with {outcome.error}" if outcome.alive else outcome.error
            self.submission.cell_errors.append(f"the cell `{_first_words(cell)}` {ended}")

    def _judge(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            task = self.project.task(task_id)
            if task is None:
                continue
            self._tell(f"marking {task.id}")
            self._keep_others_away(task)
            result = judge(task, self.submission, self.seed, self._notes(task))
            if not result.full and task.stand_in:
                result = replace(result, notes=(*result.notes, STAND_IN))
            self.results.append(result)
            self.on_result(result)
            self.submission.cell_errors.clear()
            if not result.full and task.stand_in:
                self.submission.leaning.read(task.stand_in, trusted=True)
                self.kernel.run(new_code_cell(task.stand_in), task.seconds)
            if task is self.timed:
                self.turn.close()
                self.timed = None

    def _keep_others_away(self, task: Task | None) -> None:
        """Hold the turn from the first cell of a timed task until it is judged."""
        if task and task.timed and not self.timed:
            self.turn.enter_context(self.alone())
            self.timed = task

    def _notes(self, task: Task) -> tuple[str, ...]:
        changes = [one for one in self.changes if one.cell.task == task.id and one.kind in TOLD.get(one.cell.role, ())]
        errors = self.submission.cell_errors
        more = [f"{len(errors) - MAX_ERRORS} more cells stopped with an error"] if len(errors) > MAX_ERRORS else []
        return (*errors[:MAX_ERRORS], *more, *(one.text for one in changes))

    def _tell(self, text: str) -> None:
        steps = sum(part.cell.cell_type == "code" for part in self.parts) + len(self.project.tasks)
        self.on_step(Step(self.done, steps, text))
        self.done += 1


def _first_words(cell: NotebookNode) -> str:
    lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith(("#", "%"))]
    return sentence(lines[0][:60]) if lines else "empty cell"
