"""`mlhood feedback`: a page for every student and project, in nbgrader's layout `STUDENT/ASSIGNMENT/`.

It shows points, every check with its hint, and the student's own cells beside them. The inputs drawn for grading stay
secret: the page contains only what the message of a check says of them, not the seed; and its code and outputs are
those of the notebook as it was submitted, not as it was run for grading, where a cell could print the arguments of an
earlier call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.paths import make_folder, portable_name
from mlhood.grading.checks.marks import Marks
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.records import Record, records, stored_notebook, stored_path
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.questions import RubricRow, synced_questions
from mlhood.grading.progress import Notify, ignore
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.outputs import PageBudget
from mlhood.grading.reports.render import render
from mlhood.grading.reports.sanitize import plain

GRADED = ("done", "refused")


@dataclass(frozen=True)
class MarkedAnswer:
    """A written question and the points that a person gave for the answer; None if nobody has yet.

    The rubric is shown with the points: before that it would list the answer.
    """

    id: str
    title: str
    bonus: float
    points: float | None = None
    comment: str = ""
    rubric: tuple[RubricRow, ...] = ()


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
    answers: tuple[MarkedAnswer, ...] = ()
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


def write_feedback(gradebook: Path, folder: Path, projects: Collection[str] = (), notify: Notify = ignore) -> str:
    """Write the pages of a class; return a message about what was written.

    Raises:
        GradingError: The gradebook does not exist, or has no results.
        OutputError: A page cannot be written.
    """
    with Gradebook(gradebook, must_exist=True) as book:
        selected = [record for record in records(book) if not projects or record.project.id in projects]
    graded = [record for record in selected if record.status in GRADED]
    if not graded:
        raise GradingError(
            "there is nothing to give feedback on",
            where=gradebook,
            got=f"nothing graded of {', '.join(projects)}" if projects else "nothing that is graded",
            todo="grade first: mlhood grade SUBMISSIONS --out DIR",
        )
    names = ", ".join(sorted({record.project.id for record in graded}))
    for done, record in enumerate(graded):
        notify(f"writing pages of {names} below {folder}", done, len(graded))
        path = folder / portable_name(record.student) / record.project.id / f"{record.project.id}.html"
        make_folder(path.parent)
        page = feedback_of(record, gradebook.parent / SUBMISSIONS_FOLDER)
        write_atomic(path, _html(page).encode("utf-8", "replace"))
    ungraded = len(selected) - len(graded)
    note = f"\nnote: {ungraded} submissions are not graded yet" if ungraded else ""
    return f"{len(graded)} pages below {folder}{note}"


def _html(feedback: Feedback) -> str:
    try:
        return feedback_page(feedback)
    except Exception:  # whatever one notebook provokes, the others of the class get their pages
        remarks = (*feedback.remarks, "Your notebook cannot be shown here; your points do not depend on that.")
        return feedback_page(replace(feedback, notebook=None, remarks=remarks))


def feedback_of(record: Record, store: Path) -> Feedback:
    """Return the content of a student's page, with the notebook in the store as it was submitted."""
    project, submission = record.project, record.submission
    tasks = tuple(
        replace(task, checks=tuple(replace(check, what=_hide_path(check.what, record, store)) for check in task.checks))
        for task in record.tasks
    )
    answers = []
    texts = synced_questions(project.id)
    for question in project.questions:
        mark = record.manual_marks.get(question.id)
        points, comment = (mark.points, mark.comment) if mark else (None, "")
        rubric = texts[question.id].rubric if mark and question.id in texts else ()
        answers.append(MarkedAnswer(question.id, question.title, question.bonus, points, comment, rubric))
    return Feedback(
        Marks(project.id, project.title, tasks, record.seconds),
        f"{submission.name} ({record.student})" if submission.name else record.student,
        stored_notebook(store, submission),
        tuple(answers),
        record.penalty,
        tuple(_remarks(record, store)),
    )


def _hide_path(text: str, record: Record, store: Path) -> str:
    """Return a reason without the path of the copy on the instructor's machine."""
    for folder in (store, store.resolve()):
        text = text.replace(str(stored_path(folder, record.submission)), "your notebook")
    return text


def _remarks(record: Record, store: Path) -> Iterator[str]:
    if record.status == "refused":
        yield f"Your notebook could not be graded: {_hide_path(record.reason, record, store)}"
    if record.late.days:
        yield f"Submitted on day {record.late.days} after the due date: {record.late.penalty:.0%} less."
    if record.late.note:
        yield f"{record.late.note.capitalize()}."
