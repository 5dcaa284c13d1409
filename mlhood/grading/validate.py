"""What a student runs before handing in: is the notebook whole, and does it run from a clean kernel?

Points are no matter here. A task that is still empty may be handed in; it is only named.
"""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.grade import CELL_SECONDS, Step
from mlhood.grading.kernel import Kernel
from mlhood.grading.notebook import cell_name, expected_cells, label, label_in, missing_cells, project_of, read
from mlhood.grading.task import Project

EMPTY_SIGNS = ("# YOUR CODE HERE", "raise NotImplementedError")
EMPTY_ANSWER = "YOUR ANSWER HERE"
CELL_TYPES = {"solution": "code", "check": "code", "given": None, "question": "markdown"}
BACK = "copy it again from the notebook of the course"


@dataclass(frozen=True)
class Finding:
    """Something about the notebook, and what the student can do about it."""

    task: str
    what: str
    todo: str = ""

    def text(self) -> str:
        """One or two lines."""
        return self.what + (f"\n     what to do: {self.todo}" if self.todo else "")


@dataclass(frozen=True)
class Validation:
    """What must be repaired before handing in, and what is only to be known."""

    notebook: str
    title: str
    repairs: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        """Whether the notebook can be handed in as it is."""
        return not self.repairs

    def as_dict(self) -> dict:
        """As plain data."""
        return asdict(self) | {"ready": self.ready}

    def text(self) -> str:
        """A numbered list of what to repair, what is still open, and the verdict."""
        lines = [f"{self.notebook}: {self.title}"]
        lines += [f"  {i}. {finding.text()}" for i, finding in enumerate(self.repairs, start=1)]
        if self.notes:
            lines.append("still open; you may hand in all the same:")
            lines += [f"  - {finding.text()}" for finding in self.notes]
        count = len(self.repairs)
        things = "the thing" if count == 1 else f"the {count} things"
        ready = "ready to hand in" + (", though not everything is done" if self.notes else "")
        lines.append(ready if self.ready else f"not ready to hand in: repair {things} numbered above")
        return "\n".join(lines)


def validate(path: str | Path, *, on_step: Callable[[Step], None] = lambda step: None) -> Validation:
    """Look a notebook over and run it once from a clean kernel, in a folder of its own.

    Raises:
        NotebookError: The file is no notebook of the course.
        GradingError: No kernel can be started.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    empty = empty_tasks(notebook, project)
    failures = list(_failures(notebook, project, on_step))
    repairs = [
        *structure(notebook, project),
        *(_as_repair(failure) for failure in failures if not _excused(failure, empty)),
    ]
    notes = [*_open_tasks(project, empty), *_open_questions(notebook, project)]
    notes += [
        _as_note(failure, empty) for failure in failures if _excused(failure, empty) and failure.task not in empty
    ]
    return Validation(Path(path).name, project.title, tuple(repairs), tuple(notes))


def structure(notebook: NotebookNode, project: Project) -> Iterator[Finding]:
    """Cells that are missing, doubled, of another kind, or edited though they are not the student's."""
    missing = missing_cells(notebook, project)
    for task, roles in missing.items():
        for role in roles:
            yield Finding(task, f"the {role} cell of {task} is missing", BACK)
    there = {cell_name(cell) for cell in notebook.cells}
    for name in expected_cells(notebook):
        known = label_in(name)
        if known and known.role != "question" and name not in there and known.role not in missing.get(known.task, []):
            yield Finding(known.task, f"the {known.role} cell `{name}` of {known.task} is missing", BACK)
    for question in project.questions:
        if not _cells(notebook, question.id, "question"):
            yield Finding(question.id, f"the answer cell of the question {question.id} is missing", BACK)
    yield from _doubled(notebook)
    for cell in notebook.cells:
        yield from _changed(cell, project)


def empty_tasks(notebook: NotebookNode, project: Project) -> dict[str, int]:
    """The tasks whose solution is still the stub of the student edition, and where the stub stands."""
    empty = {}
    for task in project.tasks:
        stubs = [i for i, cell in _cells(notebook, task.id, "solution") if any(s in cell.source for s in EMPTY_SIGNS)]
        if stubs:
            empty[task.id] = stubs[0]
    return empty


def _cells(notebook: NotebookNode, task: str, role: str) -> list[tuple[int, NotebookNode]]:
    found = [(i, cell, label(cell)) for i, cell in enumerate(notebook.cells)]
    return [(i, cell) for i, cell, known in found if known and (known.task, known.role) == (task, role)]


def _doubled(notebook: NotebookNode) -> Iterator[Finding]:
    known = [(cell, found) for cell in notebook.cells if (found := label(cell)) and found.role in CELL_TYPES]
    names = Counter(cell_name(cell) for cell, _ in known)
    for cell, found in known:
        if names.pop(cell_name(cell), 1) > 1:
            yield Finding(
                found.task,
                f"the {found.role} cell of {found.task} stands there more than once",
                "delete the copies and keep one",
            )


def _changed(cell: NotebookNode, project: Project) -> Iterator[Finding]:
    known = label(cell)
    if known is None:
        return
    kind = CELL_TYPES.get(known.role)
    if kind and cell.cell_type != kind:
        yield Finding(
            known.task,
            f"the {known.role} cell of {known.task} has become a {cell.cell_type} cell",
            f"turn it back into a {kind} cell",
        )
    elif known.role == "check" and project.task(known.task) and cell.source.strip() != check_source(known.task):
        yield Finding(
            known.task,
            f"the check cell of {known.task} has been edited",
            f"let it be just this: {check_source(known.task)}",
        )


def check_source(task: str) -> str:
    """What the check cell of a task holds."""
    return f'mlhood.check("{task}")'


@dataclass(frozen=True)
class _Failure:
    index: int
    task: str
    source: str
    error: str
    alive: bool


def _failures(notebook: NotebookNode, project: Project, on_step: Callable[[Step], None]) -> Iterator[_Failure]:
    """Run all cells in a clean kernel; yield those that fail."""
    code = [(i, copy.deepcopy(cell)) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    with (
        tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder,
        Kernel(Path(folder)) as kernel,
    ):
        for done, (index, cell) in enumerate(code):
            first = next((line for line in cell.source.splitlines() if line.strip()), "empty cell")[:60]
            on_step(Step(done, len(code), first))
            known = label(cell)
            task = project.task(known.task) if known else None
            outcome = kernel.run(cell, task.seconds if task else CELL_SECONDS)
            if outcome.error:
                yield _Failure(index, known.task if known else "", first, outcome.error, outcome.alive)


def _excused(failure: _Failure, empty: dict[str, int]) -> bool:
    """Whether a cell may fail because a task up to it is still empty."""
    return failure.alive and any(index <= failure.index for index in empty.values())


def _where(failure: _Failure) -> str:
    task = f" of {failure.task}" if failure.task else ""
    return f"cell {failure.index + 1}{task} (`{failure.source}`) fails in a clean kernel: {failure.error[:300]}"


def _as_repair(failure: _Failure) -> Finding:
    todo = "restart the kernel, run all cells from the top, and repair this one"
    return Finding(failure.task, _where(failure), todo)


def _as_note(failure: _Failure, empty: dict[str, int]) -> Finding:
    before = ", ".join(task for task, index in empty.items() if index <= failure.index)
    return Finding(failure.task, f"{_where(failure)} (perhaps because {before} is still empty)")


def _open_tasks(project: Project, empty: dict[str, int]) -> list[Finding]:
    return [
        Finding(task.id, f"{task.id} {task.title} is still empty ({task.points:g} points)")
        for task in project.tasks
        if task.id in empty
    ]


def _open_questions(notebook: NotebookNode, project: Project) -> list[Finding]:
    return [
        Finding(question.id, f"the question {question.id} {question.title} is not answered yet")
        for question in project.questions
        for _, cell in _cells(notebook, question.id, "question")
        if EMPTY_ANSWER in cell.source or not cell.source.strip()
    ]
