"""Grade submissions: several at once, each result in the gradebook as soon as it is known.

A result that the gradebook has for the same submission of the student, checks and environment is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlhood.grading.batch.executor import Event, Executor, Job
from mlhood.grading.batch.result_keys import digest_of, result_key
from mlhood.grading.checks.marks import measured_again
from mlhood.grading.gradebook.gradebook import Gradebook, Identification, SubmissionEntry, task_result
from mlhood.grading.gradebook.project_spec import ProjectSpec
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.variants.seed import UNSIGNED

if TYPE_CHECKING:
    from mlhood.grading.progress import CommandProgress

MAX_ATTEMPTS = 2
IDENTIFY_SECONDS = 120.0


def marked_as(given: str, found: str) -> tuple[str, str]:
    """Return the variant that a submission is marked as, and a note if it is not of its class's version.

    Args:
        given: The variant that the class was given; empty for the published course. One whose name continues it after a
            slash, such as `autumn/A`, is of the class, too.
        found: The name signed in the submission; `UNSIGNED` if it is of another course, empty if there is none.
    """
    if found != UNSIGNED and (found == given or (found and not given) or (given and found.startswith(f"{given}/"))):
        return found, ""
    made = "has no version" if not found else f"was made for the version {found}, which is not of this class"
    made = "was not signed with the seed of this course" if found == UNSIGNED else made
    return given, f"it {made}, so it is marked as {f'the version {given}' if given else 'the published course'}"


class Batch:
    """Grades submissions. Call `run` once.

    Args:
        seconds: Time limit for one submission; waiting for the exclusive lock of timed tasks does not count.
        variant_name: Of the variant that the class was given; empty for the published course.
    """

    def __init__(
        self,
        gradebook: Gradebook,
        executor: Executor,
        progress: CommandProgress,
        seconds: float = 3600.0,
        variant_name: str = "",
    ) -> None:
        self.gradebook = gradebook
        self.executor = executor
        self.progress = progress
        self.seconds = seconds
        self.variant_name = variant_name
        self._projects: dict[str, ProjectSpec] = {}
        self._course = self._environment = ""
        self._attempts: dict[str, int] = {}  # ids of the running attempts, by job

    def run(self, submissions: Iterable[SubmittedFile]) -> None:
        """Grade what is new. Interrupted at any moment, it leaves what was finished, and the next call continues.

        Raises:
            GradingError: No worker can be started.
            OutputError: The gradebook cannot be written.
        """
        gradable = [file for file in submissions if file.sha256 and not file.problem]
        self.gradebook.abandon_attempts()
        try:
            self.progress.stage("starting a worker, which loads the course")
            course = self.executor.start()
            projects = [ProjectSpec.from_dict(project) for project in course["projects"]]
            self._projects = {project.id: project for project in projects}
            self._course = digest_of(sorted(project.digest for project in projects))
            self._environment = course["environment"]
            self.gradebook.set_projects(projects)
            self._identify(gradable)
            self._grade(gradable)
        finally:
            self.executor.close()
            for attempt in self._attempts.values():
                self.gradebook.end_attempt(attempt, "stopped")

    def _identify(self, submissions: Sequence[SubmittedFile]) -> None:
        unique = {file.sha256: file for file in submissions}  # the same content is processed once
        unknown = [file for file in unique.values() if self._is_unknown(file)]
        if unknown:
            self.progress.stage(f"finding out the projects of {len(unknown)} notebooks")
        self._run([Job("identify", file, IDENTIFY_SECONDS) for file in unknown])

    def _grade(self, submissions: Sequence[SubmittedFile]) -> None:
        entries = [self._entry(file) for file in submissions]
        counted = {_slot(entry): entry.key for entry in self.gradebook.entries()}  # before this call
        self.gradebook.update_entries(entries)
        by_key = {entry.key: entry for entry in entries if entry.key}
        new = {key: entry for key, entry in by_key.items() if self.gradebook.state(key) in {None, "open"}}
        self.progress.begin_class(len(new), len(by_key) - len(new))
        for key, entry in new.items():
            self.gradebook.open_grading(key, entry.submission.sha256, entry.project)
        self._run([Job("grade", entry.submission, self.seconds, key) for key, entry in new.items()])
        self._regrade_undecided(by_key)
        refused = [entry for entry in entries if entry.key and self.gradebook.state(entry.key) == "refused"]
        self.gradebook.update_entries(self._with_earlier_grading(entry, counted.get(_slot(entry))) for entry in refused)

    def _regrade_undecided(self, entries: Mapping[str, SubmissionEntry]) -> None:
        """Grade again where measurements left checks undecided: one notebook at a time, while no other job runs.

        It happens once: a later call repeats only what was interrupted.
        """
        jobs = []
        for key, entry in entries.items():
            job = Job("regrade", entry.submission, self.seconds, key)
            grading, outcomes = self.gradebook.grading(key), self.gradebook.outcomes(job.name)
            undecided = grading and grading.state == "done" and any(task.undecided for task in grading.tasks)
            if undecided and "done" not in outcomes and outcomes.count("died") < MAX_ATTEMPTS:
                jobs.append(job)
        for number, job in enumerate(jobs, start=1):
            which = f"notebook {number} of {len(jobs)}: {job.submission.source}"
            self.progress.stage(f"measuring again alone what is undecided, {which}")
            self._run([job])

    def _with_earlier_grading(self, entry: SubmissionEntry, counted: str | None) -> SubmissionEntry:
        """Return a submission that was refused with its earlier grading, if it has one: a refusal takes no points."""
        grading = self.gradebook.grading(entry.key or "")
        earlier = counted if counted and self.gradebook.state(counted) == "done" else None
        earlier = earlier or self.gradebook.latest_done(entry.submission.sha256, entry.project)
        if grading is None or earlier is None:
            return entry
        problem = f"its marks are those of an earlier grading, as it was refused now: {grading.reason}"
        return replace(entry, submission=replace(entry.submission, problem=problem), key=earlier)

    def _is_unknown(self, file: SubmittedFile) -> bool:
        """Whether a notebook is to be identified, also if its signature could not be read: the seed may be another."""
        found = self._identified(file)
        return found is None or found.version == UNSIGNED

    def _identified(self, file: SubmittedFile) -> Identification | None:
        return self.gradebook.identification(file.sha256, self._course)

    def _entry(self, file: SubmittedFile) -> SubmissionEntry:
        """Return a submission with its project and the key of its grading, or with the reason why it has none."""
        project, problem, found = self._identified(file) or Identification("", "its project was not identified")
        expected = file.assignment.upper()
        if project and expected in self._projects and expected != project:
            problem = f"it was submitted for {expected}, but its cells are those of {project}"
        if problem or project not in self._projects:
            return SubmissionEntry(replace(file, problem=problem or f"there is no project {project}"))
        version, note = marked_as(self.variant_name, found)
        marked = replace(file, version=version, problem=note)
        checks = self._projects[project].digest
        key = result_key(file.sha256, checks, self._environment, file.student, version)
        return SubmissionEntry(marked, project, key)

    # -- jobs

    def _run(self, jobs: Sequence[Job]) -> None:
        self.executor.submit(jobs)
        unfinished = {job.name for job in jobs}
        while unfinished:
            for event in self.executor.poll():
                job = event.job
                if event.kind == "started":
                    self._attempts[job.name] = self.gradebook.begin_attempt(job.name)
                    if job.kind == "grade":
                        self.progress.started(job.submission.source)
                elif event.kind == "task":
                    self._put_task(job, event.facts["result"])
                elif event.kind != "lost":
                    self._finish(event)
                    unfinished.discard(job.name)
                elif not self._retry(job, event.facts["reason"]):
                    unfinished.discard(job.name)

    def _put_task(self, job: Job, data: dict[str, Any]) -> None:
        result = task_result(data)
        if job.kind == "regrade":
            grading = self.gradebook.grading(job.key)
            before = {task.id: task for task in grading.tasks} if grading else {}
            result = measured_again(before.get(result.id, result), result)
        self.gradebook.put_task(job.key, result)

    def _finish(self, event: Event) -> None:
        job, facts = event.job, event.facts
        reason = facts.get("reason", "")
        if job.kind == "identify":
            found = Identification(facts.get("project", ""), reason, facts.get("version", ""))
            self.gradebook.set_identification(job.submission.sha256, self._course, found)
        elif job.kind == "grade":
            self.gradebook.close_grading(job.key, event.kind, reason, facts.get("seconds", 0.0))
            self.progress.graded(job.submission.source, event.kind, reason)
        self.gradebook.end_attempt(self._attempts.pop(job.name), "done")

    def _retry(self, job: Job, reason: str) -> bool:
        """Count a failed attempt, and queue the job again unless there were too many; return whether it is queued."""
        self.gradebook.end_attempt(self._attempts.pop(job.name), "died", reason)
        self.progress.lost(job.submission.source, reason)
        if self.gradebook.outcomes(job.name).count("died") < MAX_ATTEMPTS:
            self.executor.submit([job])
            return True
        if job.kind == "identify":
            sha256 = job.submission.sha256
            found = Identification("", f"it could not be read: {reason}")
            self.gradebook.set_identification(sha256, self._course, found)
        elif job.kind == "grade":
            self.gradebook.close_grading(job.key, "failed", reason)
            self.progress.graded(job.submission.source, "failed", reason)
        return False


def _slot(entry: SubmissionEntry) -> tuple[str, str]:
    return entry.submission.student, entry.submission.slot
