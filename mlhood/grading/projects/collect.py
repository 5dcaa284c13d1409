"""A project is collected from its check modules: the modules of its package that declare tasks, `P1_7 = Task(...)`.

To add a task: write its section in the notebook, write a module here with its checks and the `Task`, run `mlhood sync`.

A project has the values of one variant of the course: those in `variant.json`, which a student version of a variant
has; else those of the variant in the environment variable MLHOOD_VARIANT; else the defaults.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Check, Project, Question, Task, with_parameters
from mlhood.grading.projects.package_files import VARIANTS_FILE, package_file, varied_solutions
from mlhood.grading.projects.solution import solution_of
from mlhood.grading.variants.parameter import Parameter, checked_values, defaults, draw

VARIANT_FILE = "variant.json"  # the values of a version, by project, and its signed name
VERSION_KEY = "edition"  # the key of the signed name
VARIANT = "MLHOOD_VARIANT"
DECLARATION = re.compile(r"^\w+ = Task\(", re.MULTILINE)


def collect_project(
    package: str, title: str, questions: tuple[Question, ...] = (), reads: tuple[str, ...] = ()
) -> Project:
    """Return the project of a package such as `mlhood.grading.projects.p1`, its tasks in the order of their numbers.

    Modules that declare no tasks (probes, references) are not imported: some of them need JAX, which a grader never
    loads. Its parameters have the values of the version that this is, or of the variant that the environment names.
    """
    project = package.rpartition(".")[2].upper()
    folder = Path(__file__).with_name(project.lower())
    tasks: list[Task] = []
    for path in sorted(folder.glob("*.py")):
        if DECLARATION.search(path.read_text(encoding="utf-8")):
            tasks += _declared_tasks(import_module(f"{package}.{path.stem}"))
    tasks.sort(key=lambda task: int(task.id.partition(".")[2]))
    declared = Project(project, title, tuple(tasks), questions, declared=tuple(tasks), reads=reads)
    return with_values(declared, _values(declared))


def _declared_tasks(module: ModuleType) -> Iterator[Task]:
    """Yield the tasks of a module; one that names no checks has those between it and the task before it."""
    checks: list[Check] = []
    for value in vars(module).values():
        if isinstance(value, Check):
            checks.append(value)
        elif isinstance(value, Task):
            yield value if value.checks else replace(value, checks=tuple(checks))
            checks.clear()


def variant(project: Project, variant_name: str) -> Project:
    """Return a project with the parameters of a named variant; without a name, with the defaults.

    Raises:
        GradingError: It cannot be the name of a variant, or this is a student version, which has no templates.
    """
    parameters = parameters_of(project)
    if variant_name and parameters and not package_file(project.id, VARIANTS_FILE).is_file():
        raise GradingError(
            "a student version cannot make a variant of the course",
            where=project.id,
            expected="the course's own repository, which has the solutions and the templates of its texts",
            got=variant_name,
            todo="run the command there",
        )
    return with_values(project, draw(variant_name, project.id, parameters) if variant_name else defaults(parameters))


def with_values(project: Project, values: Mapping[str, Any]) -> Project:
    """Return a project with these values of its parameters.

    Raises:
        GradingError: A template cannot be rendered.
    """
    fallbacks = varied_solutions(project.id, values, [task.id for task in project.tasks if task.solution_is_fallback])

    solution = solution_of(project.id, values)

    def valued(task: Task) -> Task:
        more = replace(with_parameters(task, values), solution=solution)
        if not task.solution_is_fallback:
            return more
        return replace(more, fallback="\n".join(part for part in (fallbacks.get(task.id, ""), more.fallback) if part))

    tasks = tuple(map(valued, project.declared or project.tasks))
    varied = values != defaults(parameters_of(project))
    return replace(project, tasks=tasks, parameters=dict(values), varied=varied)


def _values(project: Project) -> dict[str, Any]:
    """Return the values of this version of the package."""
    parameters = parameters_of(project)
    if version := _version():
        return checked_values(parameters, version.get(project.id, {}))
    variant_name = os.environ.get(VARIANT, "")
    return draw(variant_name, project.id, parameters) if variant_name else defaults(parameters)


def this_version() -> str:
    """Return the signed name of the version that this package is; empty for the course as it is published."""
    return _version().get(VERSION_KEY, "")


def _version() -> dict[str, Any]:
    file = Path(__file__).with_name(VARIANT_FILE)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def parameters_of(project: Project) -> tuple[Parameter, ...]:
    """Return the parameters of a project's tasks."""
    return tuple(parameter for task in project.tasks for parameter in task.varies)
