"""A project finds the tasks of its check modules by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import parameters_of


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_tasks_come_in_the_order_of_their_numbers(project):
    numbers, questions = (
        [int(each.id.removeprefix(f"{project.id}.")) for each in part] for part in (project.tasks, project.questions)
    )
    assert numbers == sorted(numbers)
    assert sorted([*numbers, *questions]) == [*range(1, len(numbers) + len(questions) + 1)]


def test_a_project_loads_no_module_that_declares_no_tasks():
    code = "import sys, mlhood.grading.projects as p; print([m for m in sys.modules if m.endswith(('.probes', 'jax'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mlhood.grading.projects.p2.probes" not in done.stdout
    assert "'jax'" not in done.stdout


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_parameters_have_names_of_their_own_and_values_to_choose_from(project):
    parameters = parameters_of(project)
    assert len({parameter.name for parameter in parameters}) == len(parameters)
    for parameter in parameters:
        distinct = [value for i, value in enumerate(parameter.values) if value not in parameter.values[:i]]
        assert parameter.name.isidentifier()
        assert len(parameter.values) == len(distinct) >= 2
