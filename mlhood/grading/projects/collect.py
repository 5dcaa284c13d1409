"""A project is collected from its check modules: the modules of its package that declare `TASKS`.

To add a task: write its section in the notebook, write a module here with its checks and `TASKS`, run `mlhood sync`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Project, Question, Task

SOLUTIONS_FILE = "solutions.json"
DECLARATION = re.compile(r"^TASKS\b", re.MULTILINE)


def collect_project(package: str, title: str, questions: tuple[Question, ...] = ()) -> Project:
    """Return the project of a package such as `mlhood.grading.projects.p1`, its tasks in the order of their numbers.

    Modules that declare no tasks (probes, references) are not imported: some of them need JAX, which a judge never
    loads.

    Raises:
        GradingError: Two tasks have the same id, or a task has the id of another project.
    """
    project = package.rpartition(".")[2].upper()
    folder = Path(__file__).with_name(project.lower())
    tasks: list[Task] = []
    for path in sorted(folder.glob("*.py")):
        if DECLARATION.search(path.read_text(encoding="utf-8")):
            tasks += import_module(f"{package}.{path.stem}").TASKS
    ids = [task.id for task in tasks]
    for task_id in ids:
        if not re.fullmatch(rf"{project}\.\d+", task_id) or ids.count(task_id) > 1:
            raise GradingError(
                "invalid task id",
                where=package,
                expected=f"{project}.1, {project}.2, ..., each for one task",
                got=", ".join(ids),
                todo="change the id in the module that declares the task",
            )
    solutions = master_solutions(project)
    tasks = [replace(task, stand_in=solutions.get(task.id, "")) if task.solution_stands_in else task for task in tasks]
    return Project(project, title, tuple(sorted(tasks, key=lambda task: int(task.id.partition(".")[2]))), questions)


def master_solutions(project: str) -> dict[str, str]:
    """Return the master's solutions by task, as `mlhood sync` wrote them; none in the student edition or a sandbox."""
    path = Path(__file__).with_name(project.lower()) / SOLUTIONS_FILE
    return json.loads((path.read_text(encoding="utf-8") if path.is_file() else "") or "{}")
