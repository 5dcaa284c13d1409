"""`mlhood feedback`: a page for every student and project, in nbgrader's layout `STUDENT/ASSIGNMENT/`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.batch.grade_class import STORE
from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.exporters.export import make_folder
from mlhood.grading.exporters.formats import file_name
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.records import Record, records
from mlhood.grading.notebooks.notebook import write_text
from mlhood.grading.reports.feedback_page import Answer, Feedback, feedback_page
from mlhood.grading.similarity.class_similarity import handed_in

MARKED = ("done", "refused")


def feedback_to(gradebook: Path, folder: Path, projects: Collection[str] = ()) -> str:
    """Write the pages; what was written, in words.

    Args:
        gradebook: A gradebook whose submissions lie beside it.
        folder: Where to; pages of an earlier call are replaced.
        projects: Only these.

    Raises:
        GradingError: There is no such gradebook, or nothing in it to tell.
        OutputError: A page cannot be written.
    """
    with Gradebook(gradebook, must_exist=True) as book:
        found = [one for one in records(book) if not projects or one.plan.id in projects]
    told = [one for one in found if one.status in MARKED]
    if not told:
        raise GradingError(
            "there is nothing to give feedback on",
            where=gradebook,
            got=f"nothing graded of {', '.join(projects)}" if projects else "nothing that is graded",
            todo="grade first: mlhood grade SUBMISSIONS --out DIR",
        )
    store = gradebook.parent / STORE
    for one in told:
        page = folder / file_name(one.student) / one.plan.id / f"{one.plan.id}.html"
        make_folder(page.parent)
        write_text(page, _whole_page(feedback_of(one, store)))
    left = len(found) - len(told)
    return f"{len(told)} pages below {folder}" + (f"\nnote: {left} submissions are not graded yet" if left else "")


def _whole_page(feedback: Feedback) -> str:
    try:
        return feedback_page(feedback)
    except Exception:  # whatever one notebook provokes, the others of the class get their pages
        remarks = (*feedback.remarks, "Your notebook cannot be shown here; your points do not depend on that.")
        return feedback_page(replace(feedback, notebook=None, remarks=remarks))


def feedback_of(record: Record, store: Path) -> Feedback:
    """What a student's page is made of; the notebook is the one in the store, as it was handed in."""
    plan = record.plan
    marks = Marks(plan.id, plan.title, tuple(_told(task, record, store) for task in record.tasks), record.seconds)
    answers = []
    for question in plan.questions:
        mark = record.by_hand.get(question.id)
        given = (mark.points, mark.comment) if mark else (None, "")
        answers.append(Answer(question.id, question.title, question.bonus, *given))
    student = f"{record.handed.name} ({record.student})" if record.handed.name else record.student
    notebook = handed_in(store / f"{record.handed.sha256}.ipynb") if record.handed.sha256 else None
    return Feedback(marks, student, notebook, tuple(answers), record.penalty, tuple(_remarks(record, store)))


def _told(task: TaskResult, record: Record, store: Path) -> TaskResult:
    checks = (replace(check, what=_without_place(check.what, record, store)) for check in task.checks)
    return replace(task, checks=tuple(checks))


def _without_place(text: str, record: Record, store: Path) -> str:
    """A reason without the place of the copy, which is nobody's business but the instructor's."""
    for folder in (store, store.resolve()):
        text = text.replace(str(folder / f"{record.handed.sha256}.ipynb"), "your notebook")
    return text


def _remarks(record: Record, store: Path) -> Iterable[str]:
    if record.status == "refused":
        yield f"Your notebook could not be marked: {_without_place(record.reason, record, store)}"
    if record.late.days:
        days = "1 day" if record.late.days == 1 else f"{record.late.days} days"
        yield f"Handed in late: {days} begun after the due date, {record.late.share:.0%} less."
