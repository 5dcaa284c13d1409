"""A marker for tests of the batch: quick, and it does what a submission's text asks for.

A submission is a text: the project in the first line, then one word a line.
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
from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.gradebook.course_plan import Plan, PlannedQuestion, PlannedTask

LOG = "MLHOOD_TEST_LOG"


def plan(project: str, digest: str = "1") -> Plan:
    tasks = tuple(
        PlannedTask(
            f"{project}.{n}", f"Task {n}", 10.0, (("first", "It is first", 4.0), ("second", "It is second", 6.0))
        )
        for n in (1, 2, 3)
    )
    return Plan(
        project, f"Project {project}", tasks, (PlannedQuestion(f"{project}.4", "Why?", 5.0),), digest, project == "P2"
    )


PLANS = [plan("P1"), plan("P2")]


def log(event: str, **facts: object) -> None:
    if LOG in os.environ:
        with Path(os.environ[LOG]).open("a") as file:
            file.write(json.dumps({"event": event, "process": os.getpid(), **facts}) + "\n")


def words(path: Path) -> list[str]:
    return path.read_text(errors="replace").split()


class FakeMarker:
    def __init__(self, settings) -> None:
        self.settings = settings

    def plans(self):
        return PLANS

    def project(self, path):
        found = words(path)
        if not found or found[0] not in {"P1", "P2"}:
            raise NotebookError("the file is not JSON, so it is not a notebook", got="nonsense")
        if "die-looking" in found:
            os._exit(7)
        return found[0]

    def grade(self, handed, on_result):
        found = words(handed.path)
        log("begin", sha256=handed.sha256)
        self.misbehave(found, handed)
        results = []
        for task in next(one for one in PLANS if one.id == found[0]).tasks:
            self.work(found, task)
            results.append(result(task, found))
            on_result(results[-1])
            log("task", sha256=handed.sha256, task=task.id)
            if f"hold-after-{task.id}" in found:
                self.hold()
            if f"die-after-{task.id}" in found:
                os.kill(os.getpid(), signal.SIGKILL)
        return Marks(found[0], "", tuple(results), 0.5)

    def misbehave(self, found, handed):
        print("what a library prints is no answer")
        if "refuse" in found:
            raise NotebookError("the notebook's structure is damaged", todo="open it in Jupyter")
        if "break" in found:
            raise RuntimeError("no memory")
        if "orphan" in found:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
            log("child", child=child.pid)
            os.kill(os.getpid(), signal.SIGKILL)
        if "hang" in found:
            time.sleep(60)
        once = handed.path.with_suffix(".once")
        if "die-once" in found and not once.exists():
            once.touch()
            os._exit(3)

    def hold(self):
        """Wait until the test lets it go."""
        limit = time.monotonic() + 20
        while not Path(f"{os.environ[LOG]}.go").exists():
            if time.monotonic() > limit:
                raise TimeoutError("it was not let go")
            time.sleep(0.02)

    def work(self, found, task):
        if "timed" in found and task.id.endswith(".2"):
            with self.settings.alone():
                log("timed-begin")
                time.sleep(0.05)
                log("timed-end")
        if "slow" in found:
            time.sleep(0.05)


def result(task, found):
    lost = f"lose-{task.id}" in found
    hostile = "=cmd|' /C calc'!A0 <script>alert(1)</script> \ud83d"
    return TaskResult(
        task.id,
        task.title,
        (
            CheckResult("first", "It is first", 4.0, "passed"),
            CheckResult("second", "It is second", 6.0, "failed" if lost else "passed", hostile if lost else ""),
        ),
    )


def make(settings):
    return FakeMarker(settings)


def broken(settings):
    raise RuntimeError("the course cannot be loaded")


def dies(settings):
    os._exit(9)
