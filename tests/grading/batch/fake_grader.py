"""A worker with a fast grader for tests of the batch: it behaves as the words of a submission request.

A submission is a text: the project, then words separated by white space.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mlhood.errors import NotebookError
from mlhood.grading.batch.worker import main
from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.gradebook.project_spec import CheckSpec, ProjectSpec, QuestionSpec, TaskSpec
from tests.waiting import wait_until

LOG = "MLHOOD_TEST_LOG"

OPEN = "measured several times, and still undecided: `fast` over `slow` is 0.98 to 1.02"


def project(name: str, digest: str = "1") -> ProjectSpec:
    checks = (CheckSpec("first", "It is first", 4.0), CheckSpec("second", "It is second", 6.0))
    tasks = tuple(TaskSpec(f"{name}.{n}", f"Task {n}", 10.0, checks) for n in (1, 2, 3))
    questions = (QuestionSpec(f"{name}.4", "Why?", 5.0),)
    return ProjectSpec(name, f"Project {name}", tasks, questions, digest)


PROJECTS = [project("P1"), project("P2")]
# of the second check, by the word that requests it
STATUSES = {"lose": "failed", "open": "undecided", "noisy": "undecided"}


def log(event: str, **facts: object) -> None:
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as file:
            file.write(json.dumps({"event": event, "process": os.getpid(), **facts}) + "\n")


def words(path: Path) -> list[str]:
    return path.read_text(errors="replace").split()


class FakeGrader:
    def __init__(self, sandbox, seed, exclusive) -> None:
        self.exclusive = exclusive

    def projects(self):
        return PROJECTS

    def identify(self, path):
        requests = words(path)
        if not requests or requests[0] not in {"P1", "P2"}:
            raise NotebookError("the file is not JSON, so it is not a notebook", got="nonsense")
        if "die-identifying" in requests:
            os._exit(7)
        return requests[0], next((word.removeprefix("version=") for word in requests if "version=" in word), "")

    def grade(self, submission, on_result):
        requests, graded = words(submission.path), submission.path.with_suffix(".graded")
        if graded.exists():  # noise was there at the first time only
            requests = [word for word in requests if not word.startswith("noisy-")]
            requests += [word.removeprefix("again-") for word in requests]
        log("begin", sha256=submission.sha256, student=submission.student, version=submission.version)
        self.misbehave(requests, submission)
        results = []
        for task in next(spec for spec in PROJECTS if spec.id == requests[0]).tasks:
            self.work(requests, task)
            results.append(result(task, requests))
            on_result(results[-1])
            log("task", sha256=submission.sha256, task=task.id)
            if f"hold-after-{task.id}" in requests:
                self.hold()
            if f"die-after-{task.id}" in requests:
                os.kill(os.getpid(), signal.SIGKILL)
        graded.touch()
        log("end", sha256=submission.sha256)
        return Marks(requests[0], "", tuple(results), 0.5)

    def misbehave(self, requests, submission):
        print("output of a library, which is not a message")
        if "refuse" in requests:
            raise NotebookError("the notebook's structure is damaged", todo="open it in Jupyter")
        if "break" in requests:
            raise RuntimeError("no memory")
        if "crash" in requests:  # as a library written in C does
            os.kill(os.getpid(), signal.SIGSEGV)
        if "child" in requests:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            log("child", child=child.pid)
            raise RuntimeError
        if "hang" in requests:
            log("hang")
            time.sleep(600)
        once = submission.path.with_suffix(".once")
        if "die-once" in requests and not once.exists():
            once.touch()
            os._exit(3)

    def hold(self):
        """Wait until the test allows it to continue."""
        if not wait_until(Path(f"{os.environ[LOG]}.go").exists):
            raise TimeoutError("the test did not allow it to continue")

    def work(self, requests, task):
        if "timed" in requests and task.id.endswith(".2"):
            with self.exclusive():
                log("timed-begin")
                time.sleep(0.05)
                log("timed-end")
        if "slow" in requests:
            time.sleep(0.05)
        if "paced" in requests:
            events, pace = Path(os.environ[LOG]), Path(f"{os.environ[LOG]}.pace")
            wait_until(lambda: events.read_text().count('"event": "task"') < int(pace.read_text()))


def result(task, requests):
    status = next((status for word, status in STATUSES.items() if f"{word}-{task.id}" in requests), "passed")
    hostile = "=cmd|' /C calc'!A0 <script>alert(1)</script> \ud83d"
    reasons = {"failed": hostile, "undecided": OPEN}
    return TaskResult(
        task.id,
        task.title,
        (
            CheckResult("first", "It is first", 4.0, "passed"),
            CheckResult("second", "It is second", 6.0, status, reasons.get(status, "")),
        ),
    )


if __name__ == "__main__":
    main(FakeGrader)
