"""The result that counts for every student and project: what exporters and reports read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.gradebook import Entry, Gradebook, Grading, ManualMark
from mlhood.grading.gradebook.late import Lateness, LatePolicy, parse_late_policy
from mlhood.grading.gradebook.project_spec import ProjectSpec, TaskSpec
from mlhood.grading.intake.collect import SubmittedFile

LATE_POLICY = "late"  # name of the gradebook's metadata
FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    """One student's result in one project.

    Args:
        status: `done`, `refused` (the notebook is at fault), `failed` (we are) or `open` (not graded yet).
        reason: Why it is not `done`, or why the marks of an earlier grading count; else empty.
        tasks: A result for every task of the project; a task that was never graded has failed for `reason`.
        manual_marks: Points given by hand, by question.
        seconds: Time that the grading took.
        due: The due date of all students; `late` takes extensions into account.
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

    @property
    def student(self) -> str:
        """The student's id."""
        return self.submission.student

    @property
    def earned(self) -> float:
        """Points of the checks that passed."""
        return sum(task.earned for task in self.tasks)

    @property
    def possible(self) -> float:
        """Points that could be earned on the machine that graded."""
        return sum(task.points for task in self.tasks)

    @property
    def bonus(self) -> float:
        """Points given by hand."""
        return sum(mark.points for mark in self.manual_marks.values())

    @property
    def penalty(self) -> float:
        """Points lost for late submission."""
        return (self.earned + self.bonus) * self.late.penalty

    @property
    def score(self) -> float:
        """Points that count."""
        return self.earned + self.bonus - self.penalty


def records(gradebook: Gradebook, policy: LatePolicy | None = None) -> list[Record]:
    """Return the results that count, by project and student; late submissions by the stored policy if none is given."""
    if policy is None:
        text = gradebook.metadata(LATE_POLICY)
        policy = parse_late_policy(text, gradebook.path) if text else LatePolicy()
    projects = gradebook.projects()
    chosen: dict[tuple[str, str], Entry] = {}
    for entry in gradebook.entries():
        project = _project_of(entry)
        if project in projects:
            key = project, entry.submission.student
            candidates = chosen.get(key, entry), entry
            chosen[key] = max(candidates, key=lambda e: (e.key is not None, e.submission.submitted or FIRST))
    marks: dict[str, dict[str, ManualMark]] = {}
    for (student, question), mark in gradebook.manual_marks().items():
        marks.setdefault(student, {})[question] = mark
    return [
        _record(gradebook, entry, projects[project], policy, marks.get(student, {}))
        for (project, student), entry in sorted(chosen.items())
    ]


def unassigned(gradebook: Gradebook) -> list[SubmittedFile]:
    """Return the submissions that belong to no project, each with the reason."""
    projects = gradebook.projects()
    return [entry.submission for entry in gradebook.entries() if _project_of(entry) not in projects]


def _project_of(entry: Entry) -> str:
    return entry.project or entry.submission.assignment.upper()


def _record(
    gradebook: Gradebook, entry: Entry, project: ProjectSpec, policy: LatePolicy, marks: dict[str, ManualMark]
) -> Record:
    submission, deadline = entry.submission, policy.of(project.id)
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
        {question.id: marks[question.id] for question in project.questions if question.id in marks},
        grading.seconds,
        deadline.due,
    )


def _all_tasks(tasks: tuple[TaskSpec, ...], grading: Grading) -> Iterator[TaskResult]:
    """Yield the result of every task; a task without one has failed."""
    results = {task.id: task for task in grading.tasks}
    reason = grading.reason or "it was not graded"
    for task in tasks:
        failed = tuple(CheckResult(check.name, check.title, check.points, "failed", reason) for check in task.checks)
        yield results.get(task.id) or TaskResult(task.id, task.title, failed)
