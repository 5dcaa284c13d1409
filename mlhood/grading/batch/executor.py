"""The interface between a batch and what runs its jobs: processes on this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mlhood.errors import GradingError
from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.checks.submission import Reached
from mlhood.grading.gradebook.gradebook import identification_job
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.intake.collect import SubmittedFile

START_SECONDS = 300.0
TICK_SECONDS = 0.25
TIMED_OUT = "it exceeded the time limit and was stopped"


@dataclass(frozen=True)
class Job:
    """A submission whose project is to be found, or which is to be graded.

    Args:
        kind: `identify`, `grade`, or `regrade`: grade once more, as measurements left checks undecided.
        submission: With a path.
        seconds: Time limit.
        key: Of the grading.
        timed: Whether its project measures time.
    """

    kind: Literal["identify", "grade", "regrade"]
    submission: SubmittedFile
    seconds: float
    key: str = ""
    timed: bool = False

    @property
    def name(self) -> str:
        """The name under which the gradebook counts attempts."""
        if self.kind == "identify":
            return identification_job(self.submission.sha256)
        return self.key if self.kind == "grade" else f"{self.kind}:{self.key}"


@dataclass(frozen=True)
class Started:
    """A worker is about to begin a job."""

    job: Job


@dataclass(frozen=True)
class TaskFinished:
    """A task of a job is graded. The same result may be reported again at the end of the job."""

    job: Job
    result: TaskResult


@dataclass(frozen=True)
class Finished:
    """A job has ended: `identified` (project, version), `done`, or `refused` (the notebook is at fault)."""

    job: Job
    outcome: str
    project: str = ""
    reason: str = ""
    seconds: float = 0.0
    version: str = ""


@dataclass(frozen=True)
class Lost:
    """A job has failed through no fault of the notebook, as far as is known: its worker died, or ran out of time."""

    job: Job
    reason: str


Event = Started | TaskFinished | Finished | Lost


@dataclass(frozen=True)
class CourseDescription:
    """The projects of the course and the environment of the workers, as the workers describe them."""

    projects: tuple[ProjectSpec, ...]
    environment: str

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> CourseDescription:
        """Read the description that a worker sends when it is ready."""
        return cls(tuple(map(ProjectSpec.from_dict, facts["projects"])), facts["environment"])


class JobExecutor(Protocol):
    """Runs jobs, several at once."""

    def start(self) -> CourseDescription:
        """Start the workers, or connect to them.

        Raises:
            GradingError: No worker can be started.
        """
        ...

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue jobs."""
        ...

    def poll(self) -> Iterator[Event]:
        """Start queued jobs while there is capacity, wait a moment, and yield what has happened.

        Raises:
            GradingError: The workers are gone, and no other can be started.
        """
        ...

    def close(self) -> None:
        """Stop everything that was started."""
        ...


def read_task_result(data: dict[str, Any]) -> TaskResult:
    """Return the result that a worker has sent as plain data."""
    checks = tuple(CheckResult(**check) for check in data["checks"])
    reached = Reached(**data["reached"]) if data.get("reached") else None
    return TaskResult(data["id"], data["title"], checks, tuple(data["notes"]), reached=reached)


def read_finished(job: Job, facts: dict[str, Any]) -> Finished:
    """Return how a job has ended from a worker's last message about it."""
    project, reason, seconds = facts.get("project", ""), facts.get("reason", ""), facts.get("seconds", 0.0)
    return Finished(job, facts["kind"], project, reason, seconds, facts.get("version", ""))


def no_worker(reason: str) -> GradingError:
    """Return the error for workers that do not start."""
    return GradingError(
        "no worker can be started",
        expected="a Python process that loads the course",
        got=reason,
        todo="run `mlhood doctor`, and grade again; finished results are kept",
    )
