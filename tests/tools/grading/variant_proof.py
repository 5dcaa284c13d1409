"""Whether a variant of the course can be solved, and what the public solution is worth in it.

Each task's solution of the variant's source notebook, made from the same parameters as its checks, has to get full
marks, and the solution that is public should get few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlhood.grading.checks.marks import TaskResult
from mlhood.grading.checks.task import Project, Task
from mlhood.grading.notebooks.notebook import read
from mlhood.grading.notebooks.source_notebook import source_of_variant
from mlhood.grading.projects.collect import parameters_of
from tests.tools.grading.mutation_score import NotebookRun

VARIANT_NAMES = ("harbour-1", "lantern-2", "meadow-3")
MAX_PUBLIC = 0.3  # of the points


@dataclass(frozen=True)
class Proof:
    """A task in one variant.

    Args:
        variant_name: Of the variant, or another name for it.
        task: With the variant's parameters.
        own: The result of the variant's own solution.
        public: The result of the public solution.
    """

    variant_name: str
    task: Task
    own: TaskResult
    public: TaskResult

    @property
    def solved(self) -> bool:
        """Whether the variant's own solution gets full marks."""
        return self.own.full

    def __str__(self) -> str:
        values = ", ".join(f"{parameter.name} {self.task.values[parameter.name]}" for parameter in self.task.varies)
        points = f"{self.own.earned:>8g}{self.public.earned:>8g}{self.task.points:>6g}"
        return f"{self.task.id:8}{self.variant_name:12}{points}   {values or 'does not vary'}"

    def reasons(self) -> Iterator[str]:
        """Yield why the variant's own solution loses points."""
        for check in self.own.checks:
            if check.status in ("failed", "undecided"):
                yield f"{self.task.id} {self.variant_name}: {check.name}: {check.what} {check.parts}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for `--json`."""
        values = {parameter.name: self.task.values[parameter.name] for parameter in self.task.varies}
        earned = {"own": self.own.earned, "public": self.public.earned, "points": self.task.points}
        return {"task": self.task.id, "variant": self.variant_name, "parameters": values, **earned}


HEADER = f"{'task':8}{'variant':12}{'solved':>8}{'public':>8}{'of':>6}   parameters"


def covering_values(project: Project) -> dict[str, dict[str, Any]]:
    """Return values of the parameters, by the name of a variant, that together cover every value but the defaults.

    In the n-th, every parameter has the n-th value of its domain; one with fewer values begins anew.
    """
    parameters = parameters_of(project)
    return {
        f"values-{n}": {parameter.name: parameter.values[n % len(parameter.values)] for parameter in parameters}
        for n in range(1, max((len(parameter.values) for parameter in parameters), default=1))
    }


def prove(
    path: Path, project: Project, variant_name: str, varied: Project, task_ids: Sequence[str] = ()
) -> Iterator[Proof]:
    """Run the source notebook of a variant, and grade its solutions and the public ones, task by task.

    Args:
        path: The public source notebook.
        project: Its project.
        variant_name: Of the variant, or another name for it.
        varied: The project with the variant's parameters.
        task_ids: The tasks; all by default.

    Raises:
        GradingError: A cell of the variant's source notebook fails, or a template cannot be rendered.
    """
    public = read(path)
    source_notebook = source_of_variant(public, varied)
    tasks = [task for task in varied.tasks if not task_ids or task.id in task_ids]
    published = NotebookRun(public, project)  # it is not run
    with NotebookRun(source_notebook, varied) as run:
        for task_run in run.tasks(tasks):
            own = task_run.grade(task_run.solution)
            given = task_run.grade(published.solutions(task_run.task.id))
            task_run.grade(task_run.solution)  # later cells need it
            yield Proof(variant_name, task_run.task, own, given)


def public_share(proofs: Sequence[Proof]) -> float:
    """Return which part of all points the public solutions get; 0 without tasks."""
    points = sum(proof.own.points for proof in proofs)
    return sum(proof.public.earned for proof in proofs) / points if points else 0.0
