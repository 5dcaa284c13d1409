"""The page that a student gets back: points, every check with its hint, and the student's own cells beside them.

The inputs drawn for grading stay secret: the page contains only what the message of a check says of them, not the
seed; and its code and outputs are those of the notebook as it was submitted, not as it was run for grading, where a
cell could print the arguments of an earlier call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

from nbformat import NotebookNode

from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.reports.highlight import highlight_python
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.outputs import PAGE_FULL, Fragment, Fragments, PageBudget, cell_outputs
from mlhood.grading.reports.render import render
from mlhood.grading.reports.sanitize import plain

MAX_CELLS = 24  # of a task
MAX_ANSWERS = 4  # cells of a question
SHOWN_ROLES = ("given", "result")


@dataclass(frozen=True)
class Answer:
    """A written question and the points that a person gave for the answer; None if nobody has yet."""

    id: str
    title: str
    bonus: float
    points: float | None = None
    comment: str = ""


@dataclass(frozen=True)
class Feedback:
    """The content of a page.

    Args:
        marks: Of the submission.
        student: Who gets it.
        notebook: As it was submitted; None if it could not be read.
        answers: Written questions.
        penalty: Points lost for late submission.
        remarks: Sentences at the top, such as how late it was, or why it could not be graded.
    """

    marks: Marks
    student: str = ""
    notebook: NotebookNode | None = None
    answers: tuple[Answer, ...] = ()
    penalty: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def bonus(self) -> float:
        """Points given by hand."""
        return sum(answer.points or 0.0 for answer in self.answers)

    @property
    def score(self) -> float:
        """Points that count."""
        return self.marks.earned + self.bonus - self.penalty


@dataclass(frozen=True)
class CellView:
    """What the page shows of a cell: a label, its code if it is the student's own, and its outputs."""

    label: str
    code: Fragments
    outputs: Sequence[Fragments]


@dataclass(frozen=True)
class TaskView:
    """What the page shows of a task: its result, cells, and how many more cells it has."""

    result: TaskResult
    cells: Sequence[CellView]
    hidden: int


@dataclass(frozen=True)
class AnswerView:
    """What the page shows of a written question: the points, and the student's text."""

    answer: Answer
    text: Fragments


# role and cell
RoleCells = list[tuple[str, Any]]


def feedback_page(feedback: Feedback) -> str:
    """Return the page: one file that requests nothing and runs nothing."""
    marks, budget = feedback.marks, PageBudget()
    cells = _cells_by_task(feedback.notebook)
    points = f"{format_points(round(feedback.score, 2))} of {format_points(marks.points)} points"
    return render(
        "feedback.html.j2",
        title=plain(f"{marks.project} {marks.title}: {points}", 300),
        feedback=feedback,
        marks=marks,
        tasks=[_task_view(task, cells.get(task.id, []), budget) for task in marks.tasks],
        answers=[_answer_view(answer, cells.get(answer.id, []), budget) for answer in feedback.answers],
    )


def _cells_by_task(notebook: NotebookNode | None) -> dict[str, RoleCells]:
    cells: dict[str, RoleCells] = {}
    for cell in notebook.cells if notebook else []:
        if cell_label := label(cell):
            cells.setdefault(cell_label.task, []).append((cell_label.role, cell))
    return cells


def _task_view(task: TaskResult, cells: RoleCells, budget: PageBudget) -> TaskView:
    code = [(role, cell) for role, cell in cells if cell.get("cell_type") == "code"]
    # cells before the first solution explain the task: their outputs say nothing about the student's work
    code = list(dropwhile(lambda pair: pair[0] != "solution", code))
    views = [_cell_view(role, cell, budget) for role, cell in code[:MAX_CELLS]]
    return TaskView(task, [view for view in views if view], max(len(code) - MAX_CELLS, 0))


def _cell_view(role: str, cell: Any, budget: PageBudget) -> CellView | None:
    """Return the student's own cell with its outputs, the outputs of a cell around it, or nothing."""
    if role == "solution":
        outputs = cell_outputs(cell, budget)
        if not budget.remaining:
            return CellView("Your cell, as submitted", [PAGE_FULL], outputs)
        code = budget.admit([Fragment("code", highlight_python(cell.get("source", "")))])
        return CellView("Your cell, as submitted", code, outputs)
    if role in SHOWN_ROLES and (outputs := cell_outputs(cell, budget)):
        return CellView("Output of a cell of this task, as submitted", [], outputs)
    return None


def _answer_view(answer: Answer, cells: RoleCells, budget: PageBudget) -> AnswerView:
    texts = [cell.get("source", "") for role, cell in cells if role == "question"]
    fragments = [fragment for text in texts[:MAX_ANSWERS] for fragment in budget.admit([Fragment("code", plain(text))])]
    return AnswerView(answer, fragments)
