"""What the student version has in place of solutions: the results of the calls that its checks make for a few seeds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from mlhood.grading.checks.marks import stream
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.task import Check, Project, Task
from mlhood.grading.projects.solution import SEEDS, record
from mlhood.grading.rpc.transport import LocalTransport


class _Solved(Submission):
    """A submission whose functions are the solutions; their results are noted in `results`."""

    def __init__(self, task: Task, check: Check, seed: int, folder: Path) -> None:
        context = CheckContext(stream(task, check, seed), parameters=SimpleNamespace(**task.values))
        self.names: dict[str, Any] = {}
        session = Session(LocalTransport(self.names), folder, folder)
        super().__init__(session, context)
        self.task, self.results = task, []

    def call(self, target: Any, *args: object, method: str | None = None, **kwargs: object) -> Any:
        if isinstance(target, str) and ":" not in target:
            return self.task.solution(target, *args, **kwargs)
        return super().call(target, *args, method=method, **kwargs)

    def value(self, name: str) -> Any:
        self.names[name] = self.task.solution.function(name)
        return super().value(name)

    def solution(self, name: str, *args: object, probe: str = "", **kwargs: object) -> Any:
        self.results.append(self.task.solution(name, *args, probe=probe, **kwargs))
        return self.results[-1]


def recorded_results(project: Project) -> dict[str, str]:
    """Return the results of a project's solutions for the values of its parameters, as `Recorded` has them."""
    found: dict[str, str] = {}
    for task in project.tasks:
        for check in task.checks:
            for seed in SEEDS if check.solved else ():
                with TemporaryDirectory() as folder:
                    submission = _Solved(task, check, seed, Path(folder))
                    check(submission)
                found |= record(f"{task.id} {check.name}", seed, submission.results)
    return found
