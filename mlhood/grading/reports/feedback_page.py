"""The page that a student gets back: points, every check with its hint, and the student's own cells beside them.

The inputs drawn for grading stay secret: the page contains only what the message of a check says of them, not the
seed; and its code and outputs are those of the notebook as it was submitted, not as it was run for grading, where a
cell could print the arguments of an earlier call.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import dropwhile

from nbformat import NotebookNode

from mlhood.grading.checks.marks import Marks
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.outputs import PageBudget
from mlhood.grading.reports.render import render
from mlhood.grading.reports.sanitize import plain


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


# role and cell
RoleCells = list[tuple[str, NotebookNode]]


def feedback_page(feedback: Feedback) -> str:
    """Return the page: one file that requests nothing and runs nothing."""
    marks, cells = feedback.marks, _cells_by_task(feedback.notebook)
    points = f"{format_points(round(feedback.score, 2))} of {format_points(marks.points)} points"
    return render(
        "feedback.html.j2",
        title=plain(f"{marks.project} {marks.title}: {points}", 300),
        feedback=feedback,
        marks=marks,
        cells=cells,
        work={task.id: _work(cells[task.id]) for task in marks.tasks},
        budget=PageBudget(),
    )


def _cells_by_task(notebook: NotebookNode | None) -> dict[str, RoleCells]:
    """Return role and cell of all cells of the course, by task or question."""
    cells = defaultdict(list)
    for cell in notebook.cells if notebook else []:
        if cell_label := label(cell):
            cells[cell_label.task].append((cell_label.role, cell))
    return cells


def _work(cells: RoleCells) -> RoleCells:
    """Return the code cells from the first solution on: the ones before it only explain the task."""
    code = [(role, cell) for role, cell in cells if cell.get("cell_type") == "code"]
    return list(dropwhile(lambda pair: pair[0] != "solution", code))
