"""What exports and reports tell: for every student and project the one result that counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.course_plan import Plan, PlannedTask
from mlhood.grading.gradebook.gradebook import Entry, Gradebook, Grading, HandMark
from mlhood.grading.gradebook.late import Late, Lateness, read_late
from mlhood.grading.intake.submitted_file import Handed

LATE = "late"
FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Record:
    """One student's result in one project.

    Args:
        status: `done`, `refused` (the notebook is at fault), `failed` (we are) or `open` (not graded yet).
        tasks: A result for every task of the project; a task that was never judged has failed for `reason`.
        due: The due date of everybody; an extension is in `late`.
    """

    handed: Handed
    plan: Plan
    status: str
    reason: str
    tasks: tuple[TaskResult, ...]
    late: Lateness
    by_hand: dict[str, HandMark] = field(default_factory=dict)
    seconds: float = 0.0
    due: datetime | None = None

    @property
    def student(self) -> str:
        """The student's id."""
        return self.handed.student

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
        return sum(mark.points for mark in self.by_hand.values())

    @property
    def penalty(self) -> float:
        """Points lost for being late."""
        return (self.earned + self.bonus) * self.late.share

    @property
    def score(self) -> float:
        """Points that count."""
        return self.earned + self.bonus - self.penalty


def stored_late(gradebook: Gradebook) -> Late:
    """The rules for late submissions that the gradebook keeps; none if there are none."""
    text = gradebook.fact(LATE)
    return read_late(text, gradebook.path) if text else Late()


def records(gradebook: Gradebook, late: Late | None = None) -> list[Record]:
    """The results that count, by project and student.

    Args:
        gradebook: Where they are.
        late: Rules for late submissions; by default those that the gradebook keeps.
    """
    rules = stored_late(gradebook) if late is None else late
    plans, by_hand = gradebook.plans(), gradebook.hand_marks()
    chosen: dict[tuple[str, str], Entry] = {}
    for entry in gradebook.handed():
        project = entry.project or entry.handed.assignment.upper()
        if project in plans:
            place = project, entry.handed.student
            chosen[place] = max(chosen.get(place, entry), entry, key=_preference)
    return [_record(gradebook, entry, plans[place[0]], rules, by_hand) for place, entry in sorted(chosen.items())]


def strays(gradebook: Gradebook) -> list[Handed]:
    """What was handed in and belongs to no project, with the reason."""
    plans = gradebook.plans()
    entries = gradebook.handed()
    return [entry.handed for entry in entries if (entry.project or entry.handed.assignment.upper()) not in plans]


def _preference(entry: Entry) -> tuple[bool, datetime]:
    return entry.key is not None, entry.handed.submitted or FIRST


def _record(
    gradebook: Gradebook, entry: Entry, plan: Plan, rules: Late, by_hand: dict[tuple[str, str], HandMark]
) -> Record:
    grading = gradebook.grading(entry.key) if entry.key else None
    if grading is None:
        problem = entry.handed.problem
        grading = Grading("refused" if problem else "open", problem or "it is not graded yet", ())
    student = entry.handed.student
    return Record(
        entry.handed,
        plan,
        grading.state,
        grading.reason,
        tuple(_whole(plan.tasks, grading)),
        rules.of(plan.id).lateness(student, entry.handed.submitted),
        {one.id: mark for one in plan.questions if (mark := by_hand.get((student, one.id)))},
        grading.seconds,
        rules.of(plan.id).due,
    )


def _whole(tasks: Iterable[PlannedTask], grading: Grading) -> Iterable[TaskResult]:
    judged = {task.id: task for task in grading.tasks}
    for task in tasks:
        reason = grading.reason or "it was not judged"
        lost = tuple(CheckResult(name, title, points, "failed", reason) for name, title, points in task.checks)
        yield judged.get(task.id) or TaskResult(task.id, task.title, lost)
