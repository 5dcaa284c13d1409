"""`mlhood validate`: before handing in, test that the notebook is complete and runs in a clean kernel.

Points do not matter here. Tasks that are still empty may be submitted; they are only listed.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.bare.libraries import NOT_AVAILABLE
from mlhood.grading.checks.marks import Marks
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import CellStep, RunSettings, grade
from mlhood.grading.execution.kernel import CellOutcome
from mlhood.grading.notebooks.notebook import Label, label, project_of, read
from mlhood.grading.notebooks.restore import CellChange, restore
from mlhood.grading.notebooks.source_notebook import ANSWER_STUB, SOLUTION
from mlhood.grading.notebooks.version import require_current_version
from mlhood.grading.rpc.server import NOT_DEFINED

STUB_LINES = ("# YOUR CODE HERE", "raise NotImplementedError")
RUN_ALL = "restart the kernel, run all cells from the top, and repair this one"
COPY_AGAIN = "copy it again from the notebook of the course"
REPAIRS = {"missing": COPY_AGAIN, "not code": "turn it back into a code cell"}


@dataclass(frozen=True)
class Remark:
    """A fact about the notebook, and what the student can do about it."""

    task: str
    what: str
    todo: str = ""

    def text(self) -> str:
        """Return one or two lines."""
        return self.what + (f"\n     what to do: {self.todo}" if self.todo else "")


@dataclass(frozen=True)
class Validation:
    """What must be repaired before handing in, what is still open, and harmless changes."""

    notebook: str
    title: str
    repairs: tuple[Remark, ...]
    notes: tuple[Remark, ...]
    changes: tuple[Remark, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the notebook can be submitted as it is."""
        return not self.repairs

    def text(self) -> str:
        """Return a numbered list of what to repair, what is still open, the changes, and the verdict."""
        lines = [f"{self.notebook}: {self.title}"]
        lines += [f"  {i}. {finding.text()}" for i, finding in enumerate(self.repairs, start=1)]
        if self.notes:
            lines.append("still open; you may hand in all the same:")
            lines += [f"  - {finding.text()}" for finding in self.notes]
        if self.changes:
            lines.append("changed cells, which cost no points: the marks come from the course's own cells")
            lines += [f"  - {finding.text()}" for finding in self.changes]
        count = len(self.repairs)
        findings = "the item" if count == 1 else f"the {count} items"
        ready = "ready to hand in" + (", though not everything is done" if self.notes else "")
        lines.append(ready if self.ready else f"not ready to hand in: repair {findings} numbered above")
        return "\n".join(lines)


def validate(path: str | Path, *, on_step: Callable[[CellStep], None] = lambda step: None) -> Validation:
    """Inspect a notebook and run it once in a clean kernel, in a temporary folder.

    Raises:
        NotebookError: The file is not a notebook of the course, or of another version.
        GradingError: No kernel can be started.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    require_current_version(notebook, project, path)
    empty = empty_tasks(notebook, project)
    failures, marks = _run(copy.deepcopy(notebook), project, on_step)
    repairs = [
        *missing_cells(notebook, project),
        *(failure.remark for failure in failures if not _excused(failure, empty)),
        *_not_available(marks),
        *_not_defined(marks, {*empty, *(failure.remark.task for failure in failures)}),
    ]
    solved = {task.id for task in marks.tasks if task.full and task.asked}  # without a helper that is still the stub
    notes = [
        Remark(task.id, f"{task.id} {task.title} is still empty ({task.points:g} points)")
        for task in project.tasks
        if task.id in empty.keys() - solved
    ]
    notes += _open_questions(notebook, project)
    for failure in failures:
        if _excused(failure, empty) and failure.remark.task not in empty:
            before = ", ".join(task for task, index in empty.items() if index <= failure.index)
            what = f"{failure.remark.what} (perhaps because {before} is still empty)"
            notes.append(Remark(failure.remark.task, what))
    found = tuple(repairs), tuple(notes), tuple(changes(notebook, project))
    return Validation(Path(path).name, project.title, *found)


def missing_cells(notebook: NotebookNode, project: Project) -> Iterator[Remark]:
    """Yield the solution and answer cells that are missing or of another type."""
    for change in restore(notebook, project).changes:
        if _needs_repair(change):
            yield Remark(change.cell.task, change.text, REPAIRS[change.kind])
    for question in project.questions:
        cells = _cells(notebook, question.id, "question")
        if not cells:
            yield Remark(question.id, f"the answer cell of the question {question.id} is missing", COPY_AGAIN)
        for _, cell in cells:
            if cell.cell_type != "markdown":
                what = f"the answer cell of the question {question.id} has become a {cell.cell_type} cell"
                yield Remark(question.id, what, "turn it back into a markdown cell")


def changes(notebook: NotebookNode, project: Project) -> Iterator[Remark]:
    """Yield the changes of the course's own cells."""
    for change in restore(notebook, project).changes:
        if not _needs_repair(change):
            yield Remark(change.cell.task, change.text)


def _needs_repair(change: CellChange) -> bool:
    return change.cell.role == SOLUTION and change.kind in REPAIRS


def empty_tasks(notebook: NotebookNode, project: Project) -> dict[str, int]:
    """Return the tasks whose solution is still the stub, with the index of its first cell."""
    empty = {}
    for task in project.tasks:
        stubs = [i for i, cell in _cells(notebook, task.id, "solution") if any(s in cell.source for s in STUB_LINES)]
        if stubs:
            empty[task.id] = stubs[0]
    return empty


def _cells(notebook: NotebookNode, task: str, role: str) -> list[tuple[int, NotebookNode]]:
    return [(i, cell) for i, cell in enumerate(notebook.cells) if label(cell) == Label(task, role)]


@dataclass(frozen=True)
class _Failure:
    index: int
    alive: bool
    remark: Remark


def _run(notebook: NotebookNode, project: Project, on_step: Callable[[CellStep], None]) -> tuple[list[_Failure], Marks]:
    """Run all cells in a clean kernel, and grade them; return those that fail, and the marks."""
    failures = []
    positions = {id(cell): i for i, cell in enumerate(notebook.cells)}

    def on_cell(cell: NotebookNode, outcome: CellOutcome) -> None:
        if outcome.error:
            first = next((line for line in cell.source.splitlines() if line.strip()), "empty cell")[:60]
            index, found = positions[id(cell)], label(cell)
            place = f"cell {index + 1}{f' of {found.task}' if found else ''} (`{first}`)"
            what = f"{place} fails in a clean kernel: {outcome.error[:300]}"
            remark = Remark(found.task if found else "", what, RUN_ALL)
            failures.append(_Failure(index, outcome.alive, remark))

    settings = RunSettings(run_check_cells=True, on_step=on_step, on_cell=on_cell)
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        return failures, grade(notebook, project, Path(folder), settings)


def _not_available(marks: Marks) -> Iterator[Remark]:
    """Yield what tasks use that does not exist where they are graded."""
    for task in marks.tasks:
        texts = (text for check in task.checks for text in (check.what, check.parts.get("got", "")))
        if text := next((text for text in texts if NOT_AVAILABLE in text), ""):
            yield Remark(task.id, f"{task.id}: {text}", "solve it with the libraries that its text names")


def _not_defined(marks: Marks, reported: Collection[str]) -> Iterator[Remark]:
    """Yield the names that checks call and that tasks do not define, such as a function that was renamed.

    Args:
        marks: Of the notebook.
        reported: The tasks whose cells are empty or fail, which leaves names undefined.
    """
    for task in marks.tasks:
        for text in dict.fromkeys(check.what for check in task.checks if NOT_DEFINED in check.what):
            if task.id not in reported:
                yield Remark(task.id, f"{task.id}: {text}", "keep the names that the task gives: the checks call them")


def _excused(failure: _Failure, empty: dict[str, int]) -> bool:
    """Whether a cell may fail because a task before it is still empty."""
    return failure.alive and any(index <= failure.index for index in empty.values())


def _open_questions(notebook: NotebookNode, project: Project) -> list[Remark]:
    return [
        Remark(question.id, f"the question {question.id} {question.title} is not answered yet")
        for question in project.questions
        for _, cell in _cells(notebook, question.id, "question")
        if ANSWER_STUB in cell.source or not cell.source.strip()
    ]
