"""The result that counts for every student and project, and its notebook: what exporters and reports read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.errors import NotebookError
from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.gradebook.gradebook import Gradebook, Grading, MarkedItem, SubmissionEntry
from mlhood.grading.gradebook.late import Deadline, Lateness, parse_late_policy
from mlhood.grading.gradebook.project_spec import ProjectSpec, TaskSpec
from mlhood.grading.gradebook.roster import Roster, Student
from mlhood.grading.intake.collect import SubmittedFile

if TYPE_CHECKING:
    from nbformat import NotebookNode

LATE_POLICY, ROSTER = "late", "roster"  # names of the gradebook's metadata
MISSING = "missing"
MISSING_REASON = "nothing was submitted"
FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    """One student's result in one project.

    Args:
        status: `done`, `refused` (the notebook is at fault), `failed` (we are), `open` (not graded yet) or `missing` (a
            student of the roster has submitted nothing).
        reason: Why it is not `done`, or why the marks of an earlier grading count; else empty.
        tasks: A result for every task of the project; a task that was never graded has failed for `reason`.
        manual_marks: Points given by hand for written questions, by question.
        seconds: Time that the grading took.
        due: The due date of all students; `late` takes extensions into account.
        email: As in the roster.
    """

    submission: SubmittedFile
    project: ProjectSpec
    status: str
    reason: str
    tasks: tuple[TaskResult, ...]
    late: Lateness
    manual_marks: dict[str, ManualMark] = field(default_factory=dict)
    seconds: float = 0.0
    due: datetime | None = None
    email: str = ""

    @property
    def undecided(self) -> tuple[TaskResult, ...]:
        """The tasks with checks on which the instructor has to decide: the score is not final."""
        return tuple(task for task in self.tasks if task.undecided)

    @property
    def student(self) -> str:
        """The student's id."""
        return self.submission.student

    @property
    def earned(self) -> float:
        """Points of the checks that passed, and those that the instructor has decided on in place of them."""
        return sum(task.earned for task in self.tasks)

    @property
    def possible(self) -> float:
        """Points that could be earned on the machine that graded."""
        return sum(task.points for task in self.tasks)

    @property
    def bonus(self) -> float:
        """Points given by hand for written questions."""
        return sum(mark.points for mark in self.manual_marks.values())

    @property
    def penalty(self) -> float:
        """Points lost for late submission."""
        return (self.earned + self.bonus) * self.late.penalty

    @property
    def score(self) -> float:
        """Points that count."""
        return self.earned + self.bonus - self.penalty


def records(gradebook: Gradebook, policy: Mapping[str, Deadline] | None = None) -> list[Record]:
    """Return the results that count, by project and student; late submissions by the stored policy if none is given."""
    if policy is None:
        text = gradebook.metadata(LATE_POLICY)
        policy = parse_late_policy(text, gradebook.path) if text else {}
    projects = gradebook.projects()
    chosen: dict[tuple[str, str], SubmissionEntry] = {}
    for entry in gradebook.entries():
        project = _project_of(entry)
        if project in projects:
            key = project, entry.submission.student
            candidates = chosen.get(key, entry), entry
            chosen[key] = max(candidates, key=lambda e: (e.key is not None, e.submission.submitted or FIRST))
    marks = gradebook.manual_marks()
    submitted = [
        _marked(_record(gradebook, entry, projects[project], policy.get(project, Deadline())), marks)
        for (project, _), entry in sorted(chosen.items())
    ]
    return sorted(_with_roster(submitted, roster_of(gradebook)), key=lambda record: (record.project.id, record.student))


def roster_of(gradebook: Gradebook) -> Roster:
    """Return the roster of a gradebook; an empty one if it has none."""
    text = gradebook.metadata(ROSTER)
    return Roster.from_text(text) if text else Roster()


def _with_roster(submitted: list[Record], roster: Roster) -> Iterator[Record]:
    """Yield the records with names and addresses of the roster, and one for everybody who submitted nothing.

    A project in which nobody submitted anything is not due yet.
    """
    present: set[tuple[str, Student]] = set()
    for record in submitted:
        student = roster.find(record.student, record.submission.name)
        if student is None:
            yield record
            continue
        present.add((record.project.id, student))
        submission = replace(record.submission, name=record.submission.name or student.name)
        yield replace(record, submission=submission, email=student.email)
    dues = {record.project.id: (record.project, record.due) for record in submitted}
    for project, due in dues.values():
        for student in roster.students:
            if (project.id, student) not in present:
                yield _missing(student, project, due)


def _missing(student: Student, project: ProjectSpec, due: datetime | None) -> Record:
    submission = SubmittedFile(student.student, student.name, project.id, problem=MISSING_REASON)
    tasks = tuple(_all_tasks(project.tasks, Grading(MISSING, MISSING_REASON, ())))
    return Record(submission, project, MISSING, MISSING_REASON, tasks, Lateness(due), due=due, email=student.email)


def unassigned(gradebook: Gradebook) -> list[SubmittedFile]:
    """Return the submissions that belong to no project, each with the reason."""
    projects = gradebook.projects()
    return [entry.submission for entry in gradebook.entries() if _project_of(entry) not in projects]


def _project_of(entry: SubmissionEntry) -> str:
    return entry.project or entry.submission.assignment.upper()


def _record(gradebook: Gradebook, entry: SubmissionEntry, project: ProjectSpec, deadline: Deadline) -> Record:
    submission = entry.submission
    grading = gradebook.grading(entry.key) if entry.key else None
    if grading is None:
        state = "refused" if submission.problem else "open"
        grading = Grading(state, submission.problem or "it is not graded yet", ())
    return Record(
        submission,
        project,
        grading.state,
        grading.reason or submission.problem,
        tuple(_all_tasks(project.tasks, grading)),
        deadline.lateness(submission.student, submission.submitted, submission.late),
        seconds=grading.seconds,
        due=deadline.due,
    )


def _marked(record: Record, marks: Mapping[MarkedItem, ManualMark]) -> Record:
    """Return a record with its points by hand; those for a task of another file do not count."""
    student, sha256 = record.student, record.submission.sha256
    questions = {each.id: marks.get(MarkedItem(student, each.id)) for each in record.project.questions}
    return replace(
        record,
        tasks=tuple(replace(task, decision=marks.get(MarkedItem(student, task.id, sha256))) for task in record.tasks),
        manual_marks={question: mark for question, mark in questions.items() if mark},
    )


def _all_tasks(tasks: tuple[TaskSpec, ...], grading: Grading) -> Iterator[TaskResult]:
    """Yield the result of every task; a task without one has failed."""
    results = {task.id: task for task in grading.tasks}
    reason = grading.reason or "it was not graded"
    for task in tasks:
        failed = tuple(CheckResult(check.name, check.title, check.points, "failed", reason) for check in task.checks)
        yield results.get(task.id) or TaskResult(task.id, task.title, failed)


def stored_path(store: Path, submission: SubmittedFile) -> Path:
    """Return the path of a submission's copy in the store beside a gradebook: it is named after its content's hash."""
    return store / f"{submission.sha256}.ipynb"


def stored_notebook(store: Path, submission: SubmittedFile) -> NotebookNode | None:
    """Return a submitted notebook, or None if there is none that can be read."""
    from mlhood.grading.notebooks.notebook import read  # loads the course

    if not submission.sha256:
        return None
    try:
        return read(stored_path(store, submission))
    except NotebookError:
        return None
