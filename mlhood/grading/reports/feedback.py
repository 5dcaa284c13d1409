"""`mlhood feedback`: a page for every student and project, in nbgrader's layout `STUDENT/ASSIGNMENT/`.

It shows points, every check with its hint, and the student's own cells beside them. The inputs drawn for grading stay
secret: the page contains only what the message of a check says of them, not the seed; and its code and outputs are
those of the notebook as it was submitted, not as it was run for grading, where a cell could print the arguments of an
earlier call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.paths import make_folder, portable_name
from mlhood.grading.gradebook.gradebook import SUBMISSIONS_FOLDER, Gradebook
from mlhood.grading.gradebook.records import Record, records, stored_notebook, stored_path
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.questions import synced_questions
from mlhood.grading.progress import Notify, ignore
from mlhood.grading.reports.marks_text import format_points
from mlhood.grading.reports.outputs import PageBudget
from mlhood.grading.reports.render import render
from mlhood.grading.reports.sanitize import plain

GRADED = ("done", "refused")


# role and cell
RoleCells = list[tuple[str, NotebookNode]]


def feedback_page(record: Record, notebook: NotebookNode | None, remarks: Sequence[str] = ()) -> str:
    """Return a student's page: one file that requests nothing and runs nothing.

    Args:
        record: The result. The rubric of a question is shown with its points only, as it would list the answer.
        notebook: As it was submitted; None if it cannot be shown.
        remarks: Sentences at the top.
    """
    project, submission, cells = record.project, record.submission, _cells_by_task(notebook)
    points = f"{format_points(round(record.score, 2))} of {format_points(record.possible)} points"
    return render(
        "feedback.html.j2",
        title=plain(f"{project.id} {project.title}: {points}", 300),
        student=f"{submission.name} ({record.student})" if submission.name else record.student,
        record=record,
        remarks=[*_remarks(record), *remarks],
        texts=synced_questions(project.id),
        cells=cells,
        work={task.id: _work(cells[task.id]) for task in record.tasks},
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
        write_atomic(path, student_page(record, gradebook.parent / SUBMISSIONS_FOLDER).encode("utf-8", "replace"))
    ungraded = len(selected) - len(graded)
    note = f"\nnote: {ungraded} submissions are not graded yet" if ungraded else ""
    return f"{len(graded)} pages below {folder}{note}"


def student_page(record: Record, store: Path) -> str:
    """Return the page of a student whose notebook is in the store."""
    notebook, shown = stored_notebook(store, record.submission), _without_path(record, store)
    try:
        return feedback_page(shown, notebook)
    except Exception:  # whatever one notebook provokes, the others of the class get their pages
        return feedback_page(shown, None, ["Your notebook cannot be shown here; your points do not depend on that."])


def _without_path(record: Record, store: Path) -> Record:
    """Return a record whose reasons do not have the path of the copy on the instructor's machine."""
    paths = [str(stored_path(folder, record.submission)) for folder in (store, store.resolve())]

    def hidden(text: str) -> str:
        return text.replace(paths[0], "your notebook").replace(paths[1], "your notebook")

    tasks = tuple(
        replace(task, checks=tuple(replace(check, what=hidden(check.what)) for check in task.checks))
        for task in record.tasks
    )
    return replace(record, tasks=tasks, reason=hidden(record.reason))


def _remarks(record: Record) -> Iterator[str]:
    if record.status == "refused":
        yield f"Your notebook could not be graded: {record.reason}"
    if record.late.days:
        yield f"Submitted on day {record.late.days} after the due date: {record.late.penalty:.0%} less."
    if record.late.note:
        yield f"{record.late.note.capitalize()}."
