"""Grade a class: workers side by side, every result in the gradebook as soon as it is there.

What is in the gradebook already, under the same submission, checks and environment, is not graded again.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mlhood.errors import GradingError
from mlhood.grading.batch.result_keys import digest_of, result_key
from mlhood.grading.batch.worker_process import GONE, Heard, Job, Worker
from mlhood.grading.checks.marks import CheckResult, TaskResult
from mlhood.grading.gradebook.course_plan import Plan, read_plan
from mlhood.grading.gradebook.gradebook import Entry, Gradebook
from mlhood.grading.intake.submitted_file import Handed

MARKER = "mlhood.grading.batch.grader:course_marker"
TRUSTING = "mlhood.grading.batch.grader:trusting_marker"  # without a sandbox
MAX_ATTEMPTS = 2
MAX_BARREN = 3  # workers in a row that have not even come to their first job
LOOK_SECONDS = 120.0
START_SECONDS = 300.0
TICK_SECONDS = 0.25


@dataclass(frozen=True)
class Options:
    """How to grade.

    Args:
        jobs: How many workers to run side by side.
        seed: Inputs of the checks are drawn from it.
        seconds: Time limit for one submission; waiting for a turn to measure does not count.
        marker: `module:function` that makes a worker's marker (see `marker.Marker`).
    """

    jobs: int
    seed: int
    seconds: float = 3600.0
    marker: str = MARKER


class Watch(Protocol):
    """Is told how a batch goes."""

    def begin(self, count: int, known: int) -> None:
        """So many notebooks are to be graded; so many more are graded already."""
        ...

    def graded(self, handed: Handed, state: str, reason: str) -> None:
        """The grading of a notebook has ended: `done`, `refused` or `failed`."""
        ...

    def lost(self, handed: Handed, reason: str) -> None:
        """A worker has been lost over a notebook, and is replaced."""
        ...


class Batch:
    """Grades what was handed in. Call `run` once."""

    def __init__(self, gradebook: Gradebook, options: Options, watch: Watch) -> None:
        self.gradebook = gradebook
        self.options = options
        self.watch = watch
        self.plans: dict[str, Plan] = {}
        self.course = ""
        self.environment = ""
        self._heard: queue.Queue[Heard] = queue.Queue()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._jobs: deque[Job] = deque()
        self._barren = 0

    def run(self, handed: Iterable[Handed]) -> None:
        """Grade what is new. Interrupted at any moment, it leaves what was finished, and the next call goes on.

        Raises:
            GradingError: No worker can be started.
            OutputError: The gradebook cannot be written.
        """
        gradable = [one for one in handed if one.sha256 and not one.problem]
        self.gradebook.abandon_attempts()
        try:
            self._start_first()
            by_content = {one.sha256: one for one in gradable}  # the same file of two students is graded once
            self._do([Job("look", "", one) for one in by_content.values() if not self._known(one)])
            entries = [self._entry(one) for one in gradable]
            self.gradebook.assign(entries)
            keyed = {entry.key: entry for entry in entries if entry.key}
            new = {key: one for key, one in keyed.items() if self.gradebook.state(key) in {None, "open"}}
            self.watch.begin(len(new), len(keyed) - len(new))
            for key, entry in new.items():
                self.gradebook.open_grading(key, entry.handed.sha256, entry.project)
            self._do([Job("grade", key, entry.handed) for key, entry in new.items()])
        finally:
            self._end()

    def _known(self, one: Handed) -> tuple[str, str] | None:
        return self.gradebook.project(one.sha256, self.course)

    def _entry(self, one: Handed) -> Entry:
        """A submission with its project and the key of its grading, or with the reason why it has none."""
        project, problem = self._known(one) or ("", "nobody has looked into it")
        wanted = one.assignment.upper()
        if project and wanted in self.plans and wanted != project:
            problem = f"it was handed in for {wanted}, but its cells are those of {project}"
        if problem or project not in self.plans:
            return Entry(replace(one, problem=problem or f"there is no project {project}"))
        return Entry(one, project, result_key(one.sha256, self.plans[project].digest, self.environment))

    # -- workers

    def _start(self) -> None:
        worker = Worker(self.options.marker, self.options.seed, self._heard, START_SECONDS)
        self._workers.add(worker)

    def _start_first(self) -> None:
        """Start a worker and learn from it what the course asks for."""
        self._start()
        try:
            first = self._heard.get(timeout=START_SECONDS)
        except queue.Empty:
            raise self._no_worker("it says nothing") from None
        if first.kind != "ready":
            raise self._no_worker(first.facts.get("reason") or first.worker.last_words())
        self._meet(first.facts)
        first.worker.rest()
        self._idle.append(first.worker)

    def _meet(self, facts: dict[str, Any]) -> None:
        """Take over what a worker that is ready says of the course and of itself."""
        plans = [read_plan(plain) for plain in facts["plans"]]
        self.plans = {plan.id: plan for plan in plans}
        self.course = digest_of(sorted(plan.digest for plan in plans))
        self.environment = facts["environment"]
        self.gradebook.set_plans(plans)

    def _no_worker(self, reason: str) -> GradingError:
        return GradingError(
            "no worker can be started",
            expected="a Python process that loads the course",
            got=reason,
            todo="run `mlhood doctor`, and grade again; what was finished is kept",
        )

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()
            if worker.job:
                self.gradebook.end_attempt(worker.attempt, "stopped")
        self._workers.clear()

    # -- jobs

    def _do(self, jobs: Iterable[Job]) -> None:
        """Do these jobs, on as many workers as there is work for."""
        self._jobs.extend(jobs)
        while self._jobs or any(worker.job for worker in self._workers):
            self._give()
            with contextlib.suppress(queue.Empty):
                self._hear(self._heard.get(timeout=TICK_SECONDS))
            for worker in [one for one in self._workers if one.late()]:
                self._lose(worker, "it took longer than the time limit and was stopped")

    def _give(self) -> None:
        while self._jobs and self._idle:
            worker, job = self._idle.pop(), self._jobs.popleft()
            limit = LOOK_SECONDS if job.do == "look" else self.options.seconds
            worker.give(job, self.gradebook.begin_attempt(job.name), limit)
        starting = sum(not worker.job for worker in self._workers)
        for _ in range(min(self.options.jobs - len(self._workers), len(self._jobs) - starting)):
            self._start()

    def _hear(self, heard: Heard) -> None:
        worker, job = heard.worker, heard.worker.job
        if worker not in self._workers:
            return
        if heard.kind == GONE:
            self._lose(worker, worker.last_words())
        elif heard.kind == "broken":
            self._lose(worker, heard.facts["reason"])
        elif heard.kind == "ready":
            self._barren = 0
            worker.rest()
            self._idle.append(worker)
        elif heard.kind in {"waits", "measures"}:
            worker.wait_for_turn(heard.kind == "waits")
        elif job and heard.kind == "task":
            self.gradebook.put_task(job.key, worker.position, read_result(heard.facts["result"]))
            worker.position += 1
        elif job:
            self._finish(job, heard.kind, heard.facts)
            self.gradebook.end_attempt(worker.attempt, "done")
            worker.rest()
            self._idle.append(worker)

    def _finish(self, job: Job, kind: str, facts: dict[str, Any]) -> None:
        reason = facts.get("reason", "")
        if job.do == "look":
            self.gradebook.set_project(job.handed.sha256, self.course, facts.get("project", ""), reason)
            return
        state = "refused" if kind == "refused" else "done"
        self.gradebook.close_grading(job.key, state, reason, facts.get("seconds", 0.0))
        self.watch.graded(job.handed, state, reason)

    def _lose(self, worker: Worker, reason: str) -> None:
        """Replace a worker."""
        worker.end()
        self._workers.discard(worker)
        self._idle = [one for one in self._idle if one is not worker]
        job = worker.job
        if not job:
            self._barren += 1
            if self._barren > MAX_BARREN:
                raise self._no_worker(reason)
            return
        self._lose_attempt(job, worker.attempt, reason)

    def _lose_attempt(self, job: Job, attempt: int, reason: str) -> None:
        """Count an attempt at a job. It comes again until there are too many."""
        self.gradebook.end_attempt(attempt, "died", reason)
        self.watch.lost(job.handed, reason)
        if len(self.gradebook.deaths(job.name)) < MAX_ATTEMPTS:
            self._jobs.append(job)
        elif job.do == "look":
            self.gradebook.set_project(job.handed.sha256, self.course, "", f"it could not be read: {reason}")
        else:
            self.gradebook.close_grading(job.key, "failed", reason)
            self.watch.graded(job.handed, "failed", reason)


def read_result(plain: dict[str, Any]) -> TaskResult:
    """The result that a worker has told, as plain data."""
    checks = tuple(CheckResult(**check) for check in plain["checks"])
    return TaskResult(plain["id"], plain["title"], checks, tuple(plain["notes"]))
